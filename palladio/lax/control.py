"""Control flow with the names of `jax.lax`, and the axes of a named grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.trace.control import cond, fori_loop, scan, switch, while_loop
from palladio.trace.grid import axis_index, axis_size

__all__ = ["axis_index", "axis_size", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each element along the first axis of `xs`, a pytree of arrays; the results stacked."""
    return scan(lambda _, x: (None, f(x)), None, xs)[1]
