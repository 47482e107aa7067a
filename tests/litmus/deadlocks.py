"""Threads that wait for ever: `deadlock`, in the ways in which kernels get there."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.litmus.pairs import Case, X, case, only, pair, row

TWICE = np.stack([X, X + 1])
COUNTER = plgpu.SemaphoreType.REGULAR
BARRIER = plgpu.Barrier()
LARGE = plgpu.SMEM((200_000,), np.int8)
"""With this, a multiprocessor has room for one block."""


@pair("deadlock")
def a_thread_arrives(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            if not broken:
                plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            out[...] = x[...]

    return case(body, X, out=X, threads=2, scratch=[BARRIER])


@pair("deadlock")
def the_count_is_that_of_the_arrivals(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        plgpu.barrier_arrive_and_wait(met)
        out[wg] = x[wg]

    return case(body, TWICE, out=TWICE, threads=2, scratch=[plgpu.Barrier(num_arrivals=3 if broken else 2)])


@pair("deadlock")
def the_copy_is_started(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        if not broken:
            plgpu.copy_gmem_to_smem(x, shared, full)
        plgpu.barrier_wait(full)
        out[...] = x[...]

    return case(body, X, out=X, scratch=[row(), BARRIER])


@pair("deadlock")
def two_operands_are_two_copies(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[0], shared.at[0], full)
        if not broken:
            plgpu.copy_gmem_to_smem(x.at[1], shared.at[1], full)
        plgpu.barrier_wait(full)
        out[...] = x[...]

    return case(body, TWICE, out=TWICE, scratch=[row(2), plgpu.Barrier(num_arrivals=2)])


@pair("deadlock")
def no_more_waits_than_completions(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full)

        @pl.loop(0, 2 if broken else 1)
        def _(step: Any) -> None:
            plgpu.barrier_wait(full)

        out[...] = shared[...]

    return case(body, X, out=X, scratch=[row(), BARRIER])


@pair("deadlock")
def a_producer_starts_with_empty_stages(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any, empty: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                @pl.when(step >= 0 if broken else step > 0)
                def _() -> None:
                    plgpu.barrier_wait(empty)

                plgpu.copy_gmem_to_smem(x.at[step], shared, full)

        @only(1)
        def _() -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full)
                out[step] = shared[...]
                plgpu.barrier_arrive(empty, predicate=step < 1)

    return case(body, TWICE, out=TWICE, threads=2, scratch=[row(), BARRIER, BARRIER])


@pair("deadlock")
def a_warpgroup_gives_back_the_registers_that_others_wait_for(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        @only(0)
        def _() -> None:
            if not broken:
                plgpu.set_max_registers(40, action="decrease")
            out[...] = x[...]

        @pl.when(pl.axis_index("wg") > 0)
        def _() -> None:
            plgpu.set_max_registers(232, action="increase")

    return case(body, X, out=X, threads=3)


@pair("deadlock")
def all_blocks_that_wait_for_each_other_are_resident(broken: bool) -> Case:
    """A barrier of 133 blocks, one more than there are multiprocessors; large blocks have one each for themselves."""

    def body(x: Any, out: Any, large: Any, come: Any, gate: Any) -> None:
        block = pl.axis_index("x")
        pl.semaphore_signal(come)

        @pl.when(block == 0)
        def _() -> None:
            pl.semaphore_wait(come, 133)
            pl.semaphore_signal(gate, 133)

        pl.semaphore_wait(gate)
        pl.when(block == 132)(lambda: out.__setitem__(..., x[...]))

    scratch = [LARGE if broken else row(), COUNTER, COUNTER]
    return case(body, X, out=X, grid=133, scratch=scratch)


@pair("deadlock")
def two_barriers_in_one_order(broken: bool) -> Case:
    def body(x: Any, out: Any, first: Any, second: Any) -> None:
        wg = pl.axis_index("wg")

        @only(0)
        def _() -> None:
            plgpu.barrier_arrive_and_wait(first)
            plgpu.barrier_arrive_and_wait(second)

        @only(1)
        def _() -> None:
            plgpu.barrier_arrive_and_wait(second if broken else first)
            plgpu.barrier_arrive_and_wait(first if broken else second)

        out[wg] = x[wg]

    both = plgpu.Barrier(num_arrivals=2)
    return case(body, TWICE, out=TWICE, threads=2, scratch=[both, both])


@pair("deadlock")
def two_named_barriers_in_one_order(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")
        plgpu.barrier_arrive_and_wait(met.at[wg if broken else 0])
        plgpu.barrier_arrive_and_wait(met.at[1 - wg if broken else 1])
        out[wg] = x[wg]

    return case(body, TWICE, out=TWICE, threads=2, scratch=[plgpu.NamedBarrier(num_arrivals=2, num_barriers=2)])


@pair("deadlock")
def one_of_them_arrives_before_it_waits(broken: bool) -> Case:
    def body(x: Any, out: Any, ping: Any, pong: Any) -> None:
        @only(0)
        def _() -> None:
            if not broken:
                plgpu.barrier_arrive(ping)
            plgpu.barrier_wait(pong)
            if broken:
                plgpu.barrier_arrive(ping)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ping)
            plgpu.barrier_arrive(pong)
            out[...] = x[...]

    return case(body, X, out=X, threads=2, scratch=[BARRIER, BARRIER])


@pair("deadlock")
def every_thread_of_the_block_comes(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.when(wg < (2 if broken else 3))
        def _() -> None:
            plgpu.barrier_arrive_and_wait(met)
            out[wg] = x[...]

    rows = np.stack([X, X, X])
    return case(body, X, out=rows, threads=3, scratch=[plgpu.Barrier(num_arrivals=3)])


@pair("deadlock")
def no_thread_leaves_the_loop_before_the_others(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, 3 - wg if broken else 3 + 0 * wg)
        def _(step: Any) -> None:
            plgpu.barrier_arrive_and_wait(met)

        out[wg] = x[wg]

    return case(body, TWICE, out=TWICE, threads=2, scratch=[plgpu.Barrier(num_arrivals=2)])


@pair("deadlock", "peer-exited")
def every_block_of_the_cluster_comes(broken: bool) -> Case:
    def body(x: Any, out: Any, met: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0 if broken else c >= 0)
        def _() -> None:
            plgpu.barrier_arrive_and_wait(met)

        out[c] = x[c]

    return case(body, TWICE, out=TWICE, cluster=2, scratch=[plgpu.ClusterBarrier(collective_axes="c")])


@pair("deadlock")
def the_barrier_of_the_cluster_is_meant(broken: bool) -> Case:
    def body(x: Any, out: Any, own: Any, all_blocks: Any) -> None:
        c, wg = pl.axis_index("c"), pl.axis_index("wg")

        def first() -> None:
            plgpu.barrier_arrive_and_wait(own)
            plgpu.barrier_arrive_and_wait(all_blocks)

        def second() -> None:
            plgpu.barrier_arrive_and_wait(all_blocks)
            plgpu.barrier_arrive_and_wait(own)

        pl.when((wg == 1) & (c == 1) if broken else wg < 0)(second)
        pl.when((wg == 0) | (c == 0) if broken else wg >= 0)(first)
        out[c, wg] = x[c]

    scratch = [plgpu.Barrier(num_arrivals=2), plgpu.ClusterBarrier(collective_axes="c", num_arrivals=2)]
    expected = np.stack([TWICE, TWICE], 1)
    return case(body, TWICE, out=expected, threads=2, cluster=2, scratch=scratch)


@pair("deadlock")
def every_block_takes_part_in_a_shared_copy(broken: bool) -> Case:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0 if broken else c >= 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x, shared, full, collective_axes="c")

        plgpu.barrier_wait(full)
        out[c] = shared[...]

    return case(body, X, out=np.stack([X, X]), cluster=2, scratch=[row(), BARRIER])


@pair("deadlock")
def a_thread_signals(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block == (2 if broken else 0))
        def _() -> None:
            plgpu.semaphore_signal(ready)

        @pl.when(block == 1)
        def _() -> None:
            plgpu.semaphore_wait(ready)

        out[block] = x[block]

    return case(body, TWICE, out=TWICE, grid=2, scratch=[COUNTER])


@pair("deadlock")
def signals_add_up_to_what_is_waited_for(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block < 2)
        def _() -> None:
            plgpu.semaphore_signal(ready)

        @pl.when(block == 2)
        def _() -> None:
            plgpu.semaphore_wait(ready, 3 if broken else 2)
            out[...] = x[...]

    return case(body, X, out=X, grid=3, scratch=[COUNTER])


@pair("deadlock")
def all_threads_enter_a_shared_scope(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.when(wg == 0 if broken else wg >= 0)
        def _() -> None:
            def scoped(shared: Any) -> None:
                shared[wg] = x[wg]
                out[wg] = shared[wg]

            pl.run_scoped(scoped, row(2), collective_axes="wg")

    return case(body, TWICE, out=TWICE, threads=2)


@pair("deadlock")
def no_thread_is_kept_in_front_of_a_shared_scope(broken: bool) -> Case:
    def body(x: Any, out: Any, ready: Any) -> None:
        wg = pl.axis_index("wg")

        def scoped(shared: Any) -> None:
            if not broken:
                wait_for_the_other()
            shared[wg] = x[wg]
            out[wg] = shared[wg]

            @only(0)
            def _() -> None:
                plgpu.barrier_arrive(ready)

        def wait_for_the_other() -> None:
            @only(1)
            def _() -> None:
                plgpu.barrier_wait(ready)

        if broken:
            wait_for_the_other()
        pl.run_scoped(scoped, row(2), collective_axes="wg")

    return case(body, TWICE, out=TWICE, threads=2, scratch=[BARRIER])


@pair("deadlock")
def no_thread_waits_for_a_block_that_cannot_start(broken: bool) -> Case:
    last = 132  # as many blocks of this size as fit at once come before it

    def body(x: Any, out: Any, large: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        first = block == (last if broken else 0)

        @pl.when(first)
        def _() -> None:
            plgpu.semaphore_signal(ready, last)
            out[...] = x[...]

        @pl.when(~first)
        def _() -> None:
            plgpu.semaphore_wait(ready)

    return case(body, X, out=X, grid=last + 1, scratch=[LARGE, COUNTER])
