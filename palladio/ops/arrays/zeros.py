"""Arrays that are zero outside of a range: passes determine the range, and compilers skip the zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import InternalError, PalladioTypeError
from palladio.ir.core import Op, Work
from palladio.ops.arrays.reduce import require_axis
from palladio.types import dtypes
from palladio.types.types import ArrayType, Type

END = ArrayType((), dtypes.INT64)


def _zero_outside_type(array: ArrayType, first: Type, last: Type, *, axis: int) -> Sequence[ArrayType]:
    require_axis("zero_outside", axis, array)
    if first != END or last != END:
        raise PalladioTypeError("the ends of a range are scalars of int64", got=f"{first} and {last}")
    return (array,)


def _zero_outside_eval(array: Any, first: Any, last: Any, *, axis: int) -> Sequence[Any]:
    position = np.expand_dims(np.arange(array.shape[axis]), [n for n in range(array.ndim) if n != axis])
    if np.any((array != 0) & ((position < first) | (position >= last))):
        raise InternalError(f"an array of which only {first} to {last} along axis {axis} may differ from 0: {array}")
    return (array,)


zero_outside = Op(
    "zero_outside",
    "The array, of which all elements are zero, or false, outside of the positions from `first` below `last` along "
    "`axis`. The pass `bound_zeros` writes it, so that products and stores under masks leave the others out.",
    _zero_outside_type,
    _zero_outside_eval,
    work=Work.NONE,
)
