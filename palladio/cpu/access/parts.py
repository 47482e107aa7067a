"""The part of a view that lies inside its array: a range of positions along each axis.

Each axis has its own bounds, so a copy at an edge moves whole rows like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.access.views import BufferView
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import StridedArray, fill
from palladio.cpu.emit.llvm_types import I64
from palladio.types import dtypes
from palladio.types.dtypes import DType

Bounds = list[tuple[Int, Int]]

_BITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def bits_of(buffer: StridedArray) -> StridedArray:
    """The buffer as one of unsigned integers of the same width, for copies of bits."""
    dtype = dtypes.SHORT_NAMES[_BITS[buffer.dtype.itemsize]]
    return StridedArray(buffer.base, buffer.strides, buffer.shape, dtype)


@dataclass(frozen=True)
class Part:
    """The part of a view inside its array: a range of positions along each axis, if the conditions hold."""

    buffer: StridedArray
    bounds: Bounds
    conditions: list[V]

    @staticmethod
    def of(e: Emitter, view: BufferView) -> Part:
        """The part of a view that lies inside."""
        bounds: Bounds = [(0, extent) for extent in view.buffer.shape]
        conditions: list[V] = []
        for bound in view.bounds or ():
            if not isinstance(bound.first, V):
                continue
            axis = next((axis for axis, stride in enumerate(bound.strides) if stride), None)
            if axis is None:
                conditions.append(e.compare("icmp ult", bound.first, e.index(bound.extent)))
                continue
            size, step = view.buffer.shape[axis], bound.strides[axis]
            inside = (
                _first_inside(e, bound.first, size, step),
                _end_inside(e, bound.first, size, step, bound.extent),
            )
            bounds[axis] = inside if bounds[axis] == (0, size) else _both(e, bounds[axis], inside)
        return Part(view.buffer, bounds, conditions)

    @staticmethod
    def whole(buffer: StridedArray) -> Part:
        """All of a buffer."""
        return Part(buffer, [(0, extent) for extent in buffer.shape], [])

    @property
    def bits(self) -> Part:
        """The same part of the buffer as one of unsigned integers, for copies of bits."""
        return replace(self, buffer=bits_of(self.buffer))

    def and_of(self, e: Emitter, other: Part) -> tuple[Bounds, list[V]]:
        """The intersection of two ranges."""
        bounds = [_both(e, mine, theirs) for mine, theirs in zip(self.bounds, other.bounds, strict=True)]
        return bounds, [*self.conditions, *other.conditions]


def _extreme(e: Emitter, name: str, x: Int, y: Int) -> Int:
    if isinstance(x, int) and isinstance(y, int):
        return max(x, y) if name == "smax" else min(x, y)
    return e.intrinsic(name, I64, e.index(x), e.index(y))


def _both(e: Emitter, one: tuple[Int, Int], other: tuple[Int, Int]) -> tuple[Int, Int]:
    """The positions in two ranges."""
    return _extreme(e, "smax", one[0], other[0]), _extreme(e, "smin", one[1], other[1])


def _limited(e: Emitter, value: Int, size: int) -> Int:
    return _extreme(e, "smin", _extreme(e, "smax", value, 0), size)


def _first_inside(e: Emitter, first: V, size: int, step: Int) -> Int:
    """The first position with `first + position * step >= 0`."""
    before = e.sub(0, first)
    if step != 1:
        before = e.binary("sdiv", e.index(e.add(before, e.sub(step, 1))), e.index(step))
    return _limited(e, before, size)


def _end_inside(e: Emitter, first: V, size: int, step: Int, extent: Int) -> Int:
    """The position past the last with `first + position * step < extent`."""
    left = e.sub(extent, first)
    if step != 1:
        left = e.binary("sdiv", e.index(e.add(left, e.sub(step, 1))), e.index(step))
    return _limited(e, left, size)


def _sweep(e: Emitter, bounds: Bounds, body: Callable[[tuple[Int, ...]], None], at: tuple[Int, ...] = ()) -> None:
    """Run `body(index)` for all positions within bounds."""
    if len(at) == len(bounds):
        body(at)
        return
    with e.loop(*bounds[len(at)]) as position:
        _sweep(e, bounds, body, (*at, position))


def each_inside(e: Emitter, part: Part, body: Callable[[tuple[Int, ...], int], None]) -> None:
    """Run `body(index, width)` for all elements that are inside, in vectors where neighbours are ones in memory."""
    with e.when(e.truth(part.conditions)):
        if not _neighbours(part.buffer):
            _sweep(e, part.bounds, lambda at: body(at, 1))
            return
        first, end = part.bounds[-1]
        count = _extreme(e, "smax", e.sub(end, first), 0)
        vectors = e.add(first, e.binary("and", e.index(count), i64(-registers.LANES)))

        def line(at: tuple[Int, ...]) -> None:
            for start, stop, width in ((first, vectors, registers.LANES), (vectors, end, 1)):
                with e.loop(start, stop, width) as position:
                    body((*at, position), width)

        _sweep(e, part.bounds[:-1], line)


def _neighbours(buffer: StridedArray) -> bool:
    return bool(buffer.strides) and buffer.strides[-1] == 1


def copy_part(e: Emitter, source: Part, target: Part) -> None:
    """target = source where both are inside."""
    bounds, conditions = source.and_of(e, target)
    there, here = source.buffer, target.buffer
    size = there.dtype.itemsize
    with e.when(e.truth(conditions)):
        if bounds == [(0, extent) for extent in there.shape] and there.contiguous and here.contiguous:
            _move(e, here.base, there.base, math.prod(there.shape) * size)
        elif _neighbours(there) and _neighbours(here):
            first, end = bounds[-1]
            count = e.sub(end, first)
            some = None if isinstance(count, int) else e.compare("icmp sgt", count, i64(0))
            with e.when(some):
                _sweep(
                    e,
                    bounds[:-1],
                    lambda at: _move(
                        e, here.address(e, (*at, first)), there.address(e, (*at, first)), e.mul(count, size)
                    ),
                )
        else:
            _sweep(e, bounds, lambda at: here.put(e, at, there.at(e, at, 1), 1))


def _move(e: Emitter, target: V, source: V, size: Int) -> None:
    e.declared["llvm.memcpy.p0.p0.i64"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    e.line(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, {e.index(size)}, i1 false)")


def fill_part(e: Emitter, part: Part, dtype: DType, value: object) -> None:
    """Write one value of a dtype to the elements that are inside. The buffer may be one of `bits_of`."""
    buffer = part.buffer
    bits = np.asarray(value, dtype).view(buffer.dtype)
    if part == Part.whole(buffer):
        fill(e, buffer, bits)
        return
    each_inside(e, part, lambda at, width: buffer.put(e, at, registers.constant(e, bits, buffer.dtype, width), width))
