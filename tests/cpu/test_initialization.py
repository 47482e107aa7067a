"""Which outputs need no values to begin with."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.call.staged import CALLS
from palladio.driver.capture import prepared_programs
from palladio.lower.grids.schedule import schedule_in


def written(kernel, block, index_map, grid, shape=(8, 16)):
    """The outputs that are found to be written whole."""
    call = pl.pallas_call(
        kernel, pl.ShapeDtypeStruct(shape, np.float32), grid=grid, out_specs=pl.BlockSpec(block, index_map)
    )
    with pl.executor("cpu"):
        result = call(out=np.full(shape, 7, np.float32))
    return start(call).kind == "stored", np.asarray(result)


def start(call):
    """The scheduled initial state of the output of a call."""
    CALLS.clear()
    with prepared_programs() as found:
        call()
    (eqn,) = [eqn for program in found for eqn in schedule_in(program).eqns]
    (only,) = eqn.grid.schedule.starts
    return only


def store(out_ref):
    out_ref[...] = jnp.zeros(out_ref.shape, np.float32) + pl.program_id(0)


def store_some(out_ref):
    out_ref[0:1, :] = jnp.zeros((1, out_ref.shape[1]), np.float32)


def store_sometimes(out_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        out_ref[...] = jnp.zeros(out_ref.shape, np.float32)


def test_blocks_that_tile_the_array_and_a_store_of_each():
    proved, out = written(store, (3, 16), lambda i: (i, 0), (3,))
    assert proved
    np.testing.assert_array_equal(out[:, 0], [0, 0, 0, 1, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("block", "index_map", "grid"),
    [((3, 16), lambda i: (i, 0), (2,)), ((2, 16), lambda i: (i // 2, 0), (8,)), ((2, 4), lambda i: (i, i), (4,))],
    ids=["too few blocks", "computed index", "diagonal"],
)
def test_blocks_that_may_leave_something_out(block, index_map, grid):
    proved, _ = written(store, block, index_map, grid)
    assert not proved


@pytest.mark.parametrize("kernel", [store_some, store_sometimes])
def test_stores_that_leave_something_out(kernel):
    proved, out = written(kernel, (2, 16), lambda i: (i, 0), (4,))
    assert not proved
    assert np.isnan(out[-1]).all()


def visits(kernel, at, dtype=np.float32, executor="cpu"):
    """What is in 6 blocks of 2×4, of which a kernel sees those in `at`, after a call into an array of sevens."""
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2, len(at)), out_specs=pl.BlockSpec((2, 4), lambda j, i, at: (at[i], j))
    )
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((12, 8), dtype),
        grid_spec=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=executor,
    )
    out = np.full((12, 8), 7, dtype)
    return np.asarray(call(np.array(at, np.int32), out=out)).astype(np.float64)


def store_all(at_ref, out_ref):
    out_ref[...] = jnp.full(out_ref.shape, pl.program_id(1), out_ref.dtype)


def store_a_row(at_ref, out_ref):
    out_ref[pl.program_id(1) % 2, :] = jnp.full((4,), 1, out_ref.dtype)


def add_where_even(at_ref, out_ref):
    even = jnp.arange(4)[None, :] % 2 == 0
    out_ref[...] = jnp.where(even, pl.program_id(1).astype(out_ref.dtype), out_ref[...])


@pytest.mark.parametrize("kernel", [store_all, store_a_row, add_where_even])
@pytest.mark.parametrize("at", [[0, 1, 2, 3, 4, 5], [3, 1, 1], [-1, 2, 9, 2]], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_blocks_seen_in_any_order_are_uninitialised_where_nothing_is_stored(kernel, at, dtype):
    np.testing.assert_array_equal(visits(kernel, at, dtype), visits(kernel, at, dtype, "reference"))


def store_in_even_tasks(out_ref):
    @pl.when(pl.program_id(0) % 2 == 0)
    def _():
        out_ref[...] = jnp.full(out_ref.shape, pl.program_id(0), np.float32)


@pytest.mark.parametrize(
    ("index", "noted"),
    [(lambda i: i, True), (lambda i: 3 - i, True), (lambda i: 3 - i // 2, False)],
    ids=["the task's number", "a number minus it", "a number minus half of it"],
)
def test_tasks_note_what_they_begin_where_no_other_does(index, noted):
    call = pl.pallas_call(
        store_in_even_tasks,
        pl.ShapeDtypeStruct((8, 16), np.float32),
        grid=(4,),
        out_specs=pl.BlockSpec((2, 16), lambda i: (index(i), 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )
    with pl.executor("cpu"):
        out = call(out=np.full((8, 16), 7, np.float32))
    assert (start(call).marks is not None) == noted
    with pl.executor("reference"):
        np.testing.assert_array_equal(out, call())
