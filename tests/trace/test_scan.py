"""`lax.scan` and `lax.map`: a loop with a carry that stacks what its body returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
import palladio.numpy as jnp
from palladio import lax

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def running_sum(carry: Any, x: Any) -> Any:
    return carry + x, carry * 2


@given(length=st.integers(0, 6), reverse=st.booleans(), staged=st.booleans(), unroll=st.sampled_from([1, 2, True]))
def test_scan_is_the_loop_that_it_describes(length: int, reverse: bool, staged: bool, unroll: Any) -> None:
    xs = np.arange(length * 2, dtype=np.int32).reshape(length, 2) + 1

    def function(xs: Any) -> Any:
        return lax.scan(running_sum, np.zeros(2, np.int32), xs, reverse=reverse, unroll=unroll)

    total, stacked = (pl.jit(function) if staged else function)(xs)
    carry, expected = np.zeros(2, np.int32), np.zeros_like(xs)
    for n in reversed(range(length)) if reverse else range(length):
        expected[n] = carry * 2
        carry = carry + xs[n]
    np.testing.assert_array_equal(total, carry)
    np.testing.assert_array_equal(stacked, expected)
    assert stacked.dtype == np.int32


def test_trees_go_in_and_come_out() -> None:
    def body(carry: Any, x: Any) -> Any:
        return {"sum": carry["sum"] + x["a"], "count": carry["count"] + 1}, (x["a"] * x["b"], [carry["count"]])

    start = {"sum": np.zeros(3, np.float32), "count": np.int32(0)}
    last, (products, [counts]) = lax.scan(body, start, {"a": X, "b": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(last["sum"], X.sum(0))
    np.testing.assert_array_equal(products, X * np.arange(4, dtype=np.float32)[:, None])
    np.testing.assert_array_equal(counts, [0, 1, 2, 3])
    assert last["count"] == 4


def test_without_xs_the_length_says_how_often() -> None:
    last, ys = lax.scan(lambda carry, x: (carry * 2, (carry, x)), np.float32(1), None, length=5)
    assert last == 32
    np.testing.assert_array_equal(ys[0], [1, 2, 4, 8, 16])
    assert ys[1] is None


def test_a_weak_carry_takes_the_dtype_that_comes_round() -> None:
    last, ys = lax.scan(lambda carry, x: (carry + x, carry), 0, np.ones(3, np.float16))
    assert (last.dtype, ys.dtype, float(last)) == (np.float16, np.float16, 3)


def test_a_body_reads_and_writes_references() -> None:
    def kernel(x_ref: Any, o_ref: Any, count_ref: Any) -> None:
        count_ref[0] = 0

        def body(carry: Any, x: Any) -> Any:
            count_ref[0] += 1
            return carry + x, carry + x_ref[0]

        o_ref[...] = lax.scan(body, jnp.zeros(3), x_ref[...])[1]

    shapes = [pl.ShapeDtypeStruct((4, 3), np.float32), pl.ShapeDtypeStruct((1,), np.int32)]
    found, count = pl.pallas_call(kernel, shapes)(X)
    np.testing.assert_array_equal(found, np.cumsum(X, 0) - X + X[0])
    assert count[0] == 4


def test_map_stacks_the_results() -> None:
    double, total = lax.map(lambda x: (x * 2, x.sum()), X)
    np.testing.assert_array_equal(double, X * 2)
    np.testing.assert_array_equal(total, X.sum(1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((running_sum, np.zeros(3), np.float32(1)), pl.PalladioTypeError, "first axis of its xs"),
        ((running_sum, 0.0, None), pl.PalladioValueError, "needs one length"),
        ((running_sum, 0.0, (X, X[:2])), pl.PalladioValueError, "needs one length"),
        ((running_sum, 0.0, X, 3), pl.PalladioValueError, "needs one length"),
        ((lambda carry, x: carry, 0.0, X), pl.PalladioTypeError, "returns a pair"),
        ((lambda carry, x: (x, carry), np.int32(0), X), pl.PalladioTypeError, "the types of its carry"),
        ((lambda carry, x: ((carry, carry), x), 0.0, X), pl.PalladioTypeError, "structure"),
    ],
)
def test_what_scan_refuses(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lax.scan(*arguments)


@given(length=st.integers(0, 9), reverse=st.booleans(), axis=st.integers(-2, 1))
def test_an_associative_scan_of_sums_is_a_running_sum(length: int, reverse: bool, axis: int) -> None:
    x = np.random.default_rng(length).integers(-9, 10, (length, 3) if axis % 2 == 0 else (3, length)).astype(np.int32)
    flip = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
    found = lax.associative_scan(jnp.add, x, reverse=reverse, axis=axis)
    np.testing.assert_array_equal(found, flip(np.cumsum(flip(x), axis, dtype=np.int32)))


def test_an_associative_scan_needs_one_size_and_one_structure() -> None:
    with pytest.raises(pl.PalladioValueError, match="one size along the axis"):
        lax.associative_scan(lambda a, b: a, (X, X[:2]))
    with pytest.raises(pl.PalladioTypeError, match="the structure that it takes"):
        lax.associative_scan(lambda a, b: (a, b), X)
