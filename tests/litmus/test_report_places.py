"""Places in reports: the part of a buffer, the iteration of each loop, the tile of a block."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax
from palladio.machine.check.findings import Finding
from palladio.machine.check.regions import Region
from palladio.machine.check.report.naming import common, describe
from palladio.machine.run.buffers import Buffer
from palladio.types.types import SMEM, RefType
from tests.litmus.pairs import ROW, Case, X, case, only, row

STEPS, STAGES = 6, 2
ROWS = np.arange(STEPS * ROW, dtype=np.float32).reshape(STEPS, ROW)


def ring(tiles: int = 1, early: bool = True) -> Case:
    """A producer and a consumer; the consumer releases a slot before it has read it, or after."""
    out = np.tile(ROWS, (tiles, 1, 1))

    def body(x: Any, out: Any, staging: Any, full: Any, empty: Any) -> None:
        @plgpu.nd_loop((tiles,), collective_axes="x")
        def _(info: Any) -> None:
            @pl.loop(0, STEPS)
            def _(k: Any) -> None:
                step = info.local_index * STEPS + k
                slot = step % STAGES

                @only(0)
                def _() -> None:
                    pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(empty.at[slot]))
                    plgpu.copy_gmem_to_smem(x.at[k], staging.at[slot], full.at[slot])

                @only(1)
                def _() -> None:
                    def release() -> None:
                        plgpu.barrier_arrive(empty.at[slot], predicate=step < tiles * STEPS - STAGES)

                    plgpu.barrier_wait(full.at[slot])
                    if early:
                        release()
                    out[info.index[0], k] = staging[slot]
                    if not early:
                        release()

    barriers = plgpu.Barrier(num_barriers=STAGES)
    return case(body, ROWS, out=out, threads=2, scratch=[row(STAGES), barriers, barriers])


def first(found: Case, *, schedule: str = "latest") -> Finding:
    return pl.check(found, schedule=schedule).findings[0]


def test_a_race_names_the_slot_and_each_side_its_step() -> None:
    found = first(ring())
    assert found.message.startswith("staging[0] (f32[8] in smem) is written by the copy_gmem_to_smem on line ")
    assert [(each.thread, each.at) for each in found.participants] == [
        ("block (0) wg 0", "k = 2, first tile"),
        ("block (0) wg 1", "k = 0, first tile"),
    ] or [(each.thread, each.at) for each in found.participants] == [
        ("block (0) wg 1", "k = 0, first tile"),
        ("block (0) wg 0", "k = 2, first tile"),
    ]
    assert "  block (0) wg 0, k = 2, first tile: starts copy_gmem_to_smem, which writes it\n" in found.render()


def test_a_persistent_block_names_its_tile() -> None:
    def body(x: Any, out: Any) -> None:
        @plgpu.nd_loop((3,), collective_axes="x")
        def _(info: Any) -> None:
            (tile,) = info.index
            out[pl.ds(8 * (tile // 2), 8)] = x[...]

    found = first(case(body, X, out=np.concatenate([X, X]), grid=3, threads=2))
    assert {each.at for each in found.participants} == {"first tile"}

    def second(x: Any, out: Any, shared: Any) -> None:
        @plgpu.nd_loop((2,), collective_axes="x")
        def _(info: Any) -> None:
            pl.when(info.local_index == 1)(lambda: shared.set(x[...]))

    found = first(case(second, X, out=X, threads=2, scratch=[row()]))
    assert {each.at for each in found.participants} == {"second tile"}


def test_while_loops_and_unnamed_ones_count_iterations() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        def step(n: Any) -> Any:
            pl.loop(2, 3)(lambda _: shared.set(x[...]))
            return n + 1

        lax.while_loop(lambda n: n < 2, step, 0)
        out[...] = x[...]

    found = first(case(body, X, out=X, threads=2, scratch=[row()]))
    assert all(each.at.startswith("iteration 2, iteration ") for each in found.participants)


def test_a_deadlock_says_in_which_iteration_threads_wait() -> None:
    def body(x: Any, out: Any, full: Any) -> None:
        out[...] = x[...]

        @pl.loop(0, 4)
        def _(k: Any) -> None:
            plgpu.barrier_arrive(full, predicate=k < 2)
            plgpu.barrier_wait(full)

    (waits,) = first(case(body, X, out=X, scratch=[plgpu.Barrier()])).participants
    assert waits.at == "k = 2"


def test_parts_of_buffers_are_written_as_indices() -> None:
    store = Buffer(RefType((4, 8, 16), np.dtype(np.float16), SMEM), "ring", None, np.empty(0))

    def text(*bands: tuple[int, int]) -> str:
        return describe(store, Region(tuple((band,) for band in bands)))

    assert text((0, 4), (0, 8), (0, 16)) == "ring (f16[4,8,16] in smem)"
    assert text((1, 2), (0, 8), (0, 16)) == "ring[1] (f16[8,16] in smem)"
    assert text((1, 2), (0, 8), (3, 4)) == "ring[1, :, 3] (f16[8] in smem)"
    assert text((0, 4), (2, 6), (0, 16)) == "ring[:, 2:6] (f16[4,4,16] in smem)"
    assert describe(store, Region((((0, 1), (2, 3)), ((0, 8),), ((0, 16),)))) == "ring[0:3] (f16[2,8,16] in smem)"
    assert describe(store) == describe(store, Region(None)) == text((0, 4), (0, 8), (0, 16))


def test_the_part_is_the_one_that_both_reach() -> None:
    whole, rows, columns = (
        Region((((0, 4),), ((0, 8),))),
        Region((((1, 2),), ((0, 8),))),
        Region((((0, 4),), ((2, 3),))),
    )
    assert common(whole, rows).bands == rows.bands  # type: ignore[union-attr]
    assert common(columns, rows).bands == (((1, 2),), ((2, 3),))  # type: ignore[union-attr]
    assert common(None, rows) is rows
    assert common(Region(None), rows) is rows
