"""The blocks that a kernel sees at one grid point: views of their arrays, or copies that are written back.

A box of neighbouring elements that lies inside its array is a view. A box that reaches past the edge, and scattered
elements, are copies, with uninitialised elements outside the array. The copy of a box that the kernel writes to stays
for the steps that follow at the same index, with what was stored past the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from palladio.cpu.access.gather import one_by_one
from palladio.cpu.access.parts import Part, copy_part, fill_part
from palladio.cpu.access.views import Bound, BufferView, as_index, between
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, fill, scalar_array
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import BlockMarks, Scope
from palladio.ops.grid import (
    BlockDim,
    Blocked,
    BlockMap,
    BlockView,
    BoundedSlice,
    Element,
    Grid,
    Indirect,
    InitMarks,
    Squeezed,
)
from palladio.types import dtypes


def first_element(scope: Scope, block: BlockMap, array: StridedArray, indices: Sequence[LazyArray]) -> V:
    """The address of the first element of a box, inside the array or not."""
    e, offset = scope.e, 0
    for row, stride in zip(block.coordinates, array.strides, strict=True):
        position = row.first(e, row.start, lambda axis: e.known(as_index(scope, indices[axis])))
        offset = e.add(offset, e.mul(position, stride))
    return e.pointer(array.base, offset, array.dtype.itemsize)


class DenseBlock:
    """One block at one grid point: a view of its array, or a copy if it reaches past the edge."""

    def __init__(
        self,
        scope: Scope,
        block: BlockMap,
        array: StridedArray,
        indices: Sequence[LazyArray],
        guarded: bool = True,
        rows: V | None = None,
        first: V | None = None,
    ) -> None:
        self.e = scope.e
        self.view = BufferView(array)
        self.indices = [as_index(scope, index) for index in indices]
        self.cut(block, array, self.indices, guarded, rows)
        self.guard = guard = self.e.truth(self.view.guards)
        self.outside: V | None = None
        self.buffer = self.view.buffer
        if guard is None:
            return
        self.outside = self.e.negated(guard)
        self.copy = scope.arena.buffer(self.e, self.buffer.shape, self.buffer.dtype)
        renewed = self.outside if first is None else self.e.binary("and", self.outside, self.moved(scope, first))
        with self.e.when(renewed):
            fill(self.e, self.copy, dtypes.uninitialized(self.copy.dtype))
            if rows is not None:
                with self.e.when(self.e.compare("icmp slt", rows, i64(array.shape[0]))):
                    known = replace(Part.of(self.e, self.of_type), buffer=self.copy)
                    fill_part(self.e, known, self.copy.dtype, np.zeros((), self.copy.dtype))
            copy_part(self.e, Part.of(self.e, self.view).bits, Part.whole(self.copy).bits)
        strides = tuple(
            self.e.choose(guard, there, here)
            for there, here in zip(self.buffer.strides, self.copy.strides, strict=True)
        )
        base = self.e.select(guard, self.buffer.base, self.copy.base)
        self.buffer = StridedArray(base, strides, self.copy.shape, self.copy.dtype)

    def cut(self, block: BlockMap, array: StridedArray, indices: Sequence[V], guarded: bool, rows: V | None) -> None:
        """Make the view of the block, and the guards under which all of it is inside, unless this is proven.

        Args:
            rows: the rows of the array at the call, if they may be fewer than its type says; the others read as zero.
        """
        e = self.e
        offset: Int = 0
        strides: list[Int] = []
        bounds: list[Bound] = []
        proven = (block.inside if guarded else ()) or (not guarded,) * len(block.dims)
        axes = zip(block.coordinates, array.strides, array.shape, proven, strict=True)
        for axis, (row, stride, known, is_inside) in enumerate(axes):
            position = row.first(e, row.start, lambda axis: e.known(indices[axis]))
            reach = row.reach(block.block_shape)
            if rows is not None and axis == 0:
                start, end = e.index(position), e.index(e.sub(rows, 1 + reach))
                self.view.guards += [e.compare("icmp sge", start, i64(0)), e.compare("icmp sle", start, end)]
            elif not is_inside and (isinstance(position, V) or not 0 <= position < known - reach):
                self.view.guards.append(between(e, position, known - 1 - reach))
            # A checked position must be an LLVM value, even if it is a constant.
            bounds.append(Bound(e.index(position), row.strides, known if axis or rows is None else rows))
            offset = e.add(offset, e.mul(position, stride))
            if any(row.strides):
                strides.append(stride)
        self.view.bounds = bounds
        base = e.pointer(array.base, offset, array.dtype.itemsize)
        self.view.buffer = StridedArray(base, tuple(strides), block.block_shape, array.dtype)
        self.of_type = BufferView(self.view.buffer)
        self.of_type.bounds = [replace(bound, extent=known) for bound, known in zip(bounds, array.shape, strict=True)]

    def moved(self, scope: Scope, first: V) -> V:
        """True at the first step, and where the indices differ from those of the step before; stores the indices."""
        e = self.e
        last = scope.function.slot(I64, len(self.indices))
        places = [e.pointer(last, axis, 8) for axis in range(len(self.indices))]
        same = [e.compare("icmp eq", e.load(I64, at, 8), i) for at, i in zip(places, self.indices, strict=True)]
        for place, index in zip(places, self.indices, strict=True):
            e.store(index, place, 8)
        return e.binary("or", first, e.negated(e.truth(same) or TRUE))

    def start(self, base: V, marks: InitMarks, nowhere: V) -> BlockMarks:
        """The initialisation marks of this block; `nowhere` has the marks of blocks outside."""
        number: Int = 0
        for index, count in zip(self.indices, marks.counts, strict=True):
            number = self.e.add(self.e.mul(number, count), index)
        mark = self.e.pointer(base, self.e.mul(number, marks.rows), 1)
        if self.guard is not None:
            mark = self.e.select(self.guard, mark, nowhere)
        return BlockMarks(mark, self.buffer, marks.rows)

    def write_back(self) -> None:
        """Write the elements that are inside the array back to it."""
        if self.outside is not None:
            with self.e.when(self.outside):
                copy_part(self.e, Part.whole(self.copy).bits, Part.of(self.e, self.view).bits)


class GatheredBlock:
    """One block at one grid point with an axis of bounded size or of scattered elements: always a copy."""

    def __init__(self, scope: Scope, block: BlockMap, array: StridedArray, indices: Sequence[LazyArray]) -> None:
        self.e = scope.e
        self.scope = scope
        self.array = array
        values = iter([index if index.shape else scope.keep(index) for index in indices])
        self.axes = [
            (dim, [next(values) for _ in range(2 if isinstance(dim, BoundedSlice) else 1)]) for dim in block.dims
        ]
        self.buffer = scope.arena.buffer(self.e, block.block_shape, array.dtype)
        fill(self.e, self.buffer, dtypes.uninitialized(array.dtype))
        self.each(lambda index, there: self.buffer.put(self.e, index, self.array.at(self.e, there, 1), 1))

    def each(self, body: Callable[[Sequence[Int], Sequence[Int]], None]) -> None:
        """Run `body(index, index in the array)` for the elements that the array has, in row-major order."""

        def element(index: Sequence[Int]) -> None:
            there: list[Int] = []
            conditions: list[V] = []
            positions = iter(index)
            for (dim, values), extent in zip(self.axes, self.array.shape, strict=True):
                position = 0 if isinstance(dim, Squeezed) else next(positions)
                at = self.e.index(self.located(dim, values, position, conditions))
                conditions.append(self.e.compare("icmp ult", at, i64(extent)))
                there.append(at)
            with self.e.when(self.e.truth(conditions)):
                body(index, there)

        one_by_one(self.e, self.buffer.shape, element)

    def located(self, dim: BlockDim, values: Sequence[LazyArray], position: Int, conditions: list[V]) -> Int:
        """The position of an element of the block along one axis of the array; adds the conditions for it."""
        e = self.e
        if isinstance(dim, Indirect):
            (chosen,) = values
            return as_index(self.scope, scalar_array(e, chosen.at((position,), 1), chosen.dtype))
        first: Int = as_index(self.scope, values[0])
        if isinstance(dim, BoundedSlice):
            conditions.append(e.compare("icmp slt", e.index(position), as_index(self.scope, values[1])))
        if isinstance(dim, Blocked):
            first = e.mul(first, dim.block_size)
        elif isinstance(dim, Element):
            first = e.sub(first, dim.padding[0])
        return e.add(first, position)

    def write_back(self) -> None:
        """Write the elements that the array has back to it."""
        self.each(lambda index, there: self.array.put(self.e, there, self.buffer.at(self.e, index, 1), 1))


def window_of(
    scope: Scope,
    block: BlockMap,
    view: BlockView,
    array: StridedArray,
    indices: Sequence[LazyArray],
    rows: V | None = None,
    first: V | None = None,
) -> DenseBlock | GatheredBlock:
    """The block of an array at these indices, accessed as the schedule says.

    Args:
        rows: the rows of the array at the call, if they may be fewer than its type says.
        first: true at the first step of those that follow one another; None if no two steps do.
    """
    if view.access == "copy":
        return GatheredBlock(scope, block, array, indices)
    guarded = view.access == "guarded"
    return DenseBlock(scope, block, array, indices, guarded, rows, first if view.write_back else None)


def first_step(e: Emitter, grid: Grid, sizes: Sequence[Int], ids: Sequence[Int], loops: Sequence[int]) -> V | None:
    """True at the first of the steps that follow one another in the order of the grid.

    None if no two steps do, or if no block needs to know. Steps along an axis follow one another if no other task comes
    between them: each later axis that is not a loop has size 1, which may be known only at the call.

    Args:
        sizes: those of the axes at the call.
        loops: the axes that are loops inside a task.
    """
    if not any(view.access == "guarded" and view.write_back for view in grid.scheduled.blocks):
        return None
    apart = [axis for axis, size in enumerate(grid.sizes) if size != 1 and axis not in loops]
    begins = []
    for axis in loops:
        later = [each for each in apart if each > axis]
        if grid.sizes[axis] == 1 or any(grid.sizes[each] is not None for each in later):
            continue
        first = e.compare("icmp eq", e.index(ids[axis]), i64(0))
        for each in later:
            first = e.binary("or", first, e.compare("icmp ne", e.index(sizes[each]), i64(1)))
        begins.append(first)
    return e.truth(begins)
