"""What the element-by-element functions compute, against NumPy and SciPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes

EVERYWHERE = np.concatenate([np.linspace(-4, 4, 41), [0.0, -0.0, 1e-4, -1e-4, np.inf, -np.inf, np.nan]])
WITHIN_ONE = np.concatenate([np.linspace(-1, 1, 21), [1e-4, np.nan]])
FLOATS = (dtypes.FLOAT64, dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)

UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    "jnp.exp": (np.exp, EVERYWHERE),
    "jnp.exp2": (np.exp2, EVERYWHERE),
    "jnp.expm1": (np.expm1, EVERYWHERE),
    "jnp.log": (np.log, EVERYWHERE),
    "jnp.log2": (np.log2, EVERYWHERE),
    "jnp.log10": (np.log10, EVERYWHERE),
    "jnp.log1p": (np.log1p, EVERYWHERE),
    "jnp.sqrt": (np.sqrt, EVERYWHERE),
    "jnp.cbrt": (np.cbrt, EVERYWHERE),
    "jnp.sin": (np.sin, EVERYWHERE),
    "jnp.cos": (np.cos, EVERYWHERE),
    "jnp.tan": (np.tan, EVERYWHERE),
    "jnp.arcsin": (np.arcsin, WITHIN_ONE),
    "jnp.arccos": (np.arccos, WITHIN_ONE),
    "jnp.arctan": (np.arctan, EVERYWHERE),
    "jnp.sinh": (np.sinh, EVERYWHERE),
    "jnp.cosh": (np.cosh, EVERYWHERE),
    "jnp.tanh": (np.tanh, EVERYWHERE),
    "jnp.arcsinh": (np.arcsinh, EVERYWHERE),
    "jnp.arccosh": (np.arccosh, EVERYWHERE),
    "jnp.arctanh": (np.arctanh, WITHIN_ONE),
    "jnp.floor": (np.floor, EVERYWHERE),
    "jnp.ceil": (np.ceil, EVERYWHERE),
    "jnp.trunc": (np.trunc, EVERYWHERE),
    "jnp.rint": (np.rint, EVERYWHERE),
    "jnp.degrees": (np.degrees, EVERYWHERE),
    "jnp.radians": (np.radians, EVERYWHERE),
    "jnp.square": (np.square, EVERYWHERE),
    "jnp.reciprocal": (np.reciprocal, EVERYWHERE),
    "jnp.sign": (np.sign, EVERYWHERE),
    "jnp.negative": (np.negative, EVERYWHERE),
    "jnp.abs": (np.abs, EVERYWHERE),
    "lax.rsqrt": (lambda x: 1 / np.sqrt(x), EVERYWHERE),
    "lax.erf": (scipy.special.erf, EVERYWHERE),
    "lax.erfc": (scipy.special.erfc, EVERYWHERE),
    "lax.erf_inv": (scipy.special.erfinv, WITHIN_ONE),
    "lax.logistic": (scipy.special.expit, EVERYWHERE),
}
BINARY: dict[str, Callable[..., Any]] = {
    "jnp.add": np.add,
    "jnp.subtract": np.subtract,
    "jnp.multiply": np.multiply,
    "jnp.true_divide": np.true_divide,
    "jnp.floor_divide": np.floor_divide,
    "jnp.remainder": np.remainder,
    "jnp.fmod": np.fmod,
    "jnp.power": np.power,
    "jnp.maximum": np.maximum,
    "jnp.minimum": np.minimum,
    "jnp.fmax": np.fmax,
    "jnp.fmin": np.fmin,
    "jnp.hypot": np.hypot,
    "jnp.arctan2": np.arctan2,
    "jnp.copysign": np.copysign,
    "jnp.logaddexp": np.logaddexp,
    "jnp.logaddexp2": np.logaddexp2,
}
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(".")
    return getattr({"jnp": jnp, "lax": lax}[module], attribute)


def assert_close(found: Any, expected: Any, dtype: Any, scale: float = 4) -> None:
    """Equal to some units in the last place; not-a-numbers and infinities at the same places."""
    assert found.dtype == dtype
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype).astype(np.float64)
    limits = dtypes.finfo(dtype)
    tolerance = scale * float(limits.eps)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=float(limits.tiny))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_float(name: str, dtype: Any) -> None:
    reference, points = UNARY[name]
    x = points.astype(dtype)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
    # Sine near pi and logarithm near 1 are as good as their argument is exact, so the argument is the rounded one.
    assert_close(function(name)(x), expected, dtype, scale=16 if name in ("jnp.arccosh", "jnp.tan") else 4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_floats(name: str, dtype: Any) -> None:
    points = np.array([-3.5, -2, -0.5, 0.0, 0.25, 1, 3, 7.5, np.inf, -np.inf, np.nan]).astype(dtype)
    x, y = np.broadcast_arrays(points[:, None], points)
    with np.errstate(all="ignore"):
        expected = BINARY[name](x.astype(np.float64), y.astype(np.float64))
    if name == "jnp.floor_divide":  # NumPy says NaN for inf // 0, where there is a quotient
        expected[np.isinf(x) & (y == 0)] = np.asarray(x.astype(np.float64))[np.isinf(x) & (y == 0)]
    assert_close(function(name)(x, y), np.asarray(expected), dtype)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison(name: str, dtype: Any) -> None:
    points = (
        np.array([0, 1, 2, 3]).astype(dtype)
        if not dtypes.is_float(dtype)
        else np.array([-1, 0, 2, np.nan]).astype(dtype)
    )
    x, y = np.broadcast_arrays(points[:, None], points)
    expected = getattr(np, name)(x.astype(np.float64), y.astype(np.float64))
    found = getattr(jnp, name)(x, y)
    assert found.dtype == dtypes.BOOL
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_small_floats_are_rounded_once(dtype: Any) -> None:
    x = np.linspace(-3, 3, 101).astype(dtype)
    exact = np.exp(x.astype(np.float64)).astype(dtype).astype(np.float64)
    if dtype.itemsize < 4:
        np.testing.assert_array_equal(jnp.exp(x).astype(np.float64), exact)
    else:
        assert_close(jnp.exp(x), exact, dtype)


def test_tests_of_floats() -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    assert jnp.isnan(x).tolist() == [False, False, False, True]
    assert jnp.isinf(x).tolist() == [False, True, True, False]
    assert jnp.isfinite(x).tolist() == [True, False, False, False]
    assert jnp.isposinf(x).tolist() == [False, True, False, False]
    assert jnp.isneginf(x).tolist() == [False, False, True, False]
    assert jnp.isnan(np.arange(2)).tolist() == [False, False]
    assert jnp.isfinite(np.arange(2)).tolist() == [True, True]


def test_nan_to_num_takes_the_extremes_of_the_dtype() -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], np.float16)
    assert jnp.nan_to_num(x).tolist() == [1, 65504, -65504, 0]
    assert jnp.nan_to_num(x, nan=7, posinf=8, neginf=9).tolist() == [1, 8, 9, 7]


def test_isclose() -> None:
    a, b = np.array([1, 1, np.inf, np.nan], np.float32), np.array([1.000001, 1.1, np.inf, np.nan], np.float32)
    assert jnp.isclose(a, b).tolist() == [True, False, True, False]
    assert jnp.isclose(a, b, equal_nan=True).tolist() == [True, False, True, True]


def test_rounding_a_half() -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997], np.float32)
    assert jnp.round(x).tolist() == [0, 2, 0, -2, 0]
    assert lax.round(x).tolist() == [1, 2, -1, -3, 0]
    assert lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).tolist() == [0, 2, 0, -2, 0]
    assert jnp.round(np.array([1.25, 2.345], np.float32), 1).tolist() == pytest.approx([1.2, 2.3])


def test_signs_of_zero_survive() -> None:
    x = np.array([-0.0, 0.0], np.float32)
    assert np.signbit(jnp.sign(x)).tolist() == [True, False]
    assert jnp.signbit(x).tolist() == [True, False]
    assert np.signbit(lax.round(np.float32(-0.3)))


@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2], ids=str)
def test_nextafter_is_the_next_of_the_same_dtype(dtype: Any) -> None:
    one = np.ones(1, dtype)
    above = jnp.nextafter(one, one + one)
    assert (above.astype(np.float64) - 1).tolist() == [float(dtypes.finfo(dtype).eps)]


@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2], ids=str)
def test_nextafter_of_equal_zeros_is_the_second(dtype: Any) -> None:
    zeros = jnp.asarray([0.0, -0.0], dtype)
    assert np.signbit(np.asarray(jnp.nextafter(zeros, zeros[::-1]), np.float32)).tolist() == [True, False]


def test_clip_with_one_bound_none_or_both() -> None:
    x = np.array([-2, 0, 5], np.int32)
    assert jnp.clip(x, 0, 3).tolist() == [0, 0, 3]
    assert jnp.clip(x, min=-1).tolist() == [-1, 0, 5]
    assert jnp.clip(x, a_max=1).tolist() == [-2, 0, 1]
    assert jnp.clip(x).tolist() == [-2, 0, 5]
    assert lax.clamp(0, x, 3).tolist() == [0, 0, 3]


def test_where_and_select() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert jnp.where(x > 2, x, -1).tolist() == [[-1, -1, -1], [3, 4, 5]]
    assert jnp.where(np.array([True, False, True]), x, 0.5).dtype == np.float32
    assert jnp.where(True, 1, x).shape == (2, 3)
    assert jnp.select([x < 2, x < 4], [x, 10 * x], 7).tolist() == [[0, 1, 20], [30, 7, 7]]
    assert lax.select(x > 2, x, -x).tolist() == [[0, -1, -2], [3, 4, 5]]
    assert lax.select_n(x > 2, x, -x).tolist() == [[0, 1, 2], [-3, -4, -5]]
    assert lax.select_n(np.array([0, 2, 1, 9, -1], np.int32), *(np.full(5, n, np.int8) for n in range(3))).tolist() == [
        0,
        2,
        1,
        2,
        0,
    ]


def test_logic_looks_at_truth() -> None:
    x, y = np.array([0, 0, 2, 3], np.int32), np.array([0.0, 0.5, 0.0, np.nan], np.float32)
    assert jnp.logical_and(x, y).tolist() == [False, False, False, True]
    assert jnp.logical_or(x, y).tolist() == [False, True, True, True]
    assert jnp.logical_xor(x, y).tolist() == [False, True, True, False]
    assert jnp.logical_not(x).tolist() == [True, True, False, False]
