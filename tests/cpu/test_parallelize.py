"""Grid axes are spread where their steps cannot depend on each other, or are declared parallel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.call.staged import CALLS
from palladio.driver.capture import prepared_programs
from palladio.ir.core import walk
from palladio.library import gmm
from palladio.lower.grids.parallelize import independent_axes

X = np.random.default_rng(0).standard_normal((8, 8), np.float32)
ROWS = pl.BlockSpec((2, 8), lambda i: (i, 0))
ROWS_AFTER = pl.BlockSpec((2, 8), lambda i, scalars: (i, 0))
SQUARE = pl.ShapeDtypeStruct(X.shape, X.dtype)


def spread_axes(call: Callable[..., Any], *arrays: Any) -> tuple[bool, ...]:
    """Which axes of the grid of a call are spread; compiled, it gives what the evaluator does."""
    CALLS.clear()
    with prepared_programs() as found, pl.executor("reference"):
        expected = call(*arrays)
    with pl.executor("cpu"):
        np.testing.assert_allclose(call(*arrays), expected, atol=1e-5)
    (eqn,) = [eqn for eqn in walk(found[0]) if eqn.op.name == "grid_call"]
    return independent_axes(eqn.grid, eqn.kernel)


def twice(x: Any, out: Any) -> None:
    out[...] = x[...] * 2


def by_rows(kernel: Callable[..., None], **options: Any) -> Callable[..., Any]:
    return pl.pallas_call(kernel, SQUARE, **{"grid": (4,), "in_specs": [ROWS], "out_specs": ROWS} | options)


def test_steps_with_blocks_of_their_own_are_spread() -> None:
    assert spread_axes(by_rows(twice), X) == (True,)


def test_what_the_author_says_stands() -> None:
    params = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    spec = pl.BlockSpec((4, 4), lambda i, j: (i, j))
    call = pl.pallas_call(twice, SQUARE, grid=(2, 2), in_specs=[spec], out_specs=spec, compiler_params=params)
    assert spread_axes(call, X) == (True, False)


def running(x: Any, total: Any, out: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += x[...]

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        out[...] = total[...]


@pytest.mark.parametrize(
    ("index", "spread"),
    [(lambda i, j, k: (0, 0), (False, False)), (lambda i, j, k: (i, 0), (True, False))],
    ids=["one block", "a block for each row"],
)
def test_declared_axes_along_which_an_output_stays_are_not(index: Callable[..., Any], spread: tuple[bool, ...]) -> None:
    call = pl.pallas_call(
        running,
        (pl.ShapeDtypeStruct((8, 2), X.dtype), SQUARE),
        grid=(4, 4, 4),
        in_specs=[pl.BlockSpec((2, 2), lambda i, j, k: (i, k))],
        out_specs=[pl.BlockSpec((2, 2), index), pl.BlockSpec((2, 2), lambda i, j, k: (i, j))],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )
    assert spread_axes(lambda x: call(x)[1], X) == (*spread, False)


def test_declared_axes_whose_steps_store_other_rows_of_a_block_are_spread() -> None:
    def own_row(x: Any, out: Any) -> None:
        mine = jnp.arange(8)[:, None] == pl.program_id(0)
        out[...] = jnp.where(mine, 2 * x[...], out[...])

    whole = pl.BlockSpec((8, 8), lambda i: (0, 0))
    params = pltpu.CompilerParams(dimension_semantics=("parallel",))
    call = pl.pallas_call(own_row, SQUARE, grid=(8,), in_specs=[whole], out_specs=whole, compiler_params=params)
    assert spread_axes(call, X) == (True,)


def test_groups_that_share_a_block_of_rows_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    rows = np.random.default_rng(1).standard_normal((8, 512), np.float32)
    matrices = np.random.default_rng(2).standard_normal((16, 512, 256), np.float32)
    sizes = 5 * (np.arange(16) == 3) + 3 * (np.arange(16) == 9)
    CALLS.clear()
    with prepared_programs() as found, pl.executor("cpu"):
        out = gmm(rows, matrices, sizes)
    np.testing.assert_allclose(out, np.concatenate([rows[:5] @ matrices[3], rows[5:] @ matrices[9]]), atol=1e-3)
    (eqn,) = [eqn for program in found for eqn in walk(program) if eqn.op.name == "grid_call"]
    assert eqn.grid.parallel == independent_axes(eqn.grid, eqn.kernel) == (True, True, False)


def test_declared_axes_of_a_kernel_that_writes_to_its_scalars_are_not() -> None:
    def counted(count: Any, x: Any, out: Any) -> None:
        out[...] = x[...] + count[0].astype(x.dtype)
        count[0] = count[0] + 1

    spec = pltpu.PrefetchScalarGridSpec(1, grid=(4,), in_specs=[ROWS_AFTER], out_specs=ROWS_AFTER)
    params = pltpu.CompilerParams(dimension_semantics=("parallel",))
    call = pl.pallas_call(counted, SQUARE, grid_spec=spec, compiler_params=params)
    assert spread_axes(call, np.zeros(1, np.int32), X) == (False,)


@pytest.mark.parametrize(
    "index",
    [lambda i: (0, 0), lambda i: (i // 2, 0), lambda i: (3 - i, 0)],
    ids=["one block", "two steps a block", "not the index itself"],
)
def test_steps_that_may_share_a_block_are_not(index: Callable[..., Any]) -> None:
    assert spread_axes(by_rows(twice, out_specs=pl.BlockSpec((2, 8), index)), X) == (False,)


def test_overlapping_blocks_are_not() -> None:
    def add(x: Any, out: Any) -> None:
        out[...] = out[...] + x[...]

    rows = pl.BlockSpec((pl.Element(4), 8), lambda i: (i, 0))
    call = pl.pallas_call(
        lambda x, _, out: add(x, out),
        SQUARE,
        grid=(5,),
        in_specs=[rows, rows],
        out_specs=rows,
        input_output_aliases={1: 0},
    )
    assert spread_axes(call, X, X) == (False,)


def product(x: Any, y: Any, out: Any, total: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += x[...] @ y[...]

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        out[...] = total[...]


def tiled(kernel: Callable[..., None], x: Any = X) -> Callable[..., Any]:
    return pl.pallas_call(
        kernel,
        SQUARE,
        grid=(2, 2, 2),
        in_specs=[pl.BlockSpec((4, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 4), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((4, 4), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((4, 4), np.float32)],
    )


def test_a_product_is_spread_over_its_tiles_and_not_over_their_depth() -> None:
    assert spread_axes(tiled(product), X, X) == (True, True, False)


def test_scratch_that_goes_on_from_tile_to_tile_is_not() -> None:
    def kernel(x: Any, y: Any, out: Any, total: Any) -> None:
        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0))
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += x[...] @ y[...]
        out[...] = total[...]

    assert spread_axes(tiled(kernel), X, X) == (False, False, False)


def carried(x: Any, out: Any, total: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        total[...] = x[...]

    @pl.when(pl.program_id(0) > 0)
    def _() -> None:
        total[...] += 1

    out[...] = total[...]


@pytest.mark.parametrize(("outer", "inner"), [(3, False), (1, True)])
def test_scratch_that_steps_of_other_tasks_change_in_between_is_not(outer: int, inner: bool) -> None:
    rows = pl.BlockSpec((2, 8), lambda i, j: (j, 0))
    scratch = [pltpu.VMEM((2, 8), np.float32)]
    call = by_rows(carried, grid=(outer, 4), in_specs=[rows], out_specs=rows, scratch_shapes=scratch)
    assert spread_axes(call, X) == (False, inner)


def test_scratch_that_every_step_stores_may_have_others_in_between() -> None:
    def kernel(x: Any, out: Any, total: Any) -> None:
        total[...] = x[...] * 2
        out[...] = total[...] + 1

    rows = pl.BlockSpec((2, 8), lambda i, j: (j, 0))
    scratch = [pltpu.VMEM((2, 8), np.float32)]
    call = by_rows(kernel, grid=(3, 4), in_specs=[rows], out_specs=rows, scratch_shapes=scratch)
    assert spread_axes(call, X) == (False, True)


def test_scratch_of_which_a_part_is_stored_is_not() -> None:
    def kernel(x: Any, y: Any, out: Any, total: Any) -> None:
        total[0:2, :] = x[0:2, :]

        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0))
        def _() -> None:
            total[2:4, :] = y[2:4, :]

        out[...] = total[...]

    assert spread_axes(tiled(kernel), X, X) == (False, False, False)


def test_scratch_that_the_first_step_leaves_alone_is_not() -> None:
    def kernel(x: Any, y: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 1)
        def _() -> None:
            out[...] = jnp.where(jnp.isnan(total[...]), 0, total[...]) + y[...]
            total[...] = x[...]

    assert spread_axes(tiled(kernel), X, X) == (False, False, False)


def test_steps_that_print_keep_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, out: Any) -> None:
        pl.debug_print("{}", pl.program_id(0))
        out[...] = x[...]

    assert spread_axes(by_rows(kernel), X) == (False,)


def test_steps_that_write_to_an_input_keep_their_order() -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...]
        x[...] = x[...] + 1

    assert spread_axes(by_rows(kernel, in_specs=[pl.BlockSpec((2, 8), lambda i: (0, 0))]), X) == (False,)


def counting(calls: Any, x: Any, out: Any, row: Any, full: Any) -> None:
    """Each core counts its own steps in the prefetched scalar and continues with the rows in its scratch."""
    copy = pltpu.make_async_copy(x.at[pl.program_id(0), pl.program_id(1)], row, full)
    copy.start()
    calls[0] = calls[0] + 1
    copy.wait()
    out[0, 0] = row[...] * calls[0]


def on_cores(semantics: tuple[str, ...] = ("parallel", "arbitrary"), rows: int = 2) -> Callable[..., Any]:
    spec = pltpu.PrefetchScalarGridSpec(
        1,
        grid=(rows, 3),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((1, 1, 8), lambda i, j, calls: (i, j, 0)),
        scratch_shapes=[pltpu.VMEM((8,), np.int32), pltpu.SemaphoreType.DMA],
    )
    params = pltpu.CompilerParams(dimension_semantics=semantics)
    shape = pl.ShapeDtypeStruct((rows, 3, 8), np.int32)
    return pl.pallas_call(counting, shape, grid_spec=spec, compiler_params=params)


@pytest.mark.parametrize("executor", ["cpu", "reference", "simulator"])
def test_cores_of_the_described_tpu_share_the_parallel_axes_of_a_kernel_that_waits(executor: str) -> None:
    x = np.ones((2, 3, 8), np.int32)
    calls = np.zeros(1, np.int32)
    call = on_cores()

    @pl.jit
    def staged(calls: Any, x: Any) -> Any:
        return call(calls, x)

    with pl.executor(executor), warnings.catch_warnings():
        warnings.simplefilter("error", pl.NotCompiledWarning)
        for function in (call, staged):
            assert function(calls, x)[:, :, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
            with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)):
                assert function(calls, x)[:, :, 0].tolist() == [[1, 2, 3], [1, 2, 3]]
                assert calls[0] == 0


def test_axes_after_one_that_is_not_parallel_are_those_of_one_core() -> None:
    x = np.ones((2, 3, 8), np.int32)
    with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)):
        found = on_cores(("arbitrary", "parallel"))(np.zeros(1, np.int32), x)
    assert found[:, :, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
