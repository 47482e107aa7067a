"""Blocks of a grid that are not boxes: slices that end early, rows anywhere; as the evaluator has them, on the twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.base.errors import PalladioNotImplementedError

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


def accumulated(x: Any, out: Any) -> None:
    out[...] += x[...]


def read_after_stores(x: Any, out: Any) -> None:
    out[...] = x[...] + 1

    def add(_: Any, carry: int) -> int:
        out[...] = out[...] * 2 + x[...]
        return carry

    lax.fori_loop(0, 2, add, 0)


def exchanged_rows(x: Any, out: Any) -> None:
    out[0] = x[1] + 1
    out[1] = x[0] + 1


@pytest.mark.parametrize("body", [accumulated, read_after_stores, exchanged_rows])
@pytest.mark.parametrize("read", ["own", "one", "next"])
def test_an_aliased_input_keeps_its_values_while_blocks_store(body: Callable[..., None], read: str) -> None:
    maps = {"own": lambda i, k: (i, 0), "one": lambda i, k: (0, 0), "next": lambda i, k: (jnp.minimum(i + 1, 5), 0)}

    def call(executor: str) -> Any:
        return pl.pallas_call(
            body,
            pl.ShapeDtypeStruct(X.shape, F32),
            grid=(6, 2),
            in_specs=[pl.BlockSpec((2, 8), maps[read])],
            out_specs=pl.BlockSpec((2, 8), maps["own"]),
            input_output_aliases={0: 0},
            interpret=executor,
        )(X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


@pytest.mark.parametrize("is_read", [True, False])
def test_an_alias_counts_prefetched_scalars(is_read: bool) -> None:
    def body(rows: Any, y: Any, x: Any, out: Any) -> None:
        out[...] = (x if is_read else out)[...] * 10 + y[...]

    def call(executor: str) -> Any:
        row, own = pl.BlockSpec((1, 8), lambda i, rows: (rows[i], 0)), pl.BlockSpec((1, 8), lambda i, _: (i, 0))
        spec = pltpu.PrefetchScalarGridSpec(1, (4,), [own, row], row)
        kernel = pl.pallas_call(
            body, pl.ShapeDtypeStruct(X.shape, F32), grid_spec=spec, input_output_aliases={2: 0}, interpret=executor
        )
        return kernel(np.int32([9, 2, 11, 0]), X[:4] + 1, X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


def test_a_prefetched_scalar_names_blocks_while_its_alias_is_stored_to() -> None:
    def body(rows: Any, x: Any, changed: Any, out: Any) -> None:
        out[...] = x[...]
        changed[pl.program_id(0)] = 0

    def call(executor: str) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(
            1,
            (4,),
            [pl.BlockSpec((1, 8), lambda i, rows: (rows[3 - i], 0))],
            [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((1, 8), lambda i, _: (i, 0))],
        )
        kinds = [pl.ShapeDtypeStruct((4,), np.int32), pl.ShapeDtypeStruct((4, 8), F32)]
        kernel = pl.pallas_call(body, kinds, grid_spec=spec, input_output_aliases={0: 0}, interpret=executor)
        return kernel(np.int32([9, 2, 11, 0]), X)

    for found, expected in zip(call("hopper-twin"), call("reference"), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("order", "is_refused"), [([3, 3, 0, 1], False), ([2, 2, 0, 2], True)])
def test_a_call_that_comes_back_to_a_block_of_an_aliased_input_is_refused(order: list[int], is_refused: bool) -> None:
    def body(order: Any, x: Any, out: Any) -> None:
        out[...] = x[...] * 10

    def call(executor: str) -> Any:
        row = pl.BlockSpec((1, 8), lambda i, order: (order[i], 0))
        spec = pltpu.PrefetchScalarGridSpec(1, (4,), [row], row)
        kind = pl.ShapeDtypeStruct((4, 8), F32)
        kernel = pl.pallas_call(body, kind, grid_spec=spec, input_output_aliases={1: 0}, interpret=executor)
        return kernel(np.int32(order), X[:4])

    if not is_refused:
        np.testing.assert_array_equal(call("hopper-twin"), call("reference"))
        return
    with pytest.raises(PalladioNotImplementedError, match="blocks of x that are fetched after stores") as caught:
        call("hopper-twin")
    assert caught.value.hint == "prefetched scalars name each block in steps that follow each other"
    np.testing.assert_array_equal(call("reference")[0], X[0] * 10)
