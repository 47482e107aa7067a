"""`pltpu.emit_pipeline`: the same meaning as the GPU's, by DMA, alone and dealt out to cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.pipeline.model import Blocks, begins, check_everywhere, expected, linear
from tests.pipeline.test_emit_pipeline import MAPS

ANY = pl.BlockSpec(memory_space=pl.ANY)


def call(
    grid: tuple[int, ...],
    source: Blocks,
    target: Blocks,
    shape: Any,
    *,
    mode: Any = None,
    cores: int = 1,
    **options: Any,
) -> Any:
    """Each output block is the sum of its visits' inputs, scaled by the step."""

    def kernel(x_hbm: Any, flags_hbm: Any, _: Any, o_hbm: Any) -> None:
        def step(indices: Any, x_ref: Any, flags_ref: Any, o_ref: Any) -> None:
            assert indices.index == tuple(indices)
            number = linear(indices, grid)
            value = np.nan_to_num(x_ref[...]) * (number + 1).astype(np.float32)
            first = flags_ref[number] == 1

            @pl.when(first)
            def _() -> None:
                o_ref[...] = value

            @pl.when(~first)
            def _() -> None:
                o_ref[...] += value

        pltpu.emit_pipeline(
            step,
            grid=grid,
            in_specs=[pl.BlockSpec(source.shape, source.index_map, mode), ANY],
            out_specs=[pl.BlockSpec(target.shape, target.index_map)],
            _explicit_indices=True,
            **options,
        )(x_hbm, flags_hbm, o_hbm)

    return pl.kernel(
        kernel,
        pl.ShapeDtypeStruct(shape, np.float32),
        mesh=pltpu.TensorCoreMesh(axis_name="core", num_cores=cores),
        input_output_aliases={2: 0},
    )


def confirm(
    grid: tuple[int, ...], maps: tuple[Any, Any], *, source: Any = (2, 4), target: Any = (2, 4), **options: Any
) -> None:
    """The pipeline gives what the steps in order give, and has no finding."""
    blocks, others = Blocks(source, maps[0]), Blocks(target, maps[1])
    x = np.random.default_rng(0).integers(-9, 9, (7, 18)).astype(np.float32)
    start = np.zeros((9, 19), np.float32)
    wanted = expected(
        grid, [(x, blocks)], start, others, lambda step, block: np.nan_to_num(block) * np.float32(step + 1)
    )
    run = call(grid, blocks, others, start.shape, **options)
    args = [x, begins(grid, others), start]
    np.testing.assert_array_equal(check_everywhere(run, *args, schedules=2), wanted)


@pytest.mark.one_executor
@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("grid", [(1,), (2, 3)], ids=str)
def test_blocks_are_fetched_and_stored_as_their_indices_say(grid: tuple[int, ...], maps: str) -> None:
    confirm(grid, MAPS[maps])


@pytest.mark.one_executor
@pytest.mark.parametrize("maps", ["each step", "every second step", "inputs stay"])
@pytest.mark.parametrize("mode", [pl.Buffered(1), pl.Buffered(3), pl.Buffered(2, use_lookahead=True)], ids=str)
def test_any_number_of_buffers_gives_the_same(mode: Any, maps: str) -> None:
    confirm((2, 3), MAPS[maps], mode=mode)


@pytest.mark.one_executor
@pytest.mark.parametrize("maps", ["each step", "every second step"])
def test_one_slot_for_each_operand_gives_the_same(maps: str) -> None:
    confirm((2, 3), MAPS[maps], no_pipelining=True, tiling=pltpu.Tiling.SPARSE_CORE)


@pytest.mark.one_executor
def test_blocks_reach_past_the_edge() -> None:
    def at(k: Any) -> Any:
        return k // 2, k % 5

    confirm((4,), (at, at), source=(4, 4), target=(4, 4))


def test_program_ids_are_those_of_the_pipeline() -> None:
    def kernel(o_hbm: Any) -> None:
        def step(o_ref: Any) -> None:
            o_ref[0, 0] = pl.program_id(0) * 10 + pl.program_id(1) + pl.num_programs(1)

        pltpu.emit_pipeline(step, grid=(2, 3), out_specs=[pl.BlockSpec((1, 1), lambda i, j: (i, j))])(o_hbm)

    run = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 3), np.int32), out_specs=ANY)
    np.testing.assert_array_equal(run(), [[3, 4, 5], [13, 14, 15]])


@pytest.mark.parametrize("rows", [4, 5, 1])
def test_cores_share_a_parallel_axis(rows: int) -> None:
    def kernel(x_hbm: Any, o_hbm: Any) -> None:
        def step(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + pl.program_id(0).astype(np.float32)

        spec = pl.BlockSpec((1, 4), lambda i, j: (i, j))
        pltpu.emit_pipeline(
            step,
            grid=(rows, 2),
            in_specs=[spec],
            out_specs=[spec],
            core_axis_name="core",
            dimension_semantics=(pltpu.PARALLEL, "arbitrary"),
        )(x_hbm, o_hbm)

    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
    run = pl.kernel(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)
    np.testing.assert_array_equal(run(x), x + np.arange(rows, dtype=np.float32)[:, None])
    assert pl.check(run, x, schedules=4).ok


def test_cores_of_the_enclosing_grid_share_a_parallel_axis() -> None:
    def kernel(x_hbm: Any, o_hbm: Any) -> None:
        def step(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * 2

        spec = pl.BlockSpec((4,), lambda i: (i,))
        pltpu.emit_pipeline(
            step, grid=(6,), in_specs=[spec], out_specs=[spec], core_axis=0, dimension_semantics=("parallel",)
        )(x_hbm, o_hbm)

    x = np.arange(24, dtype=np.float32)
    run = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,), in_specs=[ANY], out_specs=ANY)
    np.testing.assert_array_equal(run(x), x * 2)


def test_scratches_come_after_the_blocks() -> None:
    def kernel(x_hbm: Any, o_hbm: Any, total: Any) -> None:
        total[...] = jnp.zeros((4,), np.float32)

        def step(x_ref: Any, o_ref: Any, total_ref: Any) -> None:
            total_ref[...] += x_ref[...]
            o_ref[...] = total_ref[...]

        spec = pl.BlockSpec((4,), lambda i: (i,))
        pltpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=[spec])(x_hbm, o_hbm, scratches=[total])

    x = np.arange(12, dtype=np.float32)
    run = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[ANY],
        out_specs=ANY,
        scratch_shapes=[pltpu.VMEM((4,), np.float32)],
    )
    np.testing.assert_array_equal(run(x), np.cumsum(x.reshape(3, 4), axis=0).reshape(-1))


@pytest.mark.one_executor
@pytest.mark.parametrize("interpret", ["reference", "simulator", "cpu"])
def test_a_block_in_main_memory_is_the_part_of_its_array(interpret: str) -> None:
    def step(x_ref: Any, o_ref: Any) -> None:
        assert x_ref.shape == (2, 4)
        pltpu.sync_copy(x_ref, o_ref)

    def kernel(x_hbm: Any, o_hbm: Any) -> None:
        pltpu.emit_pipeline(
            step,
            grid=(4,),
            in_specs=[pl.BlockSpec((2, 4), lambda i: (3 - i, 0), memory_space=pltpu.HBM)],
            out_specs=[pl.BlockSpec((2, 4), lambda i: (i, 0))],
        )(x_hbm, o_hbm)

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(x), in_specs=[ANY], out_specs=ANY, interpret=interpret)
    assert np.array_equal(call(x), x.reshape(4, 2, 4)[::-1].reshape(8, 4))
