"""From a stack of transforms to views: one if it is an affine map, as almost all are; else a chain of several.

The base of each further view is the previous selection, as an array in row-major order. A new view begins where
a reshape joins axes that are not contiguous, after a gather, and where a bitcast gives bits of a selection
another dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

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
    gathered_axis,
)
from palladio.types.types import ArrayType, Shape
from palladio.types.views import Coordinate, Guard, View, along, guarded, whole


def views(array: ArrayType, stack: Sequence[Transform], operands: Sequence[Shape]) -> tuple[View, ...]:
    """The views equal to a stack of transforms; none for all of the array. The block of a `Peer` is ignored.

    Args:
        array: the type of the array that the stack is applied to.
        operands: the shapes of the index operands.
    """
    return _views(array, tuple(stack), tuple(map(tuple, operands)))


@lru_cache(maxsize=4096)
def _views(array: ArrayType, stack: tuple[Transform, ...], operands: tuple[Shape, ...]) -> tuple[View, ...]:
    chain = _Chain(array)
    for transform in stack:
        chain.take(transform, operands)
    last = chain.last
    return (*chain.done, *([] if last.is_whole and last.type == array and not chain.done else [last]))


class _Chain:
    """A sequence of views; the last one can still absorb transforms."""

    def __init__(self, array: ArrayType) -> None:
        self.done: list[View] = []
        self.last = whole(array)

    def take(self, transform: Transform, operands: Sequence[Shape]) -> None:
        """Absorb one more transform."""
        match transform:
            case Index():
                self.select(_indexed(self.last.sizes, transform, operands))
            case Transpose(permutation):
                self.transpose(permutation)
            case Reshape(shape):
                self.reshape(shape)
            case Bitcast(dtype):
                self.recast(dtype)
            case View():
                self.view(transform)
            case Peer():
                pass

    def begin(self, base: ArrayType) -> None:
        """Begin a view of the last one's selection, its bytes reinterpreted as another array."""
        if not self.last.is_whole:
            self.done.append(self.last)
        self.last = whole(base)

    def select(self, inner: tuple[Shape, tuple[Coordinate, ...], list[Guard], tuple[int, ...]]) -> None:
        """Absorb a selection."""
        if self.last.gathered:
            self.begin(self.last.type)
        sizes, coordinates, guards, gathered = inner
        view = View(self.last.type, sizes, coordinates, gathered=gathered)
        self.last = self.last.of(guarded(view, guards))

    def transpose(self, permutation: Sequence[int]) -> None:
        """Permute the axes."""
        rank = len(permutation)
        sizes = tuple(self.last.sizes[axis] for axis in permutation)
        places = tuple(along(permutation.index(axis), rank) for axis in range(rank))
        gathered = tuple(permutation.index(axis) for axis in self.last.gathered)
        inner = self.last.of(View(self.last.type, sizes, places))
        self.last = View(self.last.base, sizes, inner.coordinates, inner.guards, gathered)

    def reshape(self, shape: Shape) -> None:
        """Reshape the selection."""
        found = self.last.reshaped(shape)
        if found is None:
            self.begin(ArrayType(shape, self.last.base.dtype))
        else:
            self.last = found

    def recast(self, dtype: np.dtype) -> None:
        """Reinterpret the bits as another dtype. The parts of a wide element lie along a new last axis."""
        shape, old, new = self.last.sizes, self.last.base.dtype.itemsize, dtype.itemsize
        axis, rank = bitcast_axis(len(shape)), len(shape)
        others = [n for n in range(rank + 1) if n != axis + 1]
        if dtype == self.last.base.dtype:
            return
        if old == new:
            self.begin(ArrayType(shape, dtype))
        elif old < new:
            count = shape[axis] * old // new
            if axis < rank - 1:
                self.reshape((*shape[:axis], count, new // old, *shape[axis + 1 :]))
                self.transpose([*others, axis + 1])
            self.begin(ArrayType((*shape[:axis], count, *shape[axis + 1 :]), dtype))
        else:
            parts, count = old // new, shape[axis] * old // new
            if axis == rank - 1:
                self.begin(ArrayType((*shape[:axis], count), dtype))
                return
            self.begin(ArrayType((*shape, parts), dtype))
            self.transpose([*range(axis + 1), rank, *range(axis + 1, rank)])
            self.reshape((*shape[:axis], count, *shape[axis + 1 :]))

    def view(self, inner: View) -> None:
        """Absorb a view."""
        if inner.base != self.last.type or self.last.gathered:
            self.begin(inner.base)
        self.last = self.last.of(inner)


def _indexed(
    shape: Shape, index: Index, operands: Sequence[Shape]
) -> tuple[Shape, tuple[Coordinate, ...], list[Guard], tuple[int, ...]]:
    """The selection of an index: its shape, a coordinate for each axis, guards, and the axes of index arrays.

    Axes go where NumPy puts them: those of slices stay, those of index arrays replace them, or come first if a slice
    separates them.
    """
    arrays = [operands[entry.position] for entry in index.entries if isinstance(entry, Operand)]
    gathered = np.broadcast_shapes(*arrays)
    before = gathered_axis(index)
    slices = [entry.size for entry in index.entries if isinstance(entry, SliceEntry)]
    sizes = (*slices[:before], *gathered, *slices[before:])
    coordinates: list[Coordinate] = []
    guards: list[Guard] = []
    seen = 0
    for entry, extent in zip(index.entries, shape, strict=True):
        found = Coordinate(0, (), (0,) * len(sizes))
        start = entry
        if isinstance(entry, SliceEntry):
            axis = seen + (len(gathered) if seen >= before else 0)
            found, start, seen = along(axis, len(sizes), 0, entry.stride), entry.start, seen + 1
        if isinstance(start, Operand):
            found = Coordinate(0, ((start.position, 1),), found.strides)
            if not start.inside:
                guards.append(Guard(found, extent))
        elif isinstance(start, int):
            found = Coordinate(start, (), found.strides)
        coordinates.append(found)
    return sizes, tuple(coordinates), guards, tuple(range(before, before + len(gathered)))
