"""Functions that are made of the others: what NumPy's functions of the same name give, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
import palladio.numpy as jnp

X = np.array([[3.0, -1.0, 2.5, 0.0], [0.5, 4.0, -2.0, 1.0], [1.0, 1.0, 7.0, -3.0]], np.float32)
V = np.array([2, 7, 1, 7, 0], np.int32)

SAME: dict[str, Callable[[Any], Any]] = {
    "column_stack": lambda np: np.column_stack((V, V[::-1])),
    "copy": lambda np: np.copy(X),
    "cumulative_sum": lambda np: np.cumulative_sum(X, axis=1, include_initial=True),
    "diag of a vector": lambda np: np.diag(V, -1),
    "diag of a matrix": lambda np: np.diag(X, 1),
    "diagonal without elements": lambda np: np.diagonal(X, 9),
    "diff": lambda np: np.diff(X, 2),
    "diff of bools": lambda np: np.diff(V > 3),
    "diff of nothing left": lambda np: np.diff(V, 7),
    "dstack": lambda np: np.dstack((V, V)),
    "heaviside": lambda np: np.heaviside(X, np.float32(0.5)),
    "isin": lambda np: np.isin(V, V[:2]),
    "matrix_transpose": lambda np: np.matrix_transpose(X),
    "matvec": lambda np: np.matvec(X, X[0]),
    "median": lambda np: np.median(X, axis=1),
    "median of all, in place": lambda np: np.median(X, keepdims=True),
    "meshgrid": lambda np: np.meshgrid(V, X[0], V[:2]),
    "meshgrid of one": lambda np: np.meshgrid(V),
    "nancumprod": lambda np: np.nancumprod(np.where(X > 3, np.nan, X), axis=0),
    "polyval": lambda np: np.polyval(X[0], X[1]),
    "sinc": lambda np: np.sinc(X),
    "trace": lambda np: np.trace(X, 1),
    "unravel_index": lambda np: np.unravel_index(V, (2, 3, 4)),
    "unstack": lambda np: np.unstack(X, axis=1),
    "vecdot": lambda np: np.vecdot(X, X[:1]),
    "vecmat": lambda np: np.vecmat(X[:, 0], X),
    "vsplit": lambda np: np.vsplit(X, [1]),
}


@pytest.mark.parametrize("name", SAME)
def test_the_values_are_those_of_numpy(name: str) -> None:
    function = SAME[name]
    found, expected = function(jnp), function(np)
    if not isinstance(expected, (list, tuple)):
        found, expected = [found], [expected]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@given(st.lists(st.floats(width=32), max_size=8), st.lists(st.floats(width=32), max_size=5), st.booleans())
def test_searchsorted_finds_the_place_that_numpy_finds(a: list[float], v: list[float], right: bool) -> None:
    ordered, wanted, side = np.sort(np.array(a, np.float32)), np.array(v, np.float32), "right" if right else "left"
    np.testing.assert_array_equal(jnp.searchsorted(ordered, wanted, side=side), np.searchsorted(ordered, wanted, side))


@given(st.lists(st.floats(-100, 100, width=16), min_size=1, max_size=9), st.booleans())
def test_the_median_is_the_middle_and_nan_where_one_is(values: list[float], spoil: bool) -> None:
    x = np.array([*values, np.nan] if spoil else values, np.float32)
    found = jnp.median(x)
    assert np.isnan(found) if spoil else np.isclose(found, np.median(x), rtol=1e-6)


def test_positions_outside_are_moved_inside() -> None:
    rows, columns = jnp.unravel_index(np.array([-1, 6, -9], np.int32), (2, 3))
    np.testing.assert_array_equal(rows, [1, 1, 0])
    np.testing.assert_array_equal(columns, [2, 2, 0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: jnp.diag(X[None]), pl.PalladioValueError, "a vector or a matrix"),
        (lambda: jnp.diagonal(V), pl.PalladioValueError, "needs two axes"),
        (lambda: jnp.diff(V, -1), pl.PalladioValueError, "at least 0"),
        (lambda: jnp.cumulative_sum(X), pl.PalladioValueError, "needs an axis"),
        (lambda: jnp.median(V[:0]), pl.PalladioValueError, "have no median"),
        (lambda: jnp.meshgrid(V, indexing="yx"), pl.PalladioValueError, "'xy' or 'ij'"),
        (lambda: jnp.searchsorted(X, V), pl.PalladioValueError, "are a vector"),
        (lambda: jnp.searchsorted(V, V, side="middle"), pl.PalladioValueError, "'left' or 'right'"),
        (lambda: jnp.unravel_index(X, (3, 4)), pl.PalladioTypeError, "positions are integers"),
    ],
)
def test_what_they_refuse(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "values",
    [np.array([200, 200, 201, 255], np.uint8), np.full(3, 2**31 - 1, np.int32), np.array([True, False, True])],
    ids=["uint8", "int32", "bool"],
)
def test_a_median_is_right_where_two_of_the_integers_have_no_sum(values: Any) -> None:
    assert pl.jit(jnp.median)(values) == np.float32(np.median(values))
