"""Narrow numbers packed in wide integers, against NumPy; and roundings by random bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio.types import dtypes
from tests.errors.shown import shows

RNG = np.random.default_rng(0)
SHAPE = (3, 5)
PAIRS = [
    ("float32", "bfloat16"),
    ("int32", "int16"),
    ("int32", "int8"),
    ("uint32", "int4"),
    ("int16", "int8"),
    ("int8", "int4"),
    ("int4", "int2"),
]


def values(dtype: Any) -> Any:
    if dtypes.is_float(dtype):
        return RNG.normal(size=SHAPE).astype(dtype)
    limits = dtypes.iinfo(dtype)
    return RNG.integers(int(limits.min), int(limits.max) + 1, SHAPE).astype(dtype)


def packed_in_numpy(arrays: Any, narrow: Any, width: int) -> Any:
    bits = dtypes.bits_of(narrow)
    words = sum(
        (dtypes.cast(x, narrow).view(f"u{narrow.itemsize}").astype(np.uint64) & (1 << bits) - 1) << n * bits
        for n, x in enumerate(arrays)
    )
    return words.astype(f"uint{width}" if width >= 8 else dtypes.canonical(f"u{width}"))


@pytest.mark.parametrize(("wide", "narrow"), PAIRS)
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
def test_arrays_are_packed_and_unpacked_in_a_kernel(wide: str, narrow: str) -> None:
    source, target = dtypes.canonical(wide), dtypes.canonical(narrow)
    width = dtypes.bits_of(source)
    arrays = [values(source) for _ in range(width // dtypes.bits_of(target))]
    expected = packed_in_numpy(arrays, target, width)

    def pack(*refs: Any) -> None:
        refs[-1][...] = pltpu.pack_elementwise([ref[...] for ref in refs[:-1]], packed_dtype=target)

    def unpack(packed_ref: Any, *refs: Any) -> None:
        for n, ref in enumerate(refs):
            ref[...] = pltpu.unpack_elementwise(packed_ref[...], index=n, packed_dtype=target, unpacked_dtype=source)

    packed = pl.pallas_call(pack, pl.ShapeDtypeStruct(SHAPE, expected.dtype))(*arrays)
    np.testing.assert_array_equal(packed, expected)
    found = pl.pallas_call(unpack, [pl.ShapeDtypeStruct(SHAPE, source)] * len(arrays))(packed)
    for x, one in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(one, dtypes.cast(dtypes.cast(x, target), source))


NARROW = ["bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz"]


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
def test_a_random_rounding_is_one_of_the_neighbours_and_right_on_average(name: str) -> None:
    target = dtypes.canonical(name)
    tiny = float(dtypes.finfo(target).smallest_normal)
    points = np.float32([0.3, -1.7, 3.01, tiny * 0.37, -tiny * 0.9, tiny * 1.03, 0, np.nan])
    x = np.broadcast_to(points[:, None], (len(points), 4096)).copy()
    words = RNG.integers(0, 2**32, x.shape, np.uint32)

    def kernel(x_ref: Any, bits_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.stochastic_round(x_ref[...], bits_ref[...], target_dtype=target)

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, target))(x, words).astype(np.float64)
    assert np.isnan(found[-1]).all() and not found[-2].any()
    for row, value in zip(found[:-1], points[:-1].astype(np.float64), strict=True):
        choices = np.unique(row)
        assert len(choices) <= 2 and choices[0] <= value <= choices[-1]
        nearest = float(np.float32(value).astype(target))
        assert nearest in choices
        gap = choices[-1] - choices[0]
        assert abs(row.mean() - value) <= 0.05 * gap


def test_sums_of_bits_round_to_bfloat16() -> None:
    x = RNG.normal(size=(64,)).astype(np.float32)
    words = RNG.integers(0, 2**32, x.shape, np.uint32)
    expected = ((x.view(np.uint32) + (words & 0xFFFF)) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(pltpu.stochastic_round(x, words, target_dtype=np.dtype("bfloat16")), expected)


X, WORDS = np.zeros(4, np.float32), np.zeros(4, np.uint32)


def test_errors_of_packing() -> None:
    with shows(
        TypeError,
        """
        packed_dtype: integers pack in wider integers, and bfloat16 in float32
          got:      float16 in float32
          in JAX:   Only f32 -> bf16 and int -> int are supported. Got float32 and float16
          test_packed.py:N, in test_errors_of_packing
            pltpu.pack_elementwise([X, X], packed_dtype=np.float16)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.pack_elementwise([X, X], packed_dtype=np.float16)
    with shows(
        ValueError,
        """
        xs: arrays that are packed have one shape and dtype
          got:      f32[4], u32[4]
          test_packed.py:N, in test_errors_of_packing
            pltpu.pack_elementwise([X, WORDS], packed_dtype="bfloat16")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.pack_elementwise([X, WORDS], packed_dtype="bfloat16")
    with shows(
        ValueError,
        """
        xs: as many arrays as elements fit in one
          expected: 2
          got:      1
          test_packed.py:N, in test_errors_of_packing
            pltpu.pack_elementwise([X], packed_dtype="bfloat16")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.pack_elementwise([X], packed_dtype="bfloat16")


def test_errors_of_unpacking() -> None:
    with shows(
        ValueError,
        """
        index: one of the packed arrays
          expected: 0 <= index < 2
          got:      2
          test_packed.py:N, in test_errors_of_unpacking
            pltpu.unpack_elementwise(WORDS, index=2, packed_dtype="bfloat16", unpacked_dtype="float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.unpack_elementwise(WORDS, index=2, packed_dtype="bfloat16", unpacked_dtype="float32")
    with shows(
        TypeError,
        """
        x: packed numbers are integers of the width of the dtype that they come from
          expected: 32 bits
          got:      f32[4]
          test_packed.py:N, in test_errors_of_unpacking
            pltpu.unpack_elementwise(X, index=0, packed_dtype="bfloat16", unpacked_dtype="float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.unpack_elementwise(X, index=0, packed_dtype="bfloat16", unpacked_dtype="float32")


def test_errors_of_random_rounding() -> None:
    with shows(
        TypeError,
        """
        target_dtype: float32 is rounded to a float dtype of at most 16 bits
          got:      float32 to int8
          test_packed.py:N, in test_errors_of_random_rounding
            pltpu.stochastic_round(X, WORDS, target_dtype=np.int8)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.stochastic_round(X, WORDS, target_dtype=np.int8)
    with shows(
        TypeError,
        """
        random_bits: random bits are uint32
          got:      f32[4]
          in JAX:   The dtype of `random_bits` must be uint32 for stochastic_round
          test_packed.py:N, in test_errors_of_random_rounding
            pltpu.stochastic_round(X, X, target_dtype="bfloat16")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.stochastic_round(X, X, target_dtype="bfloat16")
    with shows(
        ValueError,
        """
        random_bits: as many random words as elements
          expected: (4,)
          got:      (2,)
          in JAX:   The shape of `random_bits` must match the shape of `x` for stochastic_round
          test_packed.py:N, in test_errors_of_random_rounding
            pltpu.stochastic_round(X, WORDS[:2], target_dtype="bfloat16")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.stochastic_round(X, WORDS[:2], target_dtype="bfloat16")
