"""`hopper.matmul` of narrow numbers with factors, against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig
from tests.library.references import assert_close

pytestmark = pytest.mark.usefixtures("compiled_quickly")
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
M, N, K = 12, 136, 200
SMALL = MatmulConfig(8, 32, 128, 2, blocks=3)
F32 = np.float32


def narrow(*shape: int, dtype: Any = E4M3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def factors(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(F32)


def wide(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def scaled(x: np.ndarray, y: np.ndarray, x_scale: np.ndarray, y_scale: np.ndarray) -> np.ndarray:
    """The product of operands that have been multiplied by their factors, whatever these are of."""
    x, y = wide(x), wide(y)
    if x_scale.ndim == 2:
        x_scale = np.repeat(x_scale, 128, axis=0)[: x.shape[1]].T
        y_scale = np.repeat(np.repeat(y_scale, 128, axis=0)[: y.shape[0]], 128, axis=1)[:, : y.shape[1]]
    else:
        x_scale, y_scale = x_scale.reshape(-1, 1), y_scale.reshape(-1, 1)
    return (x * x_scale) @ (y * y_scale).T


SCALES = {
    "tensors": (factors(), factors(seed=1)),
    "rows": (factors(M), factors(N, seed=1)),
    "a tensor and rows": (factors(), factors(N, seed=1)),
    "rows and a tensor": (factors(M), factors(seed=1)),
    "blocks": (factors(2, M), factors(2, 2, seed=1)),
}


@pytest.mark.parametrize("case", SCALES)
def test_factors_of_every_kind(case: str) -> None:
    x, y = narrow(M, K, dtype=E5M2), narrow(N, K, seed=1)
    x_scale, y_scale = SCALES[case]
    out = hopper.matmul(
        x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale, preferred_element_type=F32, config=SMALL
    )
    assert_close(out, scaled(x, y, x_scale, y_scale))


@pytest.mark.parametrize("cluster", ["m", "n"])
def test_factors_of_blocks_in_clusters(cluster: str) -> None:
    x, y = narrow(M, K), narrow(N, K, seed=1)
    x_scale, y_scale = SCALES["blocks"]
    config = MatmulConfig(8, 32, 128, 2, blocks=4, cluster=cluster)
    out = hopper.matmul(
        x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale, preferred_element_type=F32, config=config
    )
    assert_close(out, scaled(x, y, x_scale, y_scale))


def test_numbers_are_factors_too_and_results_of_floats_of_8_bits_are_bfloat16() -> None:
    x, y = narrow(M, K), narrow(N, K, seed=1)
    out = hopper.matmul(x, y, transpose_rhs=True, x_scale=0.5, y_scale=2, config=SMALL)
    assert out.dtype == ml_dtypes.bfloat16
    assert_close(out, wide(x) @ wide(y).T)


def test_integers_are_summed_exactly() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (N, K)))
    out = hopper.matmul(x, y, transpose_rhs=True, config=SMALL)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, x.astype(np.int64) @ y.astype(np.int64).T)


def test_integers_with_factors_of_rows() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (N, K)))
    x_scale, y_scale = SCALES["rows"]
    out = hopper.matmul(x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale, config=SMALL)
    assert_close(out, scaled(x, y, x_scale, y_scale))


def test_gmm_of_floats_of_8_bits() -> None:
    lhs, rhs = narrow(30, 40), narrow(2, 24, 40, dtype=E5M2, seed=1)
    config = MatmulConfig(8, 16, 16, 2, blocks=3, promote=True)
    out = hopper.gmm(lhs, rhs, [13, 17], F32, config, transpose_rhs=True)
    assert_close(out[:13], wide(lhs[:13]) @ wide(rhs[0]).T)
    assert_close(out[13:], wide(lhs[13:]) @ wide(rhs[1]).T)


@pytest.mark.one_executor
def test_no_schedule_of_a_product_with_factors_of_blocks_has_a_finding() -> None:
    x, y = narrow(6, 300), narrow(8, 300, seed=1)
    x_scale, y_scale = factors(3, 6), factors(1, 3, seed=1)
    config = MatmulConfig(4, 8, 128, 2, blocks=2, cluster="m")

    def run(x: Any, y: Any) -> None:
        out = hopper.matmul(
            x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale, preferred_element_type=F32, config=config
        )
        assert_close(out, scaled(x, y, x_scale, y_scale))

    report = pl.check(run, x, y, schedules=8)
    assert report.ok, report.render()


X, Y = narrow(4, 128), narrow(8, 128)
REFUSED = {
    "narrow matrices that lie the other way": (
        lambda: hopper.matmul(X, Y.T.copy()),
        "y: the tensor cores take operands of 8 bits with k as their last axis only\n"
        "  expected: [n, 128] and transpose_rhs=True\n  got:      transpose_rhs=False",
    ),
    "narrow matrices of groups": (
        lambda: hopper.gmm(X, np.ones((1, 128, 8), E4M3), [4]),
        "rhs: the tensor cores take operands of 8 bits with k as their last axis only\n"
        "  expected: [g, n, 128] and transpose_rhs=True\n  got:      transpose_rhs=False",
    ),
    "a shape of no factors": (
        lambda: hopper.matmul(X, Y, transpose_rhs=True, x_scale=factors(3)),
        "x_scale: a factor for the array, for each row, or for each block\n"
        "  expected: () or (4,) or (1, 4)\n  got:      (3,)",
    ),
    "factors of another dtype": (
        lambda: hopper.matmul(X, Y, transpose_rhs=True, y_scale=np.ones(8)),
        "y_scale: factors are float32\n  expected: float32\n  got:      float64",
    ),
    "blocks of one operand": (
        lambda: hopper.matmul(X, Y, transpose_rhs=True, x_scale=factors(1, 4), y_scale=factors(8)),
        "x_scale, y_scale: blocks of both operands have factors, or of none\n"
        "  got:      block factors of x, row factors of y",
    ),
    "tiles across blocks": (
        lambda: hopper.matmul(
            X, Y, transpose_rhs=True, x_scale=factors(1, 4), y_scale=factors(1, 1), config=MatmulConfig(8, 96, 64, 2)
        ),
        "config: the tiles of a product with factors of blocks lie inside of these\n"
        "  expected: tile_k=128 and a tile_n that divides 128\n  got:      tile_k=64, tile_n=96",
    ),
    "integers that no tensor core multiplies": (
        lambda: hopper.matmul(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32)),
        "x: the tensor cores do not multiply this dtype\n"
        "  expected: float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8\n  got:      int32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper." in str(caught.value)


GROUPS = np.int32([5, 0, 4])
GROUPED = {
    "tensors": (factors(), factors(seed=1)),
    "matrices": (None, factors(3, seed=1)),
    "rows": (factors(M), factors(3, N, seed=1)),
    "blocks": (factors(2, M), factors(3, 2, 2, seed=1)),
}


@pytest.mark.parametrize("case", GROUPED)
def test_factors_of_grouped_products(case: str) -> None:
    lhs, rhs, existing = narrow(M, K), narrow(3, N, K, seed=1), factors(M, N)
    lhs_scale, rhs_scale = GROUPED[case]
    out = hopper.gmm(
        lhs,
        rhs,
        GROUPS,
        transpose_rhs=True,
        lhs_scale=lhs_scale,
        rhs_scale=rhs_scale,
        existing_out=existing,
        config=SMALL,
    )
    wanted, start = wide(existing), 0
    for group, size in enumerate(GROUPS):
        rows = slice(start, start + size)
        left = factors() * 0 + 1 if lhs_scale is None else lhs_scale[..., rows] if lhs_scale.ndim else lhs_scale
        right = rhs_scale[group] if rhs_scale.ndim else rhs_scale
        wanted[rows], start = scaled(lhs[rows], rhs[group], left, right), start + size
    assert_close(out, wanted)


def test_factors_that_do_not_go_with_grouped_products() -> None:
    lhs, rhs = narrow(M, K), narrow(3, N, K)
    with pytest.raises(pl.PalladioValueError, match="lhs_scale, rhs_scale: blocks of both operands have factors"):
        hopper.gmm(lhs, rhs, GROUPS, transpose_rhs=True, lhs_scale=factors(2, M), rhs_scale=factors(3))
    with pytest.raises(pl.PalladioValueError, match="rhs_scale: a factor for the array, for each row"):
        hopper.gmm(lhs, rhs, GROUPS, transpose_rhs=True, rhs_scale=factors(4))
