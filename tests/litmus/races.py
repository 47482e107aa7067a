"""Races of ordinary accesses: `data-race` between threads of a block or cluster, `global-race` between blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from tests.litmus.pairs import F32, Case, X, case, only, pair, row

TWICE = np.stack([X, X + 1])


@pair("data-race")
def a_value_is_handed_over_at_a_barrier(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            if broken:
                plgpu.barrier_arrive(ready)
            shared[...] = x[...]
            if not broken:
                plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            out[...] = shared[...]

    return case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier()])


@pair("data-race")
def each_thread_writes_its_own_row(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        wg = pl.axis_index("wg")
        shared[0 if broken else wg] = x[...] + wg.astype(F32)
        out[wg] = shared[0 if broken else wg]

    return case(body, X, out=TWICE, threads=2, scratch=[row(2)])


@pair("data-race")
def memory_is_written_again_when_its_reader_is_done(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, ready: Any, done: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.barrier_arrive(ready)
            plgpu.barrier_wait(done)
            shared[...] = x[...] + 1
            out[1] = shared[...]

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            if broken:
                plgpu.barrier_arrive(done)
            out[0] = shared[...]
            if not broken:
                plgpu.barrier_arrive(done)

    return case(body, X, out=TWICE, threads=2, scratch=[row(), plgpu.Barrier(), plgpu.Barrier()])


@pair("data-race")
def threads_exchange_rows(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        if broken:
            plgpu.barrier_arrive_and_wait(met)
        shared[wg] = x[...] + wg.astype(F32)
        if not broken:
            plgpu.barrier_arrive_and_wait(met)
        out[1 - wg] = shared[1 - wg]

    return case(body, X, out=TWICE, threads=2, scratch=[row(2), plgpu.Barrier(num_arrivals=2)])


@pair("data-race")
def threads_exchange_rows_at_a_named_barrier(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        if broken:
            plgpu.barrier_arrive_and_wait(met)
        shared[wg] = x[...] + wg.astype(F32)
        if not broken:
            plgpu.barrier_arrive_and_wait(met)
        out[1 - wg] = shared[1 - wg]

    return case(body, X, out=TWICE, threads=2, scratch=[row(2), plgpu.NamedBarrier(num_arrivals=2)])


@pair("data-race")
def two_rounds_need_two_meetings(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, 2)
        def _(step: Any) -> None:
            shared[wg] = x[...] + wg.astype(F32)
            plgpu.barrier_arrive_and_wait(met)
            out[step, 1 - wg] = shared[1 - wg]
            if not broken:
                plgpu.barrier_arrive_and_wait(met)

    return case(body, X, out=np.stack([TWICE, TWICE]), threads=2, scratch=[row(2), plgpu.Barrier(num_arrivals=2)])


@pair("data-race")
def threads_count_with_atomics(broken: bool) -> Case:
    def body(x: Any, out: Any, count: Any, met: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.when(wg == 0)
        def _() -> None:
            count[0] = 0

        plgpu.barrier_arrive_and_wait(met)
        if broken:
            count[0] = count[0] + 1
        else:
            plgpu.atomic_add(count, 0, 1)
        plgpu.barrier_arrive_and_wait(met)

        @pl.when(wg == 0)
        def _() -> None:
            out[0] = count[0]

    scratch = [plgpu.SMEM((1,), np.int32), plgpu.Barrier(num_arrivals=2)]
    return case(body, X, out=np.array([2], np.int32), threads=2, scratch=scratch)


@pair("data-race")
def threads_share_a_row_of_global_memory(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        wg = pl.axis_index("wg")
        half = pl.ds(0 if broken else wg * 4, 4)
        out[half] = x[half]

    return case(body, X, out=X, threads=2)


@pair("data-race")
def overlapping_windows(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        window = pl.ds(wg * (3 if broken else 4), 4)
        shared[window] = x[window]
        plgpu.barrier_arrive_and_wait(met)

        @only(0)
        def _() -> None:
            out[...] = shared[pl.ds(0, 7)]

    scratch = [row(), plgpu.Barrier(num_arrivals=2)]
    return case(body, X, out=X[:7], threads=2, scratch=scratch)


@pair("data-race")
def the_last_of_three_threads_counts_too(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any, late: Any) -> None:
        wg = pl.axis_index("wg")

        @only(2)
        def _() -> None:
            if broken:
                plgpu.barrier_arrive(met)
            shared[...] = x[...]
            if not broken:
                plgpu.barrier_arrive(met)

        @pl.when(wg < 2)
        def _() -> None:
            plgpu.barrier_arrive_and_wait(met)
            out[wg] = shared[...]

    scratch = [row(), plgpu.Barrier(num_arrivals=3), plgpu.Barrier()]
    return case(body, X, out=np.stack([X, X]), threads=3, scratch=scratch)


@pair("data-race")
def blocks_of_a_cluster_read_each_others_memory(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        c = pl.axis_index("c")
        if broken:
            plgpu.barrier_arrive_and_wait(met)
        shared[...] = x[...] + c.astype(F32)
        if not broken:
            plgpu.barrier_arrive_and_wait(met)
        out[1 - c] = plgpu.cluster_ref(shared, {"c": 1 - c})[...]
        plgpu.barrier_arrive_and_wait(met)

    return case(body, X, out=TWICE, cluster=2, scratch=[row(), plgpu.ClusterBarrier(collective_axes="c")])


@pair("global-race")
def blocks_write_their_own_rows(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("x")
        out[0 if broken else block] = x[...] + block.astype(F32)

    return case(body, X, out=TWICE, grid=2)


@pair("global-race")
def blocks_copy_their_own_tiles(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        block = pl.axis_index("x")
        shared[...] = x[...] + block.astype(F32)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out.at[0 if broken else block])
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=TWICE, grid=2, scratch=[row()])


@pair("global-race")
def a_block_reads_what_another_wrote(broken: bool) -> Case:
    def body(x: Any, out: Any, between: Any, ready: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block == 0)
        def _() -> None:
            if broken:
                plgpu.semaphore_signal(ready)
            between[...] = x[...]
            if not broken:
                plgpu.semaphore_signal(ready)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready)
            out[...] = between[...]

    return case(body, X, out=[X, X], grid=2, scratch=[plgpu.SemaphoreType.REGULAR])


def _handed_over(by: str) -> Case:
    """A block stores a row to global memory; another one copies it. The fence is in one of them, or missing.

    Args:
        by: "writer", "reader", "early" for a fence in front of the store, "late" for one after the copy's start.
    """

    def body(x: Any, out: Any, between: Any, shared: Any, arrived: Any, ready: Any) -> None:
        def fence(at: str) -> None:
            if by == at:
                plgpu.commit_gmem()

        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            fence("early")
            between[...] = x[...]
            fence("writer")
            plgpu.semaphore_signal(ready)

        @pl.when(pl.axis_index("x") == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready)
            fence("reader")
            plgpu.copy_gmem_to_smem(between, shared, arrived)
            fence("late")
            plgpu.barrier_wait(arrived)
            out[...] = shared[...]

    return case(body, X, out=[X, X], grid=2, scratch=[row(), plgpu.Barrier(), plgpu.SemaphoreType.REGULAR])


@pair("missing-commit-gmem")
def a_block_commits_what_another_copies(broken: bool) -> Case:
    return _handed_over("" if broken else "writer")


@pair("missing-commit-gmem")
def a_block_commits_what_it_copies_of_another(broken: bool) -> Case:
    return _handed_over("late" if broken else "reader")


@pair("missing-commit-gmem")
def the_fence_of_global_memory_comes_after_the_store(broken: bool) -> Case:
    return _handed_over("early" if broken else "writer")


@pair("missing-commit-gmem")
def a_fence_of_shared_memory_is_none_of_global_memory(broken: bool) -> Case:
    def body(x: Any, out: Any, between: Any, shared: Any, arrived: Any) -> None:
        between[...] = x[...]
        (plgpu.commit_smem if broken else plgpu.commit_gmem)()
        plgpu.copy_gmem_to_smem(between, shared, arrived)
        plgpu.barrier_wait(arrived)
        out[...] = shared[...]

    return case(body, X, out=[X, X], scratch=[row(), plgpu.Barrier()])


@pair("missing-commit-gmem")
def a_block_commits_the_zeros_that_others_add_to(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        shared[...] = x[...]
        plgpu.commit_smem()

        @pl.when(block == 0)
        def _() -> None:
            out[...] = 0 * x[...]
            if not broken:
                plgpu.commit_gmem()
            plgpu.semaphore_signal(ready, 2)

        plgpu.semaphore_wait(ready)
        plgpu.copy_smem_to_gmem(shared, out, reduction_op="add")
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=2 * X, grid=2, scratch=[row(), plgpu.SemaphoreType.REGULAR])


@pair("global-race")
def blocks_add_up_with_reductions(broken: bool) -> Case:
    def body(x: Any, zeros: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out, reduction_op=None if broken else "add")
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, np.zeros_like(X), out=2 * X, grid=2, scratch=[row()], aliases={1: 0})


@pair("uninitialized-read")
def a_reduction_adds_to_values(broken: bool) -> Case:
    def body(x: Any, zeros: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out, reduction_op="add")
        plgpu.wait_smem_to_gmem(0)

    aliases = {} if broken else {1: 0}
    return case(body, X, np.zeros_like(X), out=X, scratch=[row()], aliases=aliases)


@pair("global-race")
def every_reduction_has_come_before_the_sum_is_read(broken: bool) -> Case:
    def body(x: Any, zeros: Any, total: Any, out: Any, shared: Any, added: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block < 2)
        def _() -> None:
            shared[...] = x[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared, total, reduction_op="add")
            plgpu.wait_smem_to_gmem(0)

        @pl.when(block == 1 if broken else block < 2)
        def _() -> None:
            plgpu.semaphore_signal(added)

        @pl.when(block == 2)
        def _() -> None:
            plgpu.semaphore_wait(added, 1 if broken else 2)
            out[...] = total[...]

    scratch = [row(), plgpu.SemaphoreType.REGULAR]
    return case(body, X, np.zeros_like(X), out=[2 * X, 2 * X], grid=3, scratch=scratch, aliases={1: 0})


@pair("copy-target-in-use")
def blocks_of_a_cluster_add_up_in_one_of_them(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any, added: Any) -> None:
        c = pl.axis_index("c")
        sum_ref = plgpu.cluster_ref(shared, {"c": 0})

        @pl.when(c == 0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.commit_smem()

        plgpu.barrier_arrive_and_wait(met)
        atomic = None if broken else "add"
        plgpu.async_store_smem(x[...], sum_ref, plgpu.cluster_ref(added, {"c": 0}), atomic=atomic)

        @pl.when(c == 0)
        def _() -> None:
            plgpu.barrier_wait(added)
            out[...] = shared[...]

    scratch = [row(), plgpu.ClusterBarrier(collective_axes="c"), plgpu.Barrier(num_arrivals=2)]
    return case(body, X, out=3 * X, cluster=2, scratch=scratch)


@pair("data-race")
def a_shared_copy_tells_other_blocks_only_that_it_has_landed(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, side: Any, full: Any, met: Any) -> None:
        c = pl.axis_index("c")
        plgpu.barrier_arrive_and_wait(met)

        @pl.when(c == 0)
        def _() -> None:
            plgpu.cluster_ref(side, {"c": 1})[...] = x[...]

        plgpu.copy_gmem_to_smem(x, shared, full, collective_axes="c")
        plgpu.barrier_wait(full)
        if not broken:
            plgpu.barrier_arrive_and_wait(met)

        @pl.when(c == 1)
        def _() -> None:
            out[...] = side[...] + shared[...]

        plgpu.barrier_arrive_and_wait(met)

    scratch = [row(), row(), plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="c")]
    return case(body, X, out=2 * X, cluster=2, scratch=scratch)


@pair("global-race")
def a_semaphore_of_one_token_is_a_lock(broken: bool) -> Case:
    def body(x: Any, zero: Any, total: Any, lock: Any, done: Any) -> None:
        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            plgpu.semaphore_signal(lock)

        if not broken:
            plgpu.semaphore_wait(lock)
        total[...] = total[...] + x[...]
        if not broken:
            plgpu.semaphore_signal(lock)
        plgpu.semaphore_signal(done)

        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            plgpu.semaphore_wait(done, 3)
            plgpu.semaphore_wait(lock)

    scratch = [plgpu.SemaphoreType.REGULAR, plgpu.SemaphoreType.REGULAR]
    return case(body, X, np.zeros_like(X), out=3 * X, grid=3, scratch=scratch, aliases={1: 0})


@pair("unwritten-output", level="warning")
def the_last_rows_are_written_too(broken: bool) -> Case:
    """Three rows, two in each step."""

    def body(x: Any, out: Any) -> None:
        steps = x.shape[0] // 2 if broken else -(-x.shape[0] // 2)

        @pl.loop(0, 2 * steps)
        def _(step: Any) -> None:
            @pl.when(step < x.shape[0])
            def _() -> None:
                out[step] = x[step]

    rows = np.stack([X, X + 1, X + 2])
    return case(body, rows, out=rows)


@pair("global-race")
def blocks_count_with_atomics(broken: bool) -> Case:
    def body(zero: Any, out: Any) -> None:
        if broken:
            out[0] = out[0] + 1
        else:
            plgpu.atomic_add(out, 0, 1)

    return case(body, np.zeros(1, np.int32), out=np.array([3], np.int32), grid=3, aliases={0: 0})


@pair("global-race")
def a_flag_of_its_own_element(broken: bool) -> Case:
    """Each block raises a flag after its row; the first takes the row of the last."""

    def body(x: Any, zero: Any, out: Any, flags: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block > 0)
        def _() -> None:
            out[block] = x[...] * block.astype(F32)
            plgpu.atomic_or(flags, block, 1)

        @pl.when(block == 0)
        def _() -> None:
            wanted = 1 if broken else 2
            lax.while_loop(lambda seen: seen == 0, lambda _: plgpu.atomic_or(flags, wanted, 0), jnp.int32(0))
            out[0] = out[2]

    rows = np.stack([2 * X, X, 2 * X])
    return case(body, X, np.zeros(3, np.int32), out=[rows, np.array([0, 1, 1], np.int32)], grid=3, aliases={1: 1})


@pair("global-race")
def blocks_work_in_place(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("x")
        out[block] = out[(block + 1) % 2 if broken else block] * 2

    return case(body, TWICE, out=2 * TWICE, grid=2, aliases={0: 0})


@pair("global-race")
def a_ticket_orders_blocks(broken: bool) -> Case:
    def body(x: Any, zero: Any, out: Any, turn: Any, gate: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block == 1)
        def _() -> None:
            if not broken:
                plgpu.semaphore_wait(gate)
            out[...] = x[...] + 1
            if broken:
                plgpu.semaphore_wait(gate)

        @pl.when(block == 0)
        def _() -> None:
            out[...] = x[...]
            plgpu.semaphore_signal(gate)

    return case(
        body,
        X,
        np.zeros(1, np.int32),
        out=[X + 1, np.zeros(1, np.int32)],
        grid=2,
        scratch=[plgpu.SemaphoreType.REGULAR],
        aliases={1: 1},
    )


@pair("global-race")
def a_wait_for_two_signals_knows_of_both(broken: bool) -> Case:
    def body(x: Any, out: Any, total: Any, ready: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block < 2)
        def _() -> None:
            out[block] = x[...] + block.astype(F32)
            plgpu.semaphore_signal(ready)

        @pl.when(block == 2)
        def _() -> None:
            plgpu.semaphore_wait(ready, 1 if broken else 2)
            total[...] = out[0] + out[1]
            if broken:
                plgpu.semaphore_wait(ready, 1)

    return case(body, X, out=[TWICE, X + X + 1], grid=3, scratch=[plgpu.SemaphoreType.REGULAR])


@pair("data-race")
def members_of_a_union_live_one_after_the_other(broken: bool) -> Case:
    def body(x: Any, out: Any, union: Any, met: Any) -> None:
        first, second = union

        @only(0)
        def _() -> None:
            first[...] = x[...]
            out[0] = first[...]

        if not broken:
            plgpu.barrier_arrive_and_wait(met)

        @only(1)
        def _() -> None:
            second[...] = x[...] + 1
            out[1] = second[...]

        if broken:
            plgpu.barrier_arrive_and_wait(met)

    scratch = [plgpu.RefUnion(row(), row()), plgpu.Barrier(num_arrivals=2)]
    return case(body, X, out=TWICE, threads=2, scratch=scratch)


@pair("data-race")
def warps_write_their_own_elements(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def _() -> None:
            warp = pl.axis_index("warp")
            shared[warp // 2 if broken else warp] = x[warp]

        out[...] = shared[pl.ds(0, 2 if broken else 4)] * 1

    return case(body, X, out=X[:2] if broken else X[:4], scratch=[row()])
