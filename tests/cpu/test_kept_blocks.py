"""Blocks that reach past the edge of their array keep what was stored there while their index stays, as evaluated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.cpu.executor import NotCompiledWarning

WIDTH = 8
ARBITRARY, PARALLEL = "arbitrary", "parallel"


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Whatever is called must be compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        yield


def shifted_sums(x: Any, out: Any) -> None:
    """Add a block and move the sums by one column, so that columns past the edge come back inside."""
    out[...] = jnp.where(out[...] == out[...], out[...], 0) + x[...]
    out[...] = jnp.roll(out[...], 1, -1)


def call(
    x: Any,
    index: Callable[..., Any],
    grid: tuple[Any, ...],
    shape: tuple[int, int],
    semantics: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """`shifted_sums` of blocks of eight columns; the blocks of x are numbered by the step."""
    params = {"compiler_params": pl.CompilerParams(dimension_semantics=semantics)} if semantics else {}
    return pl.pallas_call(
        shifted_sums,
        pl.ShapeDtypeStruct(shape, x.dtype),
        grid=grid,
        in_specs=[pl.BlockSpec((1, WIDTH), lambda *ids: (sum(ids) % x.shape[0], 0))],
        out_specs=pl.BlockSpec((1, WIDTH), index),
        **params,
        **options,
    )(x)


GRIDS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, int], tuple[str, ...]]] = {
    "the last axis revisits": (lambda i, j: (i, 0), (3, 4), (3, 1), ()),
    "rows are parallel": (lambda i, j: (i, 0), (3, 4), (3, 1), (PARALLEL, ARBITRARY)),
    "two axes revisit": (lambda i, j, k: (i, 0), (2, 3, 2), (2, 3), ()),
    "a computed index revisits": (lambda i: (i // 3, 0), (9,), (3, 3), ()),
    "visits with others between": (lambda i, j: (j, 0), (3, 2), (2, 3), ()),
    "others between are parallel": (lambda i, j: (j, 0), (3, 2), (2, 3), (ARBITRARY, PARALLEL)),
    "revisited around a parallel axis": (lambda i, j, k: (j, 0), (2, 3, 2), (3, 3), (ARBITRARY, PARALLEL, ARBITRARY)),
    "the first axis revisits one block": (lambda i: (0, 0), (5,), (1, 5), ()),
    "some blocks are inside": (lambda i, j: (0, i), (3, 3), (1, 19), ()),
    "past the edge of rows": (lambda i, j: (i, 0), (3, 3), (2, 5), ()),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.float64], ids=str)
@pytest.mark.parametrize("name", GRIDS)
def test_stores_past_the_edge_last_while_the_index_stays(name: str, dtype: Any) -> None:
    index, grid, shape, semantics = GRIDS[name]
    x = np.random.default_rng(0).integers(1, 5, (4, WIDTH)).astype(dtype)
    expected = call(x, index, grid, shape, semantics, interpret=True)
    np.testing.assert_array_equal(call(x, index, grid, shape, semantics), expected)


def test_each_task_begins_anew() -> None:
    """Many more tasks than threads, so each thread's memory has blocks of others in it."""
    x = np.random.default_rng(0).integers(1, 5, (4, WIDTH)).astype(np.float32)
    found = call(x, lambda i, j: (i, 0), (64, 4), (64, 1), (PARALLEL, ARBITRARY))
    np.testing.assert_array_equal(found, call(x, lambda i, j: (i, 0), (64, 4), (64, 1), interpret=True))


@pytest.mark.parametrize("sizes", [(3, 1), (3, 2), (1, 1)])
@pytest.mark.parametrize("semantics", [(), (ARBITRARY, PARALLEL)], ids=["proven", "declared"])
def test_tasks_along_an_axis_that_has_one_step_at_this_call(sizes: tuple[int, int], semantics: tuple[str, ...]) -> None:
    """Steps of the first axis follow one another if the second, which is parallel, has one step."""
    x = np.random.default_rng(0).integers(1, 5, (4, WIDTH)).astype(np.float32)
    grid = tuple(np.asarray(size, np.int32) for size in sizes)
    expected = call(x, lambda i, j: (j, 0), grid, (2, 3), semantics, interpret=True)
    np.testing.assert_array_equal(call(x, lambda i, j: (j, 0), grid, (2, 3), semantics), expected)


def test_the_definition_keeps_columns_past_the_edge() -> None:
    """Column 7, 6 and 5 of a block of an array with one column arrive at column 0 after one, two and three rolls."""
    x = np.arange(WIDTH, dtype=np.float32)[None]
    found = call(x, lambda i: (0, 0), (3,), (1, 1), interpret=True)
    assert found.item() == 7 + 6 + 5


def outer(x: Any, out: Any) -> None:
    out[...] = call(x[...], lambda i, j: (i, 0), (3, 4), (3, 2)) + call(x[...], lambda i: (i // 2, 0), (6,), (3, 2))


def test_in_a_kernel_call_inside_a_kernel() -> None:
    x = np.random.default_rng(0).integers(1, 5, (4, WIDTH)).astype(np.float32)
    shape = pl.ShapeDtypeStruct((3, 2), x.dtype)
    expected = pl.pallas_call(outer, shape, interpret=True)(x)
    np.testing.assert_array_equal(pl.pallas_call(outer, shape)(x), expected)
