"""Sorting along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.ir.core import Op
from palladio.ops.arrays.elementwise import computing_dtype
from palladio.ops.arrays.reduce import require_axis
from palladio.types.types import ArrayType


def _sort_type(
    *operands: ArrayType, axis: int, num_keys: int, stable: bool, last: int | None = None
) -> Sequence[ArrayType]:
    if not operands:
        raise PalladioValueError("sort takes one array or more")
    if any(operand.shape != operands[0].shape for operand in operands):
        raise PalladioValueError("sort takes arrays of one shape", got=", ".join(map(str, operands)))
    require_axis("sort", axis, operands[0])
    if not 1 <= num_keys <= len(operands):
        raise PalladioValueError(
            "num_keys of sort counts its first arrays", expected=f"1 to {len(operands)} keys", got=num_keys
        )
    return operands


def _sort_eval(*operands: Any, axis: int, num_keys: int, stable: bool, last: int | None = None) -> Sequence[Any]:
    keys = [key.astype(computing_dtype(key.dtype), copy=False) for key in operands[:num_keys]]
    # Always stable, which is correct for stable and unstable sorts.
    order = np.argsort(keys[0], axis=axis, kind="stable") if num_keys == 1 else np.lexsort(keys[::-1], axis=axis)
    return [np.take_along_axis(operand, order, axis=axis) for operand in operands]


sort = Op(
    "sort",
    "Arrays of one shape, all in the ascending order along `axis` of the first `num_keys` of them (later ones decide "
    "among equals). NaN comes last, -0.0 equals 0.0; with `stable` what is equal in every key keeps its order. With "
    "`last` only that many elements at the end of each line are used, and a compiler may leave out the others.",
    _sort_type,
    _sort_eval,
)
