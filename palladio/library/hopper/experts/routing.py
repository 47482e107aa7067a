"""Routing: the number of assignments of each expert, and the row of each assignment, sorted by expert."""

from __future__ import annotations

import functools
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax

Ref = Any
Value = Any

COUNTED = 1024
"""Assignments that a warpgroup counts in one step."""

RANKED = 256
"""Assignments that are ranked by one scan."""

TOGETHER = 2
"""The number of such groups of assignments that are loaded before the first is ranked."""

MOST_GROUPS = 4
"""The most warpgroups of a block."""


def _moe_route_kernel(
    ids: Ref, sizes: Ref, token_of: Ref, row_of: Ref, *, present: Value, each: int, groups: int, **scratch: Ref
) -> None:
    """One block: the assignments to one expert, whose rows follow those of the previous experts.

    Warpgroups share the assignments. Each counts those of its part, and assigns rows once all counts are known.
    Assignments from `present` on are not accessed.
    """
    expert, group = pl.axis_index("expert"), pl.axis_index("warpgroup")
    below, own, counted = scratch["below"], scratch["own"], scratch["counted"]
    count = ids.shape[0]
    step = RANKED * TOGETHER
    part = pl.cdiv(pl.cdiv(count, groups), step) * step
    first = group * part
    end = jnp.minimum(first + part, present)

    def load(start: Value, size: int) -> tuple[Value, Value]:
        number = start + jnp.arange(size)
        return number, plgpu.load(ids.at[pl.ds(start, size)], mask=number < end, other=-1)

    def add(number: Value, carry: tuple[Value, Value]) -> tuple[Value, Value]:
        _, found = load(first + number * COUNTED, COUNTED)
        before, mine = (found >= 0) & (found < expert), found == expert
        return carry[0] + jnp.sum(before.astype(jnp.int32)), carry[1] + jnp.sum(mine.astype(jnp.int32))

    before, mine = lax.fori_loop(0, pl.cdiv(part, COUNTED), add, (jnp.int32(0), jnp.int32(0)))
    below[group], own[group] = before, mine
    plgpu.barrier_arrive_and_wait(counted)
    earlier = jnp.arange(groups) < group
    start = jnp.sum(below[...]) + jnp.sum(jnp.where(earlier, own[...], 0))

    @pl.when(group == 0)
    def _() -> None:
        sizes[expert] = jnp.sum(own[...])

    def rank(number: Value, row: Value) -> Value:
        loaded = [load(first + number * step + n * RANKED, RANKED) for n in range(TOGETHER)]
        for numbers, found in loaded:
            mine = found == expert
            rows = row + jnp.cumsum(mine.astype(jnp.int32)) - 1
            plgpu.store(row_of.at[pl.ds(numbers[0], RANKED)], rows, mask=mine)
            plgpu.store(token_of.at[rows], numbers // each, mask=mine)
            row = row + jnp.sum(mine.astype(jnp.int32))
        return row

    lax.fori_loop(0, part // step, rank, start)


def route(count: int, each: int, experts: int, interpret: Any, present: Value | None = None) -> Any:
    """The launch, a function of `ids[assignments]`: sizes `i32[e]`, and for each row its token, `i32[assignments]`,
    and for each assignment its row. Assignments to other experts have no row.

    Args:
        present: the number of the assignments that there are, i32[], at most `count`; None for all.
    """
    present = count if present is None else present
    groups = min(MOST_GROUPS, pl.cdiv(count, RANKED * TOGETHER))
    numbers = pl.ShapeDtypeStruct((count,), jnp.int32)
    return plgpu.kernel(
        functools.partial(_moe_route_kernel, present=present, each=each, groups=groups),
        (pl.ShapeDtypeStruct((experts,), jnp.int32), numbers, numbers),
        scratch_types={
            "below": plgpu.SMEM((groups,), jnp.int32),
            "own": plgpu.SMEM((groups,), jnp.int32),
            "counted": plgpu.Barrier(num_arrivals=groups),
        },
        grid=(experts,),
        grid_names=("expert",),
        num_threads=groups,
        thread_name="warpgroup",
        interpret=interpret,
        name="moe_route",
    )
