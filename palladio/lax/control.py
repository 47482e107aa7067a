"""Control flow with the names of `jax.lax`, and the axes of a named grid."""

from __future__ import annotations

from palladio.trace.control import cond, fori_loop, switch, while_loop
from palladio.trace.grid import axis_index, axis_size

__all__ = ["axis_index", "axis_size", "cond", "fori_loop", "switch", "while_loop"]
