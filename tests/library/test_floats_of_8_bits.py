"""The library on floats of 8 bits: sums are in float32, and only the result is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.library import attention, gmm, matmul, moe_mlp, rms_norm, softmax, tgmm

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
SIZES = np.int32([5, 0, 9, 3])
IDS = np.arange(34).reshape(17, 2) % 5  # expert 4 is elsewhere

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gmm": (lambda x, w: gmm(x, w, SIZES), ((17, 8), (4, 8, 6))),
    "tgmm": (lambda x, y: tgmm(x, y, SIZES), ((8, 17), (17, 6))),
    "matmul": (matmul, ((17, 8), (8, 6))),
    "softmax": (softmax, ((5, 8),)),
    "rms_norm": (rms_norm, ((5, 8), (8,))),
    "attention": (attention, ((2, 9, 8), (2, 9, 8), (2, 9, 3))),
    "moe_mlp": (lambda x, up, down: moe_mlp(x, IDS, np.ones((17, 2)), up, down), ((17, 8), (4, 8, 12), (4, 6, 8))),
}


def drawn(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_that_of_float32_rounded_once(name: str, dtype: Any) -> None:
    function, shapes = FUNCTIONS[name]
    given = [drawn(shape, dtype) for shape in shapes]
    found, exact = function(*given), function(*(each.astype(np.float32) for each in given))
    assert found.dtype == dtype
    # What is stored between two products is rounded too.
    step = float(ml_dtypes.finfo(dtype).eps) * (1 if name not in ("attention", "moe_mlp") else 3)
    np.testing.assert_allclose(found.astype(np.float32), exact, rtol=step, atol=step * np.abs(exact).max())


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_a_product_in_float32_is_not_rounded(dtype: Any) -> None:
    x, w, y = drawn((17, 8), dtype), drawn((4, 8, 6), dtype), drawn((8, 6), dtype)
    wide = [each.astype(np.float32) for each in (x, w, y)]
    np.testing.assert_allclose(gmm(x, w, SIZES, np.float32), gmm(wide[0], wide[1], SIZES), rtol=1e-6, atol=1e-6)
    found = matmul(x, y, preferred_element_type=np.float32)
    np.testing.assert_allclose(found, wide[0] @ wide[2], rtol=1e-5, atol=1e-5)


def test_operands_without_a_common_dtype_are_refused_at_the_users_line() -> None:
    with pytest.raises(pl.PalladioTypeError, match="the dtypes do not promote to a common one") as caught:
        matmul(drawn((17, 8), E4M3), drawn((8, 6), np.float32))
    assert f"{__file__}:" in str(caught.value)
