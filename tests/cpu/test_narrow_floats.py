"""Floats of eight and sixteen bits, as they are read, written and rounded, and bits as numbers of another width."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio import lax

pytestmark = pytest.mark.filterwarnings("error")
KINDS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16, ml_dtypes.bfloat16]


def converted(x: Any, dtype: Any) -> Any:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...].astype(dtype)

    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, dtype), interpret="cpu")(x)


def every(dtype: Any) -> Any:
    bits = np.dtype(dtype).itemsize * 8
    return np.arange(2**bits, dtype=f"u{bits // 8}").view(dtype)


@pytest.mark.parametrize("dtype", KINDS)
def test_every_number_is_read(dtype: Any) -> None:
    np.testing.assert_array_equal(converted(every(dtype), np.float32), every(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", KINDS)
@np.errstate(over="ignore")
def test_numbers_between_two_are_rounded_to_the_nearest_and_even(dtype: Any) -> None:
    numbers = np.unique(every(dtype).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    middle = numbers[:-1] + np.diff(numbers.astype(np.float64)) / 2
    middle = middle.astype(np.float32)
    beyond = np.array([numbers[-1] * 1.01, numbers[-1] * 1.5, 3e38, np.inf, np.nan, 1e-45, 1e-30, 0.0], np.float32)
    near = [np.nextafter(middle, sign * np.float32(np.inf)) for sign in (-1, 1)]
    x = np.concatenate([numbers, middle, *near, beyond, -beyond])
    expected = x.astype(dtype)
    found = converted(x, dtype)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    signed = ~np.isnan(x)
    zero = signed & (expected.astype(np.float32) == 0)
    np.testing.assert_array_equal(np.signbit(found[zero].astype(np.float32)), np.signbit(x[zero]))


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        (np.float32, np.int16, (4,)),
        (np.float32, np.uint8, (3, 5)),
        (np.uint8, np.float32, (3, 4)),
        (np.int16, np.int64, (2, 3, 4)),
        (np.uint8, np.float32, (4,)),
        (np.float64, np.float32, ()),
    ],
)
@pytest.mark.parametrize("computed", [False, True])
def test_the_bits_of_numbers_of_another_width(source: Any, target: Any, shape: Any, computed: bool) -> None:
    x = np.random.default_rng(0).integers(0, 100, shape).astype(source)
    y = x + x if computed else x
    bits = y.reshape(-1).view(target)
    ratio = np.dtype(source).itemsize // np.dtype(target).itemsize
    bits = bits.reshape((*shape, ratio) if ratio else shape[:-1])

    def kernel(x_ref: Any, out_ref: Any) -> None:
        value = x_ref[...] + x_ref[...] if computed else x_ref[...]
        out_ref[...] = lax.bitcast_convert_type(value, target)

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(bits.shape, target), interpret="cpu")(x)
    assert found.tobytes() == bits.tobytes()
