"""Aliased inputs that compilers may read from a copy: no block is fetched after a store to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.driver.capture import prepared_programs
from palladio.lower.grids.refetched import require_fetched_first
from palladio.lower.refused import Refused
from palladio.ops.grid import grid_call

X = np.zeros((8, 8), np.int32)


def add_sum(x: Any, out: Any) -> None:
    out[...] = jnp.sum(x[...]) + 1


def refusal(read: Any, write: Any, grid: Any = (4, 4), kernel: Callable[..., None] = add_sum) -> str:
    """The reason that compilers have to refuse the kernel with these block specifications; empty if there is none."""
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(X.shape, X.dtype),
        grid=grid,
        in_specs=[read],
        out_specs=write,
        input_output_aliases={0: 0},
        interpret=True,
    )
    return _refusal(call, X)


def _refusal(call: Any, *arrays: Any) -> str:
    with prepared_programs() as programs:
        pl.jit(call)(*arrays)
    (eqn,) = (eqn for eqn in programs[0].eqns if eqn.op is grid_call)
    try:
        require_fetched_first(eqn.grid, eqn.kernel, "a target")
    except Refused as error:
        return error.rule
    return ""


def blocks(index_map: Callable[..., Any], shape: tuple[int, int] = (2, 2)) -> pl.BlockSpec:
    return pl.BlockSpec(shape, index_map)


WHOLE = pl.BlockSpec(memory_space=pl.ANY)


@pytest.mark.parametrize(
    "read, write",
    [
        (blocks(lambda i, j: (i, j)), blocks(lambda i, j: (i, j))),
        (blocks(lambda i, j: (j, i)), blocks(lambda i, j: (j, i))),
        (blocks(lambda i, j: (i, 0)), blocks(lambda i, j: (i, 0))),
        (blocks(lambda i, j: (3 - i, 3 - j)), blocks(lambda i, j: (3 - i, 3 - j))),
        (blocks(lambda i, j: (0, 0)), blocks(lambda i, j: (i, j))),
        (blocks(lambda i, j: (2 + i // 2, j)), blocks(lambda i, j: (0, j))),
        (blocks(lambda i, j: (i, j)), blocks(lambda i, j: (0, 0), (8, 2))),
        (WHOLE, WHOLE),
    ],
    ids=["same", "transposed", "stays", "backwards", "fetched once", "disjoint", "never left", "main memory"],
)
def test_blocks_that_are_fetched_before_stores_to_them(read: Any, write: Any) -> None:
    assert refusal(read, write) == ""


@pytest.mark.parametrize(
    "read, write",
    [
        (blocks(lambda i, j: (j, 0)), blocks(lambda i, j: (j, 0))),
        (blocks(lambda i, j: (i, j)), blocks(lambda i, j: (j, i))),
        (blocks(lambda i, j: (i, j)), blocks(lambda i, j: (0, j), (8, 2))),
        (WHOLE, blocks(lambda i, j: (i, j))),
        (pl.BlockSpec((pl.Element(2), 2), lambda i, j: (i, 0)), blocks(lambda i, j: (i, 0))),
    ],
    ids=["comes back", "exchanged", "of another shape", "main memory", "overlapping"],
)
def test_blocks_that_are_fetched_after_stores_to_them(read: Any, write: Any) -> None:
    assert refusal(read, write) == (
        "blocks of x that are fetched after stores to its alias are not compiled for a target"
    )


def test_an_input_that_is_not_read_is_not_fetched() -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] += 1

    block = blocks(lambda i, j: (j, 0))
    assert refusal(block, block, kernel=kernel) == ""


@pytest.mark.parametrize("axis", [0, 1])
def test_a_large_grid_is_judged_by_the_axes_of_its_index(axis: int) -> None:
    block = pl.BlockSpec((1, 8), (lambda *ids: (ids[0], 0)) if axis == 0 else (lambda *ids: (ids[1], 0)))
    assert bool(refusal(block, block, (8, 1024) if axis == 0 else (1024, 8))) == (axis == 1)


def test_a_dynamic_grid_is_judged_by_the_axes_of_its_index() -> None:
    def of(index_map: Callable[..., Any]) -> str:
        def f(n: Any, x: Any) -> Any:
            block = pl.BlockSpec((2, 2), index_map)
            call = pl.pallas_call(
                add_sum,
                pl.ShapeDtypeStruct(X.shape, X.dtype),
                grid=(n, 4),
                in_specs=[block],
                out_specs=block,
                input_output_aliases={0: 0},
                interpret=True,
            )
            return call(x)

        return _refusal(f, np.int32(4), X)

    assert of(lambda i, j: (i, j)) == ""
    assert of(lambda i, j: (j, 0)) != ""


@pytest.mark.parametrize("same", [True, False])
def test_block_indices_that_depend_on_data(same: bool) -> None:
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((2, 8), lambda i, order: (order[i], 0))],
        out_specs=pl.BlockSpec((2, 8), (lambda i, order: (order[i], 0)) if same else (lambda i, order: (i, 0))),
    )

    def kernel(order: Any, x: Any, out: Any) -> None:
        out[...] = jnp.sum(x[...]) + 1

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(X.shape, X.dtype),
        grid_spec=spec,
        input_output_aliases={1: 0},
        interpret=True,
    )
    assert bool(_refusal(call, np.arange(4, dtype=np.int32), X)) == (not same)
