"""`plgpu.emit_pipeline`: every kind of block and every order of blocks gives what the steps in order give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from tests.pipeline.model import Blocks, begins, expected, linear, passed

EXECUTORS = ["reference", "simulator"]
GRIDS = [(1,), (5,), (2, 2, 2)]


def at(*p: Any) -> tuple[Any, Any]:
    """A block of its own for each step."""
    return p[0], p[-1] + 2 * sum(p[1:-1])


MAPS: dict[str, tuple[Any, Any]] = {
    "each step": (at, at),
    "inputs stay": (lambda *p: (p[0], 0), at),
    "outputs stay": (lambda *p: (p[-1], p[0]), lambda *p: (p[0], 0)),
    "all stay": (lambda *p: (0, 1), lambda *p: (1, 0)),
    "every second step": (lambda *p: (p[-1] // 2, p[0]), lambda *p: (p[0], p[-1] // 2)),
    "back and forth": (lambda *p: ((p[-1] * p[-1]) % 3, 1), at),
}


def run(
    grid: tuple[int, ...], source: Blocks, target: Blocks, shapes: Any, *, slots: int = 2, executor: str, **options: Any
) -> tuple[Any, Any]:
    """What the pipeline gives, and what it should: each block is the sum of its visits' inputs, scaled by the step."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shapes[0]).astype(np.float32)
    start = np.zeros(shapes[1], np.float32)
    flags = begins(grid, target)

    def body(x_gmem: Any, flags_gmem: Any, _: Any, o_gmem: Any) -> None:
        def step(indices: Any, x_ref: Any, flags_ref: Any, o_ref: Any) -> None:
            number = linear(indices, grid)
            value = x_ref[...] * (number + 1).astype(np.float32)

            @pl.when(flags_ref[number] == 1)
            def _() -> None:
                o_ref[...] = value

            @pl.when(flags_ref[number] == 0)
            def _() -> None:
                o_ref[...] += value

        plgpu.emit_pipeline(
            step,
            grid=options.pop("given", grid),
            in_specs=[plgpu.BlockSpec(source.shape, source.index_map, **options), passed()],
            out_specs=[plgpu.BlockSpec(target.shape, target.index_map)],
            max_concurrent_steps=slots,
        )(x_gmem, flags_gmem, o_gmem)

    kernel = plgpu.kernel(body, pl.ShapeDtypeStruct(start.shape, start.dtype), input_output_aliases={2: 0})
    with pl.executor(executor):
        found = kernel(x, flags, start)
    wanted = expected(grid, [(x, source)], start, target, lambda step, block: block * np.float32(step + 1))
    return found, wanted


@pytest.mark.one_executor
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_blocks_are_fetched_and_stored_as_their_indices_say(grid: tuple[int, ...], maps: str, slots: int) -> None:
    ins, outs = MAPS[maps]
    found, wanted = run(
        grid, Blocks((2, 4), ins), Blocks((2, 4), outs), ((10, 20), (10, 20)), slots=slots, executor="simulator"
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.one_executor
@pytest.mark.parametrize("grid", [(3, 1), (2, 3)], ids=str)
def test_the_definition_agrees(grid: tuple[int, ...]) -> None:
    ins, outs = MAPS["every second step"]
    shapes = ((10, 20), (10, 20))
    found, wanted = run(grid, Blocks((2, 4), ins), Blocks((2, 4), outs), shapes, executor="reference")
    np.testing.assert_array_equal(found, wanted)


def test_each_thread_of_a_block_can_have_a_pipeline_of_its_own() -> None:
    def body(x: Any, o: Any) -> None:
        thread = pl.axis_index("wg")

        def step(_: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        spec = plgpu.BlockSpec((None, 4), lambda s: (thread, s))
        plgpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)(x, o)

    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), num_threads=2, thread_name="wg")
    np.testing.assert_array_equal(call(x), x + 1)
    assert pl.check(call, x, schedules=4).ok


def test_one_thread_of_a_block_can_have_a_pipeline() -> None:
    def body(x: Any, o: Any) -> None:
        def step(_: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * 2

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            spec = plgpu.BlockSpec((4,), lambda s: (s,))
            plgpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)(x, o)

    x = np.arange(12, dtype=np.float32)
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), num_threads=2, thread_name="wg")
    np.testing.assert_array_equal(call(x), 2 * x)
