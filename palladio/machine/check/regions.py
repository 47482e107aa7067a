"""The exact set of array elements that a load or store reaches, in a form that shadow memory can look up quickly.

A stack of transforms is a view (`palladio.lower.views`), whose coordinates are followed without touching elements, for
each axis of the array alone. Cases that this cannot express (a part of two joined axes, index arrays along two axes, a
mask, parts of elements) continue with the numbers of the selected elements.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.base.errors import InternalError
from palladio.lower.views import views
from palladio.ops.references import access
from palladio.types.transforms import Bitcast, Transform
from palladio.types.types import ArrayType
from palladio.types.views import Coordinate, Guard, View, along, row_major, whole

Array = Any
Shape = tuple[int, ...]
Bands = tuple[tuple[int, int], ...]  # disjoint and ascending, each from its first element to one past its last

Chain = tuple[View, ...]

_MOST_KEPT = 65_536  # resolved stacks that a `Regions` keeps


class Region:
    """A set of elements of an array: a grid of bands, or a subset of its boxes. Compared by identity."""

    __slots__ = ("bands", "chosen")

    def __init__(self, bands: tuple[Bands, ...] | None, chosen: Array | None = None) -> None:
        self.bands = bands
        """The bands of each axis of the array; None for the empty set."""
        self.chosen = chosen
        """bool[bands of axis 0, bands of axis 1, ...]; None for every box of the grid."""

    def is_same(self, other: Region) -> bool:
        """True if the other is the same set, written down in the same way."""
        return self is other or (self.bands == other.bands and np.array_equal(self.chosen, other.chosen))

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


class Regions:
    """Resolves stacks of transforms over arrays of one shape, cached by the values of scalar indices.

    Args:
        shape: that of the array at the base of the stacks.
        itemsize: bytes of its elements; needed for stacks that take a part of a bitcast.
    """

    def __init__(self, shape: Shape, itemsize: int | None = None) -> None:
        self.shape = shape
        self.itemsize = itemsize
        # By identity: an equation keeps its stack, and hashing a stack costs more than the rest of a look-up.
        self._kept: dict[tuple[int, ...], tuple[Sequence[Transform], Region]] = {}
        self._chains: dict[tuple[Any, ...], tuple[Sequence[Transform], Chain, Chain]] = {}

    def resolve(self, transforms: Sequence[Transform], indices: Sequence[Array], mask: Array | None = None) -> Region:
        """The selection of the transforms, without elements outside the array or masked out.

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
        if 0 in self.shape:
            return EMPTY
        chain = self._views(transforms, indices)[mask is None]
        if any(0 in view.sizes for view in chain):
            return EMPTY
        found = None
        if len(chain) == 1 and chain[0].base.shape == self.shape:
            found = _region_of_view(chain[0], indices, mask)
        return self._by_elements(chain, indices, mask) if found is None else found

    def _type(self, transforms: Sequence[Transform]) -> ArrayType:
        """The type of the array, with an opaque element type."""
        if self.itemsize is None and any(isinstance(transform, (Bitcast, View)) for transform in transforms):
            raise InternalError("a region after a bitcast needs the size of the array's elements")
        return ArrayType(self.shape, np.dtype((np.void, self.itemsize or 1)))

    def _views(self, transforms: Sequence[Transform], indices: Sequence[Array]) -> tuple[Chain, Chain]:
        """The views of a stack, at least one; and the same without views that only rearrange elements."""
        key = (id(transforms), *(getattr(index, "shape", ()) for index in indices))
        kept = self._chains.get(key)
        if kept is None:
            if len(self._chains) >= _MOST_KEPT:
                self._chains.clear()
            type = self._type(transforms)
            chain = views(type, transforms, [np.shape(index) for index in indices]) or (whole(type),)
            kept = self._chains[key] = transforms, chain, _joined(chain) or (whole(type),)
        return kept[1:]

    def _by_elements(self, chain: Chain, indices: Sequence[Array], mask: Array | None) -> Region:
        """The region, computed from the numbers of the pieces of each selected element, -1 for those outside."""
        itemsize = self.itemsize or 1
        piece = math.gcd(itemsize, *(view.base.dtype.itemsize for view in chain))
        pieces: Array = None
        for view in chain:
            positions, inside = access.located(view, indices)
            steps = zip(positions, row_major(view.base.shape), strict=True)
            elements = sum((each * step for each, step in steps), np.int64(0))
            count = view.base.dtype.itemsize // piece
            found = np.broadcast_to(elements, inside.shape)[..., None] * count + np.arange(count)
            before = found if pieces is None else pieces.ravel()[found]
            pieces = np.where(inside[..., None], before, -1)
        if mask is not None:
            pieces = pieces[np.broadcast_to(mask, pieces.shape[:-1])]
        return region_of_elements(pieces[pieces >= 0] // (itemsize // piece), self.shape)


def _joined(chain: Chain) -> Chain:
    """Views with the same elements: without those at the end that only rearrange, and merged where possible.

    The parts of a wide element are another axis of the selection.
    """
    while chain and chain[-1].rearranges:
        chain = chain[:-1]
    found = list(chain[:1])
    for view in chain[1:]:
        parts, rest = divmod(view.base.dtype.itemsize, found[-1].base.dtype.itemsize)
        last = None if rest else found[-1].reshaped((*view.base.shape, parts))
        if last is None:
            found.append(view)
            continue
        rank = len(view.sizes)
        rows = [replace(row, strides=(*row.strides, 0)) for row in view.rows]
        guards = map(Guard, rows[view.base.ndim :], (guard.extent for guard in view.guards))
        own = (*rows[: view.base.ndim], along(rank, rank + 1))
        found[-1] = last.of(View(last.type, (*view.sizes, parts), own, tuple(guards), view.gathered))
    return tuple(found)


def _region_of_view(view: View, indices: Sequence[Array], mask: Array | None) -> Region | None:
    """The region of a view, axis by axis; None if the axes are not independent."""
    arrays = {n for n, index in enumerate(indices) if getattr(index, "shape", ())}.intersection(view.operands)
    if len(arrays) > 1 or (arrays and mask is not None):
        return None
    kept = None if mask is None else _masked(mask, view.sizes)
    if mask is not None and kept is None:
        return None
    inside = [(0, size) for size in view.sizes]
    chosen: Array = None
    for guard in view.guards:
        row = guard.coordinate
        first = _first(row, indices)
        if not isinstance(first, int):
            if any(row.strides):
                return None
            holds = (first >= 0) & (first < guard.extent)
            chosen = holds if chosen is None else chosen & holds
        elif not 0 <= first < guard.extent - row.reach(view.sizes):
            axes = [axis for axis, stride in enumerate(row.strides) if stride and view.sizes[axis] > 1]
            if len(axes) != 1:
                return EMPTY if not axes else None
            ((low, high), step) = inside[axes[0]], row.strides[axes[0]]
            inside[axes[0]] = max(low, -(first // step)), min(high, -((first - guard.extent) // step))
    return _bands(view, indices, inside, kept, chosen)


def _bands(
    view: View, indices: Sequence[Array], inside: list[tuple[int, int]], kept: list[Array] | None, chosen: Array
) -> Region | None:
    """The positions along each axis of the array.

    Args:
        inside: the range of positions inside the array, along each axis of the selection.
        kept: the positions that a mask keeps, along each axis.
        chosen: the elements of an index array that are inside.
    """
    if any(low >= high for low, high in inside) or (chosen is not None and not chosen.any()):
        return EMPTY
    along = kept and [axis[(axis >= low) & (axis < high)] for axis, (low, high) in zip(kept, inside, strict=True)]
    if along is not None and any(not len(axis) for axis in along):
        return EMPTY
    bands: list[Bands] = []
    taken: set[int] = set()
    for row in view.coordinates:
        first = _first(row, indices)
        axes = [axis for axis, stride in enumerate(row.strides) if stride]
        if not isinstance(first, int):
            axes.append(-1)  # the axes of the index array
        if taken.intersection(axes):
            return None
        taken.update(axes)
        if not axes:
            bands.append(((first, first + 1),))
        elif len(axes) == 1 and axes[0] >= 0 and row.strides[axes[0]] == 1 and along is None:
            low, high = inside[axes[0]]
            bands.append(((first + low, first + high),))
        else:
            found = np.ravel(first) if chosen is None or isinstance(first, int) else first[chosen]
            for axis in axes[: None if isinstance(first, int) else -1]:
                steps = np.arange(*inside[axis]) if along is None else along[axis]
                found = np.add.outer(found, row.strides[axis] * steps).ravel()
            bands.append(_runs(np.unique(found)))
    return Region(tuple(bands))


def _first(row: Coordinate, indices: Sequence[Array]) -> Any:
    """The position of the first element: an integer, or an array of them for an index array."""
    found: Any = row.start
    for position, factor in row.operands:
        index = indices[position]
        found = found + factor * (np.asarray(index).astype(np.int64) if np.ndim(index) else operator.index(index))
    return found


def _masked(mask: Array, sizes: Shape) -> list[Array] | None:
    """The part of each axis that a mask keeps; None if it is not a product of masks of single axes."""
    mask = np.broadcast_to(mask, sizes)
    kept: list[Array] = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        kept.append(np.flatnonzero(mask.any(axis=others)))
    return kept if np.count_nonzero(mask) == math.prod(map(len, kept)) else None


def _runs(positions: Array) -> Bands:
    """Ascending positions as bands of neighbours."""
    ends = np.flatnonzero(np.diff(positions) > 1)
    firsts = positions[np.concatenate(([0], ends + 1))].tolist()
    lasts = positions[np.concatenate((ends, [-1]))].tolist()
    return tuple((first, last + 1) for first, last in zip(firsts, lasts, strict=True))


def region_of_elements(numbers: Array, shape: Shape) -> Region:
    """The region of elements with these numbers, in as few bands as they need."""
    if not numbers.size:
        return EMPTY
    if not shape:
        return Region(())
    occupied: list[Array] = []  # along each axis the positions that occur
    places: list[Array] = []  # and for each element, the index of its position among them
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
