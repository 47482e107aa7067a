"""Copies on the CPU: done synchronously by the thread that starts them, which then arrives for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from palladio.cpu.access.gather import Selection, settled, store_combined
from palladio.cpu.access.memory import Access, combine, read
from palladio.cpu.access.parts import Part, bits_of, copy_part, fill_part
from palladio.cpu.access.views import Bound, BufferView
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, scalar_array
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


def copy_views(e: Emitter, source: BufferView, target: BufferView, dtype: DType, outside: Outside | None) -> None:
    """target = source, both as bits; elements outside of the source become `outside(dtype)`, unless that is None."""
    there, here = Part.of(e, source), Part.of(e, target)
    guard = e.truth(source.guards)
    if guard is not None and outside is not None:
        with e.when(e.negated(guard)):
            fill_part(e, here, dtype, outside(dtype))
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
