"""Barriers used against their rules are errors on the simulator, whether it looks for races or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu

OUT = pl.ShapeDtypeStruct((), np.int32)


def run(body: Any, detect_races: bool, num_threads: int = 1, arrivals: int = 1) -> None:
    def kernel(o_ref: Any, barrier: Any) -> None:
        body(barrier, pl.axis_index("t"))
        pl.when(pl.axis_index("t") == 0)(lambda: o_ref.set(np.int32(1)))

    interpret = plgpu.InterpretGPUParams(detect_races=detect_races)
    scratch = [plgpu.Barrier(num_arrivals=arrivals)]
    plgpu.kernel(kernel, OUT, scratch_types=scratch, num_threads=num_threads, thread_name="t", interpret=interpret)()


RACES = pytest.mark.parametrize("detect_races", [True, False])


@RACES
def test_a_barrier_completes_again_before_anything_waited(detect_races: bool) -> None:
    def body(barrier: Any, _: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    with pytest.raises(pl.PalladioError, match="barrier-overrun"):
        run(body, detect_races)


@RACES
def test_a_barrier_ends_in_the_middle_of_a_phase(detect_races: bool) -> None:
    with pytest.raises(pl.PalladioError, match="barrier-pending-arrivals"):
        run(lambda barrier, _: plgpu.barrier_arrive(barrier), detect_races, arrivals=2)


def test_right_barriers_pass() -> None:
    def body(barrier: Any, _: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    run(body, False, num_threads=2, arrivals=2)


@RACES
def test_a_warpgroup_waits_for_what_some_of_its_warps_have_seen(detect_races: bool) -> None:
    def body(barrier: Any, _: Any, lazy: int = 3) -> None:
        plgpu.barrier_arrive(barrier)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            pl.when(warp != lazy)(lambda: plgpu.barrier_wait(barrier))

        plgpu.barrier_wait(barrier)

    with pytest.raises(pl.PalladioError, match="missed-phase: a warpgroup waits for barrier, of which 3 of its 4"):
        run(body, detect_races)


def test_a_warpgroup_waits_for_the_phase_after_that_of_its_warps() -> None:
    def body(barrier: Any, _: Any) -> None:
        for _ in range(2):
            plgpu.barrier_arrive(barrier)
            plgpu.warp_map(lambda warp: plgpu.barrier_wait(barrier))
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    run(body, True)
