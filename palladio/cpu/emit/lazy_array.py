"""Lazy arrays: the values of a kernel while it is compiled.

A lazy array describes how its element at an index is computed; nothing is computed until it is needed, so that a chain
of element-by-element operations is one loop. The pass `keep_arrays` decides which arrays are written to a buffer in the
thread's arena instead: those used several times, and those computed from memory that is about to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.llvm_types import I32, I64
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape
from palladio.types.views import recut, row_major

LINE_BYTES = 64

STREAMED_LANES = 8 * registers.LANES
"""The least length of rows that are written past the caches: shorter rows consist mostly of partial vectors."""

At = Callable[[Sequence[Int], int], V]
Panel = Callable[["LazyArray", Int, Int], None]
Panels = Callable[[Panel, "tuple[Int, Int] | None", "StridedArray | None"], None]


@dataclass(frozen=True, eq=False)
class Allocation:
    """The memory that a program's references point to: an input, an output, scratch, an allocation.

    Fields:
        steady: nothing writes it during the call.
        streamed: an output larger than the caches, every element of which is written once and not read.
        exclusive: no other worker accesses the part that a task accesses.
        large: little of it is in a cache when the call begins.
    """

    name: str
    steady: bool = False
    streamed: bool = False
    exclusive: bool = False
    large: bool = False


@dataclass(frozen=True)
class StridedArray:
    """Elements in memory: the address of the first one, and the stride of each axis in elements."""

    base: V
    strides: tuple[Int, ...]
    shape: Shape
    dtype: DType

    @property
    def type(self) -> ArrayType:
        """The type of the array it holds."""
        return ArrayType(self.shape, self.dtype)

    @property
    def contiguous(self) -> bool:
        """True if the elements are known to be contiguous, in row-major order."""
        return self.strides == row_major(self.shape)

    def regrouped(self, shape: Shape) -> StridedArray | None:
        """The same elements, in the same order, in another shape; None if they are not known to be evenly spaced."""
        columns = [
            (n, (stride,)) for n, stride in zip(self.shape, self.strides, strict=True) if isinstance(stride, int)
        ]
        found = recut(columns, shape, 1) if len(columns) == len(self.shape) and 0 not in shape else None
        return None if found is None else replace(self, strides=tuple(stride for (stride,) in found), shape=shape)

    def address(self, e: Emitter, index: Sequence[Int]) -> V:
        """The address of an element."""
        offset: Int = 0
        for position, stride in zip(index, self.strides, strict=True):
            offset = e.add(offset, e.mul(position, stride))
        return e.pointer(self.base, offset, self.dtype.itemsize)

    def part(self, e: Emitter, first: Sequence[Int], shape: Shape) -> StridedArray:
        """The elements from an index on."""
        return StridedArray(self.address(e, first), self.strides, shape, self.dtype)

    def at(self, e: Emitter, index: Sequence[Int], width: int) -> V:
        """The elements from an index on along the last axis, in registers."""
        if width == 1 or self.strides[-1] == 1:
            return registers.load(e, self.address(e, index), self.dtype, width)
        *lead, last = index
        if self.strides[-1] == 0:
            return e.splat(self.at(e, index, 1), width)
        return e.gathered([self.at(e, (*lead, e.add(last, lane)), 1) for lane in range(width)])

    def put(self, e: Emitter, index: Sequence[Int], value: V, width: int) -> None:
        """Write the elements from an index on along the last axis."""
        if width == 1 or self.strides[-1] == 1:
            registers.store(e, value, self.address(e, index), self.dtype)
            return
        *lead, last = index
        for lane in range(width):
            registers.store(e, e.lane(value, lane), self.address(e, (*lead, e.add(last, lane))), self.dtype)


@dataclass(eq=False)
class LazyArray:
    """An array, as a description of how its elements are computed.

    Fields:
        type: the array type.
        at: returns, for an index and a width, the elements from there on along the last axis.
        reads: the memory that computing an element reads; true if element [i] reads only element [i] of a whole view
            of that memory.
        cheap: whether computing an element twice costs no more than keeping it.
        buffer: the place of its elements, if they are in memory.
        fill: writes all elements to a buffer, in any order; for arrays that are not computed element by element.
        zero_ranges: half-open ranges of positions along axes, outside of which all elements are zero or false.
        panels: computes a range of rows, all for None, a few at a time; for matrices with `fill`. For each panel of
            rows it calls a function with an array of the whole type whose elements in these rows can be computed, the
            first row, and the number of rows. Its last argument is the buffer that all rows end up in, if known.
        rows: memory with the same rows in the same order, by another number of axes.
        near: a buffer of the same shape; each element is computed from the one at the same index there.
        normal: whether no element is a subnormal number.
        zero: whether all elements are known to be 0, not -0.
        uniform: whether all elements are one value in a register.
        ahead: byte distance to the same element of the next task's block, for prefetching.
    """

    type: ArrayType
    at: At
    reads: dict[Allocation, bool] = field(default_factory=dict)
    cheap: bool = False
    buffer: StridedArray | None = None
    fill: Callable[[StridedArray], None] | None = None
    zero_ranges: dict[int, tuple[Int, Int]] = field(default_factory=dict)
    panels: Panels | None = None
    rows: StridedArray | None = None
    near: StridedArray | None = None
    normal: bool = False
    zero: bool = False
    uniform: bool = False
    ahead: V | None = None

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The dtype."""
        return self.type.dtype


def merged(arrays: Sequence[LazyArray], aligned: bool = True) -> dict[Allocation, bool]:
    """The memory that several arrays read together; not element by element, unless `aligned`."""
    reads: dict[Allocation, bool] = {}
    for array in arrays:
        for memory, same in array.reads.items():
            reads[memory] = reads.get(memory, True) and same and aligned
    return reads


class Arena:
    """The memory of the running thread for buffers, laid out while compiling."""

    ALIGNMENT = 64

    def __init__(self, base: V) -> None:
        self.base = base
        self.size = 0

    def buffer(self, e: Emitter, shape: Shape, dtype: DType) -> StridedArray:
        """A new buffer."""
        start = self.size
        used = math.prod(shape) * dtype.itemsize
        self.size = -(-(start + used) // self.ALIGNMENT) * self.ALIGNMENT + self.ALIGNMENT
        return StridedArray(e.pointer(self.base, start, 1), row_major(shape), shape, dtype)


def array_in(e: Emitter, buffer: StridedArray, memory: Allocation | None = None) -> LazyArray:
    """The array whose elements a buffer holds; `memory` must not change while the array is used."""
    reads = {} if memory is None else {memory: True}
    return LazyArray(buffer.type, lambda index, width: buffer.at(e, index, width), reads, True, buffer)


def prefetching(e: Emitter, array: LazyArray) -> LazyArray:
    """An array in memory that prefetches the elements of the next task while its own are read."""
    buffer, ahead = array.buffer, array.ahead
    if buffer is None or ahead is None or buffer.strides[-1:] != (1,):
        return array

    def at(index: Sequence[Int], width: int) -> V:
        place = e.pointer(buffer.address(e, index), ahead, 1)
        for offset in range(0, width * buffer.dtype.itemsize, LINE_BYTES) if width > 1 else ():
            e.prefetch(e.pointer(place, offset, 1))
        return array.at(index, width)

    return replace(array, at=at, ahead=None)


def scalar_array(e: Emitter, value: V, dtype: DType) -> LazyArray:
    """The array of one scalar value."""
    zero = value.constant == 0 and math.copysign(1, value.constant) > 0
    return LazyArray(
        ArrayType((), dtype), lambda index, width: e.splat(value, width), {}, True, zero=zero, uniform=True
    )


def number_array(e: Emitter, index: Int) -> LazyArray:
    """An index or a size as the i32 scalar that programs see."""
    value = V(str(index), I32) if isinstance(index, int) else e.convert("trunc", index, I32)
    return scalar_array(e, value, dtypes.INT32)


def widths(extent: int, lanes: int = registers.LANES) -> Iterator[tuple[int, int, int]]:
    """An axis split into vectors of at most some lanes: (first element, end, width), the widest first."""
    start, width = 0, lanes
    while start < extent:
        while width > extent - start:
            width //= 2
        end = start + (extent - start) // width * width
        yield start, end, width
        start = end


def cut(extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """An axis split into whole pieces and a remainder: (first, end, size of each)."""
    whole = extent // size * size
    if whole:
        yield 0, whole, size
    if extent > whole:
        yield whole, extent, extent - whole


def for_each(e: Emitter, shape: Shape, body: Callable[[tuple[Int, ...], int], None]) -> None:
    """Run `body(index, width)` over a shape, with vectors along the last axis."""
    if not shape:
        body((), 1)
        return
    _outer(e, shape, 0, (), body)


def _outer(e: Emitter, shape: Shape, axis: int, index: tuple[Int, ...], body: Any) -> None:
    if axis == len(shape) - 1:
        for start, end, width in widths(shape[axis]):
            with e.loop(start, end, width) as last:
                body((*index, last), width)
        return
    with e.loop(0, shape[axis]) as position:
        _outer(e, shape, axis + 1, (*index, position), body)


def fill(e: Emitter, buffer: StridedArray, value: object) -> None:
    """Write one value to all elements."""
    for_each(
        e,
        buffer.shape,
        lambda index, width: buffer.put(e, index, registers.constant(e, np.asarray(value), buffer.dtype, width), width),
    )


def write(e: Emitter, array: LazyArray, target: StridedArray) -> None:
    """Compute all elements of an array into a buffer."""
    if array.fill is not None:
        array.fill(target)
        return
    for_each(e, array.shape, lambda index, width: target.put(e, index, array.at(index, width), width))


def written_whole(type: ArrayType, sources: Sequence[LazyArray], put: Callable[[StridedArray], None]) -> LazyArray:
    """An array that `put` computes from others as a whole, where it is stored."""

    def at(index: Sequence[Int], width: int) -> V:
        raise Refused("this array is computed as a whole")

    return LazyArray(type, at, merged(sources, aligned=False), fill=put)


def rows_of(e: Emitter, array: LazyArray, first: Int, count: int) -> LazyArray:
    """Some rows of a matrix that is computed element by element; a scalar unchanged."""
    if not array.shape:
        return array
    type = ArrayType((count, *array.shape[1:]), array.dtype)
    return LazyArray(type, lambda index, width: array.at((e.add(first, index[0]), *index[1:]), width), array.reads)


def some_rows(
    e: Emitter, array: LazyArray, target: StridedArray, first: Int, count: int
) -> tuple[LazyArray, StridedArray]:
    """Some rows of a matrix, and of the buffer for all of it."""
    return rows_of(e, array, first, count), target.part(e, (first, 0), (count, *target.shape[1:]))


def row_by_row(e: Emitter, panels: Panels, function: Callable[[LazyArray], LazyArray], shown: LazyArray) -> LazyArray:
    """A function, element by element, of a matrix that is computed a few rows at a time.

    Args:
        panels: as in `LazyArray`, of the matrix.
        shown: the function's result for the whole matrix, for its type and the memory that it reads.
    """

    def through(use: Panel, rows: tuple[Int, Int] | None, into: StridedArray | None) -> None:
        panels(lambda part, first, count: use(function(part), first, count), rows, into)

    def fill_all(target: StridedArray) -> None:
        def put(part: LazyArray, first: Int, count: Int) -> None:
            write(e, *some_rows(e, part, target, first, count))  # type: ignore[arg-type]  of all rows the counts are known

        through(put, None, target)

    return LazyArray(shown.type, shown.at, shown.reads, fill=fill_all, panels=through)


def stream(e: Emitter, array: LazyArray, target: StridedArray) -> None:
    """Compute all elements of an array into memory past the caches, if its rows are long enough for that.

    Aligned whole vectors are written with non-temporal stores, which replace cache lines without reading them first.
    The unaligned ends of a row are written as usual, as vectors that overlap the others: masked vectors take longer
    than all of them.
    """
    lanes = registers.LANES
    if array.fill is not None or not array.shape or array.shape[-1] < STREAMED_LANES or target.strides[-1] != 1:
        write(e, array, target)
        return
    *lead, extent = array.shape

    def row(index: tuple[Int, ...], width: int) -> None:
        at = index[: len(lead)]
        first = put_ragged_ends(e, array, target, at)
        with e.loop(first, extent - lanes + 1, lanes) as last:
            put_streamed(e, array, target, (*at, last))

    for_each(e, (*lead, 1), row)


def put_ragged_ends(e: Emitter, array: LazyArray, target: StridedArray, row: Sequence[Int]) -> V:
    """Write the ends of a row that are not aligned whole vectors; returns the first element that is one's."""
    lanes, itemsize, extent = registers.LANES, target.dtype.itemsize, target.shape[-1]
    address = e.value(I64, f"ptrtoint {target.address(e, (*row, 0))} to i64")
    missing = e.binary("and", e.binary("sub", i64(0), address), i64(lanes * itemsize - 1))
    first = e.binary("udiv", missing, i64(itemsize))
    ragged = None if extent % lanes else e.compare("icmp ne", first, i64(0))
    with e.when(ragged):
        for end in (0, extent - lanes):
            target.put(e, (*row, end), array.at((*row, end), lanes), lanes)
    return first


def put_streamed(e: Emitter, array: LazyArray, target: StridedArray, index: Sequence[Int]) -> None:
    """Write one aligned vector past the caches."""
    lanes = registers.LANES
    value = registers.to_memory(e, array.at(index, lanes), target.dtype)
    e.stream(value, target.address(e, index), lanes * target.dtype.itemsize)


def keep(e: Emitter, arena: Arena, array: LazyArray) -> LazyArray:
    """The array with its elements computed now, in a new buffer. A scalar is kept in a register."""
    if not array.shape and array.fill is None:
        return scalar_array(e, array.at((), 1), array.dtype)
    target = arena.buffer(e, array.shape, array.dtype)
    write(e, array, target)
    kept = array_in(e, target)
    kept.zero_ranges = array.zero_ranges
    return kept
