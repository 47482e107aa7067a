"""Cumulative functions and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
CUMULATIVE: dict[str, Any] = {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "cumlogsumexp": np.logaddexp,
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", CUMULATIVE)
def test_a_cumulative_function_goes_along_its_axis(name: str, axis: int, reverse: bool) -> None:
    x = np.flip(X, axis) if reverse else X
    expected = CUMULATIVE[name].accumulate(x.astype(np.float64), axis)
    found = getattr(lax, name)(X, axis, reverse)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.flip(expected, axis) if reverse else expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [dtypes.FLOAT16, dtypes.BFLOAT16], ids=str)
def test_small_floats_are_accumulated_in_float32(dtype: Any) -> None:
    assert float(jnp.cumsum(np.ones(4096, dtype), 0)[-1]) == 4096


def test_integers_keep_their_dtype_and_bools_are_counted() -> None:
    assert jnp.cumsum(np.full(2, 100, np.int8), 0).tolist() == [100, -56]
    assert jnp.cumsum(np.array([True, False, True]), 0).tolist() == [1, 1, 2]
    assert jnp.cumsum(np.full(2, 100, np.int8), 0, np.int32).tolist() == [100, 200]
    assert jnp.cumprod(np.array([True, False]), 0).dtype == np.int32


def test_without_axis_all_elements_are_accumulated() -> None:
    np.testing.assert_allclose(jnp.cumsum(X), np.cumsum(X), rtol=1e-5)


def test_nan_and_infinities_accumulate() -> None:
    x = np.array([1, np.nan, 3], np.float32)
    np.testing.assert_array_equal(lax.cummax(x), [1, np.nan, np.nan])
    np.testing.assert_array_equal(lax.cumlogsumexp(np.full(2, -np.inf, np.float32)), [-np.inf, -np.inf])


@pytest.mark.parametrize("name", CUMULATIVE)
def test_nothing_accumulates_to_nothing(name: str) -> None:
    assert getattr(lax, name)(np.ones((0, 3), np.float32)).shape == (0, 3)
    assert getattr(lax, name)(np.ones((3, 0), np.float32), reverse=True).shape == (3, 0)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_sort_is_ascending_in_every_dtype(dtype: Any) -> None:
    x = np.array([3, 0, 2, 1, 1]).astype(dtype)
    found = jnp.sort(x)
    assert found.dtype == dtype
    assert found.astype(np.float64).tolist() == sorted(x.astype(np.float64).tolist())


@pytest.mark.parametrize("axis", [0, 1, -1, None], ids=repr)
def test_sort_and_argsort_go_along_their_axis(axis: Any) -> None:
    np.testing.assert_array_equal(jnp.sort(X, axis), np.sort(X, axis))
    np.testing.assert_array_equal(jnp.argsort(X, axis), np.argsort(X, axis))
    np.testing.assert_array_equal(jnp.sort(X, axis, descending=True), -np.sort(-X, axis))
    np.testing.assert_array_equal(jnp.argsort(X, axis, descending=True), np.argsort(-X, axis))


@pytest.mark.parametrize("dtype", [dtypes.FLOAT32, dtypes.BFLOAT16, dtypes.FLOAT16], ids=str)
def test_nan_comes_last_and_descending_first(dtype: Any) -> None:
    x = np.array([1, np.nan, 3, -np.inf]).astype(dtype)
    assert str(jnp.sort(x).astype(np.float64).tolist()) == "[-inf, 1.0, 3.0, nan]"
    assert str(jnp.sort(x, descending=True).astype(np.float64).tolist()) == "[nan, 3.0, 1.0, -inf]"
    assert jnp.argsort(x, descending=True).tolist() == [1, 2, 0, 3]


def test_equal_elements_keep_their_order() -> None:
    x = np.array([2, 1, 2, 1], np.int32)
    assert jnp.argsort(x).tolist() == [1, 3, 0, 2]
    assert jnp.argsort(x, descending=True).tolist() == [0, 2, 1, 3]
    zeros = np.array([0.0, -0.0, 0.0], np.float32)
    assert np.signbit(jnp.sort(zeros)).tolist() == [False, True, False]


def test_several_arrays_follow_their_keys() -> None:
    first, second = np.array([1, 0, 1, 0], np.int32), np.array([5, 9, 4, 8], np.float32)
    payload = np.arange(4, dtype=np.int8)
    one = lax.sort((first, second, payload), num_keys=1)
    assert [each.tolist() for each in one] == [[0, 0, 1, 1], [9, 8, 5, 4], [1, 3, 0, 2]]
    two = lax.sort((first, second, payload), num_keys=2)
    assert [each.tolist() for each in two] == [[0, 0, 1, 1], [8, 9, 4, 5], [3, 1, 2, 0]]
    assert isinstance(lax.sort([first]), tuple)
    assert lax.sort(X, 0).tolist() == np.sort(X, 0).tolist()


def test_values_follow_their_keys() -> None:
    keys, values = np.array([3, 1, 2], np.int32), np.array([0.3, 0.1, 0.2], np.float32)
    assert [each.tolist() for each in lax.sort_key_val(keys, values)] == [[1, 2, 3], sorted(values.tolist())]


@pytest.mark.parametrize("axis", [0, -1])
def test_top_k_finds_the_greatest_first(axis: int) -> None:
    values, positions = lax.top_k(X, 2, axis=axis)
    order = np.argsort(-X, axis)
    np.testing.assert_array_equal(positions, np.take(order, [0, 1], axis))
    np.testing.assert_array_equal(values, np.take_along_axis(X, positions, axis))
    assert lax.top_k(np.array([1, 5, 5, 0], np.int32), 3)[1].tolist() == [1, 2, 0]


def test_lexsort_looks_at_the_last_key_first() -> None:
    keys = (np.array([5, 9, 4, 8], np.float32), np.array([1, 0, 1, 0], np.int32))
    assert jnp.lexsort(keys).tolist() == np.lexsort(keys).tolist()
