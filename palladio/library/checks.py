"""What the library's functions demand of their arguments, and how they say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import palladio as pl
import palladio.numpy as jnp

Tile = tuple[int, int, int]
LookUp = Callable[[int, int, int], "Tile | None"]
Tiling = Tile | LookUp | Sequence["Tile | LookUp"]


def fail(kind: type[pl.PalladioError], rule: str, **details: Any) -> pl.PalladioError:
    """An error of a kind that points at the line that called the library."""
    return kind(rule, location=pl.caller_location(), **details)


def require_array(value: Any, argument: str, rank: int, meaning: str) -> tuple[int, ...]:
    """The shape of a float array of a rank."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise fail(pl.PalladioTypeError, "no array", argument=argument, got=type(value).__name__)
    if len(shape) != rank:
        raise fail(
            pl.PalladioValueError, "an array of another rank", argument=argument, expected=meaning, got=tuple(shape)
        )
    if not jnp.issubdtype(dtype_of(value), jnp.floating):
        raise fail(pl.PalladioTypeError, "an array of floats is needed", argument=argument, got=str(dtype))
    return tuple(int(extent) for extent in shape)


def dtype_of(value: Any) -> Any:
    """The dtype of an array of any library."""
    return jnp.dtype(str(value.dtype).removeprefix("torch."))


def require_matrices(x: Any, y: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of two matrices that multiply."""
    m, k = require_array(x, "x", 2, "[m, k]")
    rows, n = require_array(y, "y", 2, "[k, n]")
    if rows != k:
        raise fail(
            pl.PalladioValueError, "the matrices do not multiply", argument="y", expected=f"[{k}, n]", got=(rows, n)
        )
    return (m, k), (rows, n)


def require_tiling(tiling: Any) -> Tile:
    """Three positive integers."""
    valid = isinstance(tiling, (tuple, list)) and len(tiling) == 3
    if not valid or not all(isinstance(tile, int) and not isinstance(tile, bool) and tile > 0 for tile in tiling):
        raise fail(
            pl.PalladioValueError,
            "a tiling is three positive integers",
            argument="tiling",
            expected="(tm, tk, tn)",
            got=repr(tiling),
        )
    return tuple(tiling)


FORWARD, LEFT_GRADIENT, RIGHT_GRADIENT = range(3)


def tiling_for(tiling: Any, product: int, m: int, k: int, n: int) -> Tile:
    """The tile sizes for one of the three products, cut to the sizes of the problem.

    Args:
        tiling: three positive integers; a look-up function of (m, k, n); or a sequence of three of these, for the
            forward product, the left and the right gradient.
        product: which of the three.

    Raises:
        PalladioValueError: three integers it is not, or the look-up found nothing.
    """
    if isinstance(tiling, (tuple, list)) and len(tiling) == 3 and not any(isinstance(part, int) for part in tiling):
        tiling = tiling[product]
    found = tiling(m, k, n) if callable(tiling) else tiling
    if found is None:
        raise fail(pl.PalladioValueError, f"no tuned tiling found for (m, k, n) = ({m}, {k}, {n})", argument="tiling")
    tm, tk, tn = require_tiling(found)
    return min(tm, max(m, 1)), min(tk, max(k, 1)), min(tn, max(n, 1))
