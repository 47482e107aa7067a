"""Narrow numbers in Pallas' TPU namespace: several packed in one wide integer, and roundings by random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import arithmetic, bits, compare, creation, indexing, math
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ops.arrays import casts
from palladio.types import dtypes
from palladio.types.dtypes import DType

_UNSIGNED = {dtypes.bits_of(kind): kind for kind in map(dtypes.canonical, ("u2", "u4", "u8", "u16", "u32"))}


def _packed_in_one(wide: DType, narrow: DType) -> int:
    """The number of elements of a narrow dtype in one of a wide dtype.

    Raises:
        PalladioTypeError: not two integer dtypes, nor float32 and bfloat16; a width that does not divide the other.
    """
    integers = dtypes.is_integer(wide) and dtypes.is_integer(narrow)
    old, new = dtypes.bits_of(wide), dtypes.bits_of(narrow)
    if old > 32 or old % new or not (integers or (wide, narrow) == (dtypes.FLOAT32, dtypes.BFLOAT16)):
        raise PalladioTypeError(
            "integers pack in wider integers, and bfloat16 in float32",
            argument="packed_dtype",
            got=f"{narrow} in {wide}",
            jax=f"Only f32 -> bf16 and int -> int are supported. Got {wide} and {narrow}",
        )
    return old // new


def pack_elementwise(xs: Sequence[ArrayLike], *, packed_dtype: Any) -> Array:
    """Arrays converted to a narrow dtype and packed, element by element, in unsigned integers of their width.

    Args:
        xs: arrays of one shape and dtype, float32 or integers; as many as elements fit. The first has the lowest bits.
        packed_dtype: bfloat16 for float32, else an integer dtype, in which integers wrap around.

    Raises:
        PalladioTypeError: dtypes of another kind.
        PalladioValueError: arrays of different shapes or dtypes, or another number of them.
    """
    narrow = dtypes.canonical(packed_dtype)
    kinds = [convert.array_type(x) for x in xs]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        raise PalladioValueError(
            "arrays that are packed have one shape and dtype", argument="xs", got=", ".join(map(str, kinds)) or "none"
        )
    wide = kinds[0].dtype
    count = _packed_in_one(wide, narrow)
    if len(kinds) != count:
        raise PalladioValueError("as many arrays as elements fit in one", argument="xs", expected=count, got=len(kinds))
    parts = creation.stack([compare.astype(x, narrow) for x in xs], axis=-1)
    return convert.call(casts.bitcast_convert, parts, dtype=_UNSIGNED[dtypes.bits_of(wide)])


def unpack_elementwise(x: ArrayLike, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Array:
    """One of the arrays that `pack_elementwise` packed, in its dtype.

    Args:
        x: integers of the width of `unpacked_dtype`.
        index: the number of the array, static.

    Raises:
        PalladioTypeError: dtypes of another kind.
        PalladioValueError: an index that is not below the number of arrays.
    """
    narrow, wide = dtypes.canonical(packed_dtype), dtypes.canonical(unpacked_dtype)
    count = _packed_in_one(wide, narrow)
    if not isinstance(index, int) or not 0 <= index < count:
        raise PalladioValueError(
            "one of the packed arrays", argument="index", expected=f"0 <= index < {count}", got=repr(index)
        )
    kind = convert.array_type(x)
    if not dtypes.is_integer(kind.dtype) or dtypes.bits_of(kind.dtype) != dtypes.bits_of(wide):
        raise PalladioTypeError(
            "packed numbers are integers of the width of the dtype that they come from",
            argument="x",
            expected=f"{dtypes.bits_of(wide)} bits",
            got=str(kind),
        )
    parts = convert.call(casts.bitcast_convert, x, dtype=narrow)
    return compare.astype(indexing.getitem(parts, (..., index)), wide)


def stochastic_round(x: ArrayLike, random_bits: ArrayLike, *, target_dtype: Any) -> Array:
    """A narrow float on either side of each element, the nearer one more likely, by the lowest of its random bits.

    Args:
        x: `f32[...]`.
        random_bits: `u32[...]`, of the same shape.
        target_dtype: a float dtype of at most 16 bits.

    Raises:
        PalladioTypeError: other dtypes.
        PalladioValueError: another shape of the bits.
    """
    target, kind, drawn = dtypes.canonical(target_dtype), convert.array_type(x), convert.array_type(random_bits)
    if kind.dtype != dtypes.FLOAT32 or not dtypes.is_float(target) or target.itemsize > 2:
        raise PalladioTypeError(
            "float32 is rounded to a float dtype of at most 16 bits",
            argument="target_dtype",
            got=f"{kind.dtype} to {target}",
        )
    if drawn.dtype != np.uint32:
        raise PalladioTypeError(
            "random bits are uint32",
            argument="random_bits",
            got=str(drawn),
            jax="The dtype of `random_bits` must be uint32 for stochastic_round",
        )
    if drawn.shape != kind.shape:
        raise PalladioValueError(
            "as many random words as elements",
            argument="random_bits",
            expected=kind.shape,
            got=drawn.shape,
            jax="The shape of `random_bits` must match the shape of `x` for stochastic_round",
        )
    limits = dtypes.finfo(target)
    dropped = 23 - int(limits.nmant)
    mask = np.uint32((1 << dropped) - 1)
    low = bits.bitwise_and(random_bits, mask)
    whole = bits.bitwise_and(arithmetic.add(bits.view(x, np.uint32), low), np.uint32(~mask))
    rounded = bits.view(whole, np.float32)
    if int(limits.nexp) < 8:  # below its normal numbers those of the dtype are equally far from each other
        step = np.float32(limits.smallest_subnormal)
        size = arithmetic.abs(x)
        steps = arithmetic.multiply(size, np.float32(1 / step))
        below = math.floor(steps)
        chance = arithmetic.multiply(compare.astype(low, np.float32), np.float32(2.0**-dropped))
        up = arithmetic.add(arithmetic.subtract(steps, below), chance) >= 1
        small = arithmetic.multiply(arithmetic.add(below, compare.astype(up, np.float32)), step)
        is_small = size < np.float32(limits.smallest_normal)
        rounded = compare.where(is_small, arithmetic.copysign(small, x), rounded)
    return compare.astype(compare.where(compare.isfinite(x), rounded, x), target)
