"""Integer powers of floats: one order of multiplications, so that every executor gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import lax

X = np.random.default_rng(0).uniform(-3, 3, 1000).astype(np.float32)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 7, -1, -5])
def test_a_power_of_a_float_has_the_bits_of_its_products(exponent: int) -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = lax.integer_pow(x_ref[...], exponent)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(X.shape, X.dtype))
    products = {0: 1 + 0 * X, 1: X, 2: X * X, 3: X * (X * X), 4: (X * X) * (X * X)}
    products[7] = X * (X * X) * ((X * X) * (X * X))
    products[-1], products[-5] = 1 / X, 1 / (X * ((X * X) * (X * X)))
    expected = products[exponent].view(np.int32)
    np.testing.assert_array_equal(lax.integer_pow(X, exponent).view(np.int32), expected)
    for executor in ("reference", "cpu"):
        with pl.executor(executor):
            np.testing.assert_array_equal(call(X).view(np.int32), expected)
