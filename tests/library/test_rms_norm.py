"""`rms_norm`: whole rows, scaled by the root of their mean square."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.library import rms_norm
from tests.library.references import BFLOAT16, FLOATS, assert_close, normal


def reference(x: Any, weight: Any, epsilon: float = 1e-6) -> np.ndarray:
    x = np.asarray(x).astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * np.asarray(weight).astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (7, 9), (2, 3, 4, 5)], ids=str)
def test_any_shape_and_float_dtype(dtype: Any, shape: tuple[int, ...]) -> None:
    x, weight = normal(0, *shape, dtype=dtype), normal(1, shape[-1], dtype=dtype)
    out = rms_norm(x, weight)
    assert out.dtype == dtype
    assert_close(out, reference(x, weight))


def test_blocks_need_not_divide_the_rows_and_weights_may_have_another_dtype() -> None:
    x, weight = normal(0, 11, 6), normal(1, 6, dtype=BFLOAT16)
    out = np.empty_like(x)
    assert rms_norm(x, weight, epsilon=0.5, block_rows=4, out=out) is out
    assert_close(out, reference(x, weight, 0.5))


def test_rows_of_zeros_and_no_rows() -> None:
    np.testing.assert_array_equal(rms_norm(np.zeros((2, 3), np.float32), np.ones(3, np.float32)), np.zeros((2, 3)))
    assert rms_norm(np.zeros((0, 3), np.float16), np.ones(3, np.float16)).shape == (0, 3)


def test_inside_jit() -> None:
    x, weight = normal(0, 5, 6), normal(1, 6)
    assert_close(pl.jit(lambda x, w: rms_norm(2 * x, w))(x, weight), reference(2 * x, weight))
