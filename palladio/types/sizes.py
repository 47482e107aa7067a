"""Arithmetic of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.types.types import described_shape


def _require_size(value: Any, argument: str, static: bool = False) -> None:
    if isinstance(value, (int, np.integer)) or (hasattr(value, "dtype") and not static):
        return
    with at_call():
        raise PalladioTypeError("a size is an integer", argument=argument, got=f"{type(value).__name__}: {value!r:.60}")


def cdiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up, for integers, static or traced, with b above 0."""
    _require_size(a, "a")
    _require_size(b, "b")
    if isinstance(b, int) and b < 1:
        with at_call():
            raise PalladioValueError("the divisor of cdiv is at least 1", argument="b", got=b)
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + (b - 1)) // b


def align_to(x: Any, alignment: int) -> Any:
    """The least multiple of `alignment` that is not below `x`."""
    _require_size(x, "x")
    _require_size(alignment, "alignment")
    return cdiv(x, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of two that is not below `x`; 1 for 0.

    Raises:
        PalladioTypeError: for what is not an integer. PalladioValueError: for a negative number.
    """
    _require_size(x, "x", static=True)
    if x < 0:
        with at_call():
            raise PalladioValueError("next_power_of_2 takes no negative number", argument="x", got=x)
    return 1 if x == 0 else 1 << (int(x) - 1).bit_length()


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major array."""
    strides, step = [], 1
    with at_call():
        sizes = described_shape(shape)
    for extent in reversed(sizes):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
