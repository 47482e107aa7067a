"""Arithmetic of integers that leaves their dtype: it wraps around, and the text says so to the C++ compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.hopper.twin.run import SCHEDULES
from tests.hopper.kernels import kernel, lowered, on_twin

LEAST, MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
X = np.array([LEAST, LEAST + 1, -1, 0, 1, 7, MOST - 1, MOST], np.int32)
Y = np.array([-1, 3, LEAST, 0, MOST, -1, MOST, MOST], np.int32)

OPERATIONS = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "negative": lambda x, y: -x,
    "magnitude": lambda x, y: abs(x),
    "power": lambda x, y: x**3,
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=str)
def test_results_wrap_around(name: str, dtype: Any) -> None:
    shift = 8 * np.dtype(dtype).itemsize - 32
    x, y = X.astype(dtype) << shift, Y.astype(dtype) << shift
    operation = OPERATIONS[name]

    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = operation(x[...], y[...])

    call = kernel(body, x.shape, np.dtype(dtype))
    assert f"(u{8 * np.dtype(dtype).itemsize})" in lowered(call, x, y).text
    with np.errstate(over="ignore"):
        expected = operation(x, y)
    (out,) = on_twin(call, x, y, schedules=SCHEDULES[:1])
    np.testing.assert_array_equal(out, expected)


def test_a_sum_of_many_wraps_around() -> None:
    def body(x: Any, out: Any) -> None:
        out[0] = x[...].sum()

    call = kernel(body, (1,), np.dtype(np.int32))
    for out in on_twin(call, X):
        assert out[0] == X.sum(dtype=np.int32)


def test_indices_that_stay_in_range_are_plain_numbers() -> None:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("block")

        @pl.loop(0, 4)
        def _(step: Any) -> None:
            out[block * 4 + step] = x[block * 4 + step]

    text = lowered(kernel(body, (8,), np.dtype(np.int32), grid=(2,), grid_names=("block",)), X).text
    assert "(int)(" not in text
