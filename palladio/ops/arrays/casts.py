"""Changes of dtype: by value and by bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType


def _convert_type(array: ArrayType, *, dtype: DType) -> Sequence[ArrayType]:
    return (ArrayType(array.shape, dtype),)


def _convert_eval(array: Any, *, dtype: DType) -> Sequence[Any]:
    array = np.asarray(array)
    if dtypes.is_bool(dtype):
        return (array != array.dtype.type(0),)
    if dtypes.is_integer(dtype) and dtypes.is_float(array.dtype):
        return (_saturated(array, dtype),)
    return (dtypes.cast(array, dtype),)


def _saturated(array: Any, dtype: DType) -> Any:
    limits = dtypes.iinfo(dtype)
    whole = np.trunc(array.astype(np.float64))
    # For 64 bits, float(limits.max) is one too great, but all values from there on are replaced.
    below, above = whole <= float(limits.min), whole >= float(limits.max)
    inside = np.where(below | above | np.isnan(whole), 0.0, whole).astype(dtype)
    return np.where(below, dtype.type(limits.min), np.where(above, dtype.type(limits.max), inside))


convert = Op(
    "convert",
    "The values in another dtype. Float to integer rounds towards zero, saturates, and turns NaN to 0; integers wrap "
    "around; to bool means != 0; what is too great for a float becomes inf, or NaN in float8_e4m3fn.",
    _convert_type,
    _convert_eval,
    work=Work.NONE,
    elementwise=True,
)


def _bitcast_type(array: ArrayType, *, dtype: DType) -> Sequence[ArrayType]:
    if dtypes.BOOL in (array.dtype, dtype) and array.dtype != dtype:
        raise PalladioTypeError("the bits of bool have no other meaning", got=f"{array} to {dtype}")
    dtypes.require_whole_bytes(array.dtype, dtype)
    old, new = array.dtype.itemsize, dtype.itemsize
    if new < old:
        return (ArrayType((*array.shape, old // new), dtype),)
    if new == old:
        return (ArrayType(array.shape, dtype),)
    if array.shape[-1:] != (new // old,):
        raise PalladioValueError(
            "a bitcast to a wider dtype joins the elements of the last axis",
            expected=f"a last axis of size {new // old}",
            got=f"{array} to {dtype}",
        )
    return (ArrayType(array.shape[:-1], dtype),)


def _bitcast_eval(array: Any, *, dtype: DType) -> Sequence[Any]:
    array = np.asarray(array)
    if array.dtype.itemsize == dtype.itemsize:
        return (array.view(dtype),)
    if array.dtype.itemsize > dtype.itemsize:
        return (np.ascontiguousarray(array[..., None]).view(dtype),)
    return (np.ascontiguousarray(array).view(dtype)[..., 0],)


bitcast_convert = Op(
    "bitcast_convert",
    "The same bits as another dtype: `f32[n]` to `u32[n]`; to a narrower one with a new last axis, `f32[n]` to "
    "`u8[n, 4]`; to a wider one without the last axis, `u8[n, 4]` to `f32[n]`. The first one has the lowest bits.",
    _bitcast_type,
    _bitcast_eval,
    work=Work.NONE,
)
