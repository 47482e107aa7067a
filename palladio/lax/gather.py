"""`lax.gather`: parts of an array at positions that only the run knows, in XLA's general form."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from palladio.array.convert import Array, ArrayLike, array_type, call
from palladio.array.functions import arithmetic, compare
from palladio.array.functions.reduce import as_array
from palladio.array.positions import as_positions, clamped, inside
from palladio.base.errors import PalladioValueError
from palladio.lax.shape import broadcast_in_dim, broadcasted_iota, full, reshape, static_integers
from palladio.lax.slicing import index_in_dim
from palladio.ops.references import memory
from palladio.types import dtypes
from palladio.types.transforms import Index, Operand
from palladio.types.types import Shape

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "gather"]


class GatherDimensionNumbers(NamedTuple):
    """The axes of a gather.

    Fields:
        offset_dims: the axes of the result along which a part extends, in order.
        collapsed_slice_dims: the axes of the array that the result does not have; a part has size 1 along them.
        start_index_map: the axis of the array that each component of an index is a position along.
        operand_batching_dims: axes of the array that go along with those of the indices, one position of each.
        start_indices_batching_dims: these axes of the indices.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(Enum):
    """Parts that reach outside of the array: moved inside, filled or dropped as a whole, or never there."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"


_MODES = {each.value: each for each in GatherScatterMode} | {"drop": GatherScatterMode.FILL_OR_DROP}


def _mode(mode: Any) -> GatherScatterMode:
    if mode is None:
        return GatherScatterMode.PROMISE_IN_BOUNDS
    found = mode if isinstance(mode, GatherScatterMode) else _MODES.get(mode)
    if found is None:
        raise PalladioValueError("no such mode", argument="mode", expected=", ".join(_MODES), got=repr(mode))
    return found


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """The part of an array at each index, of `slice_sizes`, in XLA's general form of indexing.

    Args:
        start_indices: `i32[..., n]`, for each index the position of its part along the n axes of `start_index_map`.
        mode: for parts that reach outside: "clip" moves them inside, "fill" replaces them whole; by default none does.
        fill_value: without it NaN, the least integer of a signed dtype, the greatest of an unsigned one, or True.
        unique_indices, indices_are_sorted: have no meaning.

    Raises:
        PalladioTypeError: if the indices are not integers.
        PalladioValueError: sizes or axes that do not fit the array and the indices.
    """
    operand, indices = as_array(operand), as_positions(as_array(start_indices))
    shape, numbers, sizes = array_type(operand).shape, dimension_numbers, static_integers(slice_sizes, "slice_sizes")
    batch = array_type(indices).shape[:-1]
    kept = _kept(numbers, shape, array_type(indices).shape, sizes)
    rank = len(batch) + len(kept)
    axis_of = dict(zip(kept, sorted(numbers.offset_dims), strict=True))
    batch_axes = [axis for axis in range(rank) if axis not in numbers.offset_dims]
    extents = dict(zip(batch_axes, batch, strict=True)) | {axis_of[axis]: sizes[axis] for axis in kept}
    result = tuple(extents[axis] for axis in range(rank))
    starts = {
        axis: index_in_dim(indices, n, axis=len(batch), keepdims=False)
        for n, axis in enumerate(numbers.start_index_map)
    }
    chosen = _mode(mode)
    known = _inside(starts, shape, sizes) if chosen is GatherScatterMode.FILL_OR_DROP else None
    batched = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    positions = []
    for axis, extent in enumerate(shape):
        place = full(result, 0, np.int32)
        if axis in batched:
            place = broadcasted_iota(np.int32, result, batch_axes[batched[axis]])
        elif axis in axis_of:
            place = broadcasted_iota(np.int32, result, axis_of[axis])
        if axis in starts:
            start = clamped(starts[axis], extent - sizes[axis])
            place = arithmetic.add(place, broadcast_in_dim(start, result, batch_axes))
        positions.append(place)
    index = Index(tuple(Operand(n) for n in range(len(shape))))
    found = call(memory.extract, operand, *positions, transforms=(index,)) if shape else reshape(operand, result)
    if known is None:
        return found
    return compare.where(
        broadcast_in_dim(known, result, batch_axes), found, _filler(array_type(operand).dtype, fill_value)
    )


def _kept(numbers: GatherDimensionNumbers, shape: Shape, indices: Shape, sizes: Sequence[int]) -> list[int]:
    """The axes of the array that the result has too.

    Raises:
        PalladioValueError: sizes or axes that do not fit the array and the indices.
    """
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(shape)) if axis not in dropped]
    wanted = [range(extent + 1) if axis in kept else (1,) for axis, extent in enumerate(shape)]
    if len(sizes) != len(shape) or any(size not in allowed for size, allowed in zip(sizes, wanted, strict=True)):
        raise PalladioValueError(
            "a part lies inside the array, with size 1 along the axes that the result does not have",
            argument="slice_sizes",
            expected=f"at most {shape}, 1 for the axes {sorted(dropped)}",
            got=tuple(sizes),
        )
    if len(numbers.offset_dims) != len(kept) or indices[-1:] != (len(numbers.start_index_map),):
        raise PalladioValueError(
            "an axis of the result for each axis of a part, and a component of each index for each mapped axis",
            argument="dimension_numbers",
            expected=f"{len(kept)} offset_dims, indices of shape (..., {len(numbers.start_index_map)})",
            got=f"{len(numbers.offset_dims)} offset_dims, indices of shape {indices}",
        )
    return kept


def _inside(starts: dict[int, Array], shape: Shape, sizes: Sequence[int]) -> Array | None:
    """True for the indices whose whole part is inside the array; None where no index can be outside."""
    known = [inside(start, shape[axis] - sizes[axis] + 1, array_type(start).shape) for axis, start in starts.items()]
    return functools.reduce(compare.logical_and, known) if known else None


def _filler(dtype: dtypes.DType, fill_value: Any) -> Any:
    if fill_value is not None:
        return np.asarray(fill_value).astype(dtype)
    if dtypes.is_bool(dtype) or dtypes.is_unsigned(dtype):
        return np.asarray(dtypes.greatest(dtype))
    return np.asarray(dtypes.uninitialized(dtype))
