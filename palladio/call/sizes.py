"""Arithmetic of sizes."""

from __future__ import annotations

from typing import Any

from palladio.base.errors import PalladioValueError, at_call


def cdiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up, for integers, static or traced, with b above 0."""
    if isinstance(b, int) and b < 1:
        with at_call():
            raise PalladioValueError("the divisor of cdiv is at least 1", argument="b", got=b)
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + (b - 1)) // b


def align_to(x: Any, alignment: int) -> Any:
    """The least multiple of `alignment` that is not below `x`."""
    return cdiv(x, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of two that is not below `x`; 1 for 0.

    Raises:
        PalladioValueError: for a negative number.
    """
    if x < 0:
        with at_call():
            raise PalladioValueError("next_power_of_2 takes no negative number", argument="x", got=x)
    return 1 if x == 0 else 1 << (x - 1).bit_length()


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major array."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
