"""Operations on the bits of integers, element by element.

A shift by the width or more, or by a negative count, shifts everything out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.ops.arrays.elementwise import elementwise, is_bits
from palladio.types import dtypes

_SHIFT = ("x", "count")


def _width(x: Any) -> int:
    return 8 * x.dtype.itemsize


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _shift(shifted: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A shift defined for counts below the width, extended by 0 for the others."""

    def shift(x: Any, count: Any) -> Any:
        inside = _unsigned(count) < _width(x)
        return np.where(inside, shifted(x, np.where(inside, count, count.dtype.type(0))), x.dtype.type(0))

    return shift


def _logical(x: Any, count: Any) -> Any:
    return np.right_shift(_unsigned(x), _unsigned(count)).view(x.dtype)


def _arithmetic(x: Any, count: Any) -> Any:
    last = _unsigned(count).dtype.type(_width(x) - 1)
    signed = f"i{x.dtype.itemsize}"
    return np.right_shift(x.view(signed), np.minimum(_unsigned(count), last).view(signed)).view(x.dtype)


def _population_count(x: Any) -> Any:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _leading_zeros(x: Any) -> Any:
    bits = _unsigned(x)
    step = 1
    while step < _width(x):  # after this, every bit below the highest one is set
        bits = bits | (bits >> bits.dtype.type(step))
        step *= 2
    return (_width(x) - np.bitwise_count(bits)).astype(x.dtype)


bitwise_and = elementwise("bitwise_and", "x & y, of integers or bool", np.bitwise_and, 2, is_bits, commutative=True)
bitwise_or = elementwise("bitwise_or", "x | y, of integers or bool", np.bitwise_or, 2, is_bits, commutative=True)
bitwise_xor = elementwise("bitwise_xor", "x ^ y, of integers or bool", np.bitwise_xor, 2, is_bits, commutative=True)
bitwise_not = elementwise("bitwise_not", "~x: every bit inverted; of bool: not", np.invert, 1, is_bits)
shift_left = elementwise(
    "shift_left",
    "x << count; 0 for counts outside 0 to width - 1",
    _shift(np.left_shift),
    2,
    dtypes.is_integer,
    operands=_SHIFT,
)
shift_right_logical = elementwise(
    "shift_right_logical",
    "x >> count with zeros from the left, signed or not; 0 for counts outside 0 to width - 1",
    _shift(_logical),
    2,
    dtypes.is_integer,
    operands=_SHIFT,
)
shift_right_arithmetic = elementwise(
    "shift_right_arithmetic",
    "x >> count with copies of the highest bit from the left, signed or not; only these outside 0 to width - 1",
    _arithmetic,
    2,
    dtypes.is_integer,
    operands=_SHIFT,
)
population_count = elementwise("population_count", "The number of bits set", _population_count, 1, dtypes.is_integer)
clz = elementwise("clz", "The number of zero bits above the highest one set", _leading_zeros, 1, dtypes.is_integer)
