"""The hardware's named barriers: arriving and waiting in one step."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.dialect.kernels import found, kernel


def in_turns(rounds: int, synchronised: bool = True) -> Any:
    """Two warpgroups take turns at one cell of shared memory."""

    def body(o_ref: Any, s_ref: Any, turns: Any) -> None:
        me = pl.axis_index("wg")

        @pl.when(me == 1)
        def _() -> None:
            plgpu.barrier_arrive(turns.at[0])  # the first turn is warpgroup 0's

        @pl.loop(0, rounds)
        def _(i: Any) -> None:
            if synchronised:
                plgpu.barrier_arrive_and_wait(turns.at[me])
            s_ref[...] = me * 10 + i
            o_ref[2 * i + me] = s_ref[...]

            @pl.when((me == 0) | (i < rounds - 1))
            def _() -> None:
                plgpu.barrier_arrive(turns.at[1 - me])

    scratch = [plgpu.SMEM((), np.int32), plgpu.NamedBarrier(num_arrivals=2, num_barriers=2)]
    return kernel(body, (2 * rounds,), num_threads=2, thread_name="wg", scratch_types=scratch)


def test_warpgroups_take_turns() -> None:
    assert in_turns(3)().tolist() == [0, 10, 1, 11, 2, 12]


def test_turns_order_what_the_warpgroups_do() -> None:
    assert found(in_turns(3)) == set()


def test_without_waiting_they_race() -> None:
    assert "data-race" in found(in_turns(3, synchronised=False))


def test_it_is_not_an_arrival_alone_that_waits() -> None:
    def body(o_ref: Any, met: Any) -> None:
        plgpu.barrier_arrive(met)
        o_ref[pl.axis_index("wg")] = pl.axis_index("wg")

    scratch = [plgpu.NamedBarrier(num_arrivals=2)]
    assert kernel(body, (2,), num_threads=2, thread_name="wg", scratch_types=scratch)().tolist() == [0, 1]


def test_a_thread_that_took_no_part_in_a_phase_misses_nothing() -> None:
    def body(o_ref: Any, s_ref: Any, met: Any, go: Any) -> None:
        me = pl.axis_index("wg")

        @pl.when(me < 2)
        def _() -> None:
            plgpu.barrier_arrive_and_wait(met)

        @pl.when(me == 0)
        def _() -> None:
            plgpu.barrier_arrive(go)
            s_ref[...] = me + 7
            plgpu.barrier_arrive(met)

        @pl.when(me == 2)
        def _() -> None:
            plgpu.barrier_wait(go)
            plgpu.barrier_arrive_and_wait(met)
            o_ref[...] = s_ref[...]

    scratch = [plgpu.SMEM((), np.int32), plgpu.NamedBarrier(num_arrivals=2), plgpu.Barrier()]
    run = kernel(body, num_threads=3, thread_name="wg", scratch_types=scratch)
    assert run() == 7
    assert found(run) == set()


def test_an_arrival_that_never_comes_is_a_deadlock() -> None:
    def body(o_ref: Any, met: Any) -> None:
        pl.when(pl.axis_index("wg") == 0)(lambda: plgpu.barrier_arrive_and_wait(met))

    run = kernel(body, num_threads=2, thread_name="wg", scratch_types=[plgpu.NamedBarrier(num_arrivals=2)])
    assert "deadlock" in found(run)


def test_its_type_says_that_it_is_one() -> None:
    assert str(plgpu.NamedBarrier(num_arrivals=3, num_barriers=(2,)).ref_type) == (
        "ref<barrier, i32[2], Arrivals(count=3, cluster_axes=()), Named()>"
    )
