"""Reductions in vectors, on sizes that are whole numbers of them and others, along every axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp

SHAPES = [(3, 64), (5, 150), (67, 1), (2, 3, 83), (4, 70, 9)]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum,
    "max": jnp.max,
    "min": jnp.min,
    "argmax": jnp.argmax,
    "argmin": jnp.argmin,
}


def on_both(function: Callable[..., Any], x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of the CPU and of the evaluator."""
    shape, dtype = (*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = function(x_ref[...], axis=axis).astype(dtype)

    out = pl.ShapeDtypeStruct(shape, dtype)
    compiled, meant = (pl.pallas_call(kernel, out, interpret=name)(x) for name in ("cpu", "reference"))
    return compiled, meant


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whole_numbers_are_reduced_exactly(shape: tuple[int, ...], name: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    for axis in range(len(shape)):
        np.testing.assert_array_equal(*on_both(FUNCTIONS[name], x, axis))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(17, 256), (70, 260), (2, 9, 512)], ids=str)
def test_rows_are_combined_in_their_order(shape: tuple[int, ...], dtype: Any) -> None:
    x = (100 * np.random.default_rng(2).standard_normal(shape)).astype(dtype)
    expected = np.zeros((*shape[:-2], shape[-1]), np.float32 if dtype == ml_dtypes.bfloat16 else dtype)
    for row in range(shape[-2]):
        expected = expected + x[..., row, :].astype(expected.dtype)
    np.testing.assert_array_equal(on_both(jnp.sum, x, len(shape) - 2)[0], expected.astype(dtype))


@pytest.mark.parametrize("name", ["max", "argmax", "argmin"])
def test_what_is_no_number_shows_in_its_own_result_only(name: str) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (40, 150)).astype(np.float32)
    x[3, 70] = x[30, 70] = x[7, 149] = np.nan
    for axis in (0, 1):
        np.testing.assert_array_equal(*on_both(FUNCTIONS[name], x, axis))


@pytest.mark.parametrize(("name", "value"), [("argmax", -np.inf), ("argmin", np.inf), ("argmax", -0.0)])
def test_of_equals_the_first_is_the_place(name: str, value: float) -> None:
    x = np.full((3, 150), value, np.float32)
    x[:, 5:] += 0.0  # makes 0 of -0, which is not greater
    for axis in (0, 1):
        compiled, meant = on_both(FUNCTIONS[name], x, axis)
        np.testing.assert_array_equal(compiled, meant)
        assert not compiled.any()
