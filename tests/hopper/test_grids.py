"""Blocks of a grid that are not boxes: slices that end early, rows anywhere; as the evaluator has them, on the twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu

F32 = np.dtype(np.float32)
X = np.arange(96, dtype=F32).reshape(12, 8)
STARTS, SIZES = np.int32([7, 0, -1, 10]), np.int32([3, 0, 4, -2])
ROWS = np.int32([[3, 11, 0], [5, 5, 12], [-1, 2, 4], [1, 0, 6]])


def same_on_twin(body: Callable[..., None], specs: Any, *operands: np.ndarray, out: Any, shape: Any = None) -> None:
    """The kernel gives the same on the twin as on the evaluator; `specs` are those of the inputs, X among them."""

    def call(executor: str) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(len(operands) - 1, (4,), specs, out)
        kind = pl.ShapeDtypeStruct(X.shape if shape is None else shape, F32)
        return pl.pallas_call(body, kind, grid_spec=spec, interpret=executor)(*operands)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


def bounded(i: Any, starts: Any, sizes: Any) -> Any:
    return pl.ds(starts[i], sizes[i]), 0


BOUNDED = pl.BlockSpec((pl.BoundedSlice(4), 8), bounded)
WHOLE = pl.BlockSpec((None, 4, 8), lambda i, *_: (i, 0, 0))


def test_a_bounded_slice_is_uninitialised_past_its_end() -> None:
    def body(starts: Any, sizes: Any, x: Any, out: Any) -> None:
        out[...] = x[...]

    same_on_twin(body, [BOUNDED], STARTS, SIZES, X, out=WHOLE, shape=(4, 4, 8))


def test_part_of_a_bounded_slice_ends_with_it() -> None:
    def body(starts: Any, sizes: Any, x: Any, out: Any) -> None:
        out[0] = x[2]
        out[1:3, 0:4] = x.at[1:4].at[1:3][:, 2:6]
        out[3] = x[pl.ds(pl.program_id(0), 1)][0]

    same_on_twin(body, [BOUNDED], STARTS, SIZES, X, out=WHOLE, shape=(4, 4, 8))


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_of_an_indirect_block_are_looked_up(axis: int) -> None:
    def indices(i: Any, rows: Any) -> Any:
        return (rows[i, :], 0) if axis == 0 else (0, rows[i, :])

    def body(rows: Any, x: Any, out: Any) -> None:
        out[...] = 2 * x[...]

    block = (pl.Indirect(3), 8) if axis == 0 else (12, pl.Indirect(3))
    shape = (3, 8) if axis == 0 else (12, 3)
    out = pl.BlockSpec((None, *shape), lambda i, *_: (i, 0, 0))
    same_on_twin(body, [pl.BlockSpec(block, indices)], ROWS, X, out=out, shape=(4, *shape))
