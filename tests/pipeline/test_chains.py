"""Pipelines that share allocations: one after another, and going over into each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.gpu import PipelinePipeline as State
from tests.pipeline.model import check_everywhere

ROWS, STEPS = 3, 4

pytestmark = pytest.mark.one_executor  # `check_everywhere` runs on several


def kernel(
    states: Any, *, steps: int = STEPS, slots: int = 2, delay: int = 0, index_map: Any = None, dynamic: bool = False
) -> Any:
    """Row r of the output is the sum of row r's blocks, one pipeline for each row; two threads have half of it each.

    Args:
        states: from the row, a Python int, or traced where `states` says so, to the state of its pipeline.
    """
    traced = getattr(states, "traced", False)

    def body(x: Any, count: Any, o: Any) -> None:
        wg = pl.axis_index("wg")
        mine = pl.ds(wg * 4, 4)

        def pipeline(row: Any, state: Any, context: Any) -> Any:
            def step(_: Any, x_ref: Any, y_ref: Any, total: Any) -> Any:
                return total + x_ref[mine] * y_ref[mine]

            where = index_map or (lambda s: s)
            return plgpu.emit_pipeline_warp_specialized(
                step,
                grid=(count[0],) if dynamic else (steps,),
                in_specs=[
                    plgpu.BlockSpec((None, 8), lambda s: (row, where(s)), delay_release=delay),
                    plgpu.BlockSpec((8,), lambda s: (row,), delay_release=delay),
                ],
                max_concurrent_steps=slots,
                wg_axis="wg",
                num_compute_wgs=2,
                pipeline_state=state,
                compute_context=context,
            )

        def scoped(allocations: Any) -> None:
            def one(row: Any, state: Any) -> None:
                def context(run: Any) -> None:
                    o.at[row, mine][...] = run(x[0, 0:4] * 0)

                pipeline(row, state, context)(x, y8, allocations=allocations)

            if traced:
                pl.loop(0, ROWS)(lambda row: one(row, states(row)))
            else:
                for row in range(ROWS):
                    one(np.int32(row), states(row))

        y8 = x.at[:, 0:8].reshape(ROWS * 8)
        described = pipeline(0, None if states(0) is None else State.START, None).get_allocations(x, y8)
        pl.run_scoped(scoped, described, collective_axes="wg")

    return plgpu.kernel(body, pl.ShapeDtypeStruct((ROWS, 8), np.float32), num_threads=3, thread_name="wg")


def chained(row: int) -> State:
    return State.START if row == 0 else State.STOP if row == ROWS - 1 else State.STEADY


def chained_in_a_loop(row: Any) -> Any:
    return np.where(row == 0, State.START, np.where(row == ROWS - 1, State.STOP, State.STEADY)).astype(np.int32)


chained_in_a_loop.traced = True  # type: ignore[attr-defined]


def confirm(states: Any, *, steps: int = STEPS, index_map: Any = None, **options: Any) -> None:
    """The kernel gives the sums, and has no finding."""
    x = np.random.default_rng(0).integers(-3, 4, (ROWS, 8 * steps)).astype(np.float32)
    blocks = x.reshape(ROWS, steps, 8)
    order = [(index_map or (lambda s: s))(s) for s in range(steps)]
    wanted = (blocks[:, order] * blocks[:, :1]).sum(1)
    call = kernel(states, steps=steps, index_map=index_map, **options)
    args = [x, np.array([steps], np.int32)]
    np.testing.assert_array_equal(check_everywhere(call, *args, schedules=3), wanted)


STATES = pytest.mark.parametrize(
    "states", [lambda _: None, chained, chained_in_a_loop], ids=["apart", "chained", "in a loop"]
)


@STATES
@pytest.mark.parametrize("delay", [0, 1])
def test_pipelines_share_allocations(states: Any, delay: int) -> None:
    confirm(states, delay=delay)


@STATES
@pytest.mark.parametrize("delay", [0, 1])
def test_the_steps_need_not_be_a_multiple_of_the_slots(states: Any, delay: int) -> None:
    confirm(states, steps=1 if delay else 5, slots=3, delay=delay)


@STATES
def test_blocks_that_stay_are_counted_through_the_chain(states: Any) -> None:
    confirm(states, steps=5, slots=2, index_map=lambda s: s // 2)


@STATES
def test_the_steps_may_be_known_only_when_the_kernel_runs(states: Any) -> None:
    confirm(states, steps=3, slots=2, dynamic=True)
