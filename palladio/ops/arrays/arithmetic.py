"""Arithmetic, element by element.

Integers wrap around; integer division by zero gives -1 (all bits set), its remainder the dividend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.ops.arrays.elementwise import anything, elementwise, in_float32, is_number, require_alike
from palladio.types import dtypes
from palladio.types.types import Type


def _divide(x: Any, y: Any) -> Any:
    if dtypes.is_float(x.dtype):
        return np.true_divide(x, y)
    # The difference is a multiple of y, so that floor division truncates.
    quotient = np.floor_divide(x - np.fmod(x, y), y)
    return np.where(y == 0, ~x.dtype.type(0), quotient)


def _remainder(x: Any, y: Any) -> Any:
    return np.fmod(x, y) if dtypes.is_float(x.dtype) else np.where(y == 0, x, np.fmod(x, y))


def _next_after(x: Any, y: Any) -> Any:
    found = np.nextafter(x, y)
    return np.where(x == y, y, found) if found.dtype == dtypes.FLOAT16 else found  # else x in float16


def _sign(x: Any) -> Any:
    return np.copysign(np.sign(x), x) if dtypes.is_float(x.dtype) else np.sign(x)


def _power(x: Any, y: Any) -> Any:
    if not dtypes.is_signed(y.dtype):
        return np.power(x, y)
    zero, one = x.dtype.type(0), x.dtype.type(1)
    of_one = np.where(x == -one, np.where(y & one, -one, one), np.where(x == one, one, zero))
    return np.where(y < 0, of_one, np.power(x, np.maximum(y, zero)))


add = elementwise("add", "x + y", np.add, 2, is_number, commutative=True, injective=True, nonnegative_if=all)
sub = elementwise("sub", "x - y", np.subtract, 2, is_number, injective=True)
mul = elementwise("mul", "x * y", np.multiply, 2, is_number, commutative=True, injective=True, nonnegative_if=all)
div = elementwise(
    "div",
    "x / y. Integers round towards zero; x / 0 has all bits set, and the least integer by -1 is itself.",
    _divide,
    2,
    is_number,
    nonnegative_if=all,
)
rem = elementwise(
    "rem",
    "The remainder of `div`, with the sign of x. Integers: x for y = 0. Floats: exact.",
    _remainder,
    2,
    is_number,
    nonnegative_if=all,
)
pow = elementwise(
    "pow",
    "x to the power y. Integers wrap around; to a negative power, 1 and -1 give 1 or -1 and all others 0.",
    _power,
    2,
    is_number,
    work=Work.TRANSCENDENTAL,
)
max = elementwise(
    "max",
    "The greater of x and y; NaN if one is NaN. Of bool: or.",
    np.maximum,
    2,
    anything,
    commutative=True,
    nonnegative_if=any,
)
min = elementwise(
    "min",
    "The lesser of x and y; NaN if one is NaN. Of bool: and.",
    np.minimum,
    2,
    anything,
    commutative=True,
    nonnegative_if=all,
)
clamp = elementwise(
    "clamp",
    "min(max(x, low), high) of (low, x, high): high where low > high; NaN if one is NaN.",
    lambda low, x, high: np.minimum(np.maximum(x, low), high),
    3,
    is_number,
    operands=("low", "x", "high"),
)
neg = elementwise("neg", "-x; integers wrap around", np.negative, 1, is_number, injective=True)
abs = elementwise("abs", "The absolute value; that of the least integer is itself", np.absolute, 1, is_number)
sign = elementwise("sign", "-1, 0 or 1; a float zero keeps its sign, NaN stays", _sign, 1, is_number)
nextafter = elementwise(
    "nextafter",
    "The next value of the dtype after x in the direction of y; y where they are equal, NaN if one is NaN.",
    _next_after,
    2,
    dtypes.is_float,
    bitwise=True,
)


def _integer_pow_type(x: Type, *, y: int) -> Sequence[Type]:
    array = require_alike("integer_pow", is_number, (x,))
    if isinstance(y, bool) or not isinstance(y, int):
        raise PalladioTypeError("the exponent of integer_pow is a static integer", got=f"{type(y).__name__}: {y!r:.60}")
    if y < 0 and not dtypes.is_float(array.dtype):
        raise PalladioValueError("integers cannot be raised to negative powers", got=f"{array} to the power {y}")
    return (array,)


def _integer_pow_eval(x: Any, *, y: int) -> Sequence[Any]:
    if dtypes.is_float(x.dtype):
        return (in_float32(lambda value: _squared(value, y))(x),)
    return (_squared(x, y),)


def _squared(x: Any, y: int) -> Any:
    """A power by squaring, in the order of multiplications of compiled kernels and of JAX."""
    result, square, left = np.ones_like(x), x, -y if y < 0 else y
    while left:
        result = result * square if left & 1 else result
        left >>= 1
        square = square * square if left else square
    return x.dtype.type(1) / result if y < 0 else result


integer_pow = Op(
    "integer_pow",
    "x to the power of the static integer `y`, not negative for integers. Integers wrap around; x to the power 0 is 1.",
    _integer_pow_type,
    _integer_pow_eval,
    dtypes="integer or float",
    elementwise=True,
)
