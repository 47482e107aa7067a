"""Arithmetic of integers that leaves their dtype: it wraps around, and the text says so to the C++ compiler."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.hopper.twin.run import SCHEDULES
from tests.hopper.kernels import kernel, lowered, on_twin

LEAST, MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
X = np.array([LEAST, LEAST + 1, -1, 0, 1, 7, MOST - 1, MOST], np.int32)
Y = np.array([-1, 3, LEAST, 0, MOST, -1, MOST, MOST], np.int32)

OPERATIONS = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "negative": lambda x, y: -x,
    "magnitude": lambda x, y: abs(x),
    "power": lambda x, y: x**3,
}


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=str)
def test_results_wrap_around(dtype: Any) -> None:
    shift = 8 * np.dtype(dtype).itemsize - 32
    x, y = X.astype(dtype) << shift, Y.astype(dtype) << shift

    def body(x: Any, y: Any, out: Any) -> None:
        for row, operation in enumerate(OPERATIONS.values()):
            out[row] = operation(x[...], y[...])

    call = kernel(body, (len(OPERATIONS), *x.shape), np.dtype(dtype))
    computed = re.findall(r" v\w*\[r\] = .*", lowered(call, x, y).text)
    assert len(computed) == len(OPERATIONS)
    assert all(f"(u{8 * np.dtype(dtype).itemsize})" in line for line in computed)
    with np.errstate(over="ignore"):
        expected = [operation(x, y) for operation in OPERATIONS.values()]
    (out,) = on_twin(call, x, y, schedules=SCHEDULES[:1])
    np.testing.assert_array_equal(out, expected)


def same_as_evaluated(body: Any, shape: tuple[int, ...], dtype: Any, *inputs: np.ndarray) -> None:
    def call(executor: str) -> Any:
        return pl.pallas_call(body, pl.ShapeDtypeStruct(shape, np.dtype(dtype)), interpret=executor)(*inputs)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16], ids=str)
def test_positions_wrap_around_before_they_are_used(dtype: Any) -> None:
    """Functions of positions alone are not kept in registers, which would cut them to their width."""
    names = "sum", "difference", "product", "negative", "power"

    def body(out: Any) -> None:
        for row, name in enumerate(names):
            x = jnp.arange(200).astype(dtype)
            found = OPERATIONS[name](x, np.asarray(190, np.int32).astype(dtype))
            out[row] = found.astype(np.float32)

    same_as_evaluated(body, (len(names), 200), np.float32)


def test_positions_are_stored_in_vectors() -> None:
    def body(out: Any) -> None:
        out[...] = lax.broadcasted_iota(np.uint64, (64, 8), 1)

    same_as_evaluated(body, (64, 8), np.uint64)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64], ids=str)
def test_a_power_is_that_of_integers(dtype: Any) -> None:
    signed = np.dtype(dtype).kind == "i"
    x = np.tile(np.array([0, 1, -1 if signed else 255, 2, 3, -7 if signed else 7, 100, 12], dtype), 8)
    y = np.repeat(np.array([0, 1, -1 if signed else 2, 3, -2 if signed else 5, 8, 31, 64], dtype), 8)

    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = lax.pow(x[...], y[...])

    same_as_evaluated(body, (64,), dtype, x, y)


def test_products_of_16_bits_are_computed_without_a_sign() -> None:
    """C++ promotes them to `int`, where 65535 * 65535 would overflow."""

    def body(x: Any, out: Any) -> None:
        out[0] = x[...] * x[...]
        out[1] = x[...] ** 3

    x = np.linspace(0, 65535, 64).astype(np.uint16)
    same_as_evaluated(body, (2, 64), np.uint16, x)
    text = lowered(kernel(body, (2, 64), np.dtype(np.uint16)), x).text
    assert "(u32)x[r] * x[r]" in text or "(u32)loaded[r] * loaded[r]" in text


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64], ids=str)
def test_bits_are_counted_in_every_width(dtype: Any) -> None:
    x = np.array([0, 1, 5, 100, -1, -128], np.int64).astype(dtype)

    def body(x: Any, out: Any) -> None:
        out[0] = lax.population_count(x[...])
        out[1] = lax.clz(x[...])

    (out,) = on_twin(kernel(body, (2, len(x)), np.dtype(dtype)), x, schedules=SCHEDULES[:1])
    width = 8 * x.itemsize
    bits = [int(each) % (1 << width) for each in x]
    np.testing.assert_array_equal(out, [[n.bit_count() for n in bits], [width - n.bit_length() for n in bits]])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=str)
def test_the_next_of_a_narrow_float_is_one_bit_further(dtype: Any) -> None:
    x = np.array([0, 0, 1, 1, -1, -1, 2, np.nan, 1], np.float32).astype(dtype)
    y = np.array([1, -1, 2, 0, 0, -2, 2, 1, np.nan], np.float32).astype(dtype)

    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = lax.nextafter(x[...], y[...])

    call = kernel(body, x.shape, np.dtype(dtype))
    (out,) = on_twin(call, x, y, schedules=SCHEDULES[:1])
    np.testing.assert_array_equal(out.astype(np.float32), np.nextafter(x, y).astype(np.float32))


def test_a_sum_of_many_wraps_around() -> None:
    def body(x: Any, out: Any) -> None:
        out[0] = x[...].sum()

    call = kernel(body, (1,), np.dtype(np.int32))
    for out in on_twin(call, X):
        assert out[0] == X.sum(dtype=np.int32)


def test_indices_that_stay_in_range_are_plain_numbers() -> None:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("block")

        @pl.loop(0, 4)
        def _(step: Any) -> None:
            out[block * 4 + step] = x[block * 4 + step]

    text = lowered(kernel(body, (8,), np.dtype(np.int32), grid=(2,), grid_names=("block",)), X).text
    assert "(int)(" not in text
