"""Sorting on the CPU executor: lines of any length, several keys, equals in their order, NaN last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import lax


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1,), 0), ((2,), 0), ((17,), 0), ((5, 33), 1), ((33, 5), 0), ((3, 8, 2), 1), ((4, 1), 1)],
    ids=str,
)
def test_the_order_is_the_evaluators(shape: tuple[int, ...], axis: int, dtype: Any, keys: int) -> None:
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 4, shape).astype(dtype) for _ in range(3)]
    if dtype == np.float32:
        given[0].flat[::5], given[0].flat[1::7] = np.nan, -0.0

    def kernel(*refs: Any) -> None:
        operands = tuple(ref[...] for ref in refs[:3])
        for ref, value in zip(refs[3:], lax.sort(operands, dimension=axis, num_keys=keys), strict=True):
            ref[...] = value

    out = [pl.ShapeDtypeStruct(shape, dtype)] * 3
    for got, expected in zip(
        *(pl.pallas_call(kernel, out, interpret=each)(*given) for each in ("cpu", "reference")), strict=True
    ):
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))
