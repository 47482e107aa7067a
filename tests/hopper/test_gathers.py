"""Elements of blocks and arrays anywhere: by arrays of indices, through reshapes, under a mask, past an edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
X = np.arange(72, dtype=F32).reshape(18, 4)
ROWS = np.int32([[1, 0, 1], [0, 3, 1], [2, 2, 0], [3, 1, 0], [1, 0, 0]])


def same_as_evaluated(body: Callable[..., None], shape: tuple[int, ...], *operands: np.ndarray, **options: Any) -> None:
    def call(executor: str) -> Any:
        return pl.pallas_call(body, pl.ShapeDtypeStruct(shape, F32), interpret=executor, **options)(*operands)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


IN_BLOCKS: dict[str, Any] = {
    "grid": (5,),
    "in_specs": [pl.BlockSpec((4, 4), lambda i: (i, 0)), pl.BlockSpec((1, 3), lambda i: (i, 0))],
    "out_specs": pl.BlockSpec((None, 4, 4), lambda i: (i, 0, 0)),
}
"""Blocks of 4 rows of an array of 18: the last one is not whole."""


def rows_by_index(x: Any, rows: Any, out: Any) -> None:
    out[...] = jnp.zeros((4, 4), F32)
    out[:3] = x[rows[0]]


def columns_by_index(x: Any, rows: Any, out: Any) -> None:
    out[...] = jnp.zeros((4, 4), F32)
    out[:, :3] = x[:, rows[0]]


def joined_axes(x: Any, rows: Any, out: Any) -> None:
    out[...] = x.reshape(16)[pl.ds(0, 16)].reshape(4, 4) + x.reshape(2, 8)[1, 3]


def scattered_rows(x: Any, rows: Any, out: Any) -> None:
    out[...] = x[...]
    out[rows[0]] = jnp.ones((3, 4), F32) * jnp.arange(3)[:, None].astype(F32)


def added_rows(x: Any, rows: Any, out: Any) -> None:
    out[...] = x[...]
    out.reshape(16)[rows[0]] = jnp.full((3,), -1.0, F32)


def swapped_rows(x: Any, rows: Any, out: Any) -> None:
    out[...] = x[...]
    old = out.at[rows[0]].swap(jnp.zeros((3, 4), F32))
    out[3] = old[0] + 2 * old[1] + 4 * old[2]


@pytest.mark.parametrize(
    "body", [rows_by_index, columns_by_index, joined_axes, scattered_rows, added_rows, swapped_rows]
)
def test_elements_of_a_block_are_those_of_the_array_there(body: Callable[..., None]) -> None:
    same_as_evaluated(body, (5, 4, 4), X, ROWS, **IN_BLOCKS)


def test_indices_into_a_bounded_slice_end_with_it() -> None:
    def body(starts: Any, sizes: Any, x: Any, out: Any) -> None:
        out[...] = x.reshape(16)[jnp.arange(16)[::-1]]

    spec = pltpu.PrefetchScalarGridSpec(
        2,
        (4,),
        [pl.BlockSpec((pl.BoundedSlice(4), 4), lambda i, starts, sizes: (pl.ds(starts[i], sizes[i]), 0))],
        pl.BlockSpec((None, 16), lambda i, *_: (i, 0)),
    )
    same_as_evaluated(body, (4, 16), np.int32([0, 7, 16, 3]), np.int32([3, 4, 4, 0]), X, grid_spec=spec)


def test_a_number_of_an_array_past_its_end_is_uninitialised() -> None:
    def body(x: Any, places: Any, out: Any) -> None:
        doubled = x[:, 0] * 2
        for n in range(5):
            out[n] = doubled[places[n]]

    same_as_evaluated(body, (5,), X, np.int32([0, 5, 18, -2, 100_000]))


def test_a_number_by_an_index_of_an_array_of_them() -> None:
    def body(x: Any, rows: Any, out: Any) -> None:
        doubled = x[:, 0] * 2
        chosen = doubled[rows[0]]
        out[0], out[1] = chosen[2], chosen[0]

    same_as_evaluated(body, (2,), X, ROWS)


def test_a_number_under_a_mask() -> None:
    def body(x: Any, rows: Any, out: Any) -> None:
        for n in range(5):
            out[n] = pltpu.load(x.at[rows[n, 0], 1], mask=rows[n, 1] < 2)

    same_as_evaluated(body, (5,), X, ROWS)


def test_parts_of_an_array_with_a_cut_axis_are_replaced() -> None:
    def body(x: Any, out: Any) -> None:
        def inner(tile: Any) -> None:
            tile[...] = jnp.zeros((16,), F32)
            tile.reshape(4, 4)[1:3, 0:2] = x[:2, :2]
            out[...] = tile[...]

        pl.run_scoped(inner, pltpu.VMEM((16,), F32))

    same_as_evaluated(body, (16,), X)


def test_a_slice_of_a_slice_keeps_within_both() -> None:
    """An array that a loop carries: elements past the end of a part are not those after it in the array."""

    def body(starts: Any, x: Any, out: Any) -> None:
        def inner(tile: Any) -> None:
            tile[...] = x[:, 0]
            part = tile.at[2:6]
            out[0:3] = part[pl.ds(starts[0], 3)]
            part[pl.ds(starts[0], 3)] = jnp.ones((3,), F32)
            out[3:] = tile[0:9]

        pl.run_scoped(inner, pltpu.VMEM((18,), F32))

    same_as_evaluated(body, (12,), np.int32([2]), X)
