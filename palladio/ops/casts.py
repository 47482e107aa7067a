"""Changes of dtype: by value and by bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ir.op import Op
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType


def _convert_type(array: ArrayType, *, dtype: DType) -> Sequence[ArrayType]:
    return (ArrayType(array.shape, dtype),)


def _convert_eval(array: Any, *, dtype: DType) -> Sequence[Any]:
    array = np.asarray(array)
    if dtypes.is_integer(dtype) and dtypes.is_float(array.dtype):
        wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        limits = np.iinfo(dtype)
        inside = np.clip(wide, float(limits.min), float(limits.max))
        result = np.where(inside >= float(limits.max), limits.max, np.trunc(inside).astype(np.int64, copy=False))
        return (result.astype(dtype),)
    return (array.astype(dtype),)


convert = Op(
    "convert",
    "The values in another dtype. Float to integer rounds towards zero, saturates, and turns NaN to 0; integers wrap around.",
    _convert_type,
    _convert_eval,
)
