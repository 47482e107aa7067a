"""`CompilerParams(approx_math=True)`: exponentials of one instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.hopper.kernels import BF16, F32, lowered

EXPONENTIALS = {"exp": (jnp.exp, np.exp), "exp2": (jnp.exp2, np.exp2)}
X = np.concatenate([np.linspace(-86, 86, 253, dtype=F32), np.array([-np.inf, np.inf, np.nan], F32)])


def each(function: Callable[[Any], Any], x: Any, approx_math: bool, interpret: Any = None) -> Any:
    """The function of each element."""

    def body(x: Any, out: Any) -> None:
        out[...] = function(x[...])

    params = plgpu.CompilerParams(approx_math=approx_math)
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return plgpu.kernel(body, out, grid=(1,), grid_names=("block",), compiler_params=params, interpret=interpret)(x)


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_approximate_exponentials_are_close(name: str) -> None:
    function, exact = EXPONENTIALS[name]
    got = np.asarray(each(function, X, True, "hopper-twin"))
    # The product with log2(e) rounds the exponent: relative to the result that is up to 2^-24 of |x|, beside 2 ulp.
    np.testing.assert_allclose(got, exact(X.astype(np.float64)), rtol=90 * 2**-24 + 2**-22)


def test_results_below_the_normal_numbers_are_zero() -> None:
    x = np.full(128, -127, F32)
    np.testing.assert_array_equal(each(jnp.exp2, x, True, "hopper-twin"), np.zeros(128, F32))
    np.testing.assert_array_equal(each(jnp.exp2, x, False, "hopper-twin"), np.full(128, 2.0**-127, F32))


@pytest.mark.parametrize("name", EXPONENTIALS)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_only_kernels_that_ask_are_approximate(name: str, dtype: Any) -> None:
    function, x = EXPONENTIALS[name][0], pl.ShapeDtypeStruct((256,), dtype)
    assert "pal::approximate_exp2(" in lowered(lambda x: each(function, x, True), x).text
    assert "approximate" not in lowered(lambda x: each(function, x, False), x).text


def test_float64_is_never_approximate() -> None:
    x = pl.ShapeDtypeStruct((256,), np.float64)
    assert "approximate" not in lowered(lambda x: each(jnp.exp, x, True), x).text
