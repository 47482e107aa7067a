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
    old, new = dtypes.bits_of(array.dtype), dtypes.bits_of(dtype)
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
    old, new = dtypes.bits_of(array.dtype), dtypes.bits_of(dtype)
    if old == new:
        return (array.view(dtype),)
    if old > new:
        if new < 8:
            return (_parts(array, min(old, 8), new).view(dtype),)
        return (np.ascontiguousarray(array[..., None]).view(dtype),)
    if old < 8:
        array = _joined(array.view(np.uint8), old, min(new, 8))
    return (np.ascontiguousarray(array).view(dtype)[..., 0],)


def _parts(array: Any, old: int, new: int) -> Any:
    """The parts of `new` bits of which the lowest `old` bits of each byte consist, u8[..., n]."""
    octets = np.ascontiguousarray(array[..., None]).view(np.uint8)
    shifts = np.arange(0, old, new, dtype=np.uint8)
    parts = octets[..., None] >> shifts & np.uint8((1 << new) - 1)
    return parts.reshape((*array.shape, -1))


def _joined(octets: Any, old: int, new: int) -> Any:
    """Neighbours of `old` bits as bytes of `new` bits, along the last axis: the inverse of `_parts`."""
    shifts = np.arange(0, new, old, dtype=np.uint8)
    groups = (octets & np.uint8((1 << old) - 1)).reshape((*octets.shape[:-1], -1, len(shifts)))
    return np.bitwise_or.reduce(groups << shifts, axis=-1)


bitcast_convert = Op(
    "bitcast_convert",
    "The same bits as another dtype: `f32[n]` to `u32[n]`; to a narrower one with a new last axis, `f32[n]` to "
    "`u8[n, 4]`; to a wider one without the last axis, `u8[n, 4]` to `f32[n]`. The first one has the lowest bits.",
    _bitcast_type,
    _bitcast_eval,
    work=Work.NONE,
)
