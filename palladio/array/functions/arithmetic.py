"""Arithmetic with NumPy's names, JAX's promotion, and broadcasting.

What holds for all: Python and NumPy scalars are weak, so they take the dtype of the array they meet; an operation that
the dtype does not have (subtraction of bools) is a `PalladioTypeError`; shapes that do not broadcast are a
`PalladioValueError`. Integers wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from palladio.array.convert import (
    Array,
    ArrayLike,
    apply,
    array_type,
    call,
    cast,
    constant,
    is_nonnegative,
    mark_nonnegative,
    mark_weak,
    together,
)
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic as ops
from palladio.ops.arrays import bits, casts, compare
from palladio.ops.arrays import math as functions
from palladio.types import dtypes

__all__ = [
    "abs",
    "absolute",
    "add",
    "clip",
    "copysign",
    "divide",
    "divmod",
    "fabs",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "nextafter",
    "positive",
    "pow",
    "power",
    "reciprocal",
    "remainder",
    "sign",
    "signbit",
    "square",
    "subtract",
    "true_divide",
]


def _on_bool(x: ArrayLike, y: ArrayLike, of_bool: Op, of_numbers: Op) -> Array:
    both = array_type(x).dtype == dtypes.BOOL == array_type(y).dtype
    return apply(of_bool if both else of_numbers, x, y)


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """`x + y`; of bools, `x | y`."""
    return _on_bool(x, y, bits.bitwise_or, ops.add)


def subtract(x: ArrayLike, y: ArrayLike) -> Array:
    """`x - y`."""
    return apply(ops.sub, x, y)


def multiply(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * y`; of bools, `x & y`."""
    return _on_bool(x, y, bits.bitwise_and, ops.mul)


def true_divide(x: ArrayLike, y: ArrayLike) -> Array:
    """`x / y` in floats: integers become float32."""
    return apply(ops.div, x, y, floating=True)


divide = true_divide


def _numbers(*values: ArrayLike, floating: bool = False) -> tuple[list[Array], bool]:
    """The values brought together, bools as int32."""
    brought, weak = together(*values, floating=floating)
    if array_type(brought[0]).dtype == dtypes.BOOL:
        return [cast(value, dtypes.INT32) for value in brought], False
    return brought, weak


def _differs_in_sign(remainder: Array, y: Array) -> Array:
    """True if a remainder is not 0 and its sign is not that of the divisor."""
    signs = call(compare.ne, call(ops.sign, remainder), call(ops.sign, y))
    return call(bits.bitwise_and, signs, call(compare.ne, remainder, constant(0, y)))


def floor_divide(x: ArrayLike, y: ArrayLike) -> Array:
    """The quotient rounded down, in the promoted dtype. Integers by zero: no error, and no meaning."""
    (x, y), weak = _numbers(x, y)
    if dtypes.is_float(array_type(x).dtype):
        return mark_weak(_floor_divide_floats(x, y), weak)
    quotient = call(ops.div, x, y)
    if dtypes.is_signed(array_type(x).dtype):
        below = _differs_in_sign(call(ops.rem, x, y), y)
        quotient = call(compare.select, below, call(ops.sub, quotient, constant(1, x)), quotient)
    if is_nonnegative(x) and is_nonnegative(y):
        mark_nonnegative(quotient)
    return mark_weak(quotient, weak)


def _floor_divide_floats(x: Array, y: Array) -> Array:
    # From the exact remainder: floor(x / y) would round twice, so that 1 // 0.1 would be 10.
    remainder = call(ops.rem, x, y)
    quotient = call(functions.round, call(ops.div, call(ops.sub, x, remainder), y), half="even")
    down = call(ops.sub, quotient, constant(1, x))
    floored = call(compare.select, _differs_in_sign(remainder, y), down, quotient)
    return call(compare.select, call(compare.eq, y, constant(0, y)), call(ops.div, x, y), floored)


def remainder(x: ArrayLike, y: ArrayLike) -> Array:
    """The rest of `floor_divide`, with the sign of `y`. Integers by zero give 0, floats NaN."""
    (x, y), weak = _numbers(x, y)
    y = _nonzero(y)
    left = call(ops.rem, x, y)
    floored = call(compare.select, _differs_in_sign(left, y), call(ops.add, left, y), left)
    if is_nonnegative(y):
        mark_nonnegative(floored)
    return mark_weak(floored, weak)


mod = remainder


def _nonzero(y: Array) -> Array:
    """A divisor with integer zeros replaced by 1."""
    if dtypes.is_float(array_type(y).dtype):
        return y
    return call(compare.select, call(compare.eq, y, constant(0, y)), constant(1, y), y)


def fmod(x: ArrayLike, y: ArrayLike) -> Array:
    """The remainder of the quotient rounded towards zero, with the sign of `x`. Integers by zero give 0, floats NaN."""
    (x, y), weak = _numbers(x, y)
    return mark_weak(call(ops.rem, x, _nonzero(y)), weak)


def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """`(floor_divide(x, y), remainder(x, y))`."""
    return floor_divide(x, y), remainder(x, y)


def power(x: ArrayLike, y: ArrayLike) -> Array:
    """`x ** y` in the promoted dtype; bools are int32.

    Raises:
        PalladioValueError: for integers to the power of a negative Python integer. (Of a negative integer in an array:
            0, but 1 and -1 for the bases 1 and -1.)
    """
    if isinstance(y, (int, np.int64)) and not isinstance(y, bool):
        (base,), weak = _numbers(x)
        return mark_weak(call(ops.integer_pow, base, y=int(y)), weak)
    brought, weak = _numbers(x, y)
    return mark_weak(call(ops.pow, *brought), weak)


pow = power


def float_power(x: ArrayLike, y: ArrayLike) -> Array:
    """`x ** y` in floats: integers become float32."""
    return apply(ops.pow, x, y, floating=True)


def negative(x: ArrayLike) -> Array:
    """`-x`."""
    return apply(ops.neg, x)


def positive(x: ArrayLike) -> Array:
    """`x` as an array."""
    (value,), weak = together(x)
    return mark_weak(value, weak)


def absolute(x: ArrayLike) -> Array:
    """The absolute value, in the same dtype: that of the least integer is itself."""
    dtype = array_type(x).dtype
    return apply(ops.abs, x) if dtypes.is_float(dtype) or dtypes.is_signed(dtype) else positive(x)


abs = absolute


def fabs(x: ArrayLike) -> Array:
    """The absolute value in floats."""
    return apply(ops.abs, x, floating=True)


def sign(x: ArrayLike) -> Array:
    """-1, 0 or 1 in the dtype of `x`; NaN stays."""
    return apply(ops.sign, x)


def square(x: ArrayLike) -> Array:
    """`x * x`; bools become int32."""
    (x,), weak = _numbers(x)
    return mark_weak(call(ops.mul, x, x), weak)


def reciprocal(x: ArrayLike) -> Array:
    """`1 / x` in floats: integers become float32."""
    (x,), weak = together(x, floating=True)
    return mark_weak(call(ops.div, constant(1, x), x), weak)


def maximum(x: ArrayLike, y: ArrayLike) -> Array:
    """The greater one; NaN if one is NaN."""
    return apply(ops.max, x, y)


def minimum(x: ArrayLike, y: ArrayLike) -> Array:
    """The lesser one; NaN if one is NaN."""
    return apply(ops.min, x, y)


def _ignoring_nan(wins: Op, x: ArrayLike, y: ArrayLike) -> Array:
    (x, y), weak = together(x, y)
    take_x = call(bits.bitwise_or, call(wins, x, y), call(compare.ne, y, y))
    return mark_weak(call(compare.select, take_x, x, y), weak)


def fmax(x: ArrayLike, y: ArrayLike) -> Array:
    """The greater one; the other one if one is NaN."""
    return _ignoring_nan(compare.gt, x, y)


def fmin(x: ArrayLike, y: ArrayLike) -> Array:
    """The lesser one; the other one if one is NaN."""
    return _ignoring_nan(compare.lt, x, y)


def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Array:
    """`minimum(maximum(x, min), max)`, without the bound that is None. `a_min` and `a_max` are their older names."""
    low, high = a_min if min is None else min, a_max if max is None else max
    x = x if low is None else maximum(x, low)
    x = x if high is None else minimum(x, high)
    return positive(x) if low is None and high is None else x


def copysign(x: ArrayLike, y: ArrayLike) -> Array:
    """The absolute value of `x` with the sign of `y`, in floats."""
    (x, y), weak = together(x, y, floating=True)
    size = call(ops.abs, x)
    return mark_weak(call(compare.select, signbit(y), call(ops.neg, size), size), weak)


def signbit(x: ArrayLike) -> Array:
    """True if a number is negative or -0.0, as bool."""
    (x,), _ = together(x)
    dtype = array_type(x).dtype
    if dtypes.is_float(dtype):
        dtype = np.dtype(f"i{dtype.itemsize}")
        x = call(casts.bitcast_convert, x, dtype=dtype)
    return call(compare.lt, x, np.zeros((), dtype))


def nextafter(x: ArrayLike, y: ArrayLike) -> Array:
    """The next float after `x` in the direction of `y`."""
    return apply(ops.nextafter, x, y, floating=True)


def hypot(x: ArrayLike, y: ArrayLike) -> Array:
    """`sqrt(x * x + y * y)` in floats, without overflow; inf if one is infinite."""
    (x, y), weak = together(x, y, floating=True)
    x, y = call(ops.abs, x), call(ops.abs, y)
    long, short = call(ops.max, x, y), call(ops.min, x, y)
    zero, one, infinity = constant(0, x), constant(1, x), constant(math.inf, x)
    ratio = call(ops.div, short, call(compare.select, call(compare.eq, long, zero), one, long))
    length = call(ops.mul, long, call(functions.sqrt, call(ops.add, one, call(ops.mul, ratio, ratio))))
    infinite = call(bits.bitwise_or, call(compare.eq, x, infinity), call(compare.eq, y, infinity))
    return mark_weak(call(compare.select, infinite, infinity, length), weak)


def _log_of_sum(x: ArrayLike, y: ArrayLike, exp: Op, log1p: Callable[[Array], Array]) -> Array:
    (x, y), weak = together(x, y, floating=True)
    gap = call(ops.sub, x, y)
    rest = log1p(call(exp, call(ops.neg, call(ops.abs, gap))))
    found = call(ops.add, call(ops.max, x, y), rest)
    # The gap between infinities of one sign is NaN, and their sum is right; so it is for NaN.
    return mark_weak(call(compare.select, call(compare.ne, gap, gap), call(ops.add, x, y), found), weak)


def logaddexp(x: ArrayLike, y: ArrayLike) -> Array:
    """`log(exp(x) + exp(y))` in floats, without overflow."""
    return _log_of_sum(x, y, functions.exp, lambda value: call(functions.log1p, value))


def logaddexp2(x: ArrayLike, y: ArrayLike) -> Array:
    """`log2(2**x + 2**y)` in floats, without overflow."""

    def log1p_base_2(value: Array) -> Array:
        return call(ops.mul, call(functions.log1p, value), constant(1 / math.log(2), value))

    return _log_of_sum(x, y, functions.exp2, log1p_base_2)
