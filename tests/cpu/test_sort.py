"""Sorting on the CPU executor: lines of any length, several keys, equals in their order, NaN last."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.cpu.rules.sort import network
from palladio.cpu.runtime import host
from palladio.types.types import ArrayType
from tests.cpu.test_emitted_text import PROCESSOR, emitted, traced
from tests.pairs import every_pair


def assert_same_bits(found: Any, expected: Any) -> None:
    """Arrays are equal to the bit, NaNs of float16 as NaNs only: their bits differ without F16C."""
    if found.dtype == np.float16:
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        found, expected = (np.where(np.isnan(each), np.float16(0), each) for each in (found, expected))
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


ALONG = [((1,), 0), ((2,), 0), ((17,), 0), ((5, 33), 1), ((33, 5), 0), ((3, 8, 2), 1), ((4, 1), 1)]
"""Shapes, and the axis of each to sort along."""


@pytest.mark.parametrize(
    ("along", "dtype", "keys"), every_pair(ALONG, [np.uint8, np.int32, np.float32], [1, 2]), ids=str
)
def test_the_order_is_the_evaluators(along: tuple[tuple[int, ...], int], dtype: Any, keys: int) -> None:
    shape, axis = along
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 4, shape).astype(dtype) for _ in range(3)]
    if dtype == np.float32:
        given[0].flat[::5], given[0].flat[1::7] = np.nan, -0.0

    def kernel(*refs: Any) -> None:
        operands = tuple(ref[...] for ref in refs[:3])
        for ref, value in zip(refs[3:], lax.sort(operands, dimension=axis, num_keys=keys), strict=True):
            ref[...] = value

    out = [pl.ShapeDtypeStruct(shape, dtype)] * 3
    for got, expected in zip(
        *(pl.pallas_call(kernel, out, interpret=each)(*given) for each in ("cpu", "reference")), strict=True
    ):
        assert_same_bits(got, expected)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((2, 65), 1, np.bool_),
        ((2, 65), 1, np.int8),
        ((64,), 0, np.uint32),
        ((129, 3), 0, ml_dtypes.bfloat16),
        ((1000,), 0, np.float32),
    ],
    ids=str,
)
def test_blocks_sorted_in_registers_are_merged_in_the_evaluators_order(
    shape: tuple[int, ...], axis: int, dtype: Any
) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, shape, np.uint32).view(np.uint8)
    x = bits[..., :: 4 // np.dtype(dtype).itemsize].copy().view(dtype) if dtype != np.bool_ else bits[..., ::4] > 99
    x = x.reshape(-1)[: np.prod(shape)].reshape(shape)
    x.flat[::5], x.flat[::7] = x.flat[0], 0
    if np.issubdtype(dtype, np.floating) or dtype == ml_dtypes.bfloat16:
        x.flat[::11], x.flat[3::14], x.flat[::13], x.flat[1::17] = np.nan, -0.0, -np.inf, np.inf

    def kernel(x_ref: Any, sorted_ref: Any, places_ref: Any) -> None:
        places = jnp.arange(shape[axis])
        places = jnp.broadcast_to(places if axis == len(shape) - 1 else places[:, None], shape)
        sorted_ref[...], places_ref[...] = lax.sort((x_ref[...], places), dimension=axis, num_keys=1)

    out = [pl.ShapeDtypeStruct(shape, dtype), pl.ShapeDtypeStruct(shape, np.int32)]
    for got, expected in zip(
        *(pl.pallas_call(kernel, out, interpret=each)(x) for each in ("cpu", "reference")), strict=True
    ):
        assert_same_bits(got, expected)


def sorted_alone(x: Any, axis: int, executor: str) -> Any:
    def kernel(x_ref: Any, sorted_ref: Any) -> None:
        sorted_ref[...] = jnp.sort(x_ref[...], axis=axis)

    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret=executor)(x)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint8, np.uint16, np.int32, np.uint32, np.float16, ml_dtypes.bfloat16, np.float32]
)
@pytest.mark.parametrize(
    ("shape", "axis"), [((17,), 0), ((3, 128), 1), ((3, 129), 1), ((257, 2), 0), ((2, 1500), 1)], ids=str
)
def test_an_array_alone_has_the_bits_of_the_evaluator(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    x = bits.view(dtype)[..., 0] if dtype != np.bool_ else bits[..., 0] > 99
    found, expected = (sorted_alone(x, axis, each) for each in ("cpu", "reference"))
    assert_same_bits(found, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("extent", [3, 16, 64, 100, 700, 1024])
def test_an_array_of_64_bits_has_the_bits_of_the_evaluator(extent: int, dtype: Any) -> None:
    bits = np.random.default_rng(extent).integers(0, 256, (3, extent, 8), np.uint8)
    bits[..., :4] = bits[:, :1, :4]  # many share their low bits, and some all
    x = bits.view(dtype)[..., 0]
    x[:, ::5] = x[:, :1]
    assert_same_bits(*(sorted_alone(x, 1, each) for each in ("cpu", "reference")))


@pytest.mark.parametrize("extent", [1, 2, 3, 16, 40, 64, 100, 1280, 4096])
@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_blocks_of_every_shape_are_merged(extent: int, vector_bytes: int) -> None:
    x = np.random.default_rng(extent).integers(-999, 999, (2, extent), np.int32)
    with host.compiling_for(replace(host.current(), vector_bytes=vector_bytes)):
        np.testing.assert_array_equal(sorted_alone(x, 1, "cpu"), np.sort(x, 1))


STORES: dict[str, Callable[[Any, Any], None]] = {}


def stored(kernel: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    STORES[kernel.__name__] = kernel
    return kernel


@stored
def where_it_was_read(x: Any, out: Any) -> None:
    x[...] = jnp.sort(x[...])
    out[...] = x[...]


@stored
def after_its_source_changed(x: Any, out: Any) -> None:
    elements = jnp.sort(x[...])
    x[...] = x[...] * 0
    out[...] = elements


@stored
def and_used(x: Any, out: Any) -> None:
    elements = jnp.sort(x[...])
    out[...] = elements
    out[...] = out[...] + elements


@stored
def to_every_other_column(x: Any, out: Any) -> None:
    out[...] = x[...]
    out[:, ::2] = jnp.sort(x[:, ::2])


@stored
def transposed_and_reshaped(x: Any, out: Any) -> None:
    out[...] = jnp.sort(x[...], axis=0).T.reshape(out.shape)


@pytest.mark.parametrize("store", STORES)
def test_a_sorted_array_is_stored(store: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([0.0, -0.0, np.nan, 1.0, -2.0], np.float32), (4, 512))

    def call(executor: str) -> Any:
        return pl.pallas_call(STORES[store], pl.ShapeDtypeStruct(x.shape, x.dtype), interpret=executor)(x)

    assert_same_bits(call("cpu"), call("reference"))


SPECIAL = [[0.0, -0.0], [np.nan, -np.nan], [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf]]


@pytest.mark.parametrize(
    ("special", "extent", "dtype"),
    every_pair(SPECIAL, [100, 512], [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]),
)
def test_zeros_and_nans_of_either_sign_keep_their_order(special: list[float], extent: int, dtype: Any) -> None:
    rng = np.random.default_rng(extent)
    x = np.where(rng.random((4, extent)) < 0.3, rng.choice(special, (4, extent)), rng.standard_normal((4, extent)))
    x[0] = rng.choice(special, extent)
    x = x.astype(dtype)
    found, expected = (sorted_alone(x, 1, each) for each in ("cpu", "reference"))
    assert_same_bits(found, expected)


def test_vectors_on_the_stack_are_accessed_with_their_own_alignment() -> None:
    def call(x: Any) -> Any:
        return pl.pallas_call(sorting, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")(x)

    def sorting(x_ref: Any, sorted_ref: Any) -> None:
        sorted_ref[...] = jnp.sort(x_ref[...])

    program = traced(call, (ArrayType((128,), np.dtype(np.int32)),))
    with host.compiling_for(PROCESSOR):
        (text,) = emitted(program)
    assert set(re.findall(r"<8 x i32>.*ptr %slot\S+, align (\d+)", text)) == {"32"}


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_the_network_sorts_all_zeros_and_ones(count: int) -> None:
    x = np.arange(1 << count)[:, None] >> np.arange(count) & 1  # so it sorts everything (the zero-one principle)
    for i, j in network(count):
        x[:, [i, j]] = np.sort(x[:, [i, j]])
    assert (np.diff(x) >= 0).all()


def top(given: Any, count: int, executor: str, axis: int = -1) -> list[Any]:
    """What `top_k` gives: the elements, and where they were."""
    shape = list(given.shape)
    shape[axis] = count

    def kernel(x: Any, values: Any, places: Any) -> None:
        values[...], places[...] = lax.top_k(x[...], count, axis=axis)

    out = [pl.ShapeDtypeStruct(tuple(shape), given.dtype), pl.ShapeDtypeStruct(tuple(shape), np.int32)]
    return pl.pallas_call(kernel, out, interpret=executor)(given)


def assert_same_top(given: Any, count: int, axis: int = -1) -> None:
    for got, expected in zip(top(given, count, "cpu", axis), top(given, count, "reference", axis), strict=True):
        assert_same_bits(got, expected)


@pytest.mark.parametrize(
    ("shape", "dtype", "count"),
    every_pair(
        [(130,), (3, 131), (2, 2, 209), (1, 2000)],
        [np.bool_, np.int8, np.uint32, np.float32, np.float64, ml_dtypes.bfloat16],
        [1, 2, 7, 64, 65],
    ),
    ids=str,
)
def test_the_greatest_few_with_many_equals(shape: tuple[int, ...], dtype: Any, count: int) -> None:
    rng = np.random.default_rng(count)
    assert_same_top(rng.integers(-5, 90, shape).astype(dtype), count)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("count", [1, 5, 20])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_greatest_few_of_what_is_no_number(share: float, count: int, dtype: Any) -> None:
    rng = np.random.default_rng(count)
    given = rng.standard_normal((4, 150)).astype(dtype)
    special = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], dtype), given.shape)
    assert_same_top(np.where(rng.random(given.shape) < share, special, given), count)


@pytest.mark.parametrize("value", [-np.inf, np.nan, 0.0])
def test_the_greatest_few_of_equals_are_the_first(value: float) -> None:
    assert_same_top(np.full((2, 100), value, np.float32), 6)


@pytest.mark.parametrize("order", [1, -1])
def test_the_greatest_few_of_what_is_sorted(order: int) -> None:
    assert_same_top(np.arange(300, dtype=np.int32)[None, ::order].copy(), 9)


@pytest.mark.parametrize(("count", "axis"), [(0, 1), (40, 1), (21, 1), (4, 0), (40, 0)])
def test_the_greatest_few_or_none_or_all_along_either_axis(count: int, axis: int) -> None:
    assert_same_top(np.random.default_rng(0).integers(0, 30, (40, 40)).astype(np.float32), count, axis)


USES: dict[str, Callable[[Any], Any]] = {
    "the elements": lambda x: lax.top_k(x, 4)[0],
    "their places": lambda x: lax.top_k(x, 4)[1].astype(np.float32),
    "others too": lambda x: lax.top_k(x, 4)[0] + jnp.flip(jnp.sort(x), 1)[:, :4] + jnp.sort(x)[:, 2:6],
    "more of them elsewhere": lambda x: lax.top_k(x, 4)[0] + lax.top_k(x, 7)[0][:, 3:],
    "all of them elsewhere": lambda x: lax.top_k(x, 4)[0] + lax.top_k(x, 40)[0][:, 30:34],
    "of what is computed": lambda x: lax.top_k(x * 3 - x[0], 4)[0],
    "of what is turned": lambda x: lax.top_k(x.T, 4)[0] + lax.top_k(jnp.flip(x, 1), 4)[0],
}


@pytest.mark.parametrize("use", USES)
def test_whatever_is_used_of_the_greatest_few(use: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = USES[use](x[...])

    given = np.random.default_rng(0).integers(0, 50, (40, 40)).astype(np.float32)
    out = pl.ShapeDtypeStruct((40, 4), np.float32)
    found, expected = (pl.pallas_call(kernel, out, interpret=each)(given) for each in ("cpu", "reference"))
    np.testing.assert_array_equal(found, expected)
