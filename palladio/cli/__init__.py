"""Floor 12: the command line, `palladio` or `python -m palladio`."""

from palladio.cli.command import main

__all__ = ["main"]
