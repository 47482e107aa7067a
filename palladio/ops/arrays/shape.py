"""Operations that rearrange elements without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape


def _broadcast_type(array: ArrayType, *, shape: Shape, axes: tuple[int, ...]) -> Sequence[ArrayType]:
    increasing = all(a < b for a, b in pairwise(axes))
    if len(axes) != array.ndim or not increasing or any(not 0 <= axis < len(shape) for axis in axes):
        raise PalladioValueError("the axes name where each axis of the array goes, in order", got=axes)
    if any(extent not in (1, shape[axis]) for extent, axis in zip(array.shape, axes, strict=True)):
        raise PalladioValueError("the array does not broadcast to the shape", expected=shape, got=array.shape)
    return (ArrayType(shape, array.dtype),)


def _broadcast_eval(array: Any, *, shape: Shape, axes: tuple[int, ...]) -> Sequence[Any]:
    array = np.asarray(array)
    spread = dict(zip(axes, array.shape, strict=True))
    return (np.broadcast_to(array.reshape([spread.get(axis, 1) for axis in range(len(shape))]), shape),)


broadcast = Op(
    "broadcast",
    "An array repeated to `shape`; its axis n becomes axis `axes[n]` and is of that size, or of size 1 and repeated.",
    _broadcast_type,
    _broadcast_eval,
    nonnegative_if=all,
    work=Work.NONE,
)


def _reshape_type(array: ArrayType, *, shape: Shape) -> Sequence[ArrayType]:
    if math.prod(shape) != array.size or any(extent < 0 for extent in shape):
        raise PalladioValueError(
            "a reshape keeps the number of elements", expected=f"{array.size} elements, as {array}", got=str(shape)
        )
    return (ArrayType(shape, array.dtype),)


reshape = Op(
    "reshape",
    "The same elements, in row-major order, in another shape.",
    _reshape_type,
    lambda array, *, shape: (np.asarray(array).reshape(shape),),
    nonnegative_if=all,
    work=Work.NONE,
)


def _transpose_type(array: ArrayType, *, permutation: tuple[int, ...]) -> Sequence[ArrayType]:
    if sorted(permutation) != list(range(array.ndim)):
        raise PalladioValueError(
            "a transpose names every axis once", expected=f"a permutation of the axes of {array}", got=permutation
        )
    return (ArrayType(tuple(array.shape[axis] for axis in permutation), array.dtype),)


transpose = Op(
    "transpose",
    "Axis n of the result is axis `permutation[n]` of the array.",
    _transpose_type,
    lambda array, *, permutation: (np.asarray(array).transpose(permutation),),
    work=Work.NONE,
)


def _concatenate_type(*arrays: ArrayType, axis: int) -> Sequence[ArrayType]:
    first = arrays[0]
    if not 0 <= axis < first.ndim:
        raise PalladioIndexError("concatenate has no such axis", expected=f"an axis of {first}", got=axis)

    def others(array: ArrayType) -> tuple[Any, ...]:
        return array.dtype, (*array.shape[:axis], *array.shape[axis + 1 :]), array.ndim

    if any(others(array) != others(first) for array in arrays):
        raise PalladioValueError(
            "concatenate takes arrays of one dtype that differ along its axis only", got=", ".join(map(str, arrays))
        )
    extent = sum(array.shape[axis] for array in arrays)
    return (ArrayType((*first.shape[:axis], extent, *first.shape[axis + 1 :]), first.dtype),)


concatenate = Op(
    "concatenate",
    "The arrays one after the other along an axis.",
    _concatenate_type,
    lambda *arrays, axis: (np.concatenate(arrays, axis),),
    work=Work.NONE,
)


def _pad_type(array: ArrayType, value: ArrayType, *, padding: tuple[tuple[int, int, int], ...]) -> Sequence[ArrayType]:
    if value != ArrayType((), array.dtype):
        raise PalladioTypeError(
            "the padding value is a scalar of the array's dtype",
            expected=str(ArrayType((), array.dtype)),
            got=str(value),
        )
    if len(padding) != array.ndim or any(inside < 0 for _, _, inside in padding):
        raise PalladioValueError(
            "(before, after, between) for each axis, with between at least 0",
            expected=f"{array.ndim} of them",
            got=padding,
        )
    shape = tuple(
        before + extent + max(0, extent - 1) * between + after
        for extent, (before, after, between) in zip(array.shape, padding, strict=True)
    )
    if any(extent < 0 for extent in shape):
        raise PalladioValueError("the padding removes more than there is", got=f"{padding} of {array}")
    return (ArrayType(shape, array.dtype),)


def _pad_eval(array: Any, value: Any, *, padding: tuple[tuple[int, int, int], ...]) -> Sequence[Any]:
    array = np.asarray(array)
    sizes, taken, places = [], [], []
    for extent, (before, after, between) in zip(array.shape, padding, strict=True):
        step = between + 1
        size = before + extent + max(0, extent - 1) * between + after
        # Element n moves to before + n * step; those that move to 0, …, size - 1 stay.
        first = max(0, -(before // step))
        stop = max(first, min(extent, -((before - size) // step)))
        sizes.append(size)
        taken.append(slice(first, stop))
        places.append(slice(before + first * step, before + stop * step, step) if stop > first else slice(0, 0))
    found = np.full(sizes, value, array.dtype)
    found[tuple(places)] = array[tuple(taken)]
    return (found,)


pad = Op(
    "pad",
    "The array with `(before, after, between)` copies of a value: before and after it, and between neighbours, "
    "along each axis. "
    "Negative counts before and after cut elements off.",
    _pad_type,
    _pad_eval,
    work=Work.NONE,
)


def _reverse_type(array: ArrayType, *, axes: tuple[int, ...]) -> Sequence[ArrayType]:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < array.ndim for axis in axes):
        raise PalladioIndexError("reverse names different axes of the array", expected=f"axes of {array}", got=axes)
    return (array,)


reverse = Op(
    "reverse",
    "The elements in reverse order along the axes.",
    _reverse_type,
    lambda array, *, axes: (np.flip(array, axes),),
    work=Work.NONE,
)


def _iota_type(*, shape: Shape, dtype: DType, axis: int) -> Sequence[ArrayType]:
    if not 0 <= axis < len(shape):
        raise PalladioIndexError("iota has no such axis", expected=f"an axis of {shape}", got=axis)
    if dtype == dtypes.BOOL:
        raise PalladioTypeError("iota counts in a number dtype", got=str(dtype))
    return (ArrayType(shape, dtype),)


def _iota_eval(*, shape: Shape, dtype: DType, axis: int) -> Sequence[Any]:
    counted = np.arange(shape[axis]).astype(dtype)
    return (np.broadcast_to(counted.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape),)


iota = Op(
    "iota",
    "0, 1, 2, … along an axis, the same along the others.",
    _iota_type,
    _iota_eval,
    work=Work.NONE,
    nonnegative_if=all,
)
