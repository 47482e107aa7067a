"""Loops whose conditions read references, and scopes as decorators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax


def test_the_condition_of_a_while_loop_sees_what_the_body_wrote() -> None:
    def kernel(count_ref: Any, left_ref: Any) -> None:
        left_ref[0] = 5

        def body(count: Any) -> Any:
            left_ref[0] -= 2
            return count + 1

        count_ref[0] = lax.while_loop(lambda _: left_ref[0] > 0, body, 0)

    call = pl.pallas_call(kernel, [pl.ShapeDtypeStruct((1,), np.int32)] * 2)
    count, left = call()
    assert (count[0], left[0]) == (3, -1)


def test_each_call_of_a_scoped_function_passes_its_arguments_and_fresh_references() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.with_scoped(pltpu.VMEM((4,), jnp.float32), flag_ref=pltpu.SMEM((1,), jnp.int32))
        def doubled(row: Any, scratch_ref: Any, flag_ref: Any) -> Any:
            """Twice the row."""
            was_written = scratch_ref[0] == scratch_ref[0]  # uninitialised memory reads as NaN
            flag_ref[0] = 2
            scratch_ref[...] = row * flag_ref[0]
            return jnp.where(was_written, 0.0, scratch_ref[...])

        assert doubled.__doc__ == "Twice the row."
        o_ref[0] = doubled(x_ref[0])
        o_ref[1] = doubled(x_ref[1])

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 4), np.float32))(x), x * 2)


X8 = np.array([100, 3], np.int8)


def test_a_weak_carry_that_becomes_a_float_is_not_cut_to_an_integer() -> None:
    assert pl.jit(lambda: lax.fori_loop(0, 3, lambda i, c: c * 1.5, 1))() == 3.375
    assert pl.jit(lambda: lax.while_loop(lambda c: c < 4, lambda c: c * 1.5, 1))() == 5.0625
    total, each = pl.jit(lambda: lax.scan(lambda c, _: (c * 1.5, c), 1, None, length=2))()
    assert (total, *each) == (2.25, 1, 1.5)


def test_a_strong_integer_carry_takes_no_weak_float() -> None:
    with pytest.raises(pl.PalladioTypeError, match="must return the types of its carry"):
        pl.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5, x))(np.int32(7))


def test_weak_carries_of_two_dtypes_may_change_places() -> None:
    a, b = pl.jit(lambda: lax.fori_loop(0, 3, lambda i, c: (c[1], c[0] + 1), (0, 1.0)))()
    assert (a.dtype, b.dtype) == (np.float32, np.float32)
    assert (a, b) == (2, 2)


@pytest.mark.parametrize(
    "loop",
    [
        lambda: lax.fori_loop(0, 3, lambda i, c: c + i, 0),
        lambda: lax.fori_loop(0, 2, lambda i, c: lax.fori_loop(0, 2, lambda j, d: d + i, c), 0),
        lambda: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, 0),
        lambda: lax.scan(lambda c, _: (c + 1, None), 0, None, length=3)[0],
    ],
    ids=["fori_loop", "nested", "while_loop", "scan"],
)
def test_what_was_weak_all_the_way_comes_out_weak(loop: Any) -> None:
    assert pl.jit(lambda x: loop() + x)(X8).dtype == np.int8


def test_an_index_that_starts_from_a_python_integer_is_weak() -> None:
    def total(lower: Any) -> Any:
        return pl.jit(lambda x: lax.fori_loop(lower, 3, lambda i, c: c + i * x[1], x[1] - x[1]))(X8)

    assert total(0).dtype == np.int8
    with pytest.raises(pl.PalladioTypeError, match="must return the types of its carry"):
        total(np.int32(0))


def test_a_reference_takes_the_shapes_that_an_array_takes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        line = x_ref.reshape(np.int64(6))
        o_ref[...] = line.reshape([3, -1]).transpose([np.int64(1), 0])[...]

    x = np.arange(6, dtype=np.float32)
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 3), np.float32))(x.reshape(2, 3))
    np.testing.assert_array_equal(found, x.reshape(3, 2).T)


@pytest.mark.parametrize("shape", [(6.0,), (2.0, 3), ("ab",), (None, 2)])
def test_a_reference_refuses_a_shape_that_is_not_static_integers(shape: Any) -> None:
    def kernel(x_ref: Any) -> None:
        x_ref.reshape(*shape)

    with pytest.raises(pl.PalladioTypeError, match="a shape is static integers"):
        pl.pallas_call(kernel, ())(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("executor", [None, "reference", "simulator"])
def test_references_go_through_loops_and_branches_with_values(executor: Any) -> None:
    def kernel(codes: Any, table: Any, out: Any) -> None:
        def step(i: Any, carry: Any) -> Any:
            total, codes, (table, out) = carry
            added = lax.switch(codes[i], [lambda t, i: t[i, 0] * 2, lambda t, i: t[i, 1]], table, i)
            out[i] = added
            return total + added, codes, (table, out)

        total, same, _ = lax.fori_loop(0, 3, step, (jnp.float32(0), codes, (table, out)))

        def halve(carry: Any) -> Any:
            left, out = carry
            out[3] += left.astype(jnp.float32)
            return left // 2, out

        lax.while_loop(lambda carry: carry[0] > 0, halve, (same[0] + 4, out))
        out[4] = total

    codes, table = np.array([1, 0, 1], np.int32), np.arange(6, dtype=np.float32).reshape(3, 2)

    def filled(codes: Any, table: Any, out: Any) -> None:
        out[...] = jnp.zeros(5)
        kernel(codes, table, out)

    got = pl.pallas_call(filled, pl.ShapeDtypeStruct((5,), np.float32), interpret=executor)(codes, table)
    np.testing.assert_array_equal(got, [1, 4, 5, 5 + 2 + 1, 10])
