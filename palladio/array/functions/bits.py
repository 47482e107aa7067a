"""Operations on the bits of integers and bools, with NumPy's names."""

from __future__ import annotations

import numpy as np

from palladio.array.convert import Array, ArrayLike, apply, array_type, call, cast, mark_weak, together
from palladio.base.errors import PalladioValueError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic, casts
from palladio.ops.arrays import bits as ops
from palladio.ops.arrays import shape as shapes
from palladio.types import dtypes

__all__ = [
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
]


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """`x & y` of integers or bools."""
    return apply(ops.bitwise_and, x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """`x | y` of integers or bools."""
    return apply(ops.bitwise_or, x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """`x ^ y` of integers or bools."""
    return apply(ops.bitwise_xor, x, y)


def bitwise_not(x: ArrayLike) -> Array:
    """`~x` of integers or bools."""
    return apply(ops.bitwise_not, x)


invert = bitwise_invert = bitwise_not


def _shift(x: ArrayLike, y: ArrayLike, signed: Op, unsigned: Op) -> Array:
    (x, y), weak = together(x, y)
    dtype = array_type(x).dtype
    if dtype == dtypes.BOOL:
        x, y, dtype = cast(x, dtypes.INT32), cast(y, dtypes.INT32), dtypes.INT32
    return mark_weak(call(unsigned if dtypes.is_unsigned(dtype) else signed, x, y), weak)


def left_shift(x: ArrayLike, y: ArrayLike) -> Array:
    """`x << y` of integers: 0 from the width on. Bools become int32."""
    return _shift(x, y, ops.shift_left, ops.shift_left)


def right_shift(x: ArrayLike, y: ArrayLike) -> Array:
    """`x >> y` of integers, with copies of the sign from the left if they have one. Bools become int32."""
    return _shift(x, y, ops.shift_right_arithmetic, ops.shift_right_logical)


bitwise_left_shift = left_shift
bitwise_right_shift = right_shift


def bitwise_count(x: ArrayLike) -> Array:
    """The number of bits set in the absolute value of integers or bools, as uint8."""
    (x,), _ = together(x)
    if dtypes.is_signed(array_type(x).dtype):
        x = call(arithmetic.abs, x)
    if array_type(x).dtype == dtypes.BOOL:
        return cast(x, np.dtype(np.uint8))
    return cast(call(ops.population_count, x), np.dtype(np.uint8))


def view(x: ArrayLike, dtype: dtypes.DTypeLike) -> Array:
    """The same bits as another dtype: `f32[m, n]` as `i32[m, n]`, `u8[m, 4 * n]`, `f64[m, n / 2]`.

    Raises:
        PalladioTypeError: to or from bool.
        PalladioValueError: if the last axis has no whole number of elements of the other dtype.
    """
    kind, wanted = array_type(x), dtypes.canonical(dtype)
    old, new = dtypes.bits_of(kind.dtype), dtypes.bits_of(wanted)
    if old == new:
        return x if kind.dtype == wanted else call(casts.bitcast_convert, x, dtype=wanted)
    if not kind.shape or kind.shape[-1] * old % new:
        raise PalladioValueError(
            "the last axis has a whole number of elements of the other dtype", got=f"{kind} as {wanted}"
        )
    *leading, extent = kind.shape
    if old > new:
        apart = call(casts.bitcast_convert, x, dtype=wanted)
        return call(shapes.reshape, apart, shape=(*leading, extent * old // new))
    grouped = call(shapes.reshape, x, shape=(*leading, extent * old // new, new // old))
    return call(casts.bitcast_convert, grouped, dtype=wanted)
