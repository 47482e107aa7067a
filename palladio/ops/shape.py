"""Operations that rearrange elements without computing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.ir.op import Op
from palladio.types.types import ArrayType, Shape


def _broadcast_type(array: ArrayType, *, shape: Shape, axes: tuple[int, ...]) -> Sequence[ArrayType]:
    increasing = all(a < b for a, b in zip(axes, axes[1:], strict=False))
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
)
