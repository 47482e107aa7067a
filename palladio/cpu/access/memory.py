"""Loads, stores and their counterparts on values, on the CPU.

A stack of transforms over memory is usually a view of it. If the view may reach outside of an axis, the kernel tests
whether it does: inside, it uses the view; outside, a copy of the part that is inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.access.gather import Selection, copied, one_by_one, settled, store_combined
from palladio.cpu.access.parts import Part, copy_part, each_inside
from palladio.cpu.access.views import BufferView, viewed
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import (
    Allocation,
    LazyArray,
    StridedArray,
    array_in,
    fill,
    merged,
    stream,
    widths,
    write,
    written_whole,
)
from palladio.cpu.emit.scope import BlockMarks, RefBinding, Rule, Scope
from palladio.lower.refused import Refused
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.transforms import Index


class Access:
    """The selection of a stack of transforms in a buffer.

    Fields:
        view: the selection as a view of the buffer, if it is one.
    """

    def __init__(self, scope: Scope, buffer: StridedArray, stack: Transforms, operands: Sequence[LazyArray]) -> None:
        self.scope = scope
        self.buffer = buffer
        self.stack = stack
        self.operands = operands
        self.view = viewed(scope, buffer, stack, operands)

    @property
    def in_memory(self) -> BufferView:
        """The selection as a view.

        Raises:
            Refused: if it is not one.
        """
        if self.view is None:
            raise Refused("a part of this memory whose elements are not evenly apart is not compiled for the CPU")
        return self.view

    def selection(self) -> Selection:
        """The selection, element by element."""
        operands = [settled(self.scope, array) for array in self.operands]
        return Selection(self.scope, self.buffer, self.stack, operands)

    def store(self, value: LazyArray, kind: str = "set") -> None:
        """Combine a value with the selection, element by element."""
        store_combined(self.scope, self.buffer, value, self.operands, self.stack, kind)


def read(access: Access, memory: Allocation | None, whole: bool) -> LazyArray:
    """The selected array, with its elements of now or of when it is used."""
    scope, view = access.scope, access.view
    if view is None:
        return access.selection().read()
    e = scope.e
    guard = e.truth(view.guards)
    if guard is None:
        array = array_in(e, view.buffer, memory)
        if memory is not None:
            array.reads = {memory: whole}
        return array
    if not view.buffer.shape:
        return access.selection().read() if view.recast else _read_scalar(scope, view, guard)
    # Outside: a copy, with uninitialised values for elements that are not in memory.
    copy = scope.arena.buffer(e, view.buffer.shape, view.buffer.dtype)
    with e.when(e.negated(guard)):
        if view.bounds is None or view.recast:
            access.selection().copy_to(copy)
        else:
            _copy_inside(scope, view, copy)
    base = e.select(guard, view.buffer.base, copy.base)
    strides = tuple(e.choose(guard, there, here) for there, here in zip(view.buffer.strides, copy.strides, strict=True))
    array = array_in(e, StridedArray(base, strides, copy.shape, copy.dtype), memory)
    if memory is not None:
        array.reads = {memory: False}
    return array


def _read_scalar(scope: Scope, view: BufferView, guard: V) -> LazyArray:
    e, dtype = scope.e, view.buffer.dtype
    slot = scope.function.slot(registers.register(dtype))
    e.line(f"store {registers.constant(e, dtypes.uninitialized(dtype), dtype)}, ptr {slot.text}")
    with e.when(guard):
        e.line(f"store {view.buffer.at(e, (), 1)}, ptr {slot.text}")
    register = registers.register(dtype)
    value = e.value(register, f"load {register}, ptr {slot.text}")
    return LazyArray(view.buffer.type, lambda index, width: e.splat(value, width), {}, True)


def _copy_inside(scope: Scope, view: BufferView, copy: StridedArray) -> None:
    e = scope.e
    fill(e, copy, dtypes.uninitialized(copy.dtype))
    if view.by_axis:
        copy_part(e, Part.of(e, view).bits, Part.whole(copy).bits)
        return

    def element(index: Sequence[Int]) -> None:
        with e.when(view.inside(e, index)):
            copy.put(e, index, view.buffer.at(e, index, 1), 1)

    one_by_one(e, copy.shape, element)


def put(access: Access, value: LazyArray, streamed: bool = False) -> None:
    """Write an array to the selection, with non-temporal stores if `streamed`; elements outside are dropped."""
    scope, view = access.scope, access.view
    if view is None:
        access.store(value)
        return
    e, target = scope.e, view.buffer
    guard = e.truth(view.guards)
    if guard is None:
        (stream if streamed else write)(e, value, target)
        return
    if value.shape and value.buffer is None:
        value = scope.keep(value)

    def element(index: Sequence[Int]) -> None:
        with e.when(view.inside(e, index)):
            target.put(e, index, value.at(index, 1), 1)

    def in_part() -> None:
        if target.shape and view.bounds is None:
            access.store(value)
        elif target.shape == value.shape and value.buffer is not None and view.by_axis:
            copy_part(e, Part.whole(value.buffer).bits, Part.of(e, view).bits)
        elif target.shape:
            one_by_one(e, target.shape, element)

    e.either(guard, lambda: write(e, value, target), in_part)


def put_where(
    e: Emitter,
    mask: LazyArray,
    value: LazyArray,
    target: StridedArray,
    by_rows: bool = False,
    marks: BlockMarks | None = None,
) -> None:
    """Write the elements of a matrix that are under a mask. Only rows in which the mask may be true are visited.

    Args:
        by_rows: whether the mask chooses whole rows.
        marks: the initialisation marks of rows, which are set for written rows.
    """
    low, high = rows = mask.zero_ranges.get(0, (0, target.shape[0]))

    def put_row(part: LazyArray, row: Int) -> None:
        for start, end, width in widths(target.shape[1]):
            with e.loop(start, end, width) as column:
                index = (row, column)
                new = part.at(index if part.shape else (), width)
                if not by_rows:
                    new = e.select(mask.at(index, width), new, target.at(e, index, width))
                target.put(e, index, new, width)

    def put_rows(part: LazyArray, first: Int, after: Int) -> None:
        with e.loop(first, after) as row, e.when(mask.at((row, 0), 1) if by_rows else None):
            put_row(part, row)
            if marks is not None:
                marks.note_row(e, row)

    if value.panels is None:
        put_rows(value, low, high)
    else:
        value.panels(lambda part, first, count: put_rows(part, first, e.add(first, count)), rows, target)


def read_now(access: Access, memory: Allocation | None) -> LazyArray:
    """The elements of a selection; a scalar is loaded now."""
    array = read(access, memory, whole=not access.stack)
    return array if array.shape else access.scope.keep(array)


def _load(scope: Scope, ref: RefBinding, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    access = Access(scope, ref.buffer, transforms, indices)
    if access.view is None:
        return (_elements(access, {ref.memory: False}),)
    array = read_now(access, ref.memory)
    array.ahead = None if transforms else scope.function.ahead.get(ref.memory)
    return (array,)


def _elements(access: Access, reads: dict[Allocation, bool]) -> LazyArray:
    """A selection that is not a view. Elements that arrays of numbers choose are read where they are stored.

    Args:
        reads: the memory that the buffer depends on.
    """
    chosen = Selection(access.scope, access.buffer, access.stack, access.operands)
    if not chosen.is_gathered:
        return read_now(access, None)
    array = written_whole(chosen.type, access.operands, lambda target: access.selection().copy_to(target))
    array.reads |= reads
    return array if array.shape else access.scope.keep(array)


def _store(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    put(Access(scope, ref.buffer, transforms, indices), value, ref.memory.streamed)
    return ()


def _store_masked(
    scope: Scope, ref: RefBinding, value: LazyArray, mask: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    """Vectors are used if no other worker writes the elements between those under the mask."""
    view = viewed(scope, ref.buffer, transforms, indices) if ref.memory.exclusive else None
    if view is None or not view.by_axis or not view.buffer.shape:
        store_combined(scope, ref.buffer, value, indices, transforms, mask=mask)
    elif not transforms and len(ref.buffer.shape) == 2:
        put_where(scope.e, mask, value, ref.buffer)
    else:
        _put_where_inside(scope, settled(scope, mask), settled(scope, value), view)
    return ()


def _put_where_inside(scope: Scope, mask: LazyArray, value: LazyArray, view: BufferView) -> None:
    """Write the elements of a view that are inside its array and under a mask."""
    e, target = scope.e, view.buffer

    def put(index: tuple[Int, ...], width: int) -> None:
        new = value.at(index if value.shape else (), width)
        chosen = mask.at(index if mask.shape else (), width)
        target.put(e, index, e.select(chosen, new, target.at(e, index, width)), width)

    each_inside(e, Part.of(e, view), put)


def _store_rows(
    scope: Scope, ref: RefBinding, value: LazyArray, mask: LazyArray, *, marks: bool
) -> Sequence[LazyArray]:
    put_where(scope.e, mask, value, ref.buffer, by_rows=True, marks=ref.start if marks else None)
    return ()


def _initialize(scope: Scope, ref: RefBinding, *, stored: bool) -> Sequence[LazyArray]:
    """The output of a kernel call inside of a kernel has no marks: it is filled before the call."""
    if ref.start is not None:
        (ref.start.note if stored else ref.start.ensure)(scope.e)
    return ()


def _swap(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    value = settled(scope, value)
    old = scope.keep(read_now(Access(scope, ref.buffer, transforms, indices), None))
    _store(scope, ref, value, *indices, transforms=transforms)
    return (old,)


def combine(
    scope: Scope, buffer: StridedArray, value: LazyArray, indices: Sequence[LazyArray], stack: Transforms, kind: str
) -> None:
    """Combine a value with the selection of a stack of transforms."""
    access = Access(scope, buffer, stack, indices)
    if access.view is None:
        access.store(value, kind)
        return
    value = settled(scope, value)
    if kind != "set":
        old = scope.keep(read(access, None, whole=False))
        name = f"bitwise_{kind}" if kind in ("and", "or", "xor") else kind
        (value,) = scope.function.rules[name](scope, old, value)
    put(access, value)


def _accumulate(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    combine(scope, ref.buffer, value, indices, transforms, "add")
    return ()


def _extract(scope: Scope, x: LazyArray, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    kept = x if x.buffer is not None else scope.keep(x)
    if kept.buffer is None:  # a scalar
        if all(isinstance(transform, Index) for transform in transforms):
            return (kept,)
        kept = array_in(scope.e, copied(scope, kept))
    access, reads = Access(scope, kept.buffer, transforms, indices), merged([kept], aligned=False)  # type: ignore[arg-type]
    if access.view is None:
        return (_elements(access, reads),)
    array = read_now(access, None)
    if array.shape:
        array.reads = reads
    return (array,)


def _insert(
    scope: Scope, x: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    copy = copied(scope, x)
    combine(scope, copy, value, indices, transforms, kind)
    array = array_in(scope.e, copy)
    return (array if array.shape else scope.keep(array),)


RULES: dict[str, Rule] = {
    "load": _load,
    "store": _store,
    "store_masked": _store_masked,
    "store_rows": _store_rows,
    "initialize": _initialize,
    "swap": _swap,
    "accumulate": _accumulate,
    "extract": _extract,
    "insert": _insert,
}
