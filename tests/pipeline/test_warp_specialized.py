"""`plgpu.emit_pipeline_warp_specialized`: values, and no finding in any schedule tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from tests.pipeline.model import Blocks, begins, check_everywhere, expected, linear, passed
from tests.pipeline.test_emit_pipeline import MAPS

ROWS, COLUMNS = 4, 4

pytestmark = pytest.mark.one_executor  # `check_everywhere` runs on several


def kernel(
    grid: tuple[int, ...],
    source: Blocks,
    target: Blocks,
    *,
    threads: int = 2,
    memory: int | None = None,
    slots: int = 2,
    given: Any = None,
    inputs: Any = None,
    **options: Any,
) -> Any:
    """Each output block is the sum of its visits' inputs, scaled by the step. Every compute thread has some rows."""
    share = ROWS // threads
    produced, consumed = (
        options.get("manual_produced_barriers") or options.get("manual_ready_barriers"),
        options.get("manual_consumed_barriers"),
    )

    def body(x_gmem: Any, flags_gmem: Any, _: Any, o_gmem: Any) -> None:
        thread = pl.axis_index("wg")
        mine = pl.ds((thread - 1 if memory == 0 else thread) * share, share)

        def accumulate(indices: Any, x_ref: Any, flags_ref: Any, o_ref: Any, *barriers: Any) -> None:
            number = linear(indices, grid)
            if produced:
                plgpu.barrier_wait(barriers[0])
            value = x_ref[mine, :] * (number + 1).astype(np.float32)
            if consumed:
                plgpu.barrier_arrive(barriers[-1])

            @pl.when(flags_ref[number] == 1)
            def _() -> None:
                o_ref[mine, :] = value

            @pl.when(flags_ref[number] == 0)
            def _() -> None:
                o_ref[mine, :] += value

        plgpu.emit_pipeline_warp_specialized(
            accumulate,
            grid=grid if given is None else given,
            memory_registers=40,
            in_specs=[plgpu.BlockSpec(source.shape, source.index_map, **(inputs or {})), passed()],
            out_specs=[plgpu.BlockSpec(target.shape, target.index_map)],
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=threads,
            memory_thread_idx=memory,
            **options,
        )(x_gmem, flags_gmem, o_gmem)

    shape = pl.ShapeDtypeStruct((5 * ROWS, 5 * COLUMNS), np.float32)
    return plgpu.kernel(body, shape, num_threads=threads + 1, thread_name="wg", input_output_aliases={2: 0})


def arguments(grid: tuple[int, ...], source: Blocks, target: Blocks) -> tuple[list[Any], Any]:
    """What the kernel is called with, and what it gives."""
    x = np.random.default_rng(0).integers(-9, 9, (3 * ROWS, 4 * COLUMNS)).astype(np.float32)
    start = np.zeros((5 * ROWS, 5 * COLUMNS), np.float32)
    wanted = expected(grid, [(x, source)], start, target, lambda step, block: block * np.float32(step + 1))
    return [x, begins(grid, target), start], wanted


def confirm(grid: tuple[int, ...], maps: tuple[Any, Any], **options: Any) -> None:
    """The kernel gives what it should, and has no finding in several schedules."""
    source, target = (Blocks((ROWS, COLUMNS), each) for each in maps)
    args, wanted = arguments(grid, source, target)
    call = kernel(grid, source, target, **options)
    np.testing.assert_array_equal(check_everywhere(call, *args, schedules=3), wanted)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("grid", [(1,), (2, 3)], ids=str)
def test_blocks_are_fetched_and_stored_as_their_indices_say(grid: tuple[int, ...], maps: str, threads: int) -> None:
    confirm(grid, MAPS[maps], threads=threads)


@pytest.mark.parametrize("slots", [1, 3, 7])
@pytest.mark.parametrize("maps", ["each step", "every second step"])
def test_any_number_of_slots_gives_the_same(maps: str, slots: int) -> None:
    confirm((5,), MAPS[maps], slots=slots)


@pytest.mark.parametrize("memory", [0, 2])
def test_any_thread_can_be_the_memory_thread(memory: int) -> None:
    confirm((4,), MAPS["each step"], memory=memory)


@pytest.mark.parametrize("manual", ["manual_produced_barriers", "manual_ready_barriers", "manual_consumed_barriers"])
@pytest.mark.parametrize("maps", ["each step", "all stay", "every second step"])
def test_the_body_can_wait_and_arrive_itself(maps: str, manual: str) -> None:
    confirm((5,), MAPS[maps], **{manual: True})


@pytest.mark.parametrize("maps", ["each step", "inputs stay", "every second step"])
def test_the_body_can_do_both(maps: str) -> None:
    confirm((5,), MAPS[maps], manual_produced_barriers=True, manual_consumed_barriers=True, slots=3)
