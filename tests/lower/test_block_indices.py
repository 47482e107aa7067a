"""Block indices that are sums of multiples of grid indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.driver.capture import prepared_programs
from palladio.ir.core import Eqn, walk
from palladio.lower.block_indices import Digits, determined_axes, digits
from palladio.lower.grids.schedule import schedule_of

X = np.random.default_rng(0).standard_normal((48, 8), np.float32)


def call_of(index: Callable[..., Any], grid: tuple[int, ...]) -> Eqn:
    """A kernel call that doubles a block, with this block index of the output; compiled, it gives what it is to."""

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    spec = pl.BlockSpec((4, 8), lambda *ids: (index(*ids), 0))
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(X.shape, X.dtype), grid=grid, in_specs=[spec], out_specs=spec)
    CALLS.clear()
    with prepared_programs() as found, pl.executor("reference"):
        expected = call(X)
    with pl.executor("cpu"):
        np.testing.assert_array_equal(call(X), expected)
    (eqn,) = [eqn for eqn in walk(found[0]) if eqn.op.name == "grid_call"]
    return eqn


def digits_of(eqn: Eqn) -> Digits | None:
    block = eqn.grid.outputs[0]
    return digits(eqn.grid, block.index_map, block.index_map.outputs[0])


@pytest.mark.parametrize(
    ("index", "grid", "expected"),
    [
        (lambda i, j: i * 4 + j, (3, 4), Digits({1: 1, 0: 4}, 12)),
        (lambda i, j: i + 3 * j, (3, 4), Digits({0: 1, 1: 3}, 12)),
        (lambda i, j: 2 * (i * 2 + j), (3, 2), Digits({1: 2, 0: 4}, 0)),
        (lambda i, j: i * 4 + j, (3, 3), Digits({1: 1, 0: 4}, 0)),
        (lambda i, j: i * 4 + j + 1, (2, 4), Digits({1: 1, 0: 4}, 0)),
    ],
)
def test_an_index_that_tells_the_steps_apart(index: Callable[..., Any], grid: tuple[int, ...], expected: Any) -> None:
    eqn = call_of(index, grid)
    assert digits_of(eqn) == expected
    assert determined_axes(eqn.grid, eqn.grid.outputs[0]) == {0, 1}
    schedule = schedule_of(eqn)
    assert schedule.tasks == (0, 1)
    assert schedule.starts[0].once
    assert (schedule.starts[0].kind == "stored") == (expected.count == 12)


@pytest.mark.parametrize(
    ("index", "grid"),
    [
        (lambda i, j: i + j, (3, 4)),
        (lambda i, j: 3 * i + j, (3, 4)),
        (lambda i, j: i * j, (3, 4)),
        (lambda i, j: i * 4 - j + 3, (3, 4)),
        (lambda i, j: (i * 4 + j) * 2**29 // 2**29, (3, 4)),
    ],
)
def test_an_index_that_may_be_that_of_several_steps(index: Callable[..., Any], grid: tuple[int, ...]) -> None:
    eqn = call_of(index, grid)
    assert digits_of(eqn) is None
    assert schedule_of(eqn).tasks == ()


def test_parts_of_the_rows_with_sums_of_their_own_are_tasks() -> None:
    def kernel(x: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def start() -> None:
            total[...] = np.zeros_like(total[...])

        out[...] = x[...] * 2
        total[...] += x[...].sum(0, keepdims=True)

    rows, sums = (
        pl.BlockSpec((4, 8), lambda part, i: (part * 6 + i, 0)),
        pl.BlockSpec((1, 8), lambda part, i: (part, 0)),
    )
    shapes = [pl.ShapeDtypeStruct(X.shape, X.dtype), pl.ShapeDtypeStruct((2, 8), X.dtype)]
    call = pl.pallas_call(kernel, shapes, grid=(2, 6), in_specs=[rows], out_specs=[rows, sums])
    CALLS.clear()
    with prepared_programs() as found, pl.executor("cpu"):
        doubled, total = call(X)
    (eqn,) = [eqn for eqn in walk(found[0]) if eqn.op.name == "grid_call"]
    assert schedule_of(eqn).tasks == (0,)
    np.testing.assert_array_equal(doubled, X * 2)
    np.testing.assert_allclose(total, X.reshape(2, 24, 8).sum(1), rtol=1e-5, atol=1e-5)
