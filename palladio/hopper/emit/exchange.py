"""Redistribution of elements among threads, through an exchange buffer in shared memory, one for each warpgroup.

The elements are written there in row-major order, the warpgroup synchronises, and each thread reads its elements of the
result. This implements every change of layout and every operation that only moves elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.hopper.emit.scalars import from_memory, literal, memory_type, to_memory
from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.values import EXCHANGE, Array, Registers
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import Layout
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.views import row_major

ALIGNMENT = 128
WARPS = 4


def room(scope: Scope, size: int) -> Index:
    """The address of the exchange buffer of this warpgroup, as a C expression; of the warp, where warps run alone.

    Earlier reads of the buffer are complete.
    """
    size = math.ceil(size / ALIGNMENT) * ALIGNMENT
    groups, own = scope.runs
    if scope.room is None or scope.room[1] < size:
        offset = scope.kernel.plan.take(size * groups, ALIGNMENT)
        scope.room = offset, size
    offset, held = scope.room
    scope.before_write(EXCHANGE)
    return added(f"smem + {offset}", times(own, held) if groups > 1 else 0)


def put(scope: Scope, x: Array, layout: Layout) -> str:
    """Write an array to the exchange buffer, row-major; returns its address as the name of a C variable."""
    return put_all(scope, [(x, layout)])[0]


def put_all(scope: Scope, parts: Sequence[tuple[Array, Layout]]) -> list[str]:
    """Write arrays one after the other, each row-major; returns their addresses as names of C variables."""
    sizes = [math.ceil(math.prod(layout.shape) * x.dtype.itemsize / ALIGNMENT) * ALIGNMENT for x, layout in parts]
    start = room(scope, sum(sizes))
    bases = []
    for n, (x, layout) in enumerate(parts):
        bases.append(scope.w.fresh("moved"))
        scope.w.line(f"const u32 {bases[-1]} = {added(start, sum(sizes[:n]))};")
        write(scope, x, layout, bases[-1])
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    return bases


def write(scope: Scope, x: Array, layout: Layout, base: str) -> None:
    """Write every element from the first of the threads that hold it."""
    tests = [test for test in (layout.guard("r", "thread"), layout.first_holder("thread")) if test]
    strides = row_major(layout.shape)
    place = added(*(times(layout.coordinate(n, "r", "thread"), stride) for n, stride in enumerate(strides)))
    test = f"if ({' && '.join(tests)}) " if tests else ""
    value = to_memory(scope.stored(x, "r", layout), x.dtype)
    scope.w.line(
        f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r) {test}"
        f"pal::store_shared<{memory_type(x.dtype)}>({added(base, times(place, x.dtype.itemsize))}, {value});"
    )


def get(scope: Scope, base: str, place: Index, dtype: DType) -> str:
    """The element at a row-major position of an array in the exchange buffer, as a C expression."""
    scope.sites.read.add(EXCHANGE)
    return from_memory(f"pal::load_shared<{memory_type(dtype)}>({added(base, times(place, dtype.itemsize))})", dtype)


def through_shared(scope: Scope, x: Registers, layout: Layout) -> Registers:
    """An array converted to another layout."""

    def same(index: Sequence[str]) -> list[str]:
        return list(index)

    return moved(scope, x, x.layout, layout, same, "moved")


def moved(
    scope: Scope,
    x: Array,
    source: Layout,
    target: Layout,
    origin: Callable[[Sequence[str]], Sequence[Index]],
    hint: str,
    inside: Callable[[Sequence[str]], str | None] = lambda index: None,
) -> Registers:
    """A permutation or gather: the element at an index is the element of `x` at `origin(index)`.

    Args:
        inside: the predicate that this element exists, as a C expression; otherwise the result is uninitialised.
    """
    base = put(scope, x, source)
    strides = row_major(source.shape)
    out = scope.declare(hint, target, x.dtype)
    index = [f"({target.coordinate(axis, 'r', 'thread')})" for axis in range(len(target.shape))]
    place = added(*(times(part, stride) for part, stride in zip(origin(index), strides, strict=True)))
    guard = " && ".join(test for test in (target.guard("r", "thread"), inside(index)) if test)
    value = get(scope, base, place, x.dtype)
    nothing = literal(dtypes.uninitialized(x.dtype), x.dtype)
    return scope.fill(out, lambda r: f"{guard} ? {value} : {nothing}" if guard else value)
