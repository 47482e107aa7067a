"""Changes of dtype: what saturates, wraps, rounds, and what the bits become."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from palladio import lax
from palladio.types import dtypes

INTEGERS = [dtype for dtype in dtypes.ALL if dtypes.is_integer(dtype)]
FLOATS = [dtype for dtype in dtypes.ALL if dtypes.is_float(dtype)]
WHOLE = [0, 1, -1, 127, 128, -129, 255, 256, 300, 448, 500, 32768, 65504, 65536, 2**24 + 1, 2**31 - 1, 2**31, -(2**31)]
WHOLE += [2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1]
BROKEN = [0.5, -0.5, 1.5, -2.5, 464.0, 465.0, 65520.0, 1e20, -1e20, 1e39, np.inf, -np.inf, np.nan, 1e-8, 2.0**-10]


def values(dtype: Any) -> Any:
    """The values of a list that the dtype has, its extremes among them."""
    if dtype == dtypes.BOOL:
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, *(v for v in WHOLE if limits.min <= v <= limits.max)], dtype)
    with np.errstate(over="ignore"):
        return np.array([*WHOLE, *BROKEN], np.float64).astype(dtype)


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_every_conversion_is_that_of_jax(source: Any) -> None:
    x = values(source)
    with jax.enable_x64(True):
        operand = jax.numpy.asarray(x)
        reference = jax.jit(lambda v: [jax.lax.convert_element_type(v, dtype) for dtype in dtypes.ALL])(operand)
    for dtype, expected in zip(dtypes.ALL, reference, strict=True):
        found = lax.convert_element_type(x, dtype)
        assert found.dtype == dtype
        assert_same(found, np.asarray(expected))


def assert_same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    exact = np.float64 if dtypes.is_float(found.dtype) else found.dtype
    np.testing.assert_array_equal(found.astype(exact), expected.astype(exact))


@pytest.mark.parametrize(("source", "dtype"), [*itertools.product(FLOATS, INTEGERS)], ids=str)
def test_floats_saturate_round_towards_zero_and_nan_is_zero(source: Any, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    least, greatest = dtypes.least(source), dtypes.greatest(source)
    x = np.array([1.75, np.nan, least, greatest]).astype(source)
    bounded = [int(max(min(float(v), 2.0**70), -(2.0**70))) for v in (least, greatest)]
    expected = [1, 0, *(max(min(v, int(limits.max)), int(limits.min)) for v in bounded)]
    assert lax.convert_element_type(x, dtype).tolist() == expected


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_bitcast_keeps_the_bits_of_every_dtype_of_the_width(dtype: Any) -> None:
    x = values(dtype)
    for other in dtypes.ALL:
        if other.itemsize == dtype.itemsize and (dtypes.BOOL not in (dtype, other) or dtype == other):
            assert lax.bitcast_convert_type(x, other).tobytes() == x.tobytes()
            assert lax.bitcast_convert_type(x, other).dtype == other


@pytest.mark.parametrize(("narrow", "wide"), [("u8", "f32"), ("bf16", "i32"), ("i32", "f64"), ("f8e5m2", "u16")])
def test_a_bitcast_to_another_width_adds_or_drops_the_last_axis(narrow: str, wide: str) -> None:
    small, large = dtypes.canonical(narrow), dtypes.canonical(wide)
    x = np.arange(6).reshape(2, 3).astype(large)
    parts = lax.bitcast_convert_type(x, small)
    assert parts.shape == (2, 3, large.itemsize // small.itemsize)
    np.testing.assert_array_equal(
        parts.view(f"u{small.itemsize}"), np.asarray(jax_bitcast(x, small)).view(f"u{small.itemsize}")
    )
    assert_same(lax.bitcast_convert_type(parts, large), x)


def jax_bitcast(x: Any, dtype: Any) -> Any:
    with jax.enable_x64(True):
        return jax.lax.bitcast_convert_type(jax.numpy.asarray(x), dtype)


def test_a_bitcast_of_a_scalar() -> None:
    assert lax.bitcast_convert_type(1.0, np.int32) == 0x3F800000
    assert lax.bitcast_convert_type(np.float32(1), np.uint8).tolist() == [0, 0, 128, 63]


@pytest.mark.parametrize("chosen", [np.s_[:], np.s_[::2, 1:], np.s_[3], np.s_[0, 0]])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_float16_is_widened_to_the_bits_of_astype(chosen: Any, transposed: bool) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    part = (halves.T if transposed else halves)[chosen]
    found, wanted = dtypes.widened(part, dtypes.FLOAT32), part.astype(np.float32)
    assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
    assert found.tobytes() == wanted.tobytes()
