"""Grids as loops: their schedule, and the initialisation of the blocks of their outputs."""

from palladio.lower.grids.initialize import initialize
from palladio.lower.grids.schedule import schedule

__all__ = ["initialize", "schedule"]
