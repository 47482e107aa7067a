"""Indexing of values: with NumPy inside an array, with JAX where an index reaches outside."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio.numpy as jnp
from palladio.array.functions.indexing import At, getitem
from palladio.base.errors import PalladioError
from palladio.ir.evaluate import evaluate
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType

OUTSIDE = np.array([7, -1, -9, 2], np.int32)
DTYPES = [np.float32, np.int8, np.uint8, np.bool_]


def vector(dtype: Any) -> Any:
    return np.arange(1, 6).astype(dtype)


def same(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@st.composite
def keys(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    """A shape, and a key that NumPy takes: integers, slices either way, None, an ellipsis, integer arrays."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    common = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    key: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(("slice", "slice", "int", "scalar", "array")))
        position = st.integers(-extent, extent - 1)
        if kind == "slice":
            bounds = st.one_of(st.none(), st.integers(-extent - 2, extent + 2))
            step = draw(st.sampled_from((None, 1, 2, -1, -2)))
            key.append(slice(draw(bounds), draw(bounds), step))
        elif kind == "int":
            key.append(draw(position))
        elif kind == "scalar":
            key.append(np.asarray(draw(position), np.int32))
        else:
            own = tuple(draw(st.sampled_from((1, n))) for n in common)
            size = math.prod(own)
            found = draw(st.lists(position, min_size=size, max_size=size))
            key.append(np.asarray(found, draw(st.sampled_from((np.int8, np.int32, np.int64)))).reshape(own))
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.booleans()):
        key.append(...)
    return shape, tuple(key)


@given(keys())
def test_inside_an_array_an_index_means_what_it_means_to_numpy(case: tuple[tuple[int, ...], Any]) -> None:
    shape, key = case
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    same(getitem(x, key), x[key])


@given(keys())
def test_replacing_elements_means_what_it_means_to_numpy(case: tuple[tuple[int, ...], Any]) -> None:
    shape, key = case
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    values = -1 - np.arange(x[key].size, dtype=np.float32).reshape(x[key].shape)
    expected = x.copy()
    expected[key] = values
    same(At(x)[key].set(values), expected)
    expected = x.copy()
    np.add.at(expected, key, values)
    same(At(x)[key].add(values), expected)


def test_a_value_broadcasts_to_what_it_replaces() -> None:
    x = np.zeros((3, 4), np.float32)
    same(
        At(x)[:, np.array([2, 0], np.int32)].set(np.array([[1], [2], [3]], np.int32)),
        np.array([[1, 0, 1, 0], [2, 0, 2, 0], [3, 0, 3, 0]], np.float32),
    )
    added = At(x)[None, 1, ::-2].add(np.array([5, 6], np.float32))
    same(added, np.array([[0, 0, 0, 0], [0, 6, 0, 5], [0, 0, 0, 0]], np.float32))


@pytest.mark.parametrize("mode", [None, "promise_in_bounds", "clip", "fill", "drop"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reading_outside_is_clamped_or_filled_as_jax_does(dtype: Any, mode: str | None) -> None:
    x = vector(dtype)
    same(At(x)[OUTSIDE].get(mode=mode), jax.numpy.asarray(x).at[OUTSIDE].get(mode=mode))
    same(At(x)[OUTSIDE].get(mode="fill", fill_value=1), jax.numpy.asarray(x).at[OUTSIDE].get(mode="fill", fill_value=1))
    same(getitem(x, OUTSIDE), jax.numpy.asarray(x)[OUTSIDE])


def test_a_scalar_that_is_not_static_is_clamped() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in (7, -2, -9):
        same(
            getitem(x, (slice(None), np.array([index], np.int8)))[:, 0], jax.numpy.asarray(x)[:, jax.numpy.int32(index)]
        )


@pytest.mark.parametrize("mode", [None, "promise_in_bounds", "clip", "drop", "fill"])
@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "mul", "divide", "power", "max", "min"])
def test_updates_outside_are_dropped_or_clamped_as_jax_does(method: str, mode: str | None) -> None:
    x = vector(np.float32)
    values = np.array([3, 2, 5, 7], np.float32)
    expected = getattr(jax.numpy.asarray(x).at[OUTSIDE], method)(values, mode=mode)
    found = getattr(At(x)[OUTSIDE], method)(values, mode=mode)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_function_is_applied_to_the_elements() -> None:
    x = vector(np.float32)
    same(At(x)[1:3].apply(lambda part: part * 10), np.array([1, 20, 30, 4, 5], np.float32))


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_take_agrees_with_jax(dtype: Any, mode: str | None) -> None:
    x = vector(dtype)
    same(jnp.take(x, OUTSIDE, mode=mode), jax.numpy.take(x, OUTSIDE, mode=mode))
    wide = np.arange(24).reshape(2, 3, 4).astype(dtype)
    index = np.array([[0, 5], [-1, -4]], np.int8)
    for axis in (0, 1, -1):
        same(jnp.take(wide, index, axis, mode=mode), jax.numpy.take(wide, index, axis, mode=mode))
        same(jnp.take(wide, index, axis, fill_value=1), jax.numpy.take(wide, index, axis, fill_value=1))


@pytest.mark.parametrize("mode", [None, "fill", "clip"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_take_along_axis_agrees_with_jax(dtype: Any, mode: str | None) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for axis, index in ((0, [[[1, 5, -1, -9]]]), (1, [[[0], [7]], [[-1], [2]]]), (2, [[[3, 9, -4, -5]] * 3] * 2)):
        index = np.asarray(index, np.int8)
        same(jnp.take_along_axis(x, index, axis, mode), jax.numpy.take_along_axis(x, index, axis, mode))
    flat = np.array([3, 30, -1], np.int32)
    same(jnp.take_along_axis(x, flat, None), jax.numpy.take_along_axis(jax.numpy.asarray(x), flat, None))


def test_taking_one_position_drops_the_axis() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(jnp.take(x, 1, 1), x[:, 1])
    same(jnp.take(x, np.array(-1, np.int32), axis=0), x[-1])
    same(jnp.take(x, [4, 0]), np.array([4, 0], np.float32))


ROWS, COLUMNS = np.array([2, -1, 0], np.int32), np.array([[0], [3]], np.int8)
KEYS = {
    "static": (1, slice(None, None, -2)),
    "new axes": (None, slice(1, None), None, 2),
    "rows": (ROWS,),
    "columns": (slice(0, 2), ROWS),
    "both": (ROWS, COLUMNS),
    "both, apart": (ROWS, None, COLUMNS),
    "one and all": (ROWS, ..., None),
    "backwards and rows": (slice(None, None, -1), ROWS),
}


@pytest.mark.parametrize("name", KEYS)
def test_staged_an_index_means_the_same(name: str) -> None:
    key = KEYS[name]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = [part for part in key if isinstance(part, np.ndarray)]

    def traced(x: Any, *arrays: Any) -> tuple[Any, Any]:
        parts = iter(arrays)
        own = tuple(next(parts) if isinstance(part, np.ndarray) else part for part in key)
        return x[own], x.at[own].add(1)

    expected = x.copy()
    np.add.at(expected, key, 1)
    values = [x, *arrays]
    staged = stage(traced, [ArrayType(value.shape, value.dtype) for value in values], wrap, name="case")
    read, added = evaluate(staged.program, [*values, *staged.captured])
    same(read, x[key])
    same(added, expected)


ERRORS = {
    "a static index outside": (
        lambda x: getitem(x, (0, 4)),
        "the index is outside axis 1\n  expected: -4 <= index < 4\n  got:      4",
    ),
    "too many indices": (
        lambda x: getitem(x, (0, 0, 0)),
        "too many indices for the array\n  expected: at most 2\n  got:      3",
    ),
    "two ellipses": (lambda x: getitem(x, (..., ...)), "an index has at most one ellipsis\n  got:      2"),
    "a mask": (
        lambda x: getitem(x, x > 0),
        "a bool array cannot index a value: the size would not be static\n"
        "  got:      bool[3,4]\n  hint:     use where(mask, x, other)",
    ),
    "a float": (
        lambda x: getitem(x, np.float32(1)),
        "an index is an integer or an integer array\n  got:      f32[]",
    ),
    "a step of zero": (lambda x: getitem(x, slice(None, None, 0)), "the step of a slice of axis 0 is not zero"),
    "bounds that are not static": (
        lambda x: getitem(x, slice(x[0], None)),
        "a slice of axis 0 has bounds that are not static\n  hint:     use ds(start, size) or lax.dynamic_slice",
    ),
    "an unknown mode": (
        lambda x: At(x)[0].set(1, mode="wrap"),
        "mode: no such mode\n  expected: promise_in_bounds, clip, drop, fill\n  got:      'wrap'",
    ),
    "an unknown mode of take": (
        lambda x: jnp.take(x, 0, mode="raise"),
        "mode: no such mode\n  expected: fill, clip, wrap, promise_in_bounds\n  got:      'raise'",
    ),
    "an axis out of range": (
        lambda x: jnp.take(x, 0, axis=2),
        "axis: the array has no such axis, its rank is 2\n  expected: -2 <= axis < 2\n  got:      2",
    ),
    "indices of another rank": (
        lambda x: jnp.take_along_axis(x, np.array([0], np.int32), 0),
        "indices: the indices have another rank than the array\n  expected: 2\n  got:      1",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_is_wrong(name: str) -> None:
    act, text = ERRORS[name]
    with pytest.raises(PalladioError) as caught:
        act(np.arange(12, dtype=np.float32).reshape(3, 4))
    caught.value.location = caught.value.__traceback__ = None
    assert str(caught.value) == text
