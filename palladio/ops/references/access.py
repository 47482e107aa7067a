"""The NumPy semantics of a stack of transforms, for reads and writes.

Inside the bounds of its axes an access is an ordinary NumPy view. An element outside them reads as uninitialised memory
(NaN, the least integer, False) and is dropped when written. Dynamic indices are not wrapped: -1 is outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.types import dtypes
from palladio.types.transforms import (
    Bitcast,
    Index,
    Operand,
    Peer,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    bitcast_axis,
)
from palladio.types.types import ArrayType
from palladio.types.views import Coordinate, View

Array = Any

# `update(target, key, inside)` changes `target[key]`, in place. The key is an ellipsis or a NumPy index with integer
# arrays; or, if `inside` is not None, one integer array for each axis, and only where it is true.
Update = Callable[[Array, Any, Array | None], None]


def read(array: Array, transforms: Sequence[Transform], operands: Sequence[Array], outside: Any = None) -> Array:
    """The elements that the transforms select: a view where NumPy can make one, else a copy.

    Args:
        outside: the value of elements outside; None for uninitialised memory.
    """
    for transform in transforms:
        if isinstance(transform, View):
            array = _recast(array, transform.base, transform.base.dtype)
        array = _read_once(array, transform, operands, outside)
    return array


def write(array: Array, transforms: Sequence[Transform], operands: Sequence[Array], value: Array) -> None:
    """Replace the selection of the transforms, in place.

    Where an element is selected twice, the value that comes last in the order of the selection stays, as in NumPy.
    """

    def update(target: Array, key: Any, inside: Array | None) -> None:
        if inside is None:
            target[key] = value
        else:
            target[only(key, inside)] = np.broadcast_to(value, inside.shape)[inside]

    combine(array, transforms, operands, update)


def only(key: tuple[Array, ...], chosen: Array) -> tuple[Array, ...]:
    """The elements under a mask, from integer arrays that broadcast to its shape."""
    return tuple(np.broadcast_to(positions, chosen.shape)[chosen] for positions in key)


def combine(array: Array, transforms: Sequence[Transform], operands: Sequence[Array], update: Update) -> None:
    """Call `update(target, key, inside)` with `target[key]` the selection of the transforms, in place.

    The order of the axes of `target[key]` is that of the selection, so that values and masks of its shape fit.
    """
    if not transforms:
        update(array, ..., None)
        return
    first, *rest = transforms
    if isinstance(first, View):
        base = _recast(array, first.base, first.base.dtype)
        part = _strided(base, first, operands)
        if part is None:
            _combine_gathered(base, first, *located(first, operands), rest, operands, update)
        else:
            combine(part, rest, operands, update)
        if not np.may_share_memory(base, array):
            array[...] = _recast(base, ArrayType(array.shape, array.dtype), array.dtype)
        return
    if not isinstance(first, Index):
        part = _read_once(array, first, operands, None)
        combine(part, rest, operands, update)
        if not np.may_share_memory(part, array):
            array[...] = bitcast(part, array.dtype) if isinstance(first, Bitcast) else part.reshape(array.shape)
        return
    key, inside, gathers = _resolve(first, array.shape, operands)
    if gathers:
        if inside and not rest:
            update(array, key, None)
        else:
            _combine_gathered(array, first, *positions_of(key, array.shape), rest, operands, update)
    elif inside:
        combine(array[(*key, ...)], rest, operands, update)
    else:
        # No element is selected twice, so a changed copy can be written back.
        part, place = _cut(array, key, dtypes.uninitialized(array.dtype))
        combine(part, rest, operands, update)
        if place is not None:
            array[place[0]] = part[place[1]]


def _combine_gathered(
    array: Array,
    first: Index | View,
    positions: tuple[Array, ...],
    valid: Array,
    rest: Sequence[Transform],
    operands: Sequence[Array],
    update: Update,
) -> None:
    """`combine` of elements at positions, which may select an element twice, and the transforms after them."""
    if not array.ndim:  # NumPy has no index by integer arrays into a scalar
        array, positions = array.reshape(1), (np.zeros(valid.shape, np.int64),)
    if _keeps_elements(array.dtype, rest):
        # The transforms move whole elements, so they can be applied to the elements' numbers.
        strides = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
        numbers = np.zeros(valid.shape, np.int64) + sum(p * s for p, s in zip(positions, strides, strict=True))
        numbers = np.where(valid, numbers, -1)
        target = array
        for transform in rest:
            if isinstance(transform, (Bitcast, View)):
                target = target.view(transform.dtype if isinstance(transform, Bitcast) else transform.base.dtype)
            if not isinstance(transform, Bitcast):
                numbers = _read_once(numbers, transform, operands, -1)
        valid = numbers >= 0
        within = np.where(valid, numbers, 0)
        places = tuple(within // max(s, 1) % max(n, 1) for s, n in zip(strides, array.shape, strict=True))
        update(target, places, valid)
        return
    _combine_bytes(array, (first, *rest), operands, update)


def _combine_bytes(array: Array, transforms: Sequence[Transform], operands: Sequence[Array], update: Update) -> None:
    """`combine` where bytes of one element are selected more than once, each time as part of another element.

    The update applies to a row of the distinct selected elements. Their bytes are written back in the order of their
    last selection, so that of two elements that share a byte the last one wins.
    """
    selected = np.array(read(array, transforms, operands))
    width = selected.dtype.itemsize
    rows = _byte_numbers(array, transforms, operands).reshape(selected.size, width)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    elements = selected.reshape(-1)[first]
    update(elements, (which.reshape(selected.shape),), None)
    last = np.zeros(len(first), np.int64)
    last[which] = np.arange(selected.size)
    order = np.argsort(last)
    numbers, changed = rows[first][order], elements[order].view(np.uint8).reshape(len(first), width)
    memory = array[..., None].view(np.uint8)  # an axis of one element can be viewed as bytes with any strides
    memory[np.unravel_index(numbers[numbers >= 0], memory.shape)] = changed[numbers >= 0]


def _byte_numbers(array: Array, transforms: Sequence[Transform], operands: Sequence[Array]) -> Array:
    """The position in the array of each byte of the selected elements; -1 for those outside."""

    def record(width: int) -> Any:
        return np.dtype((np.void, 8 * width))  # one i64 for each byte, which the transforms move as one element

    width = array.dtype.itemsize
    numbers = np.arange(array.size * width).view(record(width)).reshape(array.shape)
    for transform in transforms:
        if isinstance(transform, Bitcast):
            width = transform.dtype.itemsize
            numbers = bitcast(numbers, record(width))
        else:
            if isinstance(transform, View):
                width = transform.base.dtype.itemsize
                numbers = _recast(numbers, transform.base, record(width))
            numbers = _read_once(numbers, transform, operands, np.full(width, -1).view(record(width))[0])
    return np.ascontiguousarray(numbers).reshape(-1).view(np.int64)


def _keeps_elements(dtype: dtypes.DType, transforms: Sequence[Transform]) -> bool:
    """True if no transform splits or joins elements."""
    others = [t.dtype if isinstance(t, Bitcast) else t.base.dtype for t in transforms if isinstance(t, (Bitcast, View))]
    return all(other.itemsize == dtype.itemsize for other in others)


def _read_once(array: Array, transform: Transform, operands: Sequence[Array], outside: Any) -> Array:
    """The elements that a transform selects. Those outside read as `outside`, by default as uninitialised memory."""
    match transform:
        case Index():
            key, inside, gathers = _resolve(transform, array.shape, operands)
            if inside:
                return array[key] if gathers else array[(*key, ...)]
            outside = dtypes.uninitialized(array.dtype) if outside is None else outside
            return _gather(array, *positions_of(key, array.shape), outside) if gathers else _cut(array, key, outside)[0]
        case Reshape(shape):
            return array.reshape(shape)
        case Transpose(permutation):
            return array.transpose(permutation)
        case Bitcast(dtype):
            return bitcast(array, dtype)
        case View():
            array = array.reshape(transform.base.shape)
            part = _strided(array, transform, operands)
            if part is not None:
                return part
            outside = dtypes.uninitialized(array.dtype) if outside is None else outside
            return _gather(array, *located(transform, operands), outside)
        case Peer():  # the machine has already resolved the owner of the buffer
            return array


def bitcast(array: Array, dtype: dtypes.DType) -> Array:
    """The same bits as another dtype; a change of width changes the last but one axis (see `transforms.Bitcast`)."""
    array = np.asarray(array)
    if array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    axis = bitcast_axis(array.ndim)
    moved = np.ascontiguousarray(np.moveaxis(array, axis, -1))
    return np.ascontiguousarray(np.moveaxis(moved.view(dtype), -1, axis))


def _recast(array: Array, base: ArrayType, dtype: Any) -> Array:
    """The bytes of an array in row-major order as another array, with elements of a base's width."""
    if (array.shape, array.dtype) == (base.shape, dtype):
        return array
    return np.ascontiguousarray(array).reshape(-1).view(dtype).reshape(base.shape)


def _strided(base: Array, view: View, operands: Sequence[Array]) -> Array | None:
    """The selection of a view as a NumPy view; None for a gather, or if some of it is outside."""
    if view.gathered or 0 in view.sizes:
        return None

    def first(row: Coordinate) -> int:
        return row.start + sum(factor * int(operands[position]) for position, factor in row.operands)

    limits = [*view.guards, *view.limits]
    if not all(
        0 <= first(row) < extent - row.reach(view.sizes)
        for row, extent in ((each.coordinate, each.extent) for each in limits)
    ):
        return None
    corner = base[(*(slice(first(row), None) for row in view.coordinates), ...)]
    strides = [
        sum(row.strides[axis] * step for row, step in zip(view.coordinates, base.strides, strict=True))
        for axis in range(len(view.sizes))
    ]
    return np.lib.stride_tricks.as_strided(corner, view.sizes, strides)


def located(view: View, operands: Sequence[Array]) -> tuple[tuple[Array, ...], Array]:
    """The indices in a view's base of its selection, clamped to the base, and a mask of those that were inside.

    The integer arrays, one for each axis of the base, broadcast to the shape of the selection.
    """
    rank = len(view.sizes)
    steps = [np.arange(size).reshape((size, *[1] * (rank - 1 - axis))) for axis, size in enumerate(view.sizes)]

    def operand(position: int) -> Array:
        value = np.asarray(operands[position]).astype(np.int64)
        own = view.gathered[len(view.gathered) - value.ndim :]
        return np.moveaxis(value.reshape(value.shape + (1,) * (rank - value.ndim)), range(value.ndim), own)

    def at(row: Coordinate) -> Array:
        found = sum((factor * operand(position) for position, factor in row.operands), np.asarray(row.start))
        return sum((stride * step for stride, step in zip(row.strides, steps, strict=True) if stride), found)

    inside = np.ones(view.sizes, bool)
    for guard in view.guards:
        found = at(guard.coordinate)
        inside &= (found >= 0) & (found < guard.extent)
    found = [at(row) for row in view.coordinates]
    return tuple(np.where((x >= 0) & (x < n), x, 0) for x, n in zip(found, view.base.shape, strict=True)), inside


def _resolve(index: Index, shape: tuple[int, ...], operands: Sequence[Array]) -> tuple[tuple[Any, ...], bool, bool]:
    """The index as a NumPy key, whether all of it is inside, and whether it has integer arrays."""
    key: list[Any] = []
    inside, gathers = True, False
    for entry, extent in zip(index.entries, shape, strict=True):
        if isinstance(entry, SliceEntry):
            start, size, stride = entry.start, entry.size, entry.stride
            if isinstance(start, Operand):
                start = int(operands[start.position])
            if size == 0:
                key.append(slice(0, 0, 1))
                continue
            inside = inside and start >= 0 and start + (size - 1) * stride < extent
            key.append(slice(start, start + size * stride, stride))
        elif isinstance(entry, Operand):
            value = operands[entry.position]
            if value.ndim == 0:
                value = int(value)
                inside = inside and 0 <= value < extent
            else:
                gathers = True
                inside = inside and (value.size == 0 or (value.min() >= 0 and bool(value.max() < extent)))
            key.append(value)
        else:
            key.append(entry)
    return tuple(key), inside, gathers


def view_key(index: Index, shape: tuple[int, ...], operands: Sequence[Array]) -> tuple[Any, ...] | None:
    """The NumPy key of an index whose selection is a view inside an array of a shape; None for others."""
    key, inside, gathers = _resolve(index, shape, operands)
    return (*key, ...) if inside and not gathers else None


def _cut(array: Array, key: tuple[Any, ...], outside: Any) -> tuple[Array, tuple[Any, Any] | None]:
    """A copy of a selection by integers and slices, and the keys (in array and copy) of the part that lies inside.

    No keys if no part does.
    """
    shape = tuple((part.stop - part.start) // part.step for part in key if isinstance(part, slice))
    found = np.full(shape, outside, array.dtype)
    there: list[Any] = []
    here: list[Any] = []
    for part, extent in zip(key, array.shape, strict=True):
        if isinstance(part, slice):
            start, step = part.start, part.step
            first = max(0, -(start // step))
            stop = min(shape[len(here)], -((start - extent) // step))
            if first >= stop:
                return found, None
            there.append(slice(start + first * step, start + stop * step, step))
            here.append(slice(first, stop))
        elif 0 <= part < extent:
            there.append(part)
        else:
            return found, None
    place = (*there, ...), (*here, ...)
    found[place[1]] = array[place[0]]
    return found, place


def _gather(array: Array, positions: tuple[Array, ...], valid: Array, outside: Any) -> Array:
    if not valid.any():
        return np.full(valid.shape, outside, array.dtype)
    found = array[positions]
    if np.shape(found) != valid.shape:
        found = np.array(np.broadcast_to(found, valid.shape))
    found[~valid] = outside
    return found


def positions_of(key: Any, shape: tuple[int, ...]) -> tuple[tuple[Array, ...], Array]:
    """A NumPy key as one integer array for each axis, clamped to the axis, and a mask of the elements that were inside.

    The integer arrays broadcast to that shape. The axes are ordered as in NumPy: those of slices stay, those of integer
    arrays replace these, or come first if a slice separates them.
    """
    pointed = [axis for axis, part in enumerate(key) if not isinstance(part, slice)]
    arrays = np.broadcast_shapes(*(np.shape(key[axis]) for axis in pointed))
    adjacent = pointed == list(range(pointed[0], pointed[0] + len(pointed)))
    before = pointed[0] if adjacent else 0
    sliced = len(key) - len(pointed)
    positions: list[Array] = []
    insides: list[Array] = []
    seen = 0
    for part, extent in zip(key, shape, strict=True):
        if isinstance(part, slice):
            after = sliced - seen - 1 + (len(arrays) if seen < before else 0)
            size = (part.stop - part.start) // part.step
            start = min(max(part.start, -size * part.step), extent)  # clamped, so nothing overflows
            found = (start + np.arange(size) * part.step).reshape((-1,) + (1,) * after)
            seen += 1
        elif np.ndim(part) == 0:
            found = np.asarray(min(max(part, -1), extent))
        else:
            found = part.astype(np.int64).reshape(part.shape + (1,) * (sliced - before))
        inside = (found >= 0) & (found < extent)
        positions.append(np.where(inside, found, 0))
        insides.append(inside)
    return tuple(positions), np.logical_and.reduce(np.broadcast_arrays(*insides))
