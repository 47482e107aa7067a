"""Reductions: values, axes, masks, what nothing reduces to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
MASK = np.random.default_rng(1).random((2, 3, 4)) < 0.7
AXES = [None, 0, -1, (0, 2), (-1, 1), (), [1]]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=repr)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "mean", "var", "std", "ptp", "any", "all", "count_nonzero"]
)
def test_a_reduction_is_that_of_numpy(name: str, axis: Any, keepdims: bool) -> None:
    numpy_axis = tuple(axis) if isinstance(axis, list) else axis
    x = X > 0.8 if name in ("any", "all", "count_nonzero") else X
    expected = getattr(np, name)(x, axis=numpy_axis, keepdims=keepdims)
    found = getattr(jnp, name)(x, axis=axis, keepdims=keepdims)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [None, 1, (0, 2)], ids=repr)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all"])
def test_where_leaves_elements_out(name: str, axis: Any) -> None:
    initial = {"max": {"initial": -9.0}, "min": {"initial": 9.0}}.get(name, {})
    x = X > 0 if name in ("any", "all") else X
    expected = getattr(np, name)(x, axis=axis, where=MASK, **initial)
    np.testing.assert_allclose(getattr(jnp, name)(x, axis=axis, where=MASK, **initial), expected, rtol=1e-5, atol=1e-6)


def test_where_broadcasts_with_the_array() -> None:
    mask = np.array([True, False, True])[:, None]
    np.testing.assert_allclose(jnp.mean(X, (1, 2), where=mask), X[:, ::2].mean((1, 2)), rtol=1e-6)


def test_initial_takes_part() -> None:
    x = np.array([1, 2, 3], np.int32)
    assert jnp.sum(x, initial=10) == 16
    assert jnp.prod(x, initial=-1) == -6
    assert jnp.max(x, initial=7) == 7
    assert jnp.min(x, initial=-7) == -7


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"])
def test_nan_reductions_leave_nan_out(name: str) -> None:
    x = np.where(MASK, X, np.float32(np.nan))
    np.testing.assert_allclose(getattr(jnp, name)(x, axis=1), getattr(np, name)(x, axis=1), rtol=1e-5)


def test_the_greatest_of_only_nan_is_nan() -> None:
    assert np.isnan(jnp.nanmax(np.full(3, np.nan, np.float32)))
    assert jnp.nanmax(np.array([-np.inf, np.nan], np.float32)) == -np.inf


@pytest.mark.parametrize("name", ["max", "min", "sum", "mean"])
def test_nan_spreads(name: str) -> None:
    assert np.isnan(getattr(jnp, name)(np.array([1, np.nan, 3], np.float32)))


@pytest.mark.parametrize("dtype", [dtypes.FLOAT16, dtypes.BFLOAT16], ids=str)
def test_small_floats_are_added_in_float32(dtype: Any) -> None:
    ones = np.ones(4096, dtype)  # added in the dtype, the sum would stop growing
    assert float(jnp.sum(ones)) == 4096
    assert float(jnp.mean(ones)) == 1
    assert jnp.sum(ones).dtype == dtype


def test_the_mean_of_great_small_floats_does_not_overflow() -> None:
    assert jnp.mean(np.full(4, 60000, np.float16)) == np.float16(60000)


def test_integers_are_added_in_32_bits_or_in_the_dtype_asked_for() -> None:
    x = np.full(4, 100, np.int8)
    assert jnp.sum(x) == 400
    assert jnp.sum(x, dtype=np.int8) == -112
    assert jnp.sum(x, dtype=np.float32).dtype == np.float32
    assert lax.reduce_sum(x, (0,)) == -112


def test_nothing_reduces_to_the_identity() -> None:
    nothing = np.ones((0, 2), np.float32)
    assert jnp.sum(nothing, 0).tolist() == [0, 0]
    assert jnp.prod(nothing, 0).tolist() == [1, 1]
    assert jnp.all(nothing, 0).tolist() == [True, True]
    assert jnp.any(nothing, 0).tolist() == [False, False]
    assert lax.reduce_max(nothing, (0,)).tolist() == [-np.inf, -np.inf]
    assert lax.reduce_min(nothing.astype(np.int8), (0,)).tolist() == [127, 127]
    assert jnp.max(nothing, 0, initial=3).tolist() == [3, 3]
    assert jnp.max(nothing, 1).shape == (0,)
    assert np.isnan(jnp.mean(nothing, 0)).all()


def test_reductions_of_bits() -> None:
    x = np.array([[12, 10], [6, 3]], np.int32)
    assert lax.reduce_and(x, (0,)).tolist() == [4, 2]
    assert lax.reduce_or(x, (1,)).tolist() == [14, 7]
    assert lax.reduce_xor(x, (0, 1)).tolist() == (12 ^ 10 ^ 6 ^ 3)
    assert lax.reduce_and(np.array([True, False]), (0,)).tolist() is False
    assert lax.reduce_and(np.ones((0, 1), np.uint8), (0,)).tolist() == [255]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1], ids=repr)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_position_of_the_extremes(name: str, axis: Any, keepdims: bool) -> None:
    found = getattr(jnp, name)(X, axis, keepdims=keepdims)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, getattr(np, name)(X, axis, keepdims=keepdims))


@pytest.mark.parametrize("dtype", [dtypes.FLOAT32, dtypes.BFLOAT16], ids=str)
def test_the_first_of_equals_and_the_first_nan_is_the_extreme(dtype: Any) -> None:
    assert jnp.argmax(np.array([1, 3, 3, 2]).astype(dtype), 0) == 1
    assert jnp.argmin(np.array([1, 0, 0, 2]).astype(dtype), 0) == 1
    assert jnp.argmax(np.array([1, np.nan, 3, np.nan]).astype(dtype), 0) == 1
    assert jnp.argmin(np.array([1, np.nan, -3]).astype(dtype), 0) == 1


def test_the_dtype_of_an_index() -> None:
    assert lax.argmax(X, 1, np.int8).dtype == np.int8
    assert lax.argmin(X, -1, np.int64).dtype == np.int64


def test_equality_of_whole_arrays() -> None:
    assert jnp.array_equal(X, X + 0)
    assert not jnp.array_equal(X, X[0])
    assert not jnp.array_equal(X, X + 1)
    assert jnp.array_equal(np.array([np.nan]), np.array([np.nan]), equal_nan=True)
    assert jnp.allclose(X, X * 1.000001)
    assert not jnp.allclose(X, X * 1.1)


def test_var_takes_degrees_of_freedom_away() -> None:
    np.testing.assert_allclose(jnp.var(X, 1, ddof=1), X.var(1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(jnp.std(X, 1, correction=1), X.std(1, ddof=1), rtol=1e-5)
    assert np.isnan(jnp.var(np.ones(1, np.float32), ddof=1))


def test_average() -> None:
    weights = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(jnp.average(X, 1, weights), np.average(X, 1, weights), rtol=1e-5)
    np.testing.assert_allclose(jnp.average(X, weights=MASK), np.average(X, weights=MASK), rtol=1e-5)
    np.testing.assert_allclose(jnp.average(X), X.mean(), rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 1, (0, 2)], ids=repr)
def test_logsumexp(axis: Any) -> None:
    for x in (X, 1000 * X, X - np.inf):
        np.testing.assert_allclose(jnp.logsumexp(x, axis), scipy.special.logsumexp(x, axis), rtol=1e-5)
    np.testing.assert_allclose(
        jnp.logsumexp(X, axis, b=MASK, keepdims=True),
        scipy.special.logsumexp(X, axis, b=MASK, keepdims=True),
        rtol=1e-5,
    )
