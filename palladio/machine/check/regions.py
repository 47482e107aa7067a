"""Which elements of an array a load or store reaches, exactly, as a set that shadow memory can place quickly.

A stack of transforms is followed without touching elements as long as each axis of the view runs along one axis of the
array in even steps. What leaves that form (a gather, a part of two axes merged, a mask, elements cut to pieces) goes on
with the numbers of the selected elements, which move as `palladio.ops.references.access` moves the elements themselves.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palladio.base.errors import InternalError
from palladio.ops.references import access
from palladio.types.transforms import Bitcast, Index, Operand, Peer, Reshape, Slice, Transform, Transpose, bitcast_axis

Array = Any
Shape = tuple[int, ...]
Bands = tuple[tuple[int, int], ...]  # disjoint and ascending, each from its first element to one behind its last

_Positions = list[Array | None]  # for each axis of a view which positions are kept, in any order; None: all

_MOST_KEPT = 65_536  # resolved stacks that a `Regions` keeps


class Region:
    """A set of elements of an array: a grid of bands, or the chosen ones of its boxes. Compared by identity."""

    __slots__ = ("bands", "chosen")

    def __init__(self, bands: tuple[Bands, ...] | None, chosen: Array | None = None) -> None:
        self.bands = bands
        """For each axis of the array its bands; None for no element at all."""
        self.chosen = chosen
        """bool[bands of axis 0, bands of axis 1, ...]; None for every box of the grid."""

    def mask(self, shape: Shape) -> Array:
        """The set as bool[shape], for tests and messages."""
        mask = np.zeros(shape, bool)
        if self.bands is not None:
            for place in itertools.product(*(range(len(bands)) for bands in self.bands)):
                if self.chosen is None or self.chosen[place]:
                    box = (slice(*bands[n]) for bands, n in zip(self.bands, place, strict=True))
                    mask[tuple(box)] = True
        return mask


EMPTY = Region(None)


@dataclass(slots=True)
class _Axis:
    """An axis of a view: position p is `step * p` further along an axis of the array (-1: none, of size 1)."""

    root: int
    step: int
    size: int
    low: int  # positions inside the array are those from `low` to `high`
    high: int

    @property
    def whole(self) -> bool:
        return self.low == 0 and self.high == self.size


@dataclass(slots=True)
class _AffineView:
    """The selection of the transforms so far, while each of its axes runs along one axis of the array.

    `hidden` are the axes inside an element, innermost first: what a bitcast to a wider dtype has joined.
    """

    offsets: list[int]
    axes: list[_Axis]
    hidden: list[_Axis]
    width: int  # bytes of an element


class Regions:
    """Resolves stacks of transforms over arrays of one shape, each but once for the same values of scalar indices.

    Args:
        shape: of the array that the stacks start from.
        itemsize: bytes of its elements; needed for stacks that take a part of a bitcast.
    """

    def __init__(self, shape: Shape, itemsize: int | None = None) -> None:
        self.shape = shape
        self.itemsize = itemsize
        # By identity: an equation keeps its stack, and hashing a stack costs more than the rest of a look-up.
        self._kept: dict[tuple[int, ...], tuple[Sequence[Transform], Region]] = {}

    def resolve(self, transforms: Sequence[Transform], indices: Sequence[Array], mask: Array | None = None) -> Region:
        """The selection of the transforms, less the elements outside the array and those that the mask leaves out.

        Args:
            indices: the index operands, integers of any shape.
            mask: a bool array that broadcasts to the shape of the selection.
        """
        if mask is not None and not np.all(mask):
            return self._resolve(transforms, indices, mask) if np.any(mask) else EMPTY
        try:
            key = (id(transforms), *map(operator.index, indices))
        except TypeError:  # an array of indices
            return self._resolve(transforms, indices, None)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[key] = transforms, self._resolve(transforms, indices, None)
        return kept[1]

    def _resolve(self, transforms: Sequence[Transform], indices: Sequence[Array], mask: Array | None) -> Region:
        todo: list[Transform] = [transform for transform in transforms if not isinstance(transform, Peer)]
        if mask is None:
            while todo and not isinstance(todo[-1], Index):
                todo.pop()  # the same elements in another form
        if 0 in self.shape:
            return EMPTY
        axes = [_Axis(axis, 1, extent, 0, extent) for axis, extent in enumerate(self.shape)]
        width = self._itemsize() if any(isinstance(transform, Bitcast) for transform in todo) else 1
        view = _AffineView([0] * len(axes), axes, [], width)
        while todo and _follow(view, todo[0], indices):
            del todo[0]
            if any(axis.low >= axis.high for axis in view.axes):
                return EMPTY
        kept: _Positions | None = None
        if mask is None:
            kept = _gathered(view, todo, indices) if todo else [None] * len(view.axes)
        elif not todo:
            kept = _masked(view, mask)
        if kept is not None:
            return _region_of_view(view, kept)
        return self._by_elements(view, todo, indices, mask)

    def _itemsize(self) -> int:
        if self.itemsize is None:
            raise InternalError("a region behind a bitcast needs the size of the array's elements")
        return self.itemsize

    def _by_elements(
        self, view: _AffineView, todo: list[Transform], indices: Sequence[Array], mask: Array | None
    ) -> Region:
        """The region, by way of the numbers of the pieces of each selected element, -1 for what lies outside."""
        operands = [np.asarray(index) for index in indices]
        widths = [transform.dtype.itemsize for transform in todo if isinstance(transform, Bitcast)]
        itemsize = self._itemsize() if widths else 1
        piece = math.gcd(*widths, itemsize)
        pieces = itemsize // piece  # of an element of the array
        parts, todo = _numbers(view, self.shape, todo, operands)
        parts = [part * pieces + n if n else part * pieces for part in parts for n in range(pieces)]
        for transform in todo:
            if isinstance(transform, Bitcast):
                parts = _recut(parts, transform.dtype.itemsize // piece)
            else:
                parts = [access.read(part, (transform,), operands) for part in parts]
        if mask is not None:
            parts = [part[np.broadcast_to(mask, part.shape)] for part in parts]
        numbers = np.concatenate([part.ravel() for part in parts])
        return region_of_elements(numbers[numbers >= 0] // pieces, self.shape)


def _follow(view: _AffineView, transform: Transform, indices: Sequence[Array]) -> bool:
    """Take one more transform into the view; False, and the view as it was, where that has no such form."""
    match transform:
        case Index():
            if any(isinstance(e, Operand) and np.ndim(indices[e.position]) > 0 for e in transform.entries):
                return False
            _index(view, transform, indices)
        case Transpose(permutation):
            view.axes = [view.axes[axis] for axis in permutation]
        case Reshape(shape):
            axes = _reshaped(view.axes, shape)
            if axes is None:
                return False
            view.axes = axes
        case Bitcast(dtype):
            return _bitcast(view, dtype.itemsize)
    return True


def _index(view: _AffineView, transform: Index, indices: Sequence[Array]) -> None:
    """Integers and slices. An integer outside leaves a unit axis of which nothing is inside."""
    axes: list[_Axis] = []
    for axis, entry in zip(view.axes, transform.entries, strict=True):
        start = entry.start if isinstance(entry, Slice) else entry
        if isinstance(start, Operand):
            start = operator.index(indices[start.position])
        if isinstance(entry, Slice):
            low = max(0, -((start - axis.low) // entry.stride))
            high = min(entry.size, -((start - axis.high) // entry.stride))
            axes.append(_Axis(axis.root, axis.step * entry.stride, entry.size, low, high))
        elif not axis.low <= start < axis.high:
            axes.append(_Axis(-1, 0, 1, 0, 0))
            continue
        if axis.root >= 0:
            view.offsets[axis.root] += axis.step * start
    view.axes = axes


def _reshaped(axes: list[_Axis], shape: Shape) -> list[_Axis] | None:
    """The axes of a view in another shape; None if one would run along two axes of the array, or half outside."""
    unit = _Axis(-1, 0, 1, 0, 1)
    old = [axis for axis in axes if axis.size != 1]
    sizes = [size for size in shape if size != 1]
    found: list[_Axis] = []
    while sizes:
        axis, size = old.pop(0), sizes.pop(0)
        if axis.size == size:
            found.append(axis)
            continue
        while axis.size % size:  # merge: the next axis goes on where a step of this one ends
            if not old:
                return None
            inner = old.pop(0)
            if inner.root != axis.root or axis.step != inner.step * inner.size or not (axis.whole and inner.whole):
                return None
            axis = _Axis(inner.root, inner.step, axis.size * inner.size, 0, axis.size * inner.size)
        if not axis.whole:
            return None
        rest = axis.size // size
        found.append(_Axis(axis.root, axis.step * rest, size, 0, size))
        if rest > 1:
            old.insert(0, _Axis(axis.root, axis.step, rest, 0, rest))
    within = iter(found)
    return [unit if size == 1 else next(within) for size in shape]


def _bitcast(view: _AffineView, width: int) -> bool:
    if width == view.width:
        return True
    if width % view.width:  # elements cut to pieces
        return False
    place = bitcast_axis(len(view.axes))
    axis, joined = view.axes[place], width // view.width
    if not axis.whole:
        return False
    size = axis.size // joined
    view.axes = list(view.axes)
    view.axes[place] = _Axis(axis.root, axis.step * joined, size, 0, size)
    view.hidden.append(_Axis(axis.root, axis.step, joined, 0, joined))
    view.width = width
    return True


def _gathered(view: _AffineView, todo: Sequence[Transform], indices: Sequence[Array]) -> _Positions | None:
    """Take in an index with one integer array that ends a stack. What it keeps of each axis; None for other stacks."""
    if len(todo) != 1 or not isinstance(todo[0], Index):
        return None
    entries = list(todo[0].entries)
    arrays = [
        n for n, entry in enumerate(entries) if isinstance(entry, Operand) and np.ndim(indices[entry.position]) > 0
    ]
    if len(arrays) != 1:
        return None
    gathered = entries[arrays[0]]
    entries[arrays[0]] = Slice(0, view.axes[arrays[0]].size)
    _index(view, Index(tuple(entries)), indices)
    if any(axis.low >= axis.high for axis in view.axes):
        return [np.zeros(0, np.int64) for _ in view.axes]
    kept: _Positions = [None] * len(view.axes)
    place = sum(isinstance(entry, Slice) for entry in entries[: arrays[0]])
    kept[place] = np.asarray(indices[gathered.position]).astype(np.int64).ravel()  # type: ignore[union-attr]
    return kept


def _masked(view: _AffineView, mask: Array) -> _Positions | None:
    """The part of each axis that a mask keeps; None if it is not a product of masks of single axes."""
    mask = np.broadcast_to(mask, tuple(axis.size for axis in view.axes))
    kept: list[Array] = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        kept.append(np.flatnonzero(mask.any(axis=others)))
    return kept if np.count_nonzero(mask) == math.prod(map(len, kept)) else None


def _region_of_view(view: _AffineView, kept: _Positions) -> Region:
    bands: list[Bands] = []
    axes = [*zip(view.axes, kept, strict=True), *((axis, None) for axis in view.hidden)]
    if any(positions is not None and not len(_inside(axis, positions)) for axis, positions in axes):
        return EMPTY
    for root, offset in enumerate(view.offsets):
        along = [(axis, positions) for axis, positions in axes if axis.root == root]
        if not along:
            bands.append(((offset, offset + 1),))
        elif len(along) == 1 and along[0][0].step == 1 and along[0][1] is None:
            bands.append(((offset + along[0][0].low, offset + along[0][0].high),))
        else:
            found = np.array([offset])
            for axis, positions in along:
                found = np.add.outer(found, axis.step * _inside(axis, positions)).ravel()
            bands.append(_runs(np.unique(found)))
    return Region(tuple(bands))


def _inside(axis: _Axis, positions: Array | None) -> Array:
    if positions is None:
        return np.arange(axis.low, axis.high)
    return positions[(positions >= axis.low) & (positions < axis.high)]


def _runs(positions: Array) -> Bands:
    """Ascending positions as bands of neighbours."""
    ends = np.flatnonzero(np.diff(positions) > 1)
    firsts = positions[np.concatenate(([0], ends + 1))].tolist()
    lasts = positions[np.concatenate((ends, [-1]))].tolist()
    return tuple((first, last + 1) for first, last in zip(firsts, lasts, strict=True))


def _numbers(
    view: _AffineView, shape: Shape, todo: list[Transform], operands: Sequence[Array]
) -> tuple[list[Array], list[Transform]]:
    """The numbers of the array's elements that a view's elements consist of, in their order in memory.

    An index that comes next is taken in at once, so that no more is numbered than it selects.
    """
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = tuple(axis.size for axis in view.axes)
    inside: Array
    if todo and isinstance(todo[0], Index):
        positions, inside = access.positions_of(_key(todo[0], operands), sizes)
        todo = todo[1:]
    else:
        positions = np.indices(sizes, sparse=True)
        inside = np.ones(sizes, bool)
    numbers = np.full(inside.shape, sum(o * s for o, s in zip(view.offsets, strides, strict=True)), np.int64)
    for axis, position in zip(view.axes, positions, strict=True):
        if axis.root >= 0:
            numbers += position * (axis.step * strides[axis.root])
        if not axis.whole:
            inside = inside & (position >= axis.low) & (position < axis.high)
    # The last axis hidden is the outermost.
    within = [
        [axis.step * strides[axis.root] * position for position in range(axis.size)] for axis in reversed(view.hidden)
    ]
    return [np.where(inside, numbers + sum(steps), -1) for steps in itertools.product(*within)], todo


def _key(index: Index, operands: Sequence[Array]) -> tuple[Any, ...]:
    """An index with integer arrays as a NumPy key."""
    key: list[Any] = []
    for entry in index.entries:
        if isinstance(entry, Slice):
            start = operands[entry.start.position].item() if isinstance(entry.start, Operand) else entry.start
            size = entry.size
            key.append(slice(start, start + size * entry.stride, entry.stride) if size else slice(0, 0, 1))
        elif isinstance(entry, Operand):
            value = operands[entry.position]
            key.append(value if value.ndim else value.item())
        else:
            key.append(entry)
    return tuple(key)


def _recut(parts: list[Array], pieces: int) -> list[Array]:
    """Elements of `len(parts)` pieces as elements of so many, along the axis that a bitcast changes."""
    if pieces == len(parts):
        return parts
    axis = bitcast_axis(parts[0].ndim)
    joined = np.stack([np.moveaxis(part, axis, -1) for part in parts], -1)
    cut = joined.reshape((*joined.shape[:-2], -1, pieces))
    return [np.moveaxis(cut[..., n], -1, axis) for n in range(pieces)]


def region_of_elements(numbers: Array, shape: Shape) -> Region:
    """The region of elements with these numbers, in as few bands as they need."""
    if not numbers.size:
        return EMPTY
    if not shape:
        return Region(())
    occupied: list[Array] = []  # along each axis the positions that occur
    places: list[Array] = []  # and for each element, which of them it has
    for coordinates, extent in zip(np.unravel_index(numbers, shape), shape, strict=True):
        occurs = np.zeros(extent, bool)
        occurs[coordinates] = True
        occupied.append(np.flatnonzero(occurs))
        places.append((np.cumsum(occurs) - 1)[coordinates])
    mask = np.zeros(tuple(map(len, occupied)), bool)
    mask[tuple(places)] = True
    bands: list[Bands] = []
    for axis, positions in enumerate(occupied):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        differs = np.any(np.diff(mask, axis=axis), axis=others)
        starts = np.concatenate(([0], np.flatnonzero(differs | (np.diff(positions) > 1)) + 1))
        stops = np.concatenate((starts[1:], [len(positions)])) - 1
        ends = zip(positions[starts].tolist(), positions[stops].tolist(), strict=True)
        bands.append(tuple((first, last + 1) for first, last in ends))
        mask = np.take(mask, starts, axis=axis)
    return Region(tuple(bands), None if mask.all() else mask)
