"""Reductions over axes, and the index of the greatest or least element along one.

The param `axes` is a tuple of distinct axes, each 0 <= axis < rank; they are dropped. Sums and products of floats
narrower than float32 are accumulated in float32 and rounded once. `accumulator_ilp`, present only if a kernel sets it,
is advice to a compiler: the number of independent chains in which a thread reduces its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.ops.arrays import arithmetic, bits
from palladio.ops.arrays.elementwise import (
    DTYPES,
    Accepts,
    anything,
    computing_dtype,
    is_bits,
    is_number,
    require_alike,
)
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Type


def require_axis(name: str, axis: int, array: ArrayType) -> None:
    """Refuse an axis that the array does not have."""
    if not 0 <= axis < array.ndim:
        raise PalladioIndexError(
            f"{name} names an axis that the array does not have",
            expected=f"0 <= axis < {array.ndim}" if array.ndim else "an array of rank 1 or more",
            got=f"axis {axis} of {array}",
        )


def _reduction(name: str, doc: str, reduce: Callable[..., Any], accepts: Accepts, joins: Op) -> Op:
    def type(array: Type, *, axes: tuple[int, ...], accumulator_ilp: int | None = None) -> Sequence[Type]:
        found = require_alike(name, accepts, (array,))
        for axis in axes:
            require_axis(name, axis, found)
        if len(set(axes)) != len(axes):
            raise PalladioValueError(f"{name} names an axis twice", got=axes)
        kept = tuple(extent for axis, extent in enumerate(found.shape) if axis not in axes)
        return (ArrayType(kept, found.dtype),)

    def eval(array: Any, *, axes: tuple[int, ...], accumulator_ilp: int | None = None) -> Sequence[Any]:
        dtype = array.dtype
        wide = array.astype(computing_dtype(dtype), copy=False)
        return (reduce(wide, axes).astype(dtype, copy=False),)

    return Op(name, doc, type, eval, work=Work.REDUCTION, dtypes=DTYPES[accepts], joins=joins)


def _extremum(ufunc: np.ufunc, identity: Callable[[DType], Any]) -> Callable[..., Any]:
    def reduce(array: Any, axes: tuple[int, ...]) -> Any:
        initial = {} if array.size else {"initial": identity(array.dtype)}
        return ufunc.reduce(array, axis=axes, **initial)

    return reduce


def _folded(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda array, axes: ufunc.reduce(array, axis=axes, dtype=array.dtype)


reduce_sum = _reduction(
    "reduce_sum",
    "The sum over the axes; 0 of nothing. Integers wrap around.",
    _folded(np.add),
    is_number,
    arithmetic.add,
)
reduce_prod = _reduction(
    "reduce_prod",
    "The product over the axes; 1 of nothing. Integers wrap around.",
    _folded(np.multiply),
    is_number,
    arithmetic.mul,
)
reduce_max = _reduction(
    "reduce_max",
    "The greatest element over the axes; NaN if one is NaN, the least value of the dtype of nothing. Of bool: or.",
    _extremum(np.maximum, dtypes.least),
    anything,
    arithmetic.max,
)
reduce_min = _reduction(
    "reduce_min",
    "The least element over the axes; NaN if one is NaN, the greatest value of the dtype of nothing. Of bool: and.",
    _extremum(np.minimum, dtypes.greatest),
    anything,
    arithmetic.min,
)
reduce_and = _reduction(
    "reduce_and",
    "All elements over the axes joined by &; all bits set of nothing.",
    _folded(np.bitwise_and),
    is_bits,
    bits.bitwise_and,
)
reduce_or = _reduction(
    "reduce_or",
    "All elements over the axes joined by |; 0 of nothing.",
    _folded(np.bitwise_or),
    is_bits,
    bits.bitwise_or,
)
reduce_xor = _reduction(
    "reduce_xor",
    "All elements over the axes joined by ^; 0 of nothing.",
    _folded(np.bitwise_xor),
    is_bits,
    bits.bitwise_xor,
)


def _position(name: str, doc: str, find: Callable[..., Any]) -> Op:
    def type(array: Type, *, axis: int, dtype: DType) -> Sequence[Type]:
        found = require_alike(name, anything, (array,))
        require_axis(name, axis, found)
        if not found.shape[axis]:
            raise PalladioValueError(f"{name} of no elements", got=f"axis {axis} of {found}")
        if not dtypes.is_integer(dtype):
            raise PalladioTypeError(f"the result of {name} is an index", expected="an integer dtype", got=str(dtype))
        return (ArrayType((*found.shape[:axis], *found.shape[axis + 1 :]), dtype),)

    def eval(array: Any, *, axis: int, dtype: DType) -> Sequence[Any]:
        wide = array.astype(computing_dtype(array.dtype), copy=False)
        return (find(wide, axis=axis).astype(dtype),)

    return Op(name, doc, type, eval, work=Work.REDUCTION)


argmax = _position(
    "argmax", "The first index, as integer `dtype`, of the greatest element along `axis`; NaN is greatest.", np.argmax
)
argmin = _position(
    "argmin", "The first index, as integer `dtype`, of the least element along `axis`; NaN is least.", np.argmin
)
