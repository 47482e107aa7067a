"""Rules of the machine for the operations that reach memory or other threads, a module per family."""

from palladio.machine.rules import access, barrier, copy, dependent, grid, launch, semaphore, wgmma

__all__ = ["access", "barrier", "copy", "dependent", "grid", "launch", "semaphore", "wgmma"]
