"""Functions of float32 vectors are within a few units in the last place of float64, over all of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest

import palladio as pl
from palladio import lax

FUNCTIONS = {
    "exp": (lax.exp, np.exp, 2),
    "exp2": (lax.exp2, np.exp2, 2),
    "log": (lax.log, np.log, 2),
    "log1p": (lax.log1p, np.log1p, 4),
    "expm1": (lax.expm1, np.expm1, 4),
    "tanh": (lax.tanh, np.tanh, 2),
    "erf": (lax.erf, lambda x: np.array([math.erf(v) for v in x]), 3),
    "logistic": (lax.logistic, lambda x: np.exp(-np.logaddexp(0, -x)), 4),
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.7,
    88.8,
    -87.4,
    -104,
]


def inputs() -> np.ndarray:
    """Special values, every exponent of both signs, and values near where the functions change."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20_000, np.uint64).astype(np.uint32).view(np.float32)
    near = rng.uniform(-5, 5, 20_000).astype(np.float32)
    wide = rng.uniform(-110, 110, 8_000).astype(np.float32)
    every = np.concatenate([np.array(SPECIAL, np.float32), bits, near, wide])
    return every[: len(every) // 16 * 16]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_right_over_its_whole_range(name):
    function, reference, limit = FUNCTIONS[name]
    x = inputs()

    def kernel(x_ref, out_ref):
        out_ref[...] = function(x_ref[...])

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, np.float32), interpret="cpu")(x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(2**-126))).astype(np.float64)
        error = np.abs(found.astype(np.float64) - exact) / unit
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    infinite = np.isinf(rounded)
    # The largest finite number and infinity are neighbours.
    near_largest = np.abs(exact) > 3.4028e38
    np.testing.assert_array_equal(found[infinite & ~near_largest], rounded[infinite & ~near_largest])
    checked = np.isfinite(rounded) & np.isfinite(found)
    worst = int(np.argmax(np.where(checked, error, 0)))
    assert error[worst] <= limit, f"{name}({x[worst]!r}) = {found[worst]!r}, not {exact[worst]!r}: {error[worst]} ulp"
    assert np.isfinite(found[np.isfinite(rounded) & ~near_largest]).all()
    signed_zero = (x == 0) & (rounded == 0)
    np.testing.assert_array_equal(np.signbit(found[signed_zero]), np.signbit(rounded[signed_zero]))
