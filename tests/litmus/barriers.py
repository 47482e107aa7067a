"""Phases of barriers, counts of semaphores, blocks that end too early, and what a multiprocessor has room for."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.litmus.pairs import Case, X, case, only, pair, row

TWICE = np.stack([X, X + 1])
COUNTER = plgpu.SemaphoreType.REGULAR


@pair("barrier-overrun", "unobserved-completion")
def as_many_arrivals_as_there_are_threads_that_arrive(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.when(wg < 2)
        def _() -> None:
            plgpu.barrier_arrive(met)

        @only(2)
        def _() -> None:
            plgpu.barrier_wait(met)
            out[...] = x[...]

    return case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(num_arrivals=1 if broken else 2)])


@pair("barrier-overrun")
def the_next_arrival_comes_after_the_wait_for_the_last(broken: bool) -> Case:
    def body(x: Any, out: Any, go: Any, back: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.barrier_arrive(go)
            if not broken:
                plgpu.barrier_wait(back)
            plgpu.barrier_arrive(go)
            if broken:
                plgpu.barrier_wait(back)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(go)
            plgpu.barrier_arrive(back)
            plgpu.barrier_wait(go)
            out[...] = x[...]

    return case(body, X, out=X, threads=2, scratch=[plgpu.Barrier(), plgpu.Barrier()])


@pair("barrier-overrun")
def two_copies_at_one_barrier_are_two_arrivals(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[0], shared.at[0], full)
        plgpu.copy_gmem_to_smem(x.at[1], shared.at[1], full)
        plgpu.barrier_wait(full)
        if broken:
            plgpu.barrier_wait(full)
        out[...] = shared[...]

    return case(body, TWICE, out=TWICE, scratch=[row(2), plgpu.Barrier(num_arrivals=1 if broken else 2)])


@pair("missed-phase")
def a_thread_waits_for_every_phase(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any, back: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, 3)
            def _(step: Any) -> None:
                plgpu.barrier_arrive(met)
                plgpu.barrier_wait(back)

        @only(1)
        def _() -> None:
            @pl.loop(0, 3)
            def _(step: Any) -> None:
                plgpu.barrier_wait(met)
                plgpu.barrier_arrive(back)

        @only(2)
        def _() -> None:
            @pl.loop(0, 3)
            def _(step: Any) -> None:
                @pl.when(step == 0 if broken else step >= 0)
                def _() -> None:
                    plgpu.barrier_wait(met)
                    if not broken:
                        plgpu.barrier_arrive(back)

            out[...] = x[...]

    count = 1 if broken else 2
    return case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(), plgpu.Barrier(num_arrivals=count)])


@pair("missed-phase")
def a_late_thread_has_told_that_it_is_there(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any, back: Any) -> None:
        wg = pl.axis_index("wg")

        @only(0)
        def _() -> None:
            plgpu.barrier_arrive(met)
            plgpu.barrier_wait(back)
            plgpu.barrier_arrive(met)

        @pl.when(wg > 0)
        def _() -> None:
            plgpu.barrier_wait(met)
            plgpu.barrier_arrive(back, predicate=wg == 1 if broken else wg >= 1)
            plgpu.barrier_wait(met)

            @only(1)
            def _() -> None:
                out[...] = x[...]

    count = 1 if broken else 2
    return case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(), plgpu.Barrier(num_arrivals=count)])


@pair("unobserved-completion")
def the_last_copy_is_awaited(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], shared.at[step], full.at[step])

        plgpu.barrier_wait(full.at[0])
        if not broken:
            plgpu.barrier_wait(full.at[1])
        out[...] = shared[0]

    return case(body, TWICE, out=X, scratch=[row(2), plgpu.Barrier(num_barriers=2)])


@pair("unobserved-completion", level="hint")
def no_stage_is_released_without_a_fill(broken: bool) -> Case:
    def body(x: Any, out: Any, full: Any, empty: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.barrier_arrive(full)
            plgpu.barrier_wait(empty)
            plgpu.barrier_arrive(full)

        @only(1)
        def _() -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full)
                plgpu.barrier_arrive(empty, predicate=step >= 0 if broken else step < 1)

            out[...] = x[...]

    return case(body, X, out=X, threads=2, scratch=[plgpu.Barrier(), plgpu.Barrier()])


@pair("barrier-pending-arrivals")
def every_arrival_has_a_wait(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        plgpu.barrier_arrive_and_wait(met)
        if broken:
            plgpu.barrier_arrive(met, predicate=wg == 1)
        out[wg] = x[wg]

    return case(body, TWICE, out=TWICE, threads=2, scratch=[plgpu.Barrier(num_arrivals=2)])


@pair("barrier-pending-arrivals")
def both_operands_are_copied(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[0], shared.at[0], full)
        if not broken:
            plgpu.copy_gmem_to_smem(x.at[1], shared.at[1], full)
            plgpu.barrier_wait(full)
        out[...] = x[...]

    return case(body, TWICE, out=TWICE, scratch=[row(2), plgpu.Barrier(num_arrivals=2)])


@pair("barrier-pending-arrivals")
def no_thread_is_left_at_a_named_barrier(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        plgpu.barrier_arrive_and_wait(met)
        if broken:
            plgpu.barrier_arrive(met, predicate=wg == 0)
        out[wg] = x[wg]

    return case(body, TWICE, out=TWICE, threads=2, scratch=[plgpu.NamedBarrier(num_arrivals=2)])


@pair("semaphore-not-drained")
def every_signal_is_waited_for(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        out[block] = x[block]

        @pl.when(block == 0)
        def _() -> None:
            plgpu.semaphore_signal(ready, 2)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready, 1 if broken else 2)

    return case(body, TWICE, out=TWICE, grid=2, scratch=[COUNTER])


@pair("semaphore-not-drained", level="hint")
def a_wait_takes_what_it_waited_for(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        out[block] = x[block]

        @pl.when(block == 0)
        def _() -> None:
            plgpu.semaphore_signal(ready)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready, 1, decrement=not broken)

    return case(body, TWICE, out=TWICE, grid=2, scratch=[COUNTER])


@pair("semaphore-not-drained")
def waits_that_take_nothing_have_waited_for_every_signal(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        out[block] = x[block]

        @pl.when(block == 0)
        def _() -> None:
            plgpu.semaphore_signal(ready, 3)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready, 2, decrement=False)
            plgpu.semaphore_wait(ready, 2)
            if not broken:
                plgpu.semaphore_wait(ready)

    return case(body, TWICE, out=TWICE, grid=2, scratch=[COUNTER])


@pair("semaphore-not-drained")
def a_semaphore_of_a_scope_ends_at_zero(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        def signalled(ready: Any) -> None:
            plgpu.semaphore_signal(ready)
            plgpu.semaphore_wait(ready, decrement=not broken)
            out[...] = x[...]

        pl.run_scoped(signalled, COUNTER)

    return case(body, TWICE, out=TWICE)


# peer-exited


@pair("peer-exited")
def a_block_stays_until_its_memory_has_been_read(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        c = pl.axis_index("c")
        shared[...] = x[c]
        plgpu.barrier_arrive_and_wait(met)
        out[c] = plgpu.cluster_ref(shared, {"c": 1 - c})[...]
        if not broken:
            plgpu.barrier_arrive_and_wait(met)

    scratch = [row(), plgpu.ClusterBarrier(collective_axes="c")]
    return case(body, TWICE, out=TWICE[::-1].copy(), cluster=2, scratch=scratch)


@pair("peer-exited")
def a_block_stays_until_its_memory_has_been_written(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        c = pl.axis_index("c")
        plgpu.cluster_ref(shared, {"c": 1 - c})[...] = x[c]
        if not broken:
            plgpu.barrier_arrive_and_wait(met)
        out[c] = x[c]
        if not broken:
            out[c] = shared[...]

    scratch = [row(), plgpu.ClusterBarrier(collective_axes="c")]
    return case(body, TWICE, out=TWICE[::-1].copy(), cluster=2, scratch=scratch)


@pair("peer-exited", "unobserved-completion")
def a_block_stays_until_others_have_arrived_at_its_barrier(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any, met: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0)
        def _() -> None:
            plgpu.barrier_arrive(plgpu.cluster_ref(ready, {"c": 1}))

        @pl.when(c == 1)
        def _() -> None:
            plgpu.barrier_arrive(ready)
            if not broken:
                plgpu.barrier_wait(ready)

        out[c] = x[c]

    count = 1 if broken else 2
    scratch = [plgpu.Barrier(num_arrivals=2), plgpu.Barrier(num_arrivals=count)]
    return case(body, TWICE, out=TWICE, cluster=2, scratch=scratch)


@pair("peer-exited", "unobserved-completion")
def a_block_stays_until_a_store_into_it_has_landed(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0)
        def _() -> None:
            plgpu.async_store_smem(x[...], shared, full, cluster_idx=1, cluster_dim="c")
            out[...] = x[...]

        @pl.when(c == 1)
        def _() -> None:
            if not broken:
                plgpu.barrier_wait(full)

    return case(body, X, out=X, cluster=2, scratch=[row(), plgpu.Barrier()])


# Copies within a cluster


@pair("copy-not-awaited")
def a_store_from_a_peer_is_awaited(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0)
        def _() -> None:
            plgpu.async_store_smem(x[...], shared, full, cluster_idx=1, cluster_dim="c")

        @pl.when(c == 1)
        def _() -> None:
            if not broken:
                plgpu.barrier_wait(full)
            out[...] = shared[...]
            if broken:
                plgpu.barrier_wait(full)

    return case(body, X, out=X, cluster=2, scratch=[row(), plgpu.Barrier()])


def _shared_copy(early: bool) -> Case:
    """The blocks of a cluster share two copies; the second overwrites the first in both."""

    def body(x: Any, out: Any, shared: Any, full: Any, free: Any) -> None:
        c = pl.axis_index("c")

        @pl.loop(0, 2)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], shared, full, collective_axes="c")
            plgpu.barrier_wait(full)
            if early:
                plgpu.barrier_arrive_and_wait(free)
            out[c, step] = shared[...]
            if not early:
                plgpu.barrier_arrive_and_wait(free)

    scratch = [row(), plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="c")]
    return case(body, TWICE, out=np.stack([TWICE, TWICE]), cluster=2, scratch=scratch)


@pair("copy-target-in-use")
def a_shared_copy_waits_for_all_blocks(broken: bool) -> Case:
    return _shared_copy(broken)


# Budgets


@pair("shared-memory-exceeded")
def the_stages_fit_into_shared_memory(broken: bool) -> Case:
    def body(x: Any, out: Any, stages: Any) -> None:
        out[...] = x[...]

    return case(body, X, out=X, scratch=[plgpu.SMEM((5 if broken else 4, 128, 208), np.float16)])


@pair("shared-memory-exceeded")
def scopes_and_scratch_fit_together(broken: bool) -> Case:
    def body(x: Any, out: Any, first: Any) -> None:
        def scoped(second: Any) -> None:
            out[...] = x[...]

        pl.run_scoped(scoped, plgpu.SMEM((3 if broken else 2, 64, 512), np.float16))

    return case(body, X, out=X, scratch=[plgpu.SMEM((64, 512), np.float16)])


@pair("registers-exceeded")
def the_registers_of_all_warpgroups_fit(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        wg = pl.axis_index("wg")

        @only(0)
        def _() -> None:
            plgpu.set_max_registers(40, action="decrease")
            out[...] = x[...]

        @pl.when(wg > 0)
        def _() -> None:
            plgpu.set_max_registers(240 if broken else 232, action="increase")

    return case(body, X, out=X, threads=3)


@pair("barriers-exceeded")
def the_named_barriers_fit(broken: bool) -> Case:
    def body(x: Any, out: Any, first: Any, second: Any) -> None:
        out[...] = x[...]

    named = plgpu.NamedBarrier(num_arrivals=1, num_barriers=8)
    more = plgpu.NamedBarrier(num_arrivals=1, num_barriers=9 if broken else 7)
    return case(body, X, out=X, scratch=[named, more])


# cluster-mismatch


@pair("cluster-mismatch")
def blocks_share_one_source(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any, met: Any) -> None:
        c = pl.axis_index("c")
        plgpu.copy_gmem_to_smem(x.at[c if broken else 0], shared, full, collective_axes="c")
        plgpu.barrier_wait(full)
        out[c] = shared[...]
        plgpu.barrier_arrive_and_wait(met)

    scratch = [row(), plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="c")]
    rows = np.stack([X, X + 1])
    return case(body, rows, out=np.stack([X, X]), cluster=2, scratch=scratch)


@pair("cluster-mismatch")
def a_remote_store_signals_where_it_writes(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any, met: Any) -> None:
        c = pl.axis_index("c")
        plgpu.barrier_arrive_and_wait(met)

        @pl.when(c == 0)
        def _() -> None:
            there = {"c": 1}
            signalled = full if broken else plgpu.cluster_ref(full, there)
            plgpu.async_store_smem(x[...], plgpu.cluster_ref(shared, there), signalled)

        @pl.when(c == (0 if broken else 1))
        def _() -> None:
            plgpu.barrier_wait(full)

        plgpu.barrier_arrive_and_wait(met)

        @pl.when(c == 1)
        def _() -> None:
            out[...] = shared[...]

    scratch = [row(), plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="c")]
    return case(body, X, out=X, cluster=2, scratch=scratch)
