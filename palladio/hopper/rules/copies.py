"""Copies of boxes by TMA, which one thread of the warpgroup issues.

A box of a tensor map has at most 256 elements along each axis, and no more columns than a swizzled row; so one copy of
the program may be several boxes. The threads of the warpgroup make the copies that TMA cannot (`_load_by_threads`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.emit.rows import Rows, in_pieces, rows_of
from palladio.hopper.emit.scalars import memory_type, to_memory
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.uses import WARPS, is_of_rows
from palladio.hopper.emit.values import Barriers, Global, Shared, Sites
from palladio.hopper.emit.views import INFINITE, Limit, Part, whole
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.shared import SharedLayout, swizzled_text
from palladio.hopper.lowered import MapSpec
from palladio.hopper.rules.atomics import reduced_in_array
from palladio.hopper.rules.barriers import address, slot
from palladio.hopper.rules.memory import outside
from palladio.ir.core import Eqn
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType
from palladio.types.views import Guard, View

MOST = 256
"""The most elements of a box along an axis (CUDA driver API, `cuTensorMapEncodeTiled`: boxDim)."""

PIECE = 16
"""Strides of arrays and rows of boxes are multiples of this number of bytes."""

MOST_AXES = 5
LINE = 128
"""The alignment of boxes in shared memory, in bytes."""


@dataclass(frozen=True)
class Box:
    """One box.

    Fields:
        shape: its elements along each axis of the array.
        corner: its offset from the start of the copy along each axis of the array.
        offset: bytes from the start of the target's view.
    """

    shape: tuple[int, ...]
    corner: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Copy:
    """A copy between a box of an array and a buffer.

    Fields:
        part: the part of the array.
        inner: the part of the buffer.
        start: the byte offset of `inner` in the buffer, before the swizzle.
        outer_limits: the guards of parts of the array on the way that may fail; not those of the array itself, at
            which TMA clips.
        inner_limits: the guards of the buffer and of its parts on the way that may fail.
        rows: the rows of a gather by an array of indices; `part` then has index 0 instead.
    """

    array: Global
    part: Part
    buffer: Shared
    inner: Part
    start: Index
    outer_limits: tuple[Limit, ...] = ()
    inner_limits: tuple[Limit, ...] = ()
    rows: Rows | None = None

    def all_or_none(self, limits: Sequence[Limit]) -> list[Limit]:
        """The limits that the copy meets or fails as a whole."""
        return [each for each in limits if not each.reach(self.inner.sizes)]

    def tested(self, limits: Iterable[Limit], *others: str | None) -> str | None:
        """True if all elements are inside these limits and the other tests hold, as a C expression.

        None stands for a test that always holds.
        """
        tests = [*others, *(each.test_all(self.inner.sizes) for each in limits)]
        return " && ".join(dict.fromkeys(test for test in tests if test is not None)) or None

    @property
    def aligned(self) -> str | None:
        """True if the copy begins at a multiple of 16 bytes of a row, as a C expression; None if it is known to."""
        first, elements = self.part.starts[-1], PIECE // self.buffer.layout.itemsize
        return None if first.factor % elements == 0 else f"({first.at}) % {elements} == 0"


def sides(scope: Scope, eqn: Eqn, array: int, buffer: int, indices: Sequence[object]) -> Copy:
    """The two sides of a copy."""
    stacks = eqn.transforms
    outer, shared = scope.entry(eqn.inputs[array]), scope.entry(eqn.inputs[buffer])
    if not isinstance(outer, Global) or not isinstance(shared, Shared):
        raise Refused("a copy between other memories than an array and a buffer is not compiled for Hopper")
    inner = scope.view(shared, stacks[buffer], indices)  # type: ignore[arg-type]
    shapes = [atom.type.shape for atom in indices]  # type: ignore[attr-defined]
    found = views(ArrayType((outer.window or whole(outer.type.shape)).sizes, outer.type.dtype), stacks[array], shapes)
    rows = rows_of(scope, outer, found, indices) if is_of_rows(eqn) else None  # type: ignore[arg-type]
    part = rows.part if rows else scope.view(outer, stacks[array], indices)  # type: ignore[arg-type]
    if inner.peer or part.peer:
        raise Refused("a copy to another block of the cluster is not compiled for Hopper yet")
    clipped = [] if outer.window else [limit for view in found for limit in view.limits]
    outer_limits = _limits(scope, found, indices, clipped)
    outer_limits += scope.sizes_left(outer, found, indices)  # type: ignore[arg-type]
    inner_limits = _limits(scope, views(shared.type.array, stacks[buffer], shapes), indices)
    return Copy(outer, part, shared, inner, start_of(shared.layout, inner), outer_limits, inner_limits, rows)


def _limits(
    scope: Scope, found: Sequence[View], indices: Sequence[object], clipped: Sequence[Guard] = ()
) -> tuple[Limit, ...]:
    """The guards of views that may fail, without the clipped ones."""
    kept = [replace(view, guards=tuple(each for each in view.guards if each not in clipped)) for view in found]
    return tuple(limit for view in kept for limit in scope.limits(view, indices))  # type: ignore[arg-type]


def start_of(layout: SharedLayout, inner: Part) -> Index:
    """The byte offset of a view before the swizzle."""
    return layout.offset([start.at for start in inner.starts])


def boxes(copy: Copy) -> list[Box]:
    """The boxes of a copy.

    Raises:
        Refused: TMA cannot make the copy.
    """
    layout, itemsize = copy.buffer.layout, copy.buffer.layout.itemsize
    sizes = copy.part.box()
    shape = copy.part.shape
    if sizes is None:
        raise Refused("the copy engine copies elements that lie side by side, in the order of the array")
    if len(shape) > MOST_AXES or not shape:
        raise Refused(f"the copy engine takes arrays of 1 to {MOST_AXES} axes", got=str(copy.array.type))
    if any(math.prod(shape[n + 1 :]) * itemsize % PIECE for n in range(len(shape) - 1)):
        raise Refused("the copy engine takes arrays whose rows are a multiple of 16 bytes", got=str(copy.array.type))
    if sizes[-1] * itemsize % PIECE:
        raise Refused("the copy engine copies a multiple of 16 bytes of each row", got=f"{sizes[-1] * itemsize} bytes")
    first = copy.part.starts[-1].constant
    if first is not None and first * itemsize % PIECE:
        # The text of the ISA does not say so: an H200 ends such a copy with an illegal instruction.
        raise Refused("the copy engine copies rows from a multiple of 16 bytes on", got=f"{first * itemsize} bytes")
    if not layout.swizzle and _uneven(copy.inner, layout):
        raise Refused("the copy engine fills shared memory from a multiple of 128 bytes on")
    axes = [axis for axis in range(len(sizes)) if sizes[axis] != 1] or [len(sizes) - 1]
    found = list(_cut(sizes, _matched(copy.inner, layout, [sizes[axis] for axis in axes], axes), layout))
    if any(box.offset % LINE for box in found):
        raise Refused("the copy engine fills shared memory from a multiple of 128 bytes on")
    if layout.swizzle and any(box.shape[-1] != layout.span for box in found):
        raise Refused("the copy engine fills whole rows of a swizzle")
    return found


def _uneven(inner: Part, layout: SharedLayout) -> bool:
    """True if the part of a plain buffer may not be aligned to 128 bytes."""
    return any(
        math.gcd(start.factor, INFINITE) * stride % LINE and start.at != 0
        for start, stride in zip(inner.starts, layout.strides, strict=True)
    )


def _matched(inner: Part, layout: SharedLayout, extents: list[int], axes: list[int]) -> dict[int, int]:
    """The axis of the buffer for each axis of the box that is longer than 1."""
    own = [along for along in inner.axes if along.size != 1]
    if not own and extents == [1]:
        return {axes[0]: len(inner.shape) - 1}
    if [along.size for along in own] != extents or any(along.stride != 1 or along.axis is None for along in own):
        raise Refused("the copy engine fills a buffer in the order of the array")
    found = {axis: along.axis for axis, along in zip(axes, own, strict=True)}
    if list(found.values()) != sorted(found.values()):  # type: ignore[type-var]
        raise Refused("the copy engine does not transpose", hint="copy first, and load the buffer's transpose: ref.T")
    return found  # type: ignore[return-value]


def _cut(sizes: tuple[int, ...], target: dict[int, int], layout: SharedLayout) -> Iterator[Box]:
    """Split a box into boxes that are dense in the buffer."""
    last = len(layout.shape) - 1
    steps = []
    for axis, extent in enumerate(sizes):
        own = target.get(axis)
        if own == last:
            step = min(extent, layout.span if layout.swizzle else MOST)
        elif own == last - 1 or own is None:
            step = min(extent, MOST)
        else:
            step = 1
        steps.append(step)
    if not layout.swizzle and len(target) > 1 and last in target.values():
        columns = next(axis for axis, own in target.items() if own == last)
        if steps[columns] != layout.shape[-1]:  # the rows of a box are contiguous
            steps = [step if axis == columns else 1 for axis, step in enumerate(steps)]
    for place in _places(sizes, steps):
        shape = tuple(min(step, extent - at) for step, extent, at in zip(steps, sizes, place, strict=True))
        offset = 0
        for axis, at in enumerate(place):
            own = target.get(axis)
            if own == last and layout.swizzle:
                offset += at // layout.span * layout.block_bytes
            elif own is not None:
                offset += at * layout.strides[own]
        yield Box(shape, tuple(place), offset)


def _places(sizes: Sequence[int], steps: Sequence[int]) -> Iterator[list[int]]:
    if not sizes:
        yield []
        return
    for at in range(0, sizes[0], steps[0]):
        for rest in _places(sizes[1:], steps[1:]):
            yield [at, *rest]


def spec(copy: Copy, shape: tuple[int, ...], reduction: str | None = None) -> MapSpec:
    """The tensor map for boxes of a shape."""
    dims, itemsize, dtype = copy.part.shape, copy.buffer.layout.itemsize, copy.array.type.dtype
    strides = tuple(math.prod(dims[n + 1 :]) * itemsize for n in range(len(dims) - 1))
    if reduction in ("add", *_BITWISE) and dtypes.short_name(dtype) == "i64":
        dtype = np.dtype(np.uint64)  # the engine adds and joins these without a sign only, and the bits are the same
    return MapSpec(copy.array.number, dtype, dims, strides, shape, copy.buffer.layout.swizzle)


def coordinates(copy: Copy, box: Box, more: Sequence[Index] | None = None) -> str:
    """The start of a box, as arguments: the innermost axis first; `more` is added along each axis of the array."""
    extra = more or [0] * len(box.corner)
    places = [
        added(start.at, at, further) for start, at, further in zip(copy.part.starts, box.corner, extra, strict=True)
    ]
    return ", ".join(map(str, reversed(places)))


def _predicated(condition: str | None, lines: Sequence[str], otherwise: str = "") -> list[str]:
    if condition is None:
        return list(lines)
    last = ["} else {", f"  {otherwise}", "}"] if otherwise else ["}"]
    return [f"if ({condition}) {{", *(f"  {line}" for line in lines), *last]


def _load(scope: Scope, eqn: Eqn) -> None:
    _, _, barrier, predicate, *indices = eqn.inputs
    copy = sides(scope, eqn, 0, 1, indices)
    barriers, number = slot(scope, barrier, eqn.transforms[2], indices)
    condition = scope.condition(predicate)
    scope.before_write(copy.buffer.root)
    if not scope.one_warp:
        # A copy that completes before all warps have observed the last phase would hide that phase from them.
        scope.before_write(barriers.root)
    if copy.rows is not None:
        _load_rows(scope, copy, copy.rows, barriers, number, condition)
        return
    try:
        found = boxes(copy)
    except Refused:
        _load_by_threads(scope, copy, barriers, number, condition)
        return
    missed = copy.all_or_none(copy.inner_limits)  # if one fails, nothing is written
    condition = copy.tested(missed, condition)
    partial = [each for each in (*copy.outer_limits, *copy.inner_limits) if each not in missed]
    inside = copy.tested(partial, copy.aligned)
    if inside is None:
        _load_boxes(scope, copy, found, barriers, number, condition, eqn.collective)
        return
    # Blocks that share a load have the same source, so that all of them find it aligned or none.
    collective = () if partial else eqn.collective
    with _either(scope, inside) as branch:
        with branch():
            _load_boxes(scope, copy, found, barriers, number, condition, collective)
        with branch():
            _load_by_threads(scope, copy, barriers, number, condition)


@contextmanager
def _either(scope: Scope, inside: str) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Two branches: TMA's, if it can make the copy, and the threads'; neither counts as a synchronisation."""
    heads = iter((f"if ({inside})", "else"))
    read, written = set(scope.sites.read), set(scope.sites.written)
    yield lambda: scope.w.block(next(heads))
    scope.sites = Sites(read, written)


def _load_boxes(
    scope: Scope,
    copy: Copy,
    found: Sequence[Box],
    barriers: Barriers,
    number: Index,
    condition: str | None,
    collective: Sequence[str],
) -> None:
    """Load boxes by TMA; blocks along `collective` axes of the cluster share them."""
    where = address(barriers, number)
    size = sum(math.prod(box.shape) for box in found) * copy.buffer.layout.itemsize
    first = [f"pal::arrive_many({where}, {barriers.unit - 1});"] if barriers.unit > 1 else []
    lines = [f"pal::arrive_expect({where}, {size});"]
    if collective and _divides(scope, found, collective):
        lines += _shared_loads(scope, copy, found, where, collective)
    else:
        for box in found:
            name = scope.kernel.map(spec(copy, box.shape), copy.array.name)
            target = added(copy.buffer.base, copy.start, box.offset)
            lines.append(f"pal::tma_load(&{name}, {target}, {where}, {coordinates(copy, box)});")
    # A copy whose predicate is false still arrives, without bytes.
    scope.w.elect(*first, *_predicated(condition, lines, f"pal::arrive({where});"))


def _rows_axis(box: Box) -> int | None:
    """The axis along which a box is divided among the blocks of a cluster: the last one before the innermost."""
    return max((axis for axis, size in enumerate(box.shape[:-1]) if size > 1), default=None)


def _divides(scope: Scope, found: Sequence[Box], axes: Sequence[str]) -> bool:
    """True if each block can load whole groups of 8 rows; otherwise each block loads everything."""
    sizes = scope.kernel.axis("cluster")
    count = math.prod(sizes[name] for name in axes)
    rows = [box.shape[axis] if (axis := _rows_axis(box)) is not None else 1 for box in found]
    return all(each % (8 * count) == 0 for each in rows)


def _shared_loads(scope: Scope, copy: Copy, found: Sequence[Box], where: Index, axes: Sequence[str]) -> list[str]:
    """Multicast loads: each block along the cluster axes loads a part for all of them."""
    sizes = scope.kernel.axis("cluster")
    names = list(sizes)
    count = math.prod(sizes[name] for name in axes)
    weights = {name: math.prod(list(sizes.values())[n + 1 :]) for n, name in enumerate(names)}
    own, place = [], 1
    for name in reversed([each for each in names if each in axes]):
        index = f"pal::cluster_rank() / {weights[name]} % {sizes[name]}" if len(names) > 1 else "pal::cluster_rank()"
        own.append(times(f"({index})" if len(names) > 1 else index, place))
        place *= sizes[name]
    part = added(*own)
    mask = sum(1 << bits for bits in _ranks([(weights[name], sizes[name]) for name in axes]))
    blocks = hex(mask)
    if set(axes) != set(names):
        base = added(
            *(times(f"(pal::cluster_rank() / {weights[n]} % {sizes[n]})", weights[n]) for n in names if n not in axes)
        )
        blocks = f"{blocks} << ({base})"
    layout = copy.buffer.layout
    lines = []
    for box in found:
        shape, rows_axis = box.shape, _rows_axis(box) or 0
        extra: list[Index] = [0] * len(box.shape)
        rows = shape[rows_axis] // count
        shape = (*shape[:rows_axis], rows, *shape[rows_axis + 1 :])
        extra[rows_axis] = times(part, rows)
        shift = times(part, rows * layout.strides[-2])
        name = scope.kernel.map(spec(copy, shape), copy.array.name)
        target = added(copy.buffer.base, copy.start, box.offset, shift)
        lines.append(f"pal::tma_load_multicast(&{name}, {target}, {where}, {blocks}, {coordinates(copy, box, extra)});")
    return lines


def _ranks(axes: Sequence[tuple[int, int]]) -> list[int]:
    found = [0]
    for weight, size in axes:
        found = [rank + weight * n for rank in found for n in range(size)]
    return found


def _store(scope: Scope, eqn: Eqn) -> None:
    copy = sides(scope, eqn, 1, 0, eqn.indices)
    condition = scope.condition(eqn.predicate)
    scope.before_read(copy.buffer.root)
    reduction = eqn.reduction
    try:
        found = boxes(copy)
        if reduction is not None:
            _require_reduction(reduction, copy.array.type.dtype)
    except Refused:
        _store_by_threads(scope, copy, condition, reduction)
        return
    limits = (*copy.outer_limits, *copy.inner_limits)
    missed = copy.all_or_none(limits)
    condition = copy.tested(missed, condition)
    partial = [each for each in limits if each not in missed]
    inside = copy.tested(partial, copy.aligned)
    if inside is None:
        _store_boxes(scope, copy, found, condition, reduction)
        return
    with _either(scope, inside) as branch:
        with branch():
            _store_boxes(scope, copy, found, condition, reduction)
        with branch():
            _store_by_threads(scope, copy, condition, reduction)


_EXTREMA = ("i32", "u32", "i64", "u64", "f16", "bf16")
_BITWISE = "and", "or", "xor"
_REDUCED: dict[str, tuple[str, ...]] = {
    "add": (*_EXTREMA, "f32"),
    "min": _EXTREMA,
    "max": _EXTREMA,
    **dict.fromkeys(_BITWISE, ("i32", "u32", "i64", "u64")),
}
"""The dtypes of each reduction of the copy engine (PTX ISA, `cp.reduce.async.bulk.tensor`); i64 stands for u64 but in
extrema."""


def _require_reduction(reduction: str, dtype: DType) -> None:
    """Refuse a reduction that the copy engine does not have.

    Raises:
        Refused: the threads combine the elements.
    """
    if dtypes.short_name(dtype) not in _REDUCED[reduction]:
        raise Refused(f"the copy engine has no {reduction} of this dtype", got=dtypes.short_name(dtype))


def _store_boxes(scope: Scope, copy: Copy, found: Sequence[Box], condition: str | None, reduction: str | None) -> None:
    """Store or reduce boxes by TMA."""
    lines = []
    for box in found:
        name = scope.kernel.map(spec(copy, box.shape, reduction), copy.array.name)
        source = added(copy.buffer.base, copy.start, box.offset)
        call = "tma_store" if reduction is None else f"tma_reduce<pal::{reduction.upper()}>"
        lines.append(f"pal::{call}(&{name}, {source}, {coordinates(copy, box)});")
    scope.w.elect(*_predicated(condition, lines))


# Copies by the threads of the warpgroup.

PIECES = {2: "u16", 4: "u32", 8: "u32x2", 16: "u32x4"}
"""The C++ types of pieces of several elements, by size in bytes."""


def _piece(copy: Copy) -> int:
    """Elements that a thread copies together: contiguous and aligned on both sides, for all starts of the copy.

    Arrays are aligned to 16 bytes, buffers to 128. Copies with unknown starts or with rows of odd sizes have smaller
    pieces. A piece is inside the array and other limits as a whole, or outside.
    """
    layout, part, inner = copy.buffer.layout, copy.part, copy.inner
    itemsize, sizes = layout.itemsize, copy.inner.sizes
    if not sizes or not part.axes or not inner.axes:
        return 1
    columns, across = part.axes[-1], inner.axes[-1]
    last, own = len(part.shape) - 1, len(layout.shape) - 1
    side_by_side = columns.axis == last and across.axis == own and columns.stride == across.stride == 1
    alone = all(each.axis != last for each in part.axes[:-1]) and all(each.axis != own for each in inner.axes[:-1])
    if not side_by_side or not alone or last in dict(part.listed):
        return 1
    width = math.gcd(PIECE // itemsize, sizes[-1], part.shape[-1], layout.span)
    width = math.gcd(width, part.starts[-1].factor, inner.starts[-1].factor)
    for limit in (*copy.outer_limits, *copy.inner_limits):
        width = limit.vector(width)
    return max(width, 1)


def _each(scope: Scope, copy: Copy, condition: str | None, body: Sequence[str], piece: int = 1) -> None:
    """Write a loop over the pieces of a copy: `place` is the offset in the array, `byte` the address in the buffer."""
    sizes, w = list(copy.inner.sizes), scope.w
    if piece > 1:
        sizes[-1] //= piece
    threads = 32 if scope.one_warp else 128
    count = math.prod(sizes)
    strides = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    index = [
        f"element / {stride} % {size}" if stride > 1 else f"element % {size}" for stride, size in zip(strides, sizes)
    ]
    if piece > 1:
        index[-1] = times(f"({index[-1]})", piece)
    outer = copy.part.place(_parenthesised(index))
    inner = copy.inner.place(_parenthesised(index))
    inside = [f"{at} >= 0 && {at} < {extent}" for at, extent in zip(_named("at", len(outer)), copy.part.shape)]
    inside += [limit.test(_parenthesised(index)) for limit in copy.outer_limits]
    dims = copy.part.shape
    place = added(*(times(f"(i64)at{n}", math.prod(dims[n + 1 :])) for n in range(len(dims))))
    layout = copy.buffer.layout
    head = f"if ({condition})" if condition is not None else ""
    with w.block(head), w.block(f"for (int element = thread; element < {count}; element += {threads})"):
        for n, part in enumerate(outer):
            w.line(f"const int at{n} = {part};")
        w.line(f"const u32 byte_at = {added(copy.buffer.base, layout.offset(inner))};")
        w.line(f"const u32 byte = {swizzled_text('byte_at', layout.swizzle)};")
        w.line(f"const i64 place = {place};")
        w.line(f"const bool inside = {' && '.join(inside) or 'true'};")
        if copy.inner_limits:
            tests = [limit.test(_parenthesised(index)) for limit in copy.inner_limits]
            w.line(f"const bool held = {' && '.join(dict.fromkeys(tests))};")
        for line in body:
            w.line(line)


def _parenthesised(texts: Sequence[str]) -> list[str]:
    return [f"({text})" for text in texts]


def _named(name: str, count: int) -> list[str]:
    return [f"{name}{n}" for n in range(count)]


def _load_rows(scope: Scope, copy: Copy, rows: Rows, barriers: Barriers, number: Index, condition: str | None) -> None:
    """All threads issue copies of pieces of rows, which keep the phase open; then one thread arrives for the copy."""
    limited = copy.outer_limits or copy.inner_limits
    lines = None if limited else in_pieces(scope, copy.array, rows, copy.buffer, copy.inner)
    if lines is None:
        _load_by_threads(scope, replace(copy, part=rows.looked_up(scope)), barriers, number, condition)
        return
    for line in _predicated(condition, [*lines, f"pal::copy_async_hold({address(barriers, number)});"]):
        scope.w.line(line)
    scope.sync()
    _arrive(scope, barriers, number)


def _load_by_threads(scope: Scope, copy: Copy, barriers: Barriers, number: Index, condition: str | None) -> None:
    """All threads copy elements; after a fence for asynchronous readers, one thread arrives for the copy."""
    kind = memory_type(copy.array.type.dtype)
    pointer = scope.kernel.pointer(copy.array.number, copy.array.name)
    value, piece = f"inside ? pal::load_global(({kind} const*){pointer} + place) : ({kind})0", _piece(copy)
    if piece > 1:
        kind = PIECES[piece * copy.buffer.layout.itemsize]
        value = f"inside ? pal::load_global(({kind} const*)({pointer} + place)) : {kind}{{}}"
    held = "if (held) " if copy.inner_limits else ""
    _each(scope, copy, condition, [f"{held}pal::store_shared<{kind}>(byte, {value});"], piece)
    scope.w.line("pal::fence_async();")
    scope.sync()
    _arrive(scope, barriers, number)


def _arrive(scope: Scope, barriers: Barriers, number: Index) -> None:
    """One thread arrives for a copy by all threads."""
    unit = WARPS if barriers.unit > 1 else 1
    call = (
        f"pal::arrive_many({address(barriers, number)}, {unit});"
        if unit > 1
        else f"pal::arrive({address(barriers, number)});"
    )
    scope.w.elect(call)


def _store_by_threads(scope: Scope, copy: Copy, condition: str | None, reduction: str | None) -> None:
    dtype = copy.array.type.dtype
    kind = memory_type(dtype)
    pointer = scope.kernel.pointer(copy.array.number, copy.array.name)
    value, target, piece = f"pal::load_shared<{kind}>(byte)", f"({kind}*){pointer} + place", 1
    if reduction is None and not copy.inner_limits and (piece := _piece(copy)) > 1:
        kind = PIECES[piece * copy.buffer.layout.itemsize]
        value, target = f"pal::load_shared<{kind}>(byte)", f"({kind}*)({pointer} + place)"
    if copy.inner_limits:
        value = f"held ? {value} : ({kind})({to_memory(outside(dtype), dtype)})"
    lines = [f"if (inside) pal::store_global({target}, {value});"]
    if reduction is not None:
        lines = _predicated("inside", reduced_in_array(reduction, dtype, target, f"({value})"))
    _each(scope, copy, condition, lines, piece)


def _commit_group(scope: Scope, eqn: Eqn) -> None:
    scope.w.elect("pal::bulk_commit();")


def _wait_stores(scope: Scope, eqn: Eqn) -> None:
    kind = "bulk_wait_read" if eqn.read_only else "bulk_wait"
    scope.w.elect(f"pal::{kind}<{eqn.params['n']}>();")
    scope.w.flush()
    scope.sync()


def _commit(scope: Scope, eqn: Eqn) -> None:
    scope.w.line("pal::fence_async();")
    scope.sync()


def _commit_global(scope: Scope, eqn: Eqn) -> None:
    scope.w.line("pal::fence_async_global();")
    scope.sync()


def _prefetch(scope: Scope, eqn: Eqn) -> None:
    """Ignore a hint; prefetches are not implemented yet."""


def _launched_in_order(scope: Scope, eqn: Eqn) -> None:
    """Nothing to do: kernels of one stream run in order, without the attribute for programmatic overlap."""


RULES: dict[str, Rule] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "commit_smem_to_gmem_group": _commit_group,
    "wait_smem_to_gmem": _wait_stores,
    "commit_smem": _commit,
    "commit_gmem": _commit_global,
    "async_prefetch": _prefetch,
    "griddepcontrol_wait": _launched_in_order,
    "griddepcontrol_launch_dependents": _launched_in_order,
}
