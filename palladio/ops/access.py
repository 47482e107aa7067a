"""The NumPy meaning of a stack of transforms: what it reads, and what it writes.

Inside the bounds of its axes an access is an ordinary NumPy view. An element outside them reads as uninitialised memory (NaN,
the least integer, False) and is dropped when written. Dynamic indices are not wrapped: -1 is outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.types import dtypes
from palladio.types.transforms import Bitcast, Index, Operand, Reshape, Slice, Transform, Transpose, bitcast_axis

Array = Any


def read(array: Array, transforms: Sequence[Transform], operands: Sequence[Array]) -> Array:
    """What the transforms select: a view where NumPy can make one, else a copy."""
    for transform in transforms:
        array = _read_once(array, transform, operands)
    return array


def write(array: Array, transforms: Sequence[Transform], operands: Sequence[Array], value: Array) -> None:
    """Replace what the transforms select, in place."""
    combine(array, transforms, operands, lambda target, key: target.__setitem__(key, value))


def combine(
    array: Array,
    transforms: Sequence[Transform],
    operands: Sequence[Array],
    update: Callable[[Array, Any], None],
) -> None:
    """Call `update(target, key)` so that `target[key]` is what the transforms select.

    Where the selection reaches outside, `target` is a copy with the outside in it, of which only the inside is kept.
    """
    if not transforms:
        update(array, ...)
        return
    first, *rest = transforms
    if not isinstance(first, Index):
        part = _read_once(array, first, operands)
        combine(part, rest, operands, update)
        if not np.shares_memory(part, array):
            array[...] = bitcast(part, array.dtype) if isinstance(first, Bitcast) else part.reshape(array.shape)
        return
    inside = _inside(first, array.shape, operands)
    target, key = (array, _key(first, operands)) if inside else (_padded(array), _points(first, array.shape, operands))
    if inside and _is_basic(key):
        combine(array[key], rest, operands, update)
    elif not rest:
        update(target, key)
    else:
        part = np.array(target[key])
        combine(part, rest, operands, update)
        target[key] = part
    if not inside:
        array[...] = target[_interior(array)]


def _read_once(array: Array, transform: Transform, operands: Sequence[Array]) -> Array:
    match transform:
        case Index():
            if _inside(transform, array.shape, operands):
                return array[_key(transform, operands)]
            return _padded(array)[_points(transform, array.shape, operands)]
        case Reshape(shape):
            return array.reshape(shape)
        case Transpose(permutation):
            return array.transpose(permutation)
        case Bitcast(dtype):
            return bitcast(array, dtype)


def bitcast(array: Array, dtype: dtypes.DType) -> Array:
    """The same bits as another dtype; a change of width goes along the last but one axis (see `transforms.Bitcast`)."""
    array = np.asarray(array)
    if array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    axis = bitcast_axis(array.ndim)
    moved = np.ascontiguousarray(np.moveaxis(array, axis, -1))
    return np.ascontiguousarray(np.moveaxis(moved.view(dtype), -1, axis))


def _key(index: Index, operands: Sequence[Array]) -> tuple[Any, ...]:
    return tuple(_key_entry(entry, operands) for entry in index.entries)


def _key_entry(entry: Any, operands: Sequence[Array]) -> Any:
    if isinstance(entry, Slice):
        start = int(operands[entry.start.position]) if isinstance(entry.start, Operand) else entry.start
        return slice(start, start + entry.size * entry.stride if entry.size else start, entry.stride)
    if isinstance(entry, Operand):
        value = operands[entry.position]
        return int(value) if np.ndim(value) == 0 else value
    return entry


def _is_basic(key: tuple[Any, ...]) -> bool:
    return all(isinstance(part, (slice, int)) for part in key) and any(isinstance(part, slice) for part in key)


def _bounds(entry: Any, operands: Sequence[Array]) -> tuple[int, int] | None:
    """The least and greatest element along one axis that an entry touches, or None if it touches none."""
    if isinstance(entry, Slice):
        start = int(operands[entry.start.position]) if isinstance(entry.start, Operand) else entry.start
        return (start, start + (entry.size - 1) * entry.stride) if entry.size else None
    if isinstance(entry, Operand):
        value = operands[entry.position]
        if np.ndim(value) == 0:
            return int(value), int(value)
        return (int(value.min()), int(value.max())) if value.size else None
    return entry, entry


def _inside(index: Index, shape: tuple[int, ...], operands: Sequence[Array]) -> bool:
    for entry, extent in zip(index.entries, shape, strict=True):
        bounds = _bounds(entry, operands)
        if bounds is not None and (bounds[0] < 0 or bounds[1] >= extent):
            return False
    return True


def _interior(array: Array) -> tuple[slice, ...]:
    return tuple(slice(1, extent + 1) for extent in array.shape)


def _padded(array: Array) -> Array:
    """The array with one uninitialised element around it on every side."""
    padded = np.full(tuple(extent + 2 for extent in array.shape), dtypes.uninitialized(array.dtype), array.dtype)
    padded[_interior(array)] = array
    return padded


def _points(index: Index, shape: tuple[int, ...], operands: Sequence[Array]) -> tuple[Array, ...]:
    """One integer array per axis that selects from the padded array what `index` selects, the outside from its border."""
    points = [_key_entry(entry, operands) for entry in index.entries]
    pointed = [axis for axis, point in enumerate(points) if not isinstance(point, slice)]
    gathered = np.broadcast_shapes(*(np.shape(points[axis]) for axis in pointed))
    adjacent = pointed == list(range(pointed[0], pointed[0] + len(pointed))) if pointed else False
    before = pointed[0] if adjacent else 0
    sliced = len(points) - len(pointed)
    found, seen = [], 0
    for entry, point, extent in zip(index.entries, points, shape, strict=True):
        if isinstance(entry, Slice):
            position = seen if seen < before else seen + len(gathered)
            seen += 1
            values = np.asarray(point.start + entry.stride * np.arange(entry.size))
            values = values.reshape([-1 if axis == position else 1 for axis in range(sliced + len(gathered))])
        else:
            values = np.asarray(point)
            values = values.reshape((1,) * (len(gathered) - values.ndim) + values.shape + (1,) * (sliced - before))
        found.append(np.clip(values, -1, extent) + 1)
    return tuple(found)
