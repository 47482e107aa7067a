"""Copies on the CPU: done synchronously by the thread that starts them, which then arrives for them.

Elements outside of an array are excluded from a copy axis by axis, so a copy at an edge goes row by row like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palladio.cpu.access.gather import Selection, settled, store_combined
from palladio.cpu.access.memory import Access, combine, read
from palladio.cpu.access.views import Bound, BufferView
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, fill, scalar_array
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.launches.barriers import (
    BarrierWords,
    add_to,
    arrive,
    condition_of,
    in_other_block,
    reached,
    slot_of,
    thread_of,
)
from palladio.cpu.launches.coroutines import SharedRef, moved
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.transforms import Index, Operand, Peer, SliceEntry

Stacks = tuple[Transforms, ...]
# The value of reads outside of an array, by the dtype of the elements.
Outside = Callable[[DType], object]
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
                conditions.append(e.compare("icmp ult", bound.first, i64(bound.extent)))
                continue
            size, step = view.buffer.shape[axis], bound.strides[axis]
            inside = (
                _first_inside(e, bound.first, size, step),
                _end_inside(e, bound.first, size, step, bound.extent),
            )
            bounds[axis] = inside if bounds[axis] == (0, size) else _both(e, bounds[axis], inside)
        return Part(view.buffer, bounds, conditions)

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


def _end_inside(e: Emitter, first: V, size: int, step: Int, extent: int) -> Int:
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


def _fill_part(e: Emitter, part: Part, dtype: DType, value: object) -> None:
    bits = np.asarray(value, dtype).view(part.buffer.dtype)
    if not part.conditions and all(bound == (0, extent) for bound, extent in zip(part.bounds, part.buffer.shape)):
        fill(e, part.buffer, bits)
        return
    constant = registers.constant(e, bits, part.buffer.dtype)
    with e.when(e.truth(part.conditions)):
        _sweep(e, part.bounds, lambda at: part.buffer.put(e, at, constant, 1))


def copy_views(e: Emitter, source: BufferView, target: BufferView, dtype: DType, outside: Outside | None) -> None:
    """target = source, both as bits; elements outside of the source become `outside(dtype)`, unless that is None."""
    there, here = Part.of(e, source), Part.of(e, target)
    guard = e.truth(source.guards)
    if guard is not None and outside is not None:
        with e.when(e.negated(guard)):
            _fill_part(e, here, dtype, outside(dtype))
    copy_part(e, there, here)


def _zero(dtype: DType) -> object:
    return np.zeros((), dtype)[()]


class _Filled(Selection):
    """A selection with another value for elements outside."""

    outside: Outside = staticmethod(dtypes.uninitialized)

    def nothing(self, dtype: DType) -> object:
        return self.outside(dtype)


def _copy(
    scope: Scope,
    source: tuple[StridedArray, Transforms],
    target: tuple[StridedArray, Transforms],
    operands: Sequence[LazyArray],
    outside: Outside | None,
) -> None:
    """Copy the elements that one stack of transforms selects to those that another selects."""
    e = scope.e
    sides = [Access(scope, *side, operands) for side in (source, target)]
    views = [side.view for side in sides]
    shared = source[0].base is target[0].base  # both may be parts of one array

    def one_by_one() -> None:
        settling = [settled(scope, array) for array in operands]
        chosen = _Filled(scope, *source, settling)
        chosen.outside = outside or dtypes.uninitialized
        store_combined(scope, target[0], chosen.read(), settling, target[1])

    if views[0] is None or views[1] is None:
        one_by_one()
        return
    there, here = views
    dtype = there.buffer.dtype
    by_axis = there.by_axis and here.by_axis
    if not by_axis and shared:
        one_by_one()
        return
    for view in (there, here):
        view.buffer = bits_of(view.buffer)
    if by_axis and shared:
        whole = scope.arena.buffer(e, there.buffer.shape, there.buffer.dtype)
        between = BufferView(whole)
        copy_views(e, there, between, dtype, outside)
        copy_views(e, between, here, dtype, None)
    elif by_axis:
        copy_views(e, there, here, dtype, outside)
    else:
        guard = e.truth([*there.guards, *here.guards])
        whole_views = [BufferView(view.buffer) for view in (there, here)]
        e.either(guard or TRUE, lambda: copy_views(e, *whole_views, dtype, None), one_by_one)


def _outside(fill: str) -> Outside | None:
    if fill == "promise_in_bounds":
        return None
    return _zero if fill == "zeros" else dtypes.uninitialized


def _load(
    scope: Scope,
    source: SharedRef,
    target: SharedRef,
    barrier: SharedRef,
    predicate: LazyArray,
    *indices: LazyArray,
    transforms: Stacks,
    collective: tuple[str, ...],
    fill: str,
) -> Sequence[LazyArray]:
    e = scope.e
    outside = _outside(fill)
    condition = condition_of(predicate)
    slot = slot_of(scope, barrier, transforms[2], indices)
    if collective:
        taken = reached(scope, source, transforms[0], indices)
        _share(scope, taken, target, (barrier, slot), indices, transforms[1], collective, outside, condition)
        return ()
    with e.when(condition):
        taken = reached(scope, source, transforms[0], indices)
        _copy(scope, taken, reached(scope, target, transforms[1], indices), indices, outside)
    arrive(e, slot, barrier.units, barrier.needed)
    return ()


def _share(
    scope: Scope,
    source: tuple[StridedArray, Transforms],
    target: SharedRef,
    barrier: tuple[SharedRef, BarrierWords],
    indices: Sequence[LazyArray],
    stack: Transforms,
    axes: Sequence[str],
    outside: Outside | None,
    condition: V | None,
) -> None:
    """Emit a block's part of a shared copy, into the memory of all blocks that share it: a part of the first axis whose
    extent is a multiple of the number of parts. If there is none, two parts of the first axis may overlap.
    """
    e = scope.e
    if stack and isinstance(stack[0], Peer):
        stack = stack[1:]  # the copy goes to all blocks along the axes
    mine = [sibling for sibling in thread_of(scope).siblings if sibling.name in axes]
    number: Int = 0
    for sibling in mine:
        number = e.add(e.mul(number, sibling.size), sibling.here)
    parts = math.prod(sibling.size for sibling in mine)
    shape = Selection(scope, *source, indices).type.shape
    axis = next((n for n, extent in enumerate(shape) if extent % parts == 0), 0)
    size = -(-shape[axis] // parts)
    start = e.mul(number, size)
    if shape[axis] % parts:
        start = e.binary("udiv", e.index(e.mul(number, shape[axis])), i64(parts))
    part = axis, start, size
    site, slot = barrier
    with e.when(condition):
        for distance in _everywhere(e, target, axes):
            there = moved(target.buffer, e, distance)
            _copy_share(scope, source, (there, stack), indices, part, outside)
    for distance in _everywhere(e, site, axes):
        arrive(e, in_other_block(e, slot, distance), site.units // parts, site.needed)


def _copy_share(
    scope: Scope,
    source: tuple[StridedArray, Transforms],
    target: tuple[StridedArray, Transforms],
    indices: Sequence[LazyArray],
    part: tuple[int, Int, int],
    outside: Outside | None,
) -> None:
    """Copy a part of a selection: `size` positions along `axis` from `start` on."""
    e, (axis, start, size) = scope.e, part
    views = [Access(scope, *side, indices).view for side in (source, target)]
    there, here = views
    if there is not None and here is not None and there.by_axis and here.by_axis:
        dtype = there.buffer.dtype
        for view in (there, here):
            _narrow(e, view, axis, start, size)
            view.buffer = bits_of(view.buffer)
        copy_views(e, there, here, dtype, outside)
        return
    shape = Selection(scope, *source, indices).type.shape
    entries: list[SliceEntry] = [SliceEntry(0, extent) for extent in shape]
    entries[axis] = SliceEntry(Operand(len(indices)), size)
    share = Index(tuple(entries))
    sides = [(buffer, (*stack, share)) for buffer, stack in (source, target)]
    _copy(scope, sides[0], sides[1], [*indices, scalar_array(e, e.index(start), dtypes.INT64)], outside)


def _everywhere(e: Emitter, site: SharedRef, axes: Sequence[str]) -> list[Int]:
    """The byte distances from this block's buffer to those of all blocks along axes, its own included."""
    found: list[Int] = [0]
    for sibling in site.siblings:
        if sibling.name in axes:
            steps = [e.mul(e.sub(n, sibling.here), sibling.stride) for n in range(sibling.size)]
            found = [e.add(distance, step) for distance in found for step in steps]
    return found


def _narrow(e: Emitter, view: BufferView, axis: int, first: Int, size: int) -> None:
    """Restrict a view to some positions along an axis."""
    old = view.buffer
    distance = e.mul(e.mul(first, old.strides[axis]), old.dtype.itemsize)
    shape = (*old.shape[:axis], size, *old.shape[axis + 1 :])
    view.buffer = StridedArray(e.pointer(old.base, distance, 1), old.strides, shape, old.dtype)
    if view.bounds is not None:
        view.bounds = [
            Bound(e.add(bound.first, e.mul(first, bound.strides[axis])), bound.strides, bound.extent)
            for bound in view.bounds
        ]


def _store(
    scope: Scope,
    source: SharedRef,
    target: SharedRef,
    predicate: LazyArray,
    *indices: LazyArray,
    transforms: Stacks,
    reduction: str | None,
) -> Sequence[LazyArray]:
    with scope.e.when(condition_of(predicate)):
        taken = reached(scope, source, transforms[0], indices)
        placed = reached(scope, target, transforms[1], indices)
        _copy_or_combine(scope, taken, placed, indices, reduction)
    return ()


def _copy_or_combine(
    scope: Scope,
    source: tuple[StridedArray, Transforms],
    target: tuple[StridedArray, Transforms],
    indices: Sequence[LazyArray],
    reduction: str | None,
) -> None:
    if reduction is None:
        _copy(scope, source, target, indices, dtypes.uninitialized)
    else:
        value = loaded(scope, *source, indices)
        if source[0].base is target[0].base:  # both may be parts of one array
            value = scope.keep(value)
        combine(scope, target[0], value, indices, target[1], reduction)


def loaded(scope: Scope, buffer: StridedArray, stack: Transforms, operands: Sequence[LazyArray]) -> LazyArray:
    """The elements that a stack of transforms selects, as of now."""
    return read(Access(scope, buffer, stack, operands), None, whole=False)


def _store_into_block(
    scope: Scope,
    target: SharedRef,
    barrier: SharedRef,
    value: LazyArray,
    *indices: LazyArray,
    transforms: Stacks,
    reduction: str | None,
) -> Sequence[LazyArray]:
    buffer, stack = reached(scope, target, transforms[0], indices)
    combine(scope, buffer, settled(scope, value), indices, stack, reduction or "set")
    arrive(scope.e, slot_of(scope, barrier, transforms[1], indices), barrier.units, barrier.needed)
    return ()


def _dma(
    scope: Scope,
    source: SharedRef,
    target: SharedRef,
    *rest: SharedRef | LazyArray,
    transforms: Stacks,
    clip: bool = False,
    reduction: str | None = None,
) -> Sequence[LazyArray]:
    sites = [each for each in rest if isinstance(each, SharedRef)]
    indices = [each for each in rest if isinstance(each, LazyArray)]
    taken = reached(scope, source, transforms[0], indices)
    placed = reached(scope, target, transforms[1], indices)
    slots = [slot_of(scope, site, stack, indices) for site, stack in zip(sites, transforms[2:], strict=True)]
    _copy_or_combine(scope, taken, placed, indices, reduction)
    buffer, stack = taken
    moved_type = Selection(scope, buffer, stack, indices).type
    for slot in slots:
        add_to(scope.e, slot.first, math.prod(moved_type.shape) * moved_type.dtype.itemsize)
    return ()


def _nothing(scope: Scope, *inputs: SharedRef | LazyArray, **params: object) -> Sequence[LazyArray]:
    """No code: copies and products are complete when they are issued, and threads see each other's memory."""
    return ()


RULES: dict[str, Rule] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "async_store_smem": _store_into_block,
    "dma_start": _dma,
    "dma_start_remote": _dma,
    "commit_smem_to_gmem_group": _nothing,
    "wait_smem_to_gmem": _nothing,
    "commit_smem": _nothing,
    "commit_gmem": _nothing,
    "griddepcontrol_wait": _nothing,
    "griddepcontrol_launch_dependents": _nothing,
    "async_prefetch": _nothing,
}
