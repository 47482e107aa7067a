"""Integers: division, powers, bits and wrapping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes

SIGNED = [dtype for dtype in dtypes.ALL if dtypes.is_signed(dtype)]
UNSIGNED = [dtype for dtype in dtypes.ALL if dtypes.is_unsigned(dtype)]
INTEGERS = [*SIGNED, *UNSIGNED]
each_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=str)
each_signed = pytest.mark.parametrize("dtype", SIGNED, ids=str)


def array(values: Any, dtype: Any) -> Any:
    return np.array(values, np.int64).astype(dtype)


@each_signed
def test_div_rounds_towards_zero_and_rem_has_the_sign_of_the_dividend(dtype: Any) -> None:
    x, y = array([7, -7, 7, -7], dtype), array([2, 2, -2, -2], dtype)
    assert lax.div(x, y).tolist() == [3, -3, -3, 3]
    assert lax.rem(x, y).tolist() == [1, -1, 1, -1]


@each_signed
def test_floor_divide_rounds_down_and_remainder_has_the_sign_of_the_divisor(dtype: Any) -> None:
    x, y = array([7, -7, 7, -7], dtype), array([2, 2, -2, -2], dtype)
    assert jnp.floor_divide(x, y).tolist() == [3, -4, -4, 3]
    assert jnp.remainder(x, y).tolist() == [1, 1, -1, -1]
    assert jnp.fmod(x, y).tolist() == [1, -1, 1, -1]
    assert [part.tolist() for part in jnp.divmod(x, y)] == [[3, -4, -4, 3], [1, 1, -1, -1]]


@each_integer
def test_division_by_zero_sets_all_bits_and_leaves_the_dividend(dtype: Any) -> None:
    x, zero = array([5, 0, 1], dtype), np.zeros(3, dtype)
    ones = int(np.iinfo(dtype).max) if dtypes.is_unsigned(dtype) else -1
    assert lax.div(x, zero).tolist() == [ones] * 3
    assert lax.rem(x, zero).tolist() == [5, 0, 1]
    assert jnp.remainder(x, zero).tolist() == [0, 0, 0]


@each_signed
def test_the_least_integer_by_minus_one_is_itself(dtype: Any) -> None:
    least, one = np.array([np.iinfo(dtype).min], dtype), np.array([-1], dtype)
    assert lax.div(least, one) == least
    assert lax.rem(least, one) == 0
    assert lax.neg(least) == least
    assert lax.abs(least) == least


@each_integer
def test_arithmetic_wraps_around(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    greatest, one = np.array([limits.max], dtype), np.ones(1, dtype)
    assert jnp.add(greatest, one).tolist() == [limits.min]
    assert jnp.multiply(greatest, 2 * one) == jnp.subtract(jnp.negative(one), one)
    assert jnp.square(greatest) == 1


@each_integer
def test_powers_wrap_around(dtype: Any) -> None:
    x, width = array([2, 3, 5, 0], dtype), 2 ** (8 * dtype.itemsize)
    for y in (0, 1, 7, 100):
        expected = np.array([int(each) ** y % width for each in x], np.uint64).astype(dtype).tolist()
        assert lax.integer_pow(x, y).tolist() == expected
        assert jnp.power(x, y).tolist() == expected
        assert jnp.power(x, array([y] * 4, dtype)).tolist() == expected


def test_negative_powers_in_an_array() -> None:
    x, y = np.array([2, -1, -1, 1, 0], np.int32), np.array([-1, -3, -2, -5, -1], np.int32)
    assert jnp.power(x, y).tolist() == [0, -1, 1, 1, 0]


@each_integer
def test_shifts_below_the_width(dtype: Any) -> None:
    x, count = array([1, 3, 5], dtype), array([0, 1, 4], dtype)
    assert lax.shift_left(x, count).tolist() == [1, 6, 80]
    assert lax.shift_right_logical(array([64, 64, 64], dtype), count).tolist() == [64, 32, 4]
    assert lax.shift_right_arithmetic(array([64, 64, 64], dtype), count).tolist() == [64, 32, 4]


@each_integer
def test_shifts_by_the_width_or_more_shift_everything_out(dtype: Any) -> None:
    width = 8 * dtype.itemsize
    count = array([width, width + 1, -1], dtype)  # -1 is a great unsigned count
    for x in (array([-1] * 3, dtype), array([1] * 3, dtype)):
        assert lax.shift_left(x, count).tolist() == [0] * 3
        assert lax.shift_right_logical(x, count).tolist() == [0] * 3
    assert lax.shift_right_arithmetic(array([1] * 3, dtype), count).tolist() == [0] * 3
    everything = array([-1] * 3, dtype)
    assert lax.shift_right_arithmetic(everything, count).tolist() == everything.tolist()


def test_right_shifts_of_negative_integers() -> None:
    x, one = np.array([-8, -1], np.int8), np.ones(2, np.int8)
    assert lax.shift_right_arithmetic(x, one).tolist() == [-4, -1]
    assert lax.shift_right_logical(x, one).tolist() == [124, 127]
    assert jnp.right_shift(x, 1).tolist() == [-4, -1]
    assert jnp.right_shift(x.view(np.uint8), 1).tolist() == [124, 127]
    assert jnp.left_shift(np.array([True]), np.array([True])).tolist() == [2]


@each_integer
def test_counting_bits(dtype: Any) -> None:
    width = 8 * dtype.itemsize
    x = array([0, 1, 6, -1], dtype)
    assert lax.population_count(x).tolist() == [0, 1, 2, width if width < 2 ** (width - 1) else 0]
    assert lax.clz(x).tolist() == [width, width - 1, width - 3, 0]
    assert lax.clz(x).dtype == dtype


def test_bits_of_integers_and_bools() -> None:
    x, y = np.array([12, -1], np.int32), np.array([10, 5], np.int32)
    assert jnp.bitwise_and(x, y).tolist() == [8, 5]
    assert jnp.bitwise_or(x, y).tolist() == [14, -1]
    assert jnp.bitwise_xor(x, y).tolist() == [6, -6]
    assert jnp.invert(x).tolist() == [-13, 0]
    assert jnp.invert(np.array([True, False])).tolist() == [False, True]
    assert jnp.bitwise_count(np.array([-3, 7], np.int8)).tolist() == [2, 3]


def test_sums_and_products_of_bools_are_logic() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, False])
    assert jnp.add(x, y).tolist() == [True, True, False]
    assert jnp.multiply(x, y).tolist() == [True, False, False]
    assert jnp.maximum(x, y).tolist() == [True, True, False]
