"""Asynchronous copies: fences, waits, sources and targets, and copies without a wait."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.litmus.pairs import ROW, Case, X, case, only, pair, row

ROWS = np.stack([X, X + 8, X + 16, X + 24])
A = np.arange(64, dtype=np.float16).reshape(8, 8) / 8
TILE = plgpu.SMEM((8, 8), np.float16)
PRODUCT = A.astype(np.float32) @ A.astype(np.float32)
ACC = plgpu.ACC((8, 8))


def _product(acc: Any, left: Any, right: Any, out: Any) -> None:
    plgpu.wgmma(acc, left, right)
    plgpu.wgmma_wait(0)
    out[...] = acc[...]


# missing-commit-smem


@pair("missing-commit-smem")
def stores_are_committed_before_a_copy_takes_them(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        if not broken:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out)
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, scratch=[row()])


@pair("missing-commit-smem")
def the_fence_comes_after_the_store(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        if broken:
            plgpu.commit_smem()
        shared[...] = x[...]
        if not broken:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out)
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, scratch=[row()])


@pair("missing-commit-smem")
def the_fence_is_inside_the_loop(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            shared[...] = x[step]

            @pl.when(step == 0 if broken else step >= 0)
            def _() -> None:
                plgpu.commit_smem()

            plgpu.copy_smem_to_gmem(shared, out.at[step])
            plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS, out=ROWS, scratch=[row()])


@pair("missing-commit-smem")
def operands_that_were_stored_are_committed(broken: bool) -> Case:
    def body(a: Any, out: Any, left: Any, right: Any, acc: Any) -> None:
        left[...] = a[...]
        right[...] = a[...]
        if not broken:
            plgpu.commit_smem()
        _product(acc, left, right, out)

    return case(body, A, out=PRODUCT, scratch=[TILE, TILE, ACC])


@pair("missing-commit-smem")
def a_store_is_committed_before_another_thread_copies_it(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]
            if not broken:
                plgpu.commit_smem()
            plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            plgpu.copy_smem_to_gmem(shared, out)
            plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier()])


@pair("missing-commit-smem")
def a_store_is_committed_before_another_thread_multiplies_it(broken: bool) -> Case:
    def body(a: Any, out: Any, left: Any, ready: Any, acc: Any) -> None:
        @only(0)
        def _() -> None:
            left[...] = a[...]
            if not broken:
                plgpu.commit_smem()
            plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            _product(acc, left, left, out)

    return case(body, A, out=PRODUCT, threads=2, scratch=[TILE, plgpu.Barrier(), ACC])


@pair("missing-commit-smem")
def each_of_two_threads_commits_its_half(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        half = pl.ds(wg * 4, 4)
        shared[half] = x[half]

        @pl.when(wg == 0 if broken else wg >= 0)
        def _() -> None:
            plgpu.commit_smem()

        plgpu.barrier_arrive_and_wait(met)

        @only(0)
        def _() -> None:
            plgpu.copy_smem_to_gmem(shared, out)
            plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier(num_arrivals=2)])


@pair("missing-commit-smem")
def a_copy_overwrites_what_was_stored(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        shared[...] = x[...] + 1
        out[0] = shared[...]
        if not broken:
            plgpu.commit_smem()
        plgpu.copy_gmem_to_smem(x, shared, full)
        plgpu.barrier_wait(full)
        out[1] = shared[...]

    return case(body, X, out=np.stack([X + 1, X]), scratch=[row(), plgpu.Barrier()])


# copy-not-awaited


@pair("copy-not-awaited")
def a_copy_is_awaited_before_its_target_is_read(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full)
        if not broken:
            plgpu.barrier_wait(full)
        out[...] = shared[...]
        if broken:
            plgpu.barrier_wait(full)

    return case(body, X, out=X, scratch=[row(), plgpu.Barrier()])


@pair("copy-not-awaited", "unobserved-completion")
def a_copy_is_awaited_at_all(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full)
        if not broken:
            plgpu.barrier_wait(full)
        out[...] = shared[...]

    return case(body, X, out=X, scratch=[row(), plgpu.Barrier()])


@pair("copy-not-awaited")
def a_copy_is_awaited_before_its_target_is_written(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full)
        if not broken:
            plgpu.barrier_wait(full)
        shared[0] = x[0]
        if broken:
            plgpu.barrier_wait(full)
        out[...] = shared[...]

    return case(body, X, out=X, scratch=[row(), plgpu.Barrier()])


@pair("copy-not-awaited")
def each_copy_has_its_barrier(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        first = 1 if broken else 0
        plgpu.copy_gmem_to_smem(x.at[0], shared.at[0], full.at[0])
        plgpu.copy_gmem_to_smem(x.at[1], shared.at[1], full.at[1])
        plgpu.barrier_wait(full.at[first])
        out[0] = shared[0]
        plgpu.barrier_wait(full.at[1 - first])
        out[1] = shared[1]

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row(2), plgpu.Barrier(num_barriers=2)])


@pair("copy-not-awaited")
def operands_have_come_before_they_are_multiplied(broken: bool) -> Case:
    def body(a: Any, out: Any, left: Any, full: Any, acc: Any) -> None:
        plgpu.copy_gmem_to_smem(a, left, full)
        if not broken:
            plgpu.barrier_wait(full)
        plgpu.wgmma(acc, left, left)
        if broken:
            plgpu.barrier_wait(full)
        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=PRODUCT, scratch=[TILE, plgpu.Barrier(), ACC])


@pair("copy-not-awaited")
def the_thread_that_reads_waits_for_the_copy_of_another(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x, shared, full)

        @only(1)
        def _() -> None:
            if not broken:
                plgpu.barrier_wait(full)
            out[...] = shared[...]
            if broken:
                plgpu.barrier_wait(full)

    return case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier()])


@pair("copy-not-awaited")
def the_wait_is_for_the_stage_that_is_read(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        for stage in range(2):
            plgpu.copy_gmem_to_smem(x.at[stage], shared.at[stage], full.at[stage])

        @pl.loop(0, 4)
        def _(step: Any) -> None:
            stage = step % 2
            plgpu.barrier_wait(full.at[stage])
            out[step] = shared[(1 - stage) if broken else stage]

            @pl.when(step < 2)
            def _() -> None:
                plgpu.copy_gmem_to_smem(x.at[step + 2], shared.at[stage], full.at[stage])

    return case(body, ROWS, out=ROWS, scratch=[row(2), plgpu.Barrier(num_barriers=2)])


@pair("copy-not-awaited")
def what_was_copied_out_is_read_back(broken: bool) -> Case:
    def body(x: Any, between: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, between)
        plgpu.wait_smem_to_gmem(0, wait_read_only=broken)
        out[...] = between[...]
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=[X, X], scratch=[row()])


@pair("copy-not-awaited")
def another_block_reads_what_was_copied_out(broken: bool) -> Case:
    def body(x: Any, between: Any, out: Any, shared: Any, ready: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block == 0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared, between)
            plgpu.wait_smem_to_gmem(0, wait_read_only=broken)
            plgpu.semaphore_signal(ready)
            plgpu.wait_smem_to_gmem(0)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready)
            out[...] = between[...]

    return case(body, X, out=[X, X], grid=2, scratch=[row(), plgpu.SemaphoreType.REGULAR])


@pair("copy-not-awaited")
def the_source_of_a_copy_stays_until_it_has_been_read(broken: bool) -> Case:
    def body(x: Any, between: Any, out: Any, shared: Any, full: Any) -> None:
        between[...] = x[...]
        plgpu.commit_gmem()
        plgpu.copy_gmem_to_smem(between, shared, full)
        if not broken:
            plgpu.barrier_wait(full)
        between[...] = x[...] + 1
        if broken:
            plgpu.barrier_wait(full)
        out[...] = shared[...]

    return case(body, X, out=[X + 1, X], scratch=[row(), plgpu.Barrier()])


# copy-target-in-use


def _ring(steps: int, early: str = "") -> Case:
    """A producer and a consumer with one stage; `early` names what comes too early."""

    def body(x: Any, out: Any, shared: Any, full: Any, empty: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, steps)
            def _(step: Any) -> None:
                if early == "copy":
                    plgpu.copy_gmem_to_smem(x.at[step], shared, full)

                @pl.when(step > 0)
                def _() -> None:
                    plgpu.barrier_wait(empty)

                if early != "copy":
                    plgpu.copy_gmem_to_smem(x.at[step], shared, full)

        @only(1)
        def _() -> None:
            @pl.loop(0, steps)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full)

                def release() -> None:
                    @pl.when(step < steps - 1)
                    def _() -> None:
                        plgpu.barrier_arrive(empty)

                if early == "release":
                    release()
                out[step] = shared[...]
                if early != "release":
                    release()

    return case(body, ROWS[:steps], out=ROWS[:steps], threads=2, scratch=[row(), plgpu.Barrier(), plgpu.Barrier()])


@pair("copy-target-in-use")
def the_stage_is_released_when_it_has_been_read(broken: bool) -> Case:
    return _ring(4, "release" if broken else "")


@pair("copy-target-in-use", "barrier-overrun")
def the_producer_waits_before_it_copies(broken: bool) -> Case:
    return _ring(2, "copy" if broken else "")


@pair("copy-target-in-use")
def two_consumers_both_release_the_stage(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any, empty: Any, done: Any) -> None:
        wg = pl.axis_index("wg")

        @only(2)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x.at[0], shared, full)
            plgpu.barrier_wait(empty)
            plgpu.copy_gmem_to_smem(x.at[1], shared, full)

        @pl.when(wg < 2)
        def _() -> None:
            plgpu.barrier_wait(full)

            @pl.when(wg == 1 if broken else wg > 2)
            def _() -> None:
                plgpu.barrier_arrive(empty)

            out[wg, 0] = shared[...]

            @pl.when(wg == 0 if broken else wg < 2)
            def _() -> None:
                plgpu.barrier_arrive(empty)

            plgpu.barrier_wait(full)
            out[wg, 1] = shared[...]

    scratch = [row(), plgpu.Barrier(), plgpu.Barrier(num_arrivals=2), plgpu.Barrier()]
    return case(body, ROWS[:2], out=np.stack([ROWS[:2], ROWS[:2]]), threads=3, scratch=scratch)


# store-source-overwritten


@pair("store-source-overwritten")
def a_copied_row_is_written_again(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            shared[...] = x[step]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared, out.at[step])
            if not broken:
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS, out=ROWS, scratch=[row()])


@pair("store-source-overwritten")
def of_two_rows_one_may_be_in_flight(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            plgpu.wait_smem_to_gmem(2 if broken else 1, wait_read_only=True)
            shared[step % 2] = x[step]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared.at[step % 2], out.at[step])

        plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS, out=ROWS, scratch=[row(2)])


@pair("store-source-overwritten")
def a_copy_brings_the_next_row_over_the_last(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], shared, full)
            plgpu.barrier_wait(full)
            plgpu.copy_smem_to_gmem(shared, out.at[step])
            if not broken:
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS, out=ROWS, scratch=[row(), plgpu.Barrier()])


@pair("store-source-overwritten")
def another_thread_writes_the_row_again(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, done: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared, out.at[0])
            if not broken:
                plgpu.wait_smem_to_gmem(0)
            plgpu.barrier_arrive(done)
            if broken:
                plgpu.wait_smem_to_gmem(0)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(done)
            shared[...] = x[...] + 1
            out[1] = shared[...]

    return case(body, X, out=np.stack([X, X + 1]), threads=2, scratch=[row(), plgpu.Barrier()])


@pair("store-source-overwritten")
def a_group_is_closed_before_it_is_waited_for(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out.at[0], commit_group=not broken)
        plgpu.wait_smem_to_gmem(0)
        shared[...] = x[...] + 1
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out.at[1])
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=np.stack([X, X + 1]), scratch=[row()])


@pair("store-source-overwritten")
def a_warp_does_not_wait_for_another(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[0]
        plgpu.commit_smem()

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp == 0)
            def _() -> None:
                plgpu.copy_smem_to_gmem(shared, out.at[0])

            @pl.when(warp == (1 if broken else 0))
            def _() -> None:
                plgpu.wait_smem_to_gmem(0)

        shared[...] = x[1]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out.at[1])
        plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row()])


# unawaited-copy


@pair("unawaited-copy")
def copies_out_are_awaited_at_the_end(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out)
        if not broken:
            plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, scratch=[row()])


@pair("unawaited-copy")
def the_last_group_is_closed(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out, commit_group=not broken)
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, scratch=[row()])


@pair("unawaited-copy")
def all_groups_are_awaited(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            shared[step] = x[step]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(shared.at[step], out.at[step])

        plgpu.wait_smem_to_gmem(1 if broken else 0)

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row(2)])


@pair("unawaited-copy")
def a_warpgroup_waits_for_the_copies_of_its_warps(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp < 2)
            def _() -> None:
                plgpu.copy_smem_to_gmem(shared.at[warp], out.at[warp])

        if not broken:
            plgpu.wait_smem_to_gmem(0)

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row(2)])


# uninitialized-read


@pair("uninitialized-read")
def shared_memory_is_written_first(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        if not broken:
            shared[...] = x[...]
        out[...] = shared[...] * 0 + x[...]

    return case(body, X, out=X, scratch=[row()])


@pair("uninitialized-read")
def an_output_is_written_before_it_is_read(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        if not broken:
            out[...] = x[...]
        out[...] = out[...] + 1

    return case(body, X, out=X + 1)


@pair("uninitialized-read")
def the_stage_that_is_read_was_copied(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared.at[0], full)
        plgpu.barrier_wait(full)
        out[...] = shared[1 if broken else 0]

    return case(body, X, out=X, scratch=[row(2), plgpu.Barrier()])


@pair("uninitialized-read")
def the_whole_row_is_stored_before_it_is_copied(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        part = pl.ds(0, ROW - 1 if broken else ROW)
        shared[part] = x[part]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(shared, out)
        plgpu.wait_smem_to_gmem(0)

    return case(body, X, out=X, scratch=[row()])


@pair("uninitialized-read")
def both_operands_are_there(broken: bool) -> Case:
    def body(a: Any, out: Any, left: Any, right: Any, full: Any, acc: Any) -> None:
        plgpu.copy_gmem_to_smem(a, left, full)
        plgpu.barrier_wait(full)
        plgpu.copy_gmem_to_smem(a, left if broken else right, full)
        plgpu.barrier_wait(full)
        _product(acc, left, right, out)

    return case(body, A, out=PRODUCT, scratch=[TILE, TILE, plgpu.Barrier(), ACC])


# out-of-bounds


@pair("out-of-bounds")
def a_row_that_is_there_is_read(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("x")
        out[block] = x[block + (1 if broken else 0)]

    return case(body, ROWS, out=ROWS, grid=4)


@pair("out-of-bounds")
def a_row_that_is_there_is_written(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            shared[step + (1 if broken else 0)] = x[step]
            out[step] = x[step]

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row(2)])


@pair("out-of-bounds")
def a_copy_goes_to_a_stage_that_is_there(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], shared.at[step + (1 if broken else 0)], full)
            plgpu.barrier_wait(full)
            out[step] = x[step]

    return case(body, ROWS[:2], out=ROWS[:2], scratch=[row(2), plgpu.Barrier()])


@pair("out-of-bounds")
def the_promise_to_stay_inside_is_kept(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            window = x.at[pl.ds(step * (5 if broken else 4), 4)]
            plgpu.copy_gmem_to_smem(window, shared, full, oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS)
            plgpu.barrier_wait(full)
            out[pl.ds(step * 4, 4)] = shared[...]

    return case(body, X, out=X, scratch=[plgpu.SMEM((4,), np.float32), plgpu.Barrier()])


@pair("out-of-bounds")
def the_mask_leaves_out_what_is_not_there(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        index = jnp.arange(ROW + 2)
        mask = index < (ROW + 1 if broken else ROW)
        plgpu.store(out.at[index], plgpu.load(x.at[index], mask=mask, other=0.0), mask=mask)

    return case(body, X, out=X)
