"""Loads, stores and their value twins on the CPU.

A stack of transforms over memory is mostly another view of it: a shifted address and other strides. Where a dynamic
slice may reach outside its axis, that is asked when the kernel runs: inside, the view is used; outside, a copy that is
made element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.access.gather import Selection, copied, one_by_one, settled, store_combined
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.cpu.emit.lazy_array import (
    Allocation,
    Buffer,
    LazyArray,
    array_in,
    merged,
    row_major,
    stream,
    widths,
    write,
)
from palladio.cpu.emit.scope import BlockMarks, RefBinding, Refused, Rule, Scope
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes, transforms
from palladio.types.dtypes import DType
from palladio.types.transforms import Index as IndexTransform
from palladio.types.transforms import Operand, Slice


def as_index(scope: Scope, tile: LazyArray) -> V:
    """A scalar integer tile as an index."""
    e = scope.e
    value = tile.at((), 1)
    return (
        value
        if tile.dtype.itemsize == 8
        else e.convert("sext" if dtypes.is_signed(tile.dtype) else "zext", value, "i64")
    )


class NoView(Refused):
    """A stack of transforms that selects what no view shows. It is gone through element by element."""


class BufferView:
    """A buffer seen through transforms.

    `guards` are the conditions under which all of it is inside; `bounds` has, for each axis of the view, the position
    of its first element along an axis of the root and that axis' extent, for checking one element at a time.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.guards: list[V] = []
        self.bounds: list[tuple[Index, int | None, Index, int]] = []


def viewed(scope: Scope, buffer: Buffer, stack: Transforms, operands: Sequence[LazyArray]) -> BufferView:
    """The view of a buffer that a stack of transforms makes.

    Raises:
        NoView: for a stack that no view can be made of.
    """
    view = BufferView(buffer)
    for transform in stack:
        match transform:
            case transforms.Index(entries):
                _index(scope, view, entries, operands)
            case transforms.Transpose(permutation):
                old = view.buffer
                view.buffer = Buffer(
                    old.base,
                    tuple(old.strides[axis] for axis in permutation),
                    tuple(old.shape[axis] for axis in permutation),
                    old.dtype,
                )
                _refuse_behind_guard(view)
            case transforms.Reshape(shape):
                _refuse_behind_guard(view)
                if not view.buffer.contiguous:
                    raise NoView("a reshape of a strided reference is not compiled for the CPU")
                view.buffer = Buffer(view.buffer.base, row_major(shape), shape, view.buffer.dtype)
            case transforms.Bitcast(dtype):
                _refuse_behind_guard(view)
                view.buffer = _recast(view.buffer, dtype)
    return view


def _recast(old: Buffer, dtype: DType) -> Buffer:
    """The same bytes as another dtype. Of another width, they must lie in one line."""
    if dtype.itemsize == old.dtype.itemsize:
        return Buffer(old.base, old.strides, old.shape, dtype)
    if len(old.shape) != 1 or not old.contiguous:
        raise NoView("a bitcast that changes the width is not compiled for the CPU")
    return Buffer(old.base, (1,), (old.shape[0] * old.dtype.itemsize // dtype.itemsize,), dtype)


def _refuse_behind_guard(view: BufferView) -> None:
    if view.bounds:
        raise NoView("a transform behind a dynamic slice is not compiled for the CPU")


def _index(scope: Scope, view: BufferView, entries: Sequence[object], operands: Sequence[LazyArray]) -> None:
    e, old = scope.e, view.buffer
    if view.bounds:
        raise NoView("an index behind a dynamic slice is not compiled for the CPU")
    offset: Index = 0
    strides: list[Index] = []
    shape: list[int] = []
    for entry, stride, extent in zip(entries, old.strides, old.shape, strict=True):
        first, size, step = _entry(scope, entry, operands)
        offset = e.add(offset, e.mul(first, stride))
        if isinstance(first, V) and not _is_inside(entry):
            reach = (size or 1) * 1 if size is None else (size - 1) * step + 1
            view.guards.append(_between(e, first, extent - max(reach, 1)))
        view.bounds.append((first, size, step, extent))
        if size is not None:
            strides.append(e.mul(stride, step))
            shape.append(size)
    if not view.guards:
        view.bounds = []
    view.buffer = Buffer(e.pointer(old.base, offset, old.dtype.itemsize), tuple(strides), tuple(shape), old.dtype)


def _is_inside(entry: object) -> bool:
    """True if an index is proven to be inside its axis."""
    start = entry.start if isinstance(entry, Slice) else entry
    return isinstance(start, Operand) and start.inside


def _entry(scope: Scope, entry: object, operands: Sequence[LazyArray]) -> tuple[Index, int | None, int]:
    """The first element along an axis, the size (None for a dropped axis) and the step."""
    if isinstance(entry, Slice):
        start = entry.start
        return (
            (as_index(scope, operands[start.position]) if isinstance(start, Operand) else start),
            entry.size,
            entry.stride,
        )
    if isinstance(entry, Operand):
        if operands[entry.position].shape:
            raise NoView("an index array is not compiled for the CPU")
        return as_index(scope, operands[entry.position]), None, 1
    return int(entry), None, 1  # type: ignore[call-overload]


def _between(e: Emitter, value: V, last: int) -> V:
    """0 <= value <= last, in one unsigned comparison."""
    if last < 0:
        return V("false", "i1")
    return e.compare("icmp ule", value, V(str(last), "i64"))


def inside(e: Emitter, view: BufferView, index: Sequence[Index]) -> V | None:
    """True if the element of a view at an index is inside its root."""
    positions = iter(index)
    conditions = []
    for first, size, step, extent in view.bounds:
        at = first if size is None else e.add(first, e.mul(next(positions), step))
        if isinstance(at, V):
            conditions.append(e.compare("icmp ult", at, V(str(extent), "i64")))
    return e.truth(conditions)


def read(scope: Scope, view: BufferView, memory: Allocation | None, whole: bool) -> LazyArray:
    """The tile that a view holds."""
    e = scope.e
    guard = e.truth(view.guards)
    if guard is None:
        tile = array_in(e, view.buffer, memory)
        if memory is not None:
            tile.reads = {memory: whole}
        return tile
    if not view.buffer.shape:
        return _read_scalar(scope, view, guard)
    # Outside, a copy with uninitialised values where nothing is.
    copy = scope.arena.buffer(e, view.buffer.shape, view.buffer.dtype)
    outside = e.binary("xor", guard, V("true", "i1"))
    with e.when(outside):
        _copy_inside(scope, view, copy)
    base = e.select(guard, view.buffer.base, copy.base)
    strides = tuple(e.choose(guard, there, here) for there, here in zip(view.buffer.strides, copy.strides, strict=True))
    tile = array_in(e, Buffer(base, strides, copy.shape, copy.dtype), memory)
    if memory is not None:
        tile.reads = {memory: False}
    return tile


def _read_scalar(scope: Scope, view: BufferView, guard: V) -> LazyArray:
    e, dtype = scope.e, view.buffer.dtype
    slot = scope.function.slot(registers.register(dtype))
    e.line(f"store {registers.constant(e, dtypes.uninitialized(dtype), dtype)}, ptr {slot.text}")
    with e.when(guard):
        e.line(f"store {view.buffer.at(e, (), 1)}, ptr {slot.text}")
    register = registers.register(dtype)
    value = e.value(register, f"load {register}, ptr {slot.text}")
    return LazyArray(view.buffer.type, lambda index, width: e.splat(value, width), {}, True)


def _copy_inside(scope: Scope, view: BufferView, copy: Buffer) -> None:
    e = scope.e
    nothing = registers.constant(e, dtypes.uninitialized(copy.dtype), copy.dtype)
    one_by_one(e, copy.shape, lambda index: copy.put(e, index, nothing, 1))

    def element(index: Sequence[Index]) -> None:
        with e.when(inside(e, view, index)):
            copy.put(e, index, view.buffer.at(e, index, 1), 1)

    one_by_one(e, copy.shape, element)


def put(scope: Scope, view: BufferView, value: LazyArray, streamed: bool = False) -> None:
    """Write a tile to what a view shows, past the caches if it is `streamed`; what is outside is dropped."""
    e = scope.e
    guard = e.truth(view.guards)
    target = view.buffer
    if guard is None:
        (stream if streamed else write)(e, value, target)
        return
    if value.shape and value.buffer is None:
        value = scope.keep(value)
    inner, outer, behind = e.fresh("inside"), e.fresh("outside"), e.fresh("stored")
    e.branch(guard, inner, outer)
    e.label(inner)
    write(e, value, target)
    e.jump(behind)
    e.label(outer)

    def element(index: Sequence[Index]) -> None:
        with e.when(inside(e, view, index)):
            target.put(e, index, value.at(index, 1), 1)

    if target.shape:
        one_by_one(e, target.shape, element)
    e.jump(behind)
    e.label(behind)


def put_where(e: Emitter, mask: LazyArray, value: LazyArray, target: Buffer, begun: BlockMarks | None) -> None:
    """Write the elements of a matrix that are under a mask: those rows are gone through in which it may be true."""
    low, high = rows = mask.zero_ranges.get(0, (0, target.shape[0]))

    def put_row(part: LazyArray, row: Index) -> None:
        for start, end, width in widths(target.shape[1]):
            with e.loop(start, end, width) as column:
                index = (row, column)
                new = part.at(index if part.shape else (), width)
                if 1 not in mask.alike:
                    new = e.select(mask.at(index, width), new, target.at(e, index, width))
                target.put(e, index, new, width)

    def put_rows(part: LazyArray, first: Index, behind: Index) -> None:
        with e.loop(first, behind) as row, e.when(mask.at((row, 0), 1) if 1 in mask.alike else None):
            put_row(part, row)
            if begun is not None:
                begun.note_row(e, row)

    if value.panels is None:
        put_rows(value, low, high)
    else:
        value.panels(lambda part, first, count: put_rows(part, first, e.add(first, count)), rows, target)


def layered(
    scope: Scope, buffer: Buffer, stack: Transforms, operands: Sequence[LazyArray]
) -> tuple[Buffer, V | None] | None:
    """The view that transforms make one behind the other, and when all of it is inside; None if there is no view."""
    guards: list[V] = []
    try:
        for transform in stack:
            view = viewed(scope, buffer, (transform,), operands)
            guards += view.guards
            buffer = view.buffer
    except NoView:
        return None
    return buffer, scope.e.truth(guards)


def either(scope: Scope, condition: V, inside: Callable[[], None], outside: Callable[[], None]) -> None:
    """One of two things, by a condition."""
    e = scope.e
    inner, outer, behind = e.fresh("inside"), e.fresh("outside"), e.fresh("behind")
    e.branch(condition, inner, outer)
    e.label(inner)
    inside()
    e.jump(behind)
    e.label(outer)
    outside()
    e.jump(behind)
    e.label(behind)


def read_layered(
    scope: Scope, buffer: Buffer, memory: Allocation | None, stack: Transforms, indices: Sequence[LazyArray]
) -> LazyArray:
    """A selection that no single view expresses: element by element only where some of it is outside."""
    e, operands = scope.e, [settled(scope, index) for index in indices]
    found = layered(scope, buffer, stack, operands)
    if found is None:
        return Selection(scope, buffer, stack, operands).read()
    there, guard = found
    reads = {} if memory is None else {memory: False}
    if guard is not None:
        copy = scope.arena.buffer(e, there.shape, there.dtype)
        with e.when(e.binary("xor", guard, V("true", "i1"))):
            chosen = Selection(scope, buffer, stack, operands)
            one_by_one(e, copy.shape, lambda index: copy.put(e, index, chosen.load(index), 1))
        strides = tuple(e.choose(guard, *each) for each in zip(there.strides, copy.strides, strict=True))
        there = Buffer(e.select(guard, there.base, copy.base), strides, there.shape, there.dtype)
    tile = array_in(e, there)
    tile.reads = reads
    return tile


def _store_layered(
    scope: Scope, buffer: Buffer, value: LazyArray, indices: Sequence[LazyArray], stack: Transforms
) -> None:
    operands = [settled(scope, index) for index in indices]
    found = layered(scope, buffer, stack, operands)
    if found is None:
        store_combined(scope, buffer, value, operands, stack)
        return
    there, guard = found
    if guard is None:
        write(scope.e, value, there)
        return
    value = settled(scope, value)
    either(
        scope,
        guard,
        lambda: write(scope.e, value, there),
        lambda: store_combined(scope, buffer, value, operands, stack),
    )


def _view_or_none(scope: Scope, buffer: Buffer, stack: Transforms, operands: Sequence[LazyArray]) -> BufferView | None:
    try:
        return viewed(scope, buffer, stack, operands)
    except NoView:
        return None


def _read_of(
    scope: Scope, buffer: Buffer, memory: Allocation | None, stack: Transforms, indices: Sequence[LazyArray]
) -> LazyArray:
    """The elements that a stack of transforms selects; a scalar is loaded now."""
    view = _view_or_none(scope, buffer, stack, indices)
    if view is None:
        tile = read_layered(scope, buffer, memory, stack, indices)
    else:
        tile = read(scope, view, memory, whole=not stack)
    return tile if tile.shape else scope.keep(tile)


def _load(scope: Scope, ref: RefBinding, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    tile = _read_of(scope, ref.buffer, ref.memory, transforms, indices)
    tile.ahead = None if transforms else scope.function.ahead.get(ref.memory)
    return (tile,)


def _store(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    aligned = not transforms and value.reads.get(ref.memory, True)
    if ref.memory in value.reads and not aligned:
        value = scope.keep(value)
    view = _view_or_none(scope, ref.buffer, transforms, indices)
    if view is None:
        _store_layered(scope, ref.buffer, value, indices, transforms)
    elif value.unless is not None and not transforms and value.unless[2] == ref.buffer and len(value.shape) == 2:
        put_where(scope.e, *value.unless, ref.start)
    else:
        put(scope, view, value, ref.memory.streamed)
    return ()


def _swap(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    value = settled(scope, value)
    old = scope.keep(_read_of(scope, ref.buffer, None, transforms, indices))
    _store(scope, ref, value, *indices, transforms=transforms)
    return (old,)


def combine(
    scope: Scope, buffer: Buffer, value: LazyArray, indices: Sequence[LazyArray], stack: Transforms, kind: str
) -> None:
    """Combine a value with what a stack of transforms selects."""
    view = _view_or_none(scope, buffer, stack, indices)
    if view is None:
        store_combined(scope, buffer, value, indices, stack, kind)
        return
    value = settled(scope, value)
    if kind != "set":
        old = scope.keep(read(scope, view, None, whole=False))
        name = f"bitwise_{kind}" if kind in ("and", "or", "xor") else kind
        (value,) = scope.function.rules[name](scope, old, value)
    put(scope, view, value)


def _accumulate(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    combine(scope, ref.buffer, value, indices, transforms, "add")
    return ()


def _extract(scope: Scope, x: LazyArray, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    kept = x if x.buffer is not None else scope.keep(x)
    if kept.buffer is None:  # a scalar
        if all(isinstance(transform, IndexTransform) for transform in transforms):
            return (kept,)
        kept = array_in(scope.e, copied(scope, kept))
    tile = _read_of(scope, kept.buffer, None, transforms, indices)  # type: ignore[arg-type]
    if tile.shape:
        tile.reads = merged([kept], aligned=False)
    return (tile,)


def _insert(
    scope: Scope, x: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    copy = copied(scope, x)
    combine(scope, copy, value, indices, transforms, kind)
    tile = array_in(scope.e, copy)
    return (tile if tile.shape else scope.keep(tile),)


RULES: dict[str, Rule] = {
    "load": _load,
    "store": _store,
    "swap": _swap,
    "accumulate": _accumulate,
    "extract": _extract,
    "insert": _insert,
}
