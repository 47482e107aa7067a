"""Integers of two and four bits and the rarer float8 kinds: kept, moved, converted, and computed in wider dtypes."""

from __future__ import annotations

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
COMPILED = [dtype for dtype in dtypes.NARROW if dtype.name != "float8_e8m0fnu"]
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
        *((dtype, "cpu") for dtype in COMPILED),
        *((dtypes.SHORT_NAMES[name], "simulator") for name in ("i4", "f8e4m3b11fnuz")),
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


BITS = np.arange(256, dtype=np.uint8)


def every(dtype: Any) -> Any:
    """Every number of a dtype, integers of few bits and float4 several times."""
    return (BITS & np.uint8((1 << dtypes.bits_of(dtype)) - 1)).view(dtype)


def agree(kernel: Any, types: Any, *arrays: Any) -> None:
    """The kernel gives the same numbers compiled and on the evaluator."""
    expected, got = (pl.pallas_call(kernel, types, interpret=each)(*arrays) for each in ("reference", "cpu"))
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        same = np.array_equal(ours.astype(np.float32), theirs.astype(np.float32), equal_nan=True)
        assert same, (number, ours, theirs)


def results(*kinds: Any, shape: tuple[int, ...] = (256,)) -> list[Any]:
    return [pl.ShapeDtypeStruct(shape, kind) for kind in kinds]


@pytest.mark.parametrize("dtype", COMPILED, ids=str)
def test_compiled_conversions_are_those_of_the_evaluator(dtype: Any) -> None:
    kinds = [np.float32, np.float16, "bfloat16", np.float64, np.int8, np.int32, np.uint16, np.bool_, *COMPILED]

    def out(x_ref: Any, *refs: Any) -> None:
        for ref in refs:
            ref[...] = x_ref[...].astype(ref.dtype)

    agree(out, results(*kinds), every(dtype))
    sizes = np.float32(
        [0, 0.3, 0.49, 0.5, 1, 2.5, 6.1, 7.9, 15.7, 30.9, 239, 248, 5e4, 6.2e4, 1e30, np.inf, np.nan, 1e-6]
    )
    floats = np.concatenate([sizes, -sizes])
    for values in (floats, *(floats.astype(each) for each in (np.float64, "bfloat16")), np.arange(-40, 40, 3)):
        agree(out, results(dtype, shape=values.shape), values)


@pytest.mark.parametrize("dtype", COMPILED, ids=str)
def test_compiled_arithmetic_wraps_around_and_rounds_once(dtype: Any) -> None:
    def kernel(x_ref: Any, y_ref: Any, *refs: Any) -> None:
        x, y = x_ref[...], y_ref[...]
        found = [x + y, x - y, x * y, -x, jnp.abs(x), jnp.sign(x), jnp.maximum(x, y), jnp.where(x > y, x, y)]
        if dtypes.is_integer(dtype):
            found += [x & y, x | y, x ^ y, ~x]
        for ref, value in zip(refs, found, strict=True):
            ref[...] = value

    x = every(dtype)
    y = np.random.default_rng(0).permutation(x.view(np.uint8)).view(dtype)
    agree(kernel, results(*[dtype] * (12 if dtypes.is_integer(dtype) else 8)), x, y)


@pytest.mark.parametrize("name", ["i4", "u2", "f4e2m1fn", "f8e4m3b11fnuz"])
def test_compiled_blocks_loops_and_copies(name: str) -> None:
    dtype = dtypes.SHORT_NAMES[name]

    def kernel(x_ref: Any, o_ref: Any, held: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref.at[0], held, semaphore).wait()
        largest = lax.fori_loop(0, 3, lambda _, value: jnp.maximum(value, held[1]), held[0])
        o_ref[0] = jnp.flip(held[...]) + largest
        o_ref[1] = jnp.broadcast_to(jnp.max(held[...]), (4,))

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((5, 4), dtype),
        grid=(3,),
        in_specs=[pl.BlockSpec((2, 4), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((2, 4), lambda i: (i, 0)),
        scratch_shapes=[pltpu.VMEM((4,), dtype), pltpu.SemaphoreType.DMA],
    )
    x = every(dtype)[:20].reshape(5, 4)
    with pl.executor("reference"):
        expected = call(x)
    assert np.array_equal(call(x).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "operation", "reason"),
    [
        ("i4", lambda x: x << x, "shift_left of int4 is"),
        ("f8e3m4", jnp.exp, "exp of float8_e3m4 is"),
        ("f8e8m0fnu", lambda x: x, "no float8_e8m0fnu is compiled for"),
    ],
    ids=["shift", "exp", "a dtype"],
)
def test_other_operations_are_not_compiled(name: str, operation: Any, reason: str) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = operation(x_ref[...])

    x = np.float32([1, 1]).astype(dtypes.SHORT_NAMES[name])
    with pytest.warns(pl.NotCompiledWarning, match=f"runs on the evaluator: {reason}"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), x.dtype), interpret="cpu")(x)


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
