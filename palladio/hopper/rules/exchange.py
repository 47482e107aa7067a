"""Arrays whose elements change threads: through a piece of shared memory that each warpgroup has for this.

The elements are written there in row-major order, the warpgroup waits for itself, and each thread reads those that it
is to hold. That serves every change of layout and every operation that only moves elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.values import EXCHANGE, Array, Registers, from_memory, memory_type, register_type, to_memory
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import added, times

ALIGNMENT = 128
WARPS = 4


def room(scope: Scope, size: int) -> str:
    """The address of a piece of shared memory of this warpgroup, as a C expression; of each warp, where one runs alone.

    What was in it before has been read.
    """
    size = math.ceil(size / ALIGNMENT) * ALIGNMENT
    groups = len(scope.threads)
    if scope.room is None or scope.room[1] < size:
        offset = scope.kernel.plan.take(size * groups, ALIGNMENT)
        scope.room = offset, size
    offset, held = scope.room
    scope.before_write(EXCHANGE)
    return added(f"smem + {offset}", times(scope.group_in_role, held) if groups > 1 else "0")


def put(scope: Scope, x: Array, layout: Layout) -> str:
    """Write an array to the piece of shared memory, row-major; its address as the name of a C variable."""
    dtype = x.dtype
    size = dtype.itemsize
    base = scope.w.fresh("moved")
    scope.w.line(f"const u32 {base} = {room(scope, math.prod(layout.shape) * size)};")
    strides = row_major(layout.shape)
    tests = [test for test in (layout.guard("r", "thread"), layout.first_holder("thread")) if test]
    place = added(*(times(layout.coordinate(n, "r", "thread"), stride) for n, stride in enumerate(strides)))
    value = to_memory(scope.element(x, "r", layout), dtype)
    test = f"if ({' && '.join(tests)}) " if tests else ""
    scope.w.line(
        f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r) {test}"
        f"pal::store_shared<{memory_type(dtype)}>({added(base, times(place, size))}, {value});"
    )
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    return base


def get(scope: Scope, base: str, place: str, dtype, text: str | None = None) -> str:  # type: ignore[no-untyped-def]
    """The element at a place of what has been put, as a C expression."""
    scope.sites.read.add(EXCHANGE)
    return from_memory(f"pal::load_shared<{memory_type(dtype)}>({added(base, times(place, dtype.itemsize))})", dtype)


def through_shared(scope: Scope, x: Registers, layout: Layout) -> Registers:
    """An array in another layout."""

    def same(index: Sequence[str]) -> list[str]:
        return list(index)

    return moved(scope, x, x.layout, layout, same, "moved")


def moved(
    scope: Scope,
    x: Array,
    source: Layout,
    target: Layout,
    origin: Callable[[Sequence[str]], list[str]],
    hint: str,
) -> Registers:
    """An array whose element at an index is that of another one at the index that it comes from."""
    base = put(scope, x, source)
    strides = row_major(source.shape)
    out = scope.declare(hint, target, x.dtype)
    index = [f"({target.coordinate(axis, 'r', 'thread')})" for axis in range(len(target.shape))]
    place = added(*(times(part, stride) for part, stride in zip(origin(index), strides, strict=True)))
    guard = target.guard("r", "thread")
    value = get(scope, base, place, x.dtype)
    return scope.fill(out, lambda r: f"{guard} ? {value} : {register_type(x.dtype)}(0)" if guard else value)


def row_major(shape: Sequence[int]) -> list[int]:
    """The elements from one index to the next along each axis of a dense array."""
    return [math.prod(shape[n + 1 :]) for n in range(len(shape))]
