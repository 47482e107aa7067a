"""Integers of two and four bits and the rarer float8 kinds: kept, moved, converted, and computed in wider dtypes."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.ir.text import print_program
from palladio.ops import parse
from palladio.types import dtypes
from tests.errors.shown import shows

VALUES = np.float32([0, 1, -1, 2.5, -3, 7.2, -9, 100, 300, -300, np.nan])
INTEGERS = [dtype for dtype in dtypes.NARROW if dtypes.is_integer(dtype)]
FLOATS = [dtype for dtype in dtypes.NARROW if dtypes.is_float(dtype)]
NARROW = pytest.mark.parametrize("dtype", dtypes.NARROW, ids=str)
# JAX computes with neither: it has no kernels for them on the CPU.
COMPUTED = [dtype for dtype in dtypes.NARROW if dtype.name not in ("float8_e8m0fnu", "float4_e2m1fn")]


def test_conversions_are_those_of_jax() -> None:
    kinds = [dtype for dtype in dtypes.NARROW if dtype.name != "float8_e8m0fnu"]  # of negative numbers it has none
    theirs = jax.jit(lambda values: [jax.lax.convert_element_type(values, dtype) for dtype in kinds])(VALUES)
    for dtype, expected in zip(kinds, theirs, strict=True):
        ours = lax.convert_element_type(VALUES, dtype)
        assert ours.dtype == dtype
        assert np.array_equal(ours.astype(np.float32), np.asarray(expected).astype(np.float32), equal_nan=True), dtype


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around(dtype: Any) -> None:
    x = np.arange(-20, 20, dtype=np.int32)
    theirs = jax.lax.convert_element_type(x, dtype)
    assert lax.convert_element_type(x, dtype).tolist() == np.asarray(theirs).tolist()
    narrow = lax.convert_element_type(x, dtype)
    assert jnp.add(narrow, narrow).tolist() == np.asarray(jax.lax.add(theirs, theirs)).tolist()
    squares = lax.convert_element_type(narrow.astype(np.int32) ** 2, dtype)
    assert jnp.multiply(narrow, narrow).tolist() == squares.tolist()
    assert jnp.maximum(narrow, 1).tolist() == np.maximum(narrow.astype(np.int32), 1).tolist()
    assert jnp.max(narrow) == dtypes.greatest(dtype)
    assert jnp.min(narrow) == dtypes.least(dtype)


@pytest.mark.parametrize("dtype", [each for each in FLOATS if each in COMPUTED], ids=str)
def test_floats_are_computed_in_float32(dtype: Any) -> None:
    x = lax.convert_element_type(np.float32([0.5, 1, -2, 3]), dtype)
    wide = x.astype(np.float32)
    assert np.array_equal(jnp.multiply(x, x), (wide * wide).astype(dtype))
    assert np.array_equal(jnp.exp(x).astype(np.float32), np.exp(wide).astype(dtype).astype(np.float32))


@NARROW
def test_a_dtype_meets_only_itself_and_weak_scalars(dtype: Any) -> None:
    assert jnp.promote_types(dtype, dtype) == dtype
    for other in ("int32", "float8_e5m2") if dtypes.is_integer(dtype) else ("float32", "float8_e5m2"):
        with pytest.raises(pl.PalladioError, match="do not promote"):
            jnp.promote_types(dtype, other)


@pytest.mark.parametrize(
    ("dtype", "interpret"),
    [
        *((dtype, "reference") for dtype in dtypes.NARROW),
        *((dtypes.SHORT_NAMES[name], other) for name in ("i4", "f8e4m3b11fnuz") for other in (None, "simulator")),
    ],
    ids=str,
)
def test_kernels_load_move_and_store_them(dtype: Any, interpret: Any) -> None:
    def kernel(x_ref: Any, narrow_ref: Any, o_ref: Any) -> None:
        narrow_ref[...] = x_ref[...].astype(dtype)
        narrow_ref[0] = narrow_ref[1]
        o_ref[...] = narrow_ref[::2].astype(np.float32)

    x = np.float32([[1, 0.5, 2], [1, 2, 1], [4, 1, 0.25], [2, 2, 1]])
    types = (pl.ShapeDtypeStruct((4, 3), dtype), pl.ShapeDtypeStruct((2, 3), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.NotCompiledWarning)
        narrow, wide = pl.pallas_call(kernel, types, interpret=interpret)(x)
    expected = lax.convert_element_type(x[[1, 1, 2, 3]], dtype)
    assert narrow.dtype == dtype
    assert np.array_equal(narrow.view(np.uint8), expected.view(np.uint8))
    assert np.array_equal(wide, expected[::2].astype(np.float32))


@pytest.mark.parametrize("old", INTEGERS, ids=str)
def test_integers_of_a_few_bits_convert_into_each_other_as_in_jax(old: Any) -> None:
    limits = dtypes.iinfo(old)
    values = np.arange(limits.min, limits.max + 1, dtype=np.int8).astype(old)
    for new in INTEGERS:
        found = lax.convert_element_type(values, new)
        assert found.dtype == new
        np.testing.assert_array_equal(found, np.asarray(jax.lax.convert_element_type(values, new)))


@pytest.mark.parametrize("old", FLOATS, ids=str)
def test_narrow_floats_convert_into_each_other(old: Any) -> None:
    values = np.float32([1, 2, 0.5]).astype(old)
    for new in FLOATS:
        found = lax.convert_element_type(values, new)
        assert found.dtype == new
        np.testing.assert_array_equal(found, values.astype(np.float32).astype(new))


def test_integers_of_a_few_bits_are_in_the_categories_of_integers() -> None:
    for dtype in INTEGERS:
        assert jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(dtype, jnp.floating)
        assert jnp.issubdtype(dtype, jnp.signedinteger) != jnp.issubdtype(dtype, jnp.unsignedinteger)


def test_products_of_a_float8_kind() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=np.float32)

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(8, 8)).astype(jnp.float8_e4m3b11fnuz.dtype) for _ in range(2))
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((8, 8), np.float32), interpret=True)(x, y)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact)


def test_they_are_not_compiled() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].astype(jnp.int4).astype(np.int32)

    with pytest.warns(pl.NotCompiledWarning, match="runs on the evaluator: no int4 is compiled for the CPU"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), np.int32))(np.int32([1, 9]))


def test_programs_with_them_print_and_parse() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[...] = jnp.full((2,), 3, jnp.int4) + o_ref[...]

    text = print_program(pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), jnp.int4)).program())
    assert "i4[2]" in text
    assert print_program(parse(text)) == text


@pytest.mark.parametrize("narrow", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
@pytest.mark.parametrize("wide", ["int8", "uint16", "float32"])
def test_bits_of_elements_narrower_than_a_byte(narrow: str, wide: str) -> None:
    values = np.random.default_rng(0).integers(-128, 127, (3, 8)).astype(np.int8).view(wide)
    parts = lax.bitcast_convert_type(values, narrow)
    expected = jax.lax.bitcast_convert_type(jax.numpy.asarray(values), narrow)
    assert parts.shape == expected.shape
    np.testing.assert_array_equal(parts, np.asarray(expected))
    np.testing.assert_array_equal(lax.bitcast_convert_type(parts, wide), values)


def test_integers_of_four_bits_as_pairs_of_two() -> None:
    values = np.int8([-8, -3, 0, 7]).astype(jnp.int4.dtype)
    pairs = lax.bitcast_convert_type(values, jnp.uint2)
    np.testing.assert_array_equal(pairs.astype(np.int8), [[0, 2], [1, 3], [0, 0], [3, 1]])
    np.testing.assert_array_equal(lax.bitcast_convert_type(pairs, jnp.int4), values)


def test_bits_within_a_kernel() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        halves = pltpu.bitcast(x_ref[...], jnp.int4)
        o_ref[...] = pltpu.bitcast(halves + halves, jnp.int8)

    x = np.int8([[0x12, 0x71], [-1, 0]])
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 2), np.int8), interpret=True)(x)
    np.testing.assert_array_equal(found, np.uint8([[0x24, 0xE2], [0xEE, 0]]).view(np.int8))


def test_memory_of_elements_narrower_than_a_byte() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref.bitcast(jnp.int4)[...]

    with shows(
        TypeError,
        """
        elements narrower than a byte are kept in one each, so their memory cannot be read as another dtype
          got:      int8 as int4
          hint:     load the values, then pltpu.bitcast
          test_narrow_dtypes.py:N, in kernel
            o_ref[...] = x_ref.bitcast(jnp.int4)[...]
                         ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 4), jnp.int4))(np.zeros((1, 4), np.int8))
