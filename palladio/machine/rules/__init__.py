"""The machine's rules for operations that access memory or other threads, one module for each family."""

from palladio.machine.rules import access, barrier, copy, dependent, grid, launch, semaphore, wgmma

__all__ = ["access", "barrier", "copy", "dependent", "grid", "launch", "semaphore", "wgmma"]
