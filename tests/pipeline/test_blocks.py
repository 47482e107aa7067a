"""Every kind of block, in and out, and what the specs of the GPU say besides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.pipeline.model import Blocks
from tests.pipeline.test_emit_pipeline import EXECUTORS, run

TILE = Blocks((2, 4), lambda k: (k, k))
SHAPES = ((10, 20), (10, 20))
KINDS: dict[str, Blocks] = {
    "squeezed": Blocks((None, 2, 4), lambda k: (k, 1, k)),
    "element": Blocks((pl.Element(2), pl.Element(4)), lambda k: (k + 1, 3 * k)),
    "padded": Blocks((pl.Element(2, (1, 1)), pl.Element(4, (2, 2))), lambda k: (2 * k, 4 * k)),
    "past the edge": Blocks((2, 4), lambda k: (k + 3, k + 3)),
    "whole rows": Blocks((2, 20), lambda k: (k, 0)),
}


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", ["element", "padded", "past the edge"])
def test_inputs_come_in_blocks_of_every_kind(kind: str, executor: str) -> None:
    found, wanted = run((3,), KINDS[kind], TILE, SHAPES, executor=executor)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", ["element", "padded", "past the edge"])
def test_outputs_leave_in_blocks_of_every_kind(kind: str, executor: str) -> None:
    target = Blocks((pl.Element(2), pl.Element(4)), lambda k: (2 * k, 4 * k)) if kind == "element" else KINDS[kind]
    found, wanted = run((3,), TILE, target, SHAPES, executor=executor)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_squeezed_axis_is_not_seen(executor: str) -> None:
    found, wanted = run((3,), KINDS["squeezed"], TILE, ((5, 8, 20), (10, 20)), executor=executor)
    np.testing.assert_array_equal(found, wanted)
    found, wanted = run((3,), TILE, KINDS["squeezed"], ((10, 20), (5, 8, 20)), executor=executor)
    np.testing.assert_array_equal(found, wanted)


def sums(x: Any, spec: Any, grid: Any, count: int, *more: Any, slots: int = 2) -> Any:
    """The sum of the block of each step, i64[count] as f32; `spec` is of references to `more`."""

    def body(*refs: Any) -> None:
        x_gmem, *tables, o_gmem = refs

        def step(indices: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jnp.sum(x_ref[...]).reshape(1)

        plgpu.emit_pipeline(
            step,
            grid=grid(*tables) if callable(grid) else grid,
            in_specs=[spec(*tables)],
            out_specs=[plgpu.BlockSpec((1,), lambda k: (k,))],
            max_concurrent_steps=slots,
        )(x_gmem, o_gmem)

    kernel = plgpu.kernel(body, pl.ShapeDtypeStruct((count,), np.float32))
    found = kernel(x, *more)
    with pl.executor("simulator"):
        np.testing.assert_array_equal(kernel(x, *more), found)
    return found


X = np.random.default_rng(1).integers(-9, 9, (12, 8)).astype(np.float32)


def test_a_bounded_slice_reads_zeros_after_its_end() -> None:
    starts, sizes = np.array([0, 5, 10], np.int32), np.array([3, 1, 2], np.int32)

    def spec(starts_ref: Any, sizes_ref: Any) -> Any:
        return plgpu.BlockSpec((pl.BoundedSlice(4), 8), lambda k: (pl.ds(starts_ref[k], sizes_ref[k]), 0))

    wanted = [X[start : start + size].sum() for start, size in zip(starts, sizes, strict=True)]
    np.testing.assert_array_equal(sums(X, spec, (3,), 3, starts, sizes), wanted)


def test_an_indirect_block_is_gathered() -> None:
    rows = np.array([[0, 7, 3], [7, 7, 1], [11, 2, 5]], np.int32)

    def spec(rows_ref: Any) -> Any:
        return plgpu.BlockSpec((pl.Indirect(3), 4), lambda k: (rows_ref[k, :], 1))

    np.testing.assert_array_equal(sums(X, spec, (3,), 3, rows), [X[each, 4:].sum() for each in rows])


def test_a_reference_may_name_the_rows_of_an_indirect_block() -> None:
    rows = np.array([[0, 7, 3], [7, 7, 1], [11, 2, 5]], np.int32)

    def spec(rows_ref: Any) -> Any:
        return plgpu.BlockSpec((pl.Indirect(3), 4), lambda k: (rows_ref.at[k], 1))

    np.testing.assert_array_equal(sums(X, spec, (3,), 3, rows), [X[each, 4:].sum() for each in rows])


def test_blocks_gathered_along_two_axes() -> None:
    rows, columns = np.array([[0, 7], [5, 1]], np.int32), np.array([[1, 2, 4], [0, 7, 6]], np.int32)

    def spec(rows_ref: Any, columns_ref: Any) -> Any:
        return plgpu.BlockSpec((pl.Indirect(2), pl.Indirect(3)), lambda k: (rows_ref[k, :], columns_ref[k, :]))

    wanted = [X[np.ix_(r, c)].sum() for r, c in zip(rows, columns, strict=True)]
    np.testing.assert_array_equal(sums(X, spec, (2,), 2, rows, columns), wanted)


def test_indirect_blocks_that_stay_are_fetched_once() -> None:
    rows = np.array([[0, 7], [0, 7], [0, 8]], np.int32)

    def spec(rows_ref: Any) -> Any:
        return plgpu.BlockSpec((pl.Indirect(2), 8), lambda k: (rows_ref[k, :], 0))

    np.testing.assert_array_equal(sums(X, spec, (3,), 3, rows), [X[each].sum() for each in rows])


def test_an_indirect_output_is_scattered() -> None:
    rows = np.array([[0, 7], [3, 4]], np.int32)

    def body(x_gmem: Any, rows_gmem: Any, _: Any, o_gmem: Any) -> None:
        def step(indices: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        plgpu.emit_pipeline(
            step,
            grid=(2,),
            in_specs=[plgpu.BlockSpec((2, 8), lambda k: (k, 0))],
            out_specs=[plgpu.BlockSpec((pl.Indirect(2), 8), lambda k: (rows_gmem[k, :], 0))],
        )(x_gmem, o_gmem)

    wanted = np.zeros_like(X)
    wanted[rows.reshape(-1)] = X[:4]
    kernel = plgpu.kernel(body, pl.ShapeDtypeStruct(X.shape, X.dtype), input_output_aliases={2: 0})
    with pl.executor("simulator"):
        np.testing.assert_array_equal(kernel(X, rows, np.zeros_like(X)), wanted)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_grid_size_may_be_known_only_when_the_kernel_runs(steps: int) -> None:
    def spec(_: Any) -> Any:
        return plgpu.BlockSpec((1, 8), lambda k: (k, 0))

    found = sums(X, spec, lambda size: (size[0],), 5, np.array([steps], np.int32), slots=3)
    np.testing.assert_array_equal(found[:steps], X[:steps].sum(1))
    assert np.isnan(found[steps:]).all()


def test_no_step_at_all_copies_nothing() -> None:
    def spec(_: Any) -> Any:
        return plgpu.BlockSpec((1, 8), lambda k: (0, 0))

    assert np.isnan(sums(X, spec, lambda size: (size[0],), 5, np.array([0], np.int32))).all()


def test_a_spec_without_a_block_shape_takes_the_whole_array() -> None:
    np.testing.assert_array_equal(sums(X, plgpu.BlockSpec, (3,), 3), [X.sum()] * 3)


def test_what_lies_outside_can_stay_undefined() -> None:
    def spec() -> Any:
        return plgpu.BlockSpec((8, 8), lambda k: (k, 0), oob_fill_mode=plgpu.OOBFillMode.UNDEFINED)

    assert np.isnan(sums(X, spec, (2,), 2)).tolist() == [False, True]


def test_slots_are_laid_out_as_the_spec_says() -> None:
    transforms = (plgpu.TilingTransform((8, 8)), plgpu.SwizzleTransform(32))

    def body(x_gmem: Any, o_gmem: Any) -> None:
        def step(_: Any, x_ref: Any, o_ref: Any) -> None:
            assert x_ref.root.palladio_type.attributes == transforms
            o_ref[...] = x_ref[...]

        spec = plgpu.BlockSpec((8, 8), lambda k: (k, 0), transforms=transforms)
        plgpu.emit_pipeline(step, grid=(1,), in_specs=[spec], out_specs=[spec])(x_gmem, o_gmem)

    out = plgpu.kernel(body, pl.ShapeDtypeStruct((8, 8), X.dtype))(X[:8])
    np.testing.assert_array_equal(out, X[:8])


@pytest.mark.one_executor
@pytest.mark.parametrize("mode", [pl.Buffered(1), pl.Buffered(4), pl.Buffered(2, use_lookahead=True)], ids=str)
def test_an_operand_can_have_slots_of_its_own(mode: Any) -> None:
    source = Blocks((2, 4), lambda k: (k // 3, k // 3))
    found, wanted = run((7,), source, TILE, ((10, 20), (14, 28)), executor="simulator", pipeline_mode=mode)
    np.testing.assert_array_equal(found, wanted)
