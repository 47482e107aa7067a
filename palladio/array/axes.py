"""Axis arguments: None, one integer or several, negative ones counted from the end."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array.convert import Array, array_type, broadcast_to, call
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.ops.arrays import shape as ops
from palladio.types.types import Shape

Axes = int | Sequence[int] | None


def normalize_axis(axis: Any, ndim: int) -> int:
    """The axis as 0 <= axis < ndim.

    Raises:
        PalladioIndexError: for an axis that is out of range.
        PalladioTypeError: for what is not an integer.
    """
    try:
        found = operator.index(axis)
    except TypeError:
        raise PalladioTypeError(
            "an axis is a static integer", argument="axis", got=f"{type(axis).__name__}: {axis!r:.60}"
        ) from None
    if not -ndim <= found < ndim:
        expected = f"{-ndim} <= axis < {ndim}" if ndim else "an array of rank 1 or more"
        raise PalladioIndexError(
            f"the array has no such axis, its rank is {ndim}", argument="axis", expected=expected, got=found
        )
    return found % ndim


def normalize_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes in ascending order, all of them for None.

    Raises:
        PalladioIndexError, PalladioTypeError: as `normalize_axis`.
        PalladioValueError: for an axis that is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = sorted(normalize_axis(each, ndim) for each in given)
    if len(set(axes)) != len(axes):
        raise PalladioValueError("an axis is named twice", argument="axis", got=given)
    return tuple(axes)


def is_set(flag: Any, argument: str) -> bool:
    """True if a flag, whose value must be known while tracing, is set.

    Raises:
        PalladioTypeError: for what is not a bool, such as an array.
    """
    if not isinstance(flag, (bool, int, np.bool_)):
        raise PalladioTypeError(
            "a flag is a static bool", argument=argument, got=f"{type(flag).__name__}: {flag!r:.60}"
        )
    return bool(flag)


def restore(reduced: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """The result of a reduction of `shape` over `axes`, with these axes back, of size 1."""
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    return call(ops.broadcast, reduced, shape=kept, axes=others)


def spread(reduced: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """The result of a reduction of `shape` over `axes`, repeated to `shape`."""
    return broadcast_to(restore(reduced, shape, axes), shape)


def flat(value: Array) -> Array:
    """The elements in row-major order, as a vector."""
    array = array_type(value)
    return value if array.ndim == 1 else call(ops.reshape, value, shape=(array.size,))
