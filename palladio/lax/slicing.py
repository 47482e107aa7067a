"""Taking and replacing parts of arrays, with the names of `jax.lax`.

Starts that are known only when the program runs count from the end if they are negative, and are moved so that the part
lies inside the array.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from palladio.array.axes import is_set, normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, call
from palladio.array.functions.reduce import as_array
from palladio.array.positions import as_positions, clamped, from_start, static_position
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.lax.shape import reshape, squeeze, static_integers
from palladio.ops.references import memory
from palladio.types.transforms import Index, Operand, SliceEntry
from palladio.types.types import Shape

__all__ = [
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "index_in_dim",
    "slice",
    "slice_in_dim",
]


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """The elements from static starts to below static limits, `strides` apart.

    Raises:
        PalladioValueError: if there is not one start, limit and stride for each axis, or they reach outside.
    """
    operand = as_array(operand)
    shape = array_type(operand).shape
    starts = static_integers(start_indices, "start_indices")
    limits = static_integers(limit_indices, "limit_indices")
    steps = (1,) * len(shape) if strides is None else static_integers(strides, "strides")
    if not len(starts) == len(limits) == len(steps) == len(shape):
        raise PalladioValueError(
            "slice takes a start, a limit and a stride for each axis", expected=len(shape), got=starts
        )
    entries = []
    for axis, (start, limit, step, extent) in enumerate(zip(starts, limits, steps, shape, strict=True)):
        if not 0 <= start <= limit <= extent or step < 1:
            raise PalladioValueError(
                f"the slice of axis {axis} lies inside it and steps forwards",
                expected=f"0 <= start <= limit <= {extent}, stride >= 1",
                got=f"start {start}, limit {limit}, stride {step}",
            )
        entries.append(SliceEntry(start, -(-(limit - start) // step), step))
    return call(memory.extract, operand, transforms=(Index(tuple(entries)),))


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """As `slice` along one axis; None is its end, negative indices count from there."""
    shape = array_type(operand).shape
    axis = normalize_axis(axis, len(shape))
    given = (0 if start_index is None else start_index), (shape[axis] if limit_index is None else limit_index)
    start, limit = (
        bound + shape[axis] if bound < 0 else bound for bound in static_integers(given, "start_index, limit_index")
    )
    starts = [start if n == axis else 0 for n in range(len(shape))]
    limits = [limit if n == axis else extent for n, extent in enumerate(shape)]
    return slice(operand, starts, limits, [stride if n == axis else 1 for n in range(len(shape))])


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The part at a static index of one axis, which stays, of size 1, with `keepdims`."""
    axis = normalize_axis(axis, array_type(operand).ndim)
    extent, at = array_type(operand).shape[axis], operator.index(index)
    at = at + extent if at < 0 else at
    found = slice_in_dim(operand, at, at + 1, 1, axis)
    return found if is_set(keepdims, "keepdims") else squeeze(found, (axis,))


def _placed(starts: ArrayLike, shape: Shape, sizes: Shape) -> tuple[Index, list[Array]]:
    """The index of parts of these sizes at starts moved inside, and its operands."""
    if len(sizes) != len(shape) or any(not 0 <= size <= extent for size, extent in zip(sizes, shape, strict=False)):
        raise PalladioValueError(
            "the part fits into the array", argument="slice_sizes", expected=f"at most {shape}", got=sizes
        )
    each = [starts[n] for n in range(len(starts))]
    if len(each) != len(shape):
        raise PalladioValueError("a start for each axis", argument="start_indices", expected=len(shape), got=len(each))
    operands: list[Array] = []
    entries = []
    for start, extent, size in zip(each, shape, sizes, strict=True):
        position = clamped(from_start(_scalar(start), extent), extent - size)
        static = static_position(position)
        if static is None:
            operands.append(position)
        entries.append(SliceEntry(Operand(len(operands) - 1) if static is None else static, size))
    return Index(tuple(entries)), operands


def _scalar(start: ArrayLike) -> Array:
    if array_type(start).ndim:
        raise PalladioTypeError("a start is a scalar", argument="start_indices", got=str(array_type(start)))
    return start if static_position(start) is not None else as_positions(start, "a start")


def dynamic_slice(operand: ArrayLike, start_indices: Any, slice_sizes: Sequence[int]) -> Array:
    """The part `dtype[slice_sizes]` at starts that may be known only when the program runs.

    Args:
        start_indices: a scalar integer for each axis, as a sequence or an integer vector.

    Raises:
        PalladioValueError: if there is not one start and size for each axis, or a size exceeds that of its axis.
    """
    operand = as_array(operand)
    index, operands = _placed(start_indices, array_type(operand).shape, static_integers(slice_sizes, "slice_sizes"))
    return call(memory.extract, operand, *operands, transforms=(index,))


def _starts(start: ArrayLike, axis: int, ndim: int) -> list[ArrayLike]:
    return [start if n == axis else 0 for n in range(ndim)]


def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0) -> Array:
    """As `dynamic_slice` along one axis, the others whole."""
    shape = array_type(operand).shape
    axis = normalize_axis(axis, len(shape))
    sizes = [slice_size if n == axis else extent for n, extent in enumerate(shape)]
    return dynamic_slice(operand, _starts(start_index, axis, len(shape)), sizes)


def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True) -> Array:
    """The part at an index of one axis, which stays, of size 1, with `keepdims`."""
    found = dynamic_slice_in_dim(operand, index, 1, axis)
    return found if is_set(keepdims, "keepdims") else squeeze(found, (normalize_axis(axis, array_type(operand).ndim),))


def dynamic_update_slice(operand: ArrayLike, update: ArrayLike, start_indices: Any) -> Array:
    """The array with the part at these starts, as `dynamic_slice`, replaced by `update`.

    Raises:
        PalladioTypeError: if the dtypes differ.
        PalladioValueError: if the ranks differ, or `update` is larger than the array.
    """
    operand, update = as_array(operand), as_array(update)
    index, operands = _placed(start_indices, array_type(operand).shape, array_type(update).shape)
    return call(memory.insert, operand, update, *operands, transforms=(index,), kind="set")


def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int) -> Array:
    """As `dynamic_update_slice` with a start along one axis, 0 along the others."""
    ndim = array_type(operand).ndim
    return dynamic_update_slice(operand, update, _starts(start_index, normalize_axis(axis, ndim), ndim))


def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int) -> Array:
    """The array with the part at an index of one axis replaced; `update` has that axis, of size 1, or lacks it."""
    found, new = array_type(operand), array_type(update)
    axis = normalize_axis(axis, found.ndim)
    if new.ndim != found.ndim:
        update = reshape(update, (*new.shape[:axis], 1, *new.shape[axis:]))
    return dynamic_update_slice_in_dim(operand, update, index, axis)
