"""Products of float32 as pieces of bfloat16 on tile registers, natively where the host has them, and on a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.cpu.products import blocking
from palladio.cpu.products import dot as products
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import assembly
from palladio.library import attention, gmm, matmul, tgmm
from palladio.library.staging import forget_calls
from tests.cpu.tiles import (
    BFLOAT16,
    FLOAT32,
    NATIVE,
    SAPPHIRE,
    Array,
    Texts,
    dot,
    grouped,
    on_tiles,
    poison,
    some_sizes,
    turned,
)

FLOAT16, FLOAT64 = np.dtype(np.float16), np.dtype(np.float64)

TOLERANCE = 4e-7
"""The relative error norm of sums of standard normal numbers."""


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype = FLOAT32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def exact(x: Array, y: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64) @ y.astype(np.float64)


def assert_near(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    error = np.linalg.norm(found.astype(np.float64) - expected)
    assert error <= TOLERANCE * np.linalg.norm(expected), error / np.linalg.norm(expected)


class Product:
    """The product of matrices of one form, by a kernel that is compiled once, whose memory had NaN in it before."""

    def __init__(self, flips: tuple[bool, bool] = (False, False), sums: np.dtype = FLOAT32) -> None:
        self.flips = flips
        self.sums = sums
        self.call: Any = None

    def __call__(self, x: Array, y: Array) -> Array:
        given = turned(x, self.flips[0]), turned(y, self.flips[1])
        if self.call is None:
            shape = pl.ShapeDtypeStruct((len(x), y.shape[1]), self.sums)
            self.call = pl.pallas_call(dot(*self.flips, self.sums), shape, interpret="cpu")
            self.call(*map(poison, given))
        return self.call(*given)


def multiplied(x: Array, y: Array, flips: tuple[bool, bool] = (False, False), sums: np.dtype = FLOAT32) -> Array:
    return Product(flips, sums)(x, y)


def splits(texts: Texts) -> bool:
    """True if a kernel that was compiled multiplies pieces."""
    return any("multiply_split" in text for text in texts)


# Which products are multiplied as pieces.

KINDS = [(FLOAT32, FLOAT32), (FLOAT32, BFLOAT16), (FLOAT16, FLOAT16), (BFLOAT16, FLOAT32), (FLOAT16, FLOAT32)]
LAYOUTS = [(False, False), (True, True)]
"""Each operand by rows and by columns: whether they are given transposed."""

on_the_model = pytest.mark.parametrize("tiles", ["model"], indirect=True)
"""For values: the model has the processor's bits, which `test_tiles` tests."""

ROWS = (5, 16, 31, 48, 49, 70)
DEPTHS = (64, 34, 66, 96, 4, 130)
COLUMNS = (16, 32, 48, 80)


@pytest.mark.parametrize(("number", "rows"), list(enumerate(ROWS)))
def test_dense_products(number: int, rows: int, tiles: Texts) -> None:
    rng = np.random.default_rng(number)
    left, right = KINDS[number % len(KINDS)]
    depth, columns = DEPTHS[number % len(DEPTHS)], COLUMNS[(5 * number + 2) % len(COLUMNS)]
    x, y = normal(rng, (rows, depth), left), normal(rng, (depth, columns), right)
    flips = [(False, False), (True, False), (False, True), (True, True)][number % 4]
    assert_near(multiplied(x, y, flips), exact(x, y))
    assert on_tiles(tiles) == {"tdpbf16ps"} and splits(tiles)


@pytest.mark.parametrize("depth", [62, 64])
@on_the_model
def test_products_with_a_short_summed_axis_are_multiplied_by_vectors(
    depth: int, tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LEAST_DEPTH_SPLIT", 64)
    rng = np.random.default_rng(depth)
    x, y = normal(rng, (33, depth)), normal(rng, (depth, 32))
    assert_near(multiplied(x, y), exact(x, y))
    assert splits(tiles) == (depth == 64)


@on_the_model
@pytest.mark.parametrize(
    ("kind", "depth", "columns", "sums"),
    [
        ((FLOAT32, FLOAT32), 65, 32, FLOAT32),
        ((FLOAT32, FLOAT32), 64, 24, FLOAT32),
        ((FLOAT64, FLOAT64), 64, 32, FLOAT64),
        ((BFLOAT16, BFLOAT16), 64, 32, FLOAT32),
    ],
)
def test_other_products_are_not_multiplied_as_pieces(
    kind: tuple[np.dtype, ...], depth: int, columns: int, sums: np.dtype, tiles: Texts
) -> None:
    rng = np.random.default_rng(depth)
    x, y = normal(rng, (40, depth), kind[0]), normal(rng, (depth, columns), kind[1])
    np.testing.assert_allclose(multiplied(x, y, sums=sums), exact(x, y), rtol=1e-4, atol=1e-4)
    assert not splits(tiles)


@on_the_model
def test_hosts_without_tile_registers_multiply_by_vectors(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, y = normal(rng, (40, 64)), normal(rng, (64, 32))
    with host.compiling_for(replace(host.current(), multiplies_tiles=False)):
        np.testing.assert_allclose(multiplied(x, y), exact(x, y), rtol=1e-4, atol=1e-4)
    assert not splits(tiles) and not on_tiles(tiles)


def summed(lefts: Array, rights: Array, flips: tuple[bool, bool] = (False, False)) -> Array:
    """3 and the sum of several products, by a kernel whose memory had NaN in it before."""
    count, shape = len(lefts), (lefts.shape[1], rights.shape[2])

    def kernel(*refs: Any) -> None:
        *operands, out = refs
        total = jnp.full(shape, 3, FLOAT32)
        for x, y in zip(operands[:count], operands[count:], strict=True):
            left, right = x[...].T if flips[0] else x[...], y[...].T if flips[1] else y[...]
            total += jnp.dot(left, right, preferred_element_type=FLOAT32)
        out[...] = total

    given = [turned(x, flips[0]) for x in lefts] + [turned(y, flips[1]) for y in rights]
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(shape, FLOAT32), interpret="cpu")
    call(*map(poison, given))
    return call(*given)


def exact_sum(lefts: Array, rights: Array) -> Array:
    return 3 + sum(exact(x, y) for x, y in zip(lefts, rights, strict=True))


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("tiles", "count", "rows", "depth", "steps"),
    [*[(each, 2, 37, 64, 512) for each in ("model", *NATIVE)], ("model", 3, 70, 32, 512), ("model", 2, 64, 96, 64)],
    indirect=["tiles"],
)
def test_several_products_are_one_sum(
    count: int,
    rows: int,
    depth: int,
    steps: int,
    flips: tuple[bool, bool],
    tiles: Texts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one k-block, and in several."""
    monkeypatch.setattr(blocking, "SPLIT_STEPS", steps)
    rng = np.random.default_rng(rows)
    lefts, rights = normal(rng, (count, rows, depth)), normal(rng, (count, depth, 48))
    assert_near(summed(lefts, rights, flips), exact_sum(lefts, rights))
    assert on_tiles(tiles) == {"tdpbf16ps"} and splits(tiles)


@on_the_model
def test_several_products_that_read_shifted_rows_are_one_sum(tiles: Texts) -> None:
    """A convolution, whose operands are parts of the same memory."""
    rng = np.random.default_rng(0)
    x, weights = normal(rng, (6, 16, 32)), normal(rng, (3, 3, 32, 32))

    def kernel(x: Any, weights: Any, out: Any) -> None:
        total = jnp.zeros((4 * 14, 32), FLOAT32)
        for i, j in np.ndindex(3, 3):
            part = x[pl.ds(i, 4), pl.ds(j, 14)].reshape(4 * 14, 32)
            total += jnp.dot(part, weights[i, j], preferred_element_type=FLOAT32)
        out[...] = total.reshape(4, 14, 32)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4, 14, 32), FLOAT32), interpret="cpu")
    call(poison(x), poison(weights))
    parts = [exact(x[i : i + 4, j : j + 14].reshape(56, 32), weights[i, j]) for i, j in np.ndindex(3, 3)]
    assert_near(call(x, weights).reshape(56, 32), sum(parts))
    assert splits(tiles)


@on_the_model
def test_what_is_not_finite_in_one_of_several_products(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    lefts, rights = (np.abs(normal(rng, shape)) + 1 for shape in ((3, 37, 64), (3, 64, 48)))
    lefts[1, 3, 5], lefts[2, 4, 63], rights[0, 60, 7] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(kinds(summed(lefts, rights)), kinds(exact_sum(lefts, rights)))
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize(
    ("rows", "depth", "count", "pieces"),
    [(64, 64, 2, True), (63, 64, 2, False), (64, 32, 2, False), (64, 32, 4, True), (64, 48, 4, False)],
)
def test_few_rows_and_short_sums_of_several_products_are_multiplied_by_vectors(
    rows: int, depth: int, count: int, pieces: bool, tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those whose summed axes are not whole tiles."""
    monkeypatch.setattr(products, "LEAST_SUM_SPLIT", 128)
    monkeypatch.setattr(products, "LEAST_ROWS_OF_SUM", 64)
    rng = np.random.default_rng(0)
    lefts, rights = normal(rng, (count, rows, depth)), normal(rng, (count, depth, 32))
    assert_near(summed(lefts, rights), exact_sum(lefts, rights))
    assert splits(tiles) == pieces


# Sums.


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_products_are_added_to_sums(flips: tuple[bool, bool], tiles: Texts) -> None:
    """In place, and to sums that are elsewhere and are not changed."""
    rng = np.random.default_rng(0)
    x, y, begin = normal(rng, (37, 66)), normal(rng, (66, 48)), normal(rng, (37, 48))

    def kernel(x: Any, y: Any, begin: Any, out: Any, twice: Any) -> None:
        left, right = x[...].T if flips[0] else x[...], y[...].T if flips[1] else y[...]
        out[...] = begin[...] + jnp.dot(left, right, preferred_element_type=FLOAT32)
        twice[...] = begin[...]
        twice[...] += jnp.dot(left, right, preferred_element_type=FLOAT32)

    given = turned(x, flips[0]), turned(y, flips[1]), begin
    call = pl.pallas_call(kernel, [pl.ShapeDtypeStruct((37, 48), FLOAT32)] * 2, interpret="cpu")
    call(*map(poison, given))
    before = begin.copy()
    for found in call(*given):
        assert_near(found, before + exact(x, y))
    np.testing.assert_array_equal(begin, before)
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize(("depth", "steps"), [(130, 32), (102, 16), (2050, None)])
def test_summed_axes_of_several_k_blocks(
    depth: int, steps: int | None, tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "SPLIT_STEPS", steps or blocking.SPLIT_STEPS)
    rng = np.random.default_rng(depth)
    rows, adds = (16 if steps is None else 37), steps != 16
    x, y, begin = normal(rng, (rows, depth)), normal(rng, (depth, 48)), normal(rng, (rows, 48))
    for flips in LAYOUTS[1:] if steps == 32 else LAYOUTS[:1]:
        given = turned(x, flips[0]), turned(y, flips[1]), *([begin] if adds else [])
        shape = pl.ShapeDtypeStruct((rows, 48), FLOAT32)
        call = pl.pallas_call(dot(*flips, FLOAT32, adds), shape, interpret="cpu")
        call(*map(poison, given))
        assert_near(call(*given), exact(x, y) + (begin if adds else 0))
    assert splits(tiles)


@on_the_model
def test_columns_that_do_not_fit_a_cache_are_multiplied_with_several_panels_of_rows(
    tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, together = blocking.Blocking.__init__, set()

    def noted(self: Any, *args: Any) -> None:
        made(self, *args)
        together.add(self.together)

    monkeypatch.setattr(blocking.Blocking, "__init__", noted)
    rng = np.random.default_rng(5)
    x, y = normal(rng, (140, 64)), normal(rng, (64, 256))
    matrices = np.stack([y, y, y[::-1]])
    with host.compiling_for(replace(host.current(), near_bytes=3 << 15)):  # two panels of rows fit half of it
        assert_near(multiplied(x, y), exact(x, y))
        found = gmm(x, matrices, [70, 0, 69], tiling=(140, 64, 256), preferred_element_type=FLOAT32, interpret="cpu")
    assert_near(found[:139], grouped(x, matrices, [70, 0, 69])[:139])
    assert splits(tiles) and 2 in together


# Rows whose number is known only when the kernel runs.


@pytest.mark.parametrize(
    ("kind", "transposed"), [((FLOAT32, FLOAT32), False), ((FLOAT16, FLOAT16), True)], ids=["float32", "float16"]
)
def test_groups_of_rows(kind: tuple[np.dtype, ...], transposed: bool, tiles: Texts) -> None:
    sizes = [34, 0, 49, 1]
    rng = np.random.default_rng(0)
    x, matrices = normal(rng, (sum(sizes) + 5, 66), kind[0]), normal(rng, (4, 66, 48), kind[1])
    given = np.ascontiguousarray(matrices.swapaxes(1, 2)) if transposed else matrices
    gmm(poison(x), poison(given), sizes, FLOAT32, transpose_rhs=transposed, interpret="cpu")
    out = np.full((len(x), 48), np.nan, FLOAT32)
    gmm(x, given, sizes, FLOAT32, transpose_rhs=transposed, out=out, interpret="cpu")
    assert_near(out, grouped(x, matrices, sizes))
    assert not out[sum(sizes) :].any()
    assert splits(tiles)


def test_any_number_of_rows_writes_no_other_rows(tiles: Texts) -> None:
    """Neither rows after those of a group, nor memory before and after the result."""
    rng = np.random.default_rng(0)
    x, matrix, begin = normal(rng, (70, 64)), normal(rng, (1, 64, 32)), normal(rng, (70, 32))
    gmm(poison(x), poison(matrix), [70], existing_out=poison(begin), interpret="cpu")
    for rows in (0, 1, 32, 33, 47, 48, 49, 63, 64, 65, 70):
        left = x.copy()
        left[rows:] = np.nan
        memory = np.full((90, 32), 7, FLOAT32)
        out = memory[10:80]
        gmm(left, matrix, [rows], FLOAT32, existing_out=begin, out=out, interpret="cpu")
        if rows:
            assert_near(out[:rows], exact(x[:rows], matrix[0]))
        np.testing.assert_array_equal(out[rows:], begin[rows:])
        assert (memory[:10] == 7).all() and (memory[80:] == 7).all()
    assert splits(tiles)


@on_the_model
def test_a_row_has_the_same_bits_in_each_place_of_a_tile_and_in_each_large_group(tiles: Texts) -> None:
    """A group of fewer rows is multiplied by vectors, so its bits are others."""
    rng = np.random.default_rng(0)
    x, matrices = normal(rng, (100, 66)), normal(rng, (2, 66, 32))
    every = [gmm(x, matrices, sizes, FLOAT32, interpret="cpu") for sizes in ([100, 0], [0, 100])]
    for size in (33, 49, 64):
        found = gmm(x, matrices, [size, 100 - size], FLOAT32, interpret="cpu")
        np.testing.assert_array_equal(found, np.concatenate([every[0][:size], every[1][size:]]))
    assert splits(tiles)


@on_the_model
def test_k_blocks_that_are_read_once_change_no_bits(tiles: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 64 rows: the second one of a group finds its matrix packed."""
    rng = np.random.default_rng(0)
    sizes = [64, 128, 0, 45]
    x, matrices = normal(rng, (sum(sizes) + 3, 128)), normal(rng, (len(sizes), 128, 32))
    expected = grouped(x, matrices, sizes)
    x[70, 100], x[160, 3], x[230, 70] = np.inf, -np.inf, np.nan
    finite = np.isfinite(x).all(axis=1)
    found = []
    with host.compiling_for(replace(host.current(), near_bytes=3 << 13)):
        for least, turns in ((16, LAYOUTS), (1 << 20, LAYOUTS[:1])):
            monkeypatch.setattr(blocking, "LEAST_SHORT_STEPS", least)
            forget_calls()
            kernels = len(tiles)
            for _, turn in turns:
                given = np.ascontiguousarray(matrices.swapaxes(1, 2)) if turn else matrices
                options = {"tiling": (64, 128, 32), "transpose_rhs": turn, "interpret": "cpu"}
                found.append(gmm(x, given, sizes, FLOAT32, **options))
            assert any("_on(" in text for text in tiles[kernels:]) == (least == 16)
    assert_near(found[0][finite], expected[finite])
    assert not np.isfinite(found[0][~finite]).any()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@on_the_model
def test_known_rows_read_each_k_block(tiles: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix of each task's own, and of one that is computed."""
    monkeypatch.setattr(blocking, "LEAST_SHORT_STEPS", 16)
    rng = np.random.default_rng(0)
    y = normal(rng, (128, 64))

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...])

    def squared(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...] * y[...])

    with host.compiling_for(replace(host.current(), near_bytes=3 << 13)):
        for rows in (32, 48, 64, 100):
            x = normal(rng, (rows, 128))
            columns = pl.BlockSpec((128, 32), lambda n: (0, n)), pl.BlockSpec((rows, 32), lambda n: (0, n))
            specs = [pl.BlockSpec((rows, 128), lambda n: (0, 0)), columns[0]]
            for body, right in ((kernel, y), (squared, y * y)):
                shape = pl.ShapeDtypeStruct((rows, 64), FLOAT32)
                call = pl.pallas_call(body, shape, grid=(2,), in_specs=specs, out_specs=columns[1], interpret="cpu")
                assert_near(call(x, y), exact(x, right))
    assert any("_on(" in text for text in tiles)


@on_the_model
def test_a_product_of_known_rows_has_the_bits_of_its_rows(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, y = normal(rng, (70, 98)), normal(rng, (98, 48))
    whole = multiplied(x, y)
    np.testing.assert_array_equal(multiplied(x[3:20], y), whole[3:20])
    np.testing.assert_array_equal(multiplied(x, y[:, 16:32]), whole[:, 16:32])
    for flips in LAYOUTS[1:]:
        np.testing.assert_array_equal(multiplied(x, y, flips), whole)
    assert splits(tiles)


@on_the_model
def test_results_are_the_same_bits_on_any_number_of_threads(tiles: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = normal(rng, (96, 64)), normal(rng, (64, 96))
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
        found.append(matmul(x, y, tiling=(48, 64, 48), interpret="cpu"))
    assert_near(found[0], exact(x, y))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("layout", ["x.T is a view", "x.T is in memory"])
@pytest.mark.parametrize(("seed", "most"), [(2, 33)])
def test_summed_axes_that_are_a_span(seed: int, most: int, layout: str, tiles: Texts) -> None:
    """`tgmm` sums over the rows of each group, which are known only when it runs. Others may be NaN."""
    sizes = some_sizes(seed, most)
    rng = np.random.default_rng(seed)
    x, y = normal(rng, (sum(sizes) + 6, 40)), normal(rng, (sum(sizes) + 6, 48))
    turn: Callable[[Array], Array] = (lambda x: x.T) if "view" in layout else lambda x: np.ascontiguousarray(x.T)
    tgmm(turn(poison(x)), poison(y), sizes, FLOAT32, interpret="cpu")
    x[sum(sizes) :], y[sum(sizes) :] = np.nan, np.inf
    out = np.full((7, 40, 48), np.nan, FLOAT32)
    tgmm(turn(x), y, sizes, FLOAT32, out=out, interpret="cpu")
    for found, size, end in zip(out, sizes, np.cumsum(sizes), strict=True):
        assert_near(found, exact(x[end - size : end].T, y[end - size : end]))
    assert splits(tiles)


@pytest.mark.parametrize(("m", "n", "causal"), [(50, 83, True)])
def test_attention(m: int, n: int, causal: bool, tiles: Texts) -> None:
    rng = np.random.default_rng(m)
    q, k, v = (normal(rng, (2, size, 64)) for size in (m, n, n))
    attention(*map(poison, (q, k, v)), causal=causal, block_q=32, block_k=32, interpret="cpu")
    out = attention(q, k, v, causal=causal, block_q=32, block_k=32, interpret="cpu")
    scores = exact(q, k.swapaxes(1, 2)) / 8
    if causal:
        scores = np.where(np.arange(n) <= np.arange(m)[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    assert np.linalg.norm(out - expected) <= 1e-6 * np.linalg.norm(expected)
    assert splits(tiles)


# Accuracy.


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_sums_of_positive_numbers_have_no_bias(flips: tuple[bool, bool], tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((32, 512), FLOAT32), rng.random((512, 32), FLOAT32)
    found, expected = multiplied(x, y, flips), exact(x, y)
    assert_near(found, expected)
    assert abs((found / expected - 1).mean()) < 1e-7
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_products_with_a_permutation_are_exact(flips: tuple[bool, bool], tiles: Texts) -> None:
    """The permutation is scaled by signed powers of two; all 24 bits of numbers of any magnitude must survive."""
    rng = np.random.default_rng(0)
    numbers = (normal(rng, (64, 64)) * 2.0 ** rng.integers(-100, 101, (64, 64))).astype(FLOAT32)
    sizes = rng.choice([-1, 1], 64) * 2.0 ** rng.integers(-20, 21, 64)
    permutation = (np.eye(64)[rng.permutation(64)] * sizes).astype(FLOAT32)
    keeps = np.abs(numbers) > 2.0**-80
    numbers[~keeps] = 1
    multiply = Product(flips)
    for x, y in ((numbers, permutation), (permutation, numbers)):
        np.testing.assert_array_equal(multiply(x, y), exact(x, y).astype(FLOAT32))
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_one_times_a_number_is_the_number(flips: tuple[bool, bool], tiles: Texts) -> None:
    """Of any normal bits above 2**-100, up to the largest finite ones."""
    rng = np.random.default_rng(0)
    bits = rng.integers(27 << 23, 255 << 23, (64, 64)).astype(np.uint32)
    bits[::7, ::5], bits[3::7, ::5], bits[5::7, ::5] = (255 << 23) - 1, 27 << 23, (27 << 23) + 1
    x = (bits | rng.integers(0, 2, (64, 64)).astype(np.uint32) << 31).view(FLOAT32)
    one = np.eye(64, dtype=FLOAT32)
    multiply = Product(flips)
    np.testing.assert_array_equal(multiply(x, one), x)
    np.testing.assert_array_equal(multiply(one, x), x)
    assert splits(tiles)


@on_the_model
def test_sums_of_small_integers_are_exact(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-255, 256, shape).astype(FLOAT32) for shape in ((33, 250), (250, 48)))
    np.testing.assert_array_equal(multiplied(x, y), exact(x, y))
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_tiny_numbers_lose_bits_but_do_not_touch_their_neighbours(flips: tuple[bool, bool], tiles: Texts) -> None:
    """Every exponent down to the least subnormal number, with all bits set or not, next to a 0 or a 1."""
    exponents = np.tile(np.arange(-149, -85), 2)
    x, y = np.eye(64, 128, dtype=FLOAT32), np.zeros((128, 64), FLOAT32)
    for n, tail in enumerate((0, 63, 127, 0x7FFFFF)):
        tiny = ((1 + tail * 2.0**-23) * 2.0**exponents).astype(FLOAT32)
        y[:, n], y[:, 8 + n], y[:, 16 + n] = tiny, -tiny, np.where(np.arange(128) % 2, tiny, 1)
        y[:, 24 + n], y[:, 32 + n] = np.where(np.arange(128) % 2, 0, -tiny), np.where(np.arange(128) % 2, tiny, 0)
    x[:, 64:] = 1
    for left, right in ((x, y), (y.T, x.T)):
        error = np.abs(multiplied(left, right, flips) - exact(left, right))
        assert (error <= 128 * 2.0**-124 + 4e-7 * np.abs(exact(left, right))).all()
    assert splits(tiles)


# Infinities and NaN.


def kinds(x: Array) -> Array:
    """NaN, the infinities, or 0 for a finite number."""
    return np.where(np.isfinite(x), 0, x)


def around(numbers: Array, special: float) -> tuple[Array, Array]:
    """Operands of positive numbers with something special at several places, each with what it is multiplied with."""
    x, y = np.abs(numbers[:37]) + 1, np.abs(numbers[37:].T) + 1
    x[3, 5], x[20, 66], x[36, 0] = special, special, -special
    y[4, 7], y[67, 40], y[9, 41] = special, -special, special
    return x.astype(FLOAT32), y.astype(FLOAT32)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_what_is_not_finite_is_as_in_float32(flips: tuple[bool, bool], tiles: Texts) -> None:
    """Infinity times 0, less infinity, and times a number of either sign."""
    multiply = Product(flips)
    for special in (np.inf, -np.inf, np.nan):
        x, y = around(normal(np.random.default_rng(0), (85, 68)), special)
        y[5, :9], y[66, 5:20] = 0, -2
        x[8, 4], x[9, 4], x[:5, 67] = 0, -3, -1
        x[20, 67] = special
        np.testing.assert_array_equal(kinds(multiply(x, y)), kinds(exact(x, y)))
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_what_is_not_finite_changes_no_bits_of_others(flips: tuple[bool, bool], tiles: Texts) -> None:
    multiply = Product(flips)
    for special in (np.inf, np.nan):
        x, y = around(normal(np.random.default_rng(0), (85, 68)), special)
        plain = multiply(np.where(np.isfinite(x), x, 1), np.where(np.isfinite(y), y, 1))
        found, finite = multiply(x, y), np.isfinite(exact(x, y))
        np.testing.assert_array_equal(found[finite], plain[finite])
        assert finite.sum() == 34 * 45 and not np.isfinite(found[~finite]).any()
    assert splits(tiles)


@on_the_model
@pytest.mark.parametrize("flips", LAYOUTS)
def test_nan_with_any_payload_stays_nan(flips: tuple[bool, bool], tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, y = normal(rng, (33, 64)), normal(rng, (64, 48))
    rows, columns = np.isin(np.arange(33), [3, 32]), np.isin(np.arange(48), [7, 40])
    multiply = Product(flips)
    for bits in (0x7F800001, 0xFF800001, 0x7F80FFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0xFF808000):
        left, right = x.copy(), y.copy()
        left.view(np.uint32)[3, 5], left.view(np.uint32)[32, 8] = bits, bits
        right.view(np.uint32)[6, 7], right.view(np.uint32)[9, 40] = bits, bits
        found = np.isnan(multiply(left, y))
        np.testing.assert_array_equal(found, np.broadcast_to(rows[:, None], found.shape))
        found = np.isnan(multiply(x, right))
        np.testing.assert_array_equal(found, np.broadcast_to(columns, found.shape))
    assert splits(tiles)


@on_the_model
def test_the_largest_numbers_are_not_lost_and_larger_ones_are_infinite(tiles: Texts) -> None:
    largest = np.finfo(FLOAT32).max
    x, y = np.zeros((48, 64), FLOAT32), np.zeros((64, 48), FLOAT32)
    x[0, 0], x[1, 1], x[2, :2], x[40, 1], x[41, 0] = largest, -largest, 2e38, largest, 2.0**64
    y[0, :6] = y[1, :6] = 1, 0.5, -0.75, 1.5, 2.0**64, 0
    y[0, 40] = 2.0**63
    found, expected = multiplied(x, y), exact(x, y)
    overflows = np.abs(expected) > largest
    np.testing.assert_array_equal(found[overflows], np.sign(expected[overflows]) * np.inf)
    np.testing.assert_allclose(found[~overflows], expected[~overflows], rtol=1e-6)
    assert overflows.sum() >= 6 and splits(tiles)


@on_the_model
def test_what_is_not_finite_in_several_k_blocks_and_in_initial_sums(
    tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "SPLIT_STEPS", 32)
    rng = np.random.default_rng(0)
    x, y, begin = (np.abs(normal(rng, shape)) + 1 for shape in ((37, 130), (130, 48), (37, 48)))
    x[3, 5], x[4, 100], x[5, 5], x[5, 120] = np.inf, -np.inf, np.inf, -np.inf
    y[60, 7], y[128, 40] = np.nan, np.inf
    begin[6, 9], begin[3, 9], begin[4, 9], begin[36, 47] = np.inf, np.inf, np.inf, np.nan
    call = pl.pallas_call(dot(False, False, FLOAT32, True), pl.ShapeDtypeStruct((37, 48), FLOAT32), interpret="cpu")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(kinds(call(x, y, begin)), kinds(exact(x, y) + begin))
    assert splits(tiles)


@on_the_model
def test_rows_after_those_of_a_group_do_not_show(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, matrices = normal(rng, (120, 64)), normal(rng, (3, 64, 32))
    sizes = [39, 41, 40]
    plain = gmm(x, matrices, sizes, FLOAT32, interpret="cpu")
    x[39:80], matrices[1] = np.nan, np.inf
    found = gmm(x, matrices, sizes, FLOAT32, interpret="cpu")
    assert np.isnan(found[39:80]).all()
    for rows in (slice(39), slice(80, 120)):
        np.testing.assert_array_equal(found[rows], plain[rows])
    assert splits(tiles)


# The code.


def test_a_turn_loads_fourteen_tiles_for_its_products(text_for_tiles: Any) -> None:
    """Two tiles of rows and two of columns have six products of pieces each, and all but one share a piece with the
    last."""
    call = pl.pallas_call(dot(False, False, FLOAT32), pl.ShapeDtypeStruct((64, 64), FLOAT32), interpret="cpu")
    code = assembly(text_for_tiles(call, np.zeros((64, 256), FLOAT32), np.zeros((256, 64), FLOAT32)), SAPPHIRE)
    blocks = re.split(r"^\.L\w+:", code, flags=re.MULTILINE)
    (block,) = (block for block in blocks if re.search(r"^\s+tdpbf16ps\s", block, re.MULTILINE))
    steps = re.split(r"^\s+j\w+", block, flags=re.MULTILINE)[0]
    products, loads = (len(re.findall(rf"^\s+{name}\s", steps, re.MULTILINE)) for name in ("tdpbf16ps", "tileloadd"))
    assert (products, loads) == (24, 14)
    assert "tilestored" not in steps and "mm" not in steps.replace("tmm", "")
