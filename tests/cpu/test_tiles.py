"""Products on tile registers (AMX), natively where the host has them, and everywhere on a model of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.cpu import engine
from palladio.cpu.products import blocking, product
from palladio.cpu.products import dot as products
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import assembly
from palladio.library import attention, gmm, tgmm
from tests.cpu import tile_model
from tests.cpu.tile_model import TileRegisters
from tests.cpu.tiles import (
    BFLOAT16,
    FLOAT32,
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
from tests.pairs import every_pair

INT8, UINT8, INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)

TOLERANCE = {FLOAT32: 1e-6, BFLOAT16: 4e-3}
"""Relative error norms: of sums in float32, and of those rounded to bfloat16."""


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    if dtype == BFLOAT16:
        return rng.standard_normal(shape).astype(dtype)
    extremes = np.iinfo(dtype)
    return rng.integers(extremes.min, extremes.max + 1, shape).astype(dtype)


def reference(x: Array, y: Array, sums: np.dtype) -> Array:
    return x.astype(np.int64) @ y if sums == INT32 else x.astype(np.float64) @ y.astype(np.float64)


def assert_right(found: Array, expected: Array) -> None:
    """Integers are exact, and floats near."""
    assert found.shape == expected.shape
    if found.dtype == INT32:
        np.testing.assert_array_equal(found, expected.astype(np.int32))
        return
    error = np.linalg.norm(found.astype(np.float64) - expected)
    assert error <= TOLERANCE[found.dtype] * np.linalg.norm(expected), error


# Dense products.

KINDS = [(BFLOAT16, BFLOAT16, FLOAT32), (BFLOAT16, BFLOAT16, BFLOAT16), (INT8, INT8, INT32), (UINT8, INT8, INT32)]
INSTRUCTIONS = {BFLOAT16: "tdpbf16ps", INT8: "tdpbssd", UINT8: "tdpbusd"}

ROWS = (1, 2, 7, 15, 16, 17, 23, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 70)
DEPTHS = (4, 8, 28, 32, 36, 64, 68, 100, 132, 164)
COLUMNS = (16, 32, 48, 80)

SIZES = [
    (rows, DEPTHS[(3 * n + 1) % len(DEPTHS)], COLUMNS[(5 * n + 2) % len(COLUMNS)], n) for n, rows in enumerate(ROWS)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind)))
@pytest.mark.parametrize(("rows", "depth", "columns", "number"), SIZES)
def test_dense_products(
    rows: int, depth: int, columns: int, number: int, kind: tuple[np.dtype, ...], tiles: Texts
) -> None:
    left, right, sums = kind
    rng = np.random.default_rng(number)
    x, y = random(rng, (rows, depth), left), random(rng, (depth, columns), right)
    flips = bool(number & 1), bool(number & 2)
    given = turned(x, flips[0]), turned(y, flips[1])
    call = pl.pallas_call(dot(*flips, sums), pl.ShapeDtypeStruct((rows, columns), sums), interpret="cpu")
    call(*map(poison, given))
    assert_right(call(*given), reference(x, y, sums))
    assert on_tiles(tiles) == ({INSTRUCTIONS[left]} if rows > 4 else set())  # a few rows are vectors


@pytest.mark.parametrize("tiles", ["model"], indirect=True)
def test_columns_that_do_not_fit_a_cache_are_multiplied_with_several_panels_of_rows(tiles: Texts) -> None:
    rng = np.random.default_rng(5)
    x, y = random(rng, (140, 64), BFLOAT16), random(rng, (64, 512), BFLOAT16)
    call = pl.pallas_call(dot(False, False, FLOAT32), pl.ShapeDtypeStruct((140, 512), FLOAT32), interpret="cpu")
    matrices = np.stack([y, y, y[::-1]])
    with host.compiling_for(replace(host.current(), near_bytes=1 << 15)):  # two panels of rows fit half of it
        call(poison(x), poison(y))
        assert_right(call(x, y), reference(x, y, FLOAT32))
        found = gmm(x, matrices, [70, 0, 69], tiling=(140, 64, 512), preferred_element_type=FLOAT32, interpret="cpu")
    assert_right(found[:70], reference(x[:70], matrices[0], FLOAT32))
    assert_right(found[70:139], reference(x[70:139], matrices[2], FLOAT32))
    assert on_tiles(tiles) == {"tdpbf16ps"}


@pytest.mark.parametrize("tiles", ["model"], indirect=True)
def test_a_long_product_that_is_interrupted_leaves_no_registers_in_use(
    tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "LONG", 0)
    x, y = (random(np.random.default_rng(n), (64, 64), BFLOAT16) for n in range(2))
    call = pl.pallas_call(dot(False, False, FLOAT32), pl.ShapeDtypeStruct((64, 64), FLOAT32), interpret="cpu")
    assert_right(call(x, y), reference(x, y, FLOAT32))
    (text,) = [each for each in tiles if "tdpbf16ps" in each]
    kernel, in_use, ends = text[text.index("@kernel(") :], False, 0
    for event in re.findall(r"ldtilecfg\(|tilerelease\(|@multiply_tdp|ret i32 1", kernel):
        if event.startswith(("ldtilecfg", "tilerelease")):
            in_use = event.startswith("ldtilecfg")
        else:
            ends += event.startswith("ret")
            assert in_use == event.startswith("@multiply")
    assert ends and not in_use


@pytest.mark.parametrize("least", [32, 33])
def test_products_below_a_size_are_multiplied_by_vectors(
    least: int, tiles: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LEAST_DEPTH_ON_TILES", least)
    rng = np.random.default_rng(least)
    x, y = random(rng, (16, 32), BFLOAT16), random(rng, (32, 32), BFLOAT16)
    call = pl.pallas_call(dot(False, False, FLOAT32), pl.ShapeDtypeStruct((16, 32), FLOAT32), interpret="cpu")
    assert_right(call(x, y), reference(x, y, FLOAT32))
    assert on_tiles(tiles) == ({"tdpbf16ps"} if least == 32 else set())


@pytest.mark.parametrize(
    ("rows", "flips"), [(5, (False, False)), (37, (True, False)), (37, (False, True)), (5, (True, True))]
)
@pytest.mark.parametrize(("depth", "columns"), [(34, 48), (62, 16), (33, 48), (34, 23), (6, 64), (2, 16)])
def test_products_that_tiles_do_not_divide(
    rows: int, depth: int, columns: int, flips: tuple[bool, bool], tiles: Texts
) -> None:
    """An odd depth, or columns that are not a multiple of 16, are multiplied without pairs."""
    rng = np.random.default_rng(depth)
    x, y = random(rng, (rows, depth), BFLOAT16), random(rng, (depth, columns), BFLOAT16)
    given = turned(x, flips[0]), turned(y, flips[1])
    call = pl.pallas_call(dot(*flips, FLOAT32), pl.ShapeDtypeStruct((rows, columns), FLOAT32), interpret="cpu")
    call(*map(poison, given))
    assert_right(call(*given), reference(x, y, FLOAT32))
    assert on_tiles(tiles) == (set() if depth % 2 or columns % 16 else {"tdpbf16ps"})


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("kind", "depth", "adds"),
    [
        (KINDS[0], 1128, True),
        (KINDS[0], 514, False),
        (KINDS[1], 522, False),
        (KINDS[2], 1132, True),
        (KINDS[3], 2052, False),
    ],
)
def test_summed_axes_of_several_k_blocks(
    kind: tuple[np.dtype, ...],
    depth: int,
    adds: bool,
    flips: tuple[bool, bool],
    tiles: Texts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right, sums = kind
    for module in (blocking, products):
        monkeypatch.setattr(module, "DEPTH_BYTES", 1024)
    rng = np.random.default_rng(depth)
    x, y = random(rng, (19, depth), left), random(rng, (depth, 32), right)
    begin = [random(rng, (19, 32), INT32 if sums == INT32 else BFLOAT16).astype(sums)] if adds else []
    given = turned(x, flips[0]), turned(y, flips[1]), *begin
    call = pl.pallas_call(dot(*flips, sums, adds), pl.ShapeDtypeStruct((19, 32), sums), interpret="cpu")
    call(*map(poison, given))
    expected = reference(x, y, sums) + (begin[0].astype(np.int64 if sums == INT32 else np.float64) if adds else 0)
    assert_right(call(*given), expected)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], KINDS[3]], ids=lambda kind: str(kind[0]))
@pytest.mark.parametrize("rows", [5, 16, 20, 33])
def test_products_are_added_to_sums(rows: int, kind: tuple[np.dtype, ...], tiles: Texts) -> None:
    """In place, and to sums that are elsewhere and are not changed."""
    left, right, sums = kind
    rng = np.random.default_rng(rows)
    x, y = random(rng, (rows, 3, 64), left), random(rng, (3, 64, 48), right)
    begin = random(rng, (rows, 48), INT32 if sums == INT32 else BFLOAT16).astype(sums)

    def kernel(x: Any, y: Any, begin: Any, out: Any, once: Any) -> None:
        out[...] = begin[...]
        for n in range(3):
            out[...] += jnp.dot(x[:, n], y[n], preferred_element_type=sums)
        once[...] = begin[...] + jnp.dot(x[:, 1], y[2], preferred_element_type=sums)

    shapes = [pl.ShapeDtypeStruct((rows, 48), sums)] * 2
    call = pl.pallas_call(kernel, shapes, interpret="cpu")
    call(*map(poison, (x, y, begin)))
    before = begin.copy()
    out, once = call(x, y, begin)
    np.testing.assert_array_equal(begin, before)
    wide = begin.astype(np.int64 if sums == INT32 else np.float64)
    assert_right(out, wide + sum(reference(x[:, n], y[n], sums) for n in range(3)))
    assert_right(once, wide + reference(x[:, 1], y[2], sums))


@pytest.mark.parametrize("depth", [32, 64, 40, 8, 160, 192])
@pytest.mark.parametrize(
    ("kind", "flips"),
    [(KINDS[0], (False, False)), (KINDS[0], (False, True)), (KINDS[0], (True, False)), (KINDS[2], (True, False))],
)
def test_several_products_are_one_sum(
    flips: tuple[bool, bool],
    kind: tuple[np.dtype, ...],
    depth: int,
    tiles: Texts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Depths that are not whole tiles of steps do not run on them. The greatest ones have several k-blocks."""
    left, right, sums = kind
    for module in (blocking, products):
        monkeypatch.setattr(module, "DEPTH_BYTES", 1024)
    rng = np.random.default_rng(depth)
    lefts = [random(rng, (37, depth), left) for _ in range(4)]
    rights = [random(rng, (depth, 32), right) for _ in range(4)]

    def kernel(*refs: Any) -> None:
        values = [ref[...] for ref in refs[:8]]
        total = jnp.full((37, 32), 3, sums)
        for x, y in zip(values[:4], values[4:], strict=True):
            x, y = x.T if flips[0] else x, y.T if flips[1] else y
            total += jnp.dot(x, y, preferred_element_type=sums)
        refs[-1][...] = total

    given = [turned(x, flips[0]) for x in lefts] + [turned(y, flips[1]) for y in rights]
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((37, 32), sums), interpret="cpu")
    call(*map(poison, given))
    assert_right(call(*given), 3 + sum(reference(x, y, sums) for x, y in zip(lefts, rights, strict=True)))
    assert bool(on_tiles(tiles)) == (depth * left.itemsize % 64 == 0)


# Rows whose number is known only when the kernel runs.


@pytest.mark.parametrize(
    ("seeded", "result", "transposed"),
    every_pair([(0, 70), (1, 20), (3, 100)], [FLOAT32, BFLOAT16], [False, True]),
    ids=str,
)
def test_groups_of_rows(seeded: tuple[int, int], result: np.dtype, transposed: bool, tiles: Texts) -> None:
    seed, most = seeded
    sizes = some_sizes(seed, most)
    rng = np.random.default_rng(seed)
    x, matrices = random(rng, (sum(sizes) + 5, 68), BFLOAT16), random(rng, (7, 68, 96), BFLOAT16)
    given = np.ascontiguousarray(matrices.swapaxes(1, 2)) if transposed else matrices
    gmm(poison(x), poison(given), sizes, result, transpose_rhs=transposed, interpret="cpu")
    out = np.full((len(x), 96), np.nan, result)
    gmm(x, given, sizes, result, transpose_rhs=transposed, out=out, interpret="cpu")
    assert_right(out, grouped(x, matrices, sizes))
    assert not out[sum(sizes) :].any()
    assert on_tiles(tiles) == {"tdpbf16ps"}


def test_any_number_of_rows(tiles: Texts) -> None:
    """Of one kernel, in two groups: the one ends where the other begins."""
    rng = np.random.default_rng(0)
    x, matrices = random(rng, (72, 64), BFLOAT16), random(rng, (2, 64, 48), BFLOAT16)
    gmm(poison(x), poison(matrices), [36, 36], FLOAT32, interpret="cpu")
    every = [reference(x, matrix, FLOAT32) for matrix in matrices]
    for rows in range(73):
        out = np.full((72, 48), np.nan, FLOAT32)
        gmm(x, matrices, [rows, 72 - rows], FLOAT32, out=out, interpret="cpu")
        assert_right(out, np.concatenate([every[0][:rows], every[1][rows:]]))
    assert on_tiles(tiles) == {"tdpbf16ps"}


def in_place(texts: Texts) -> set[str]:
    """The kernels that multiply a few rows with a matrix where it lies: tiles along the rows, and parts."""
    return set(re.findall(r"multiply_rows_on_tiles_(\w+)", "\n".join(texts)))


@pytest.mark.parametrize("result", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(32, 32), (64, 80), (96, 48), (192, 64), (224, 112)])
def test_few_rows_are_multiplied_with_matrices_in_place(
    depth: int, columns: int, result: np.dtype, tiles: Texts
) -> None:
    """An even number of parts of 32 rows of a matrix is multiplied two at a time."""
    sizes = [0, 5, 16, 1, 17, 33, 0, 48, 49, 4]
    rng = np.random.default_rng(depth)
    x, matrices = random(rng, (sum(sizes) + 5, depth), BFLOAT16), random(rng, (10, depth, columns), BFLOAT16)
    gmm(poison(x), poison(matrices), sizes, result, interpret="cpu")
    out = np.full((len(x), columns), np.nan, result)
    gmm(x, matrices, sizes, result, out=out, interpret="cpu")
    assert_right(out, grouped(x, matrices, sizes))
    assert not out[sum(sizes) :].any()
    assert in_place(tiles) == {f"{n}x{1 if depth % 64 else 2}" for n in (1, 2, 3)}


@pytest.mark.parametrize(("depth", "columns", "transposed"), [(40, 64, False), (64, 16, False), (64, 64, True)])
def test_matrices_that_parts_do_not_divide_are_not_multiplied_in_place_on_tiles(
    depth: int, columns: int, transposed: bool, tiles: Texts
) -> None:
    rng = np.random.default_rng(depth)
    x, matrices, sizes = random(rng, (60, depth), BFLOAT16), random(rng, (3, depth, columns), BFLOAT16), [9, 31, 20]
    given = np.ascontiguousarray(matrices.swapaxes(1, 2)) if transposed else matrices
    gmm(poison(x), poison(given), sizes, FLOAT32, transpose_rhs=transposed, interpret="cpu")
    out = gmm(x, given, sizes, FLOAT32, transpose_rhs=transposed, interpret="cpu")
    assert_right(out, grouped(x, matrices, sizes))
    assert not in_place(tiles)


def test_a_row_has_the_same_bits_however_many_rows_its_group_has(tiles: Texts) -> None:
    """From 5 on: those of a matrix in place, in each row of a tile, and those of a packed one."""
    rng = np.random.default_rng(0)
    x, matrices = random(rng, (128, 96), BFLOAT16), random(rng, (2, 96, 48), BFLOAT16)
    every = [gmm(x, matrices, sizes, FLOAT32, interpret="cpu") for sizes in ([128, 0], [0, 128])]
    for size in (5, 15, 16, 40, 48, 49, 123):
        found = gmm(x, matrices, [size, 128 - size], FLOAT32, interpret="cpu")
        np.testing.assert_array_equal(found, np.concatenate([every[0][:size], every[1][size:]]))
    assert in_place(tiles) == {"1x1", "2x1", "3x1"}


def test_few_rows_beside_those_of_an_existing_result(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, matrices, sizes = random(rng, (60, 64), BFLOAT16), random(rng, (3, 64, 48), BFLOAT16), [19, 0, 30]
    begin = random(rng, (60, 48), BFLOAT16).astype(FLOAT32)
    gmm(poison(x), poison(matrices), sizes, existing_out=poison(begin.astype(BFLOAT16)), interpret="cpu")
    out = gmm(x, matrices, sizes, FLOAT32, existing_out=begin, interpret="cpu")
    assert_right(out[:49], grouped(x, matrices, sizes)[:49])
    np.testing.assert_array_equal(out[49:], begin[49:])
    assert in_place(tiles)


def test_groups_with_a_deep_summed_axis(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, matrices, sizes = random(rng, (60, 4500), BFLOAT16), random(rng, (3, 4500, 32), BFLOAT16), [21, 0, 39]
    gmm(poison(x), poison(matrices), sizes, FLOAT32, tiling=(60, 4500, 32), interpret="cpu")
    out = gmm(x, matrices, sizes, FLOAT32, tiling=(60, 4500, 32), interpret="cpu")
    assert_right(out, grouped(x, matrices, sizes))
    assert on_tiles(tiles) == {"tdpbf16ps"}


@pytest.mark.parametrize("layout", ["x.T is a view", "x.T is in memory"])
@pytest.mark.parametrize(("seed", "most"), [(0, 70), (1, 9), (2, 33), (4, 200)])
def test_summed_axes_that_are_a_span(seed: int, most: int, layout: str, tiles: Texts) -> None:
    """`tgmm` sums over the rows of each group, which are known only when it runs. Others may be NaN."""
    sizes = some_sizes(seed, most)
    rng = np.random.default_rng(seed)
    x, y = random(rng, (sum(sizes) + 6, 40), BFLOAT16), random(rng, (sum(sizes) + 6, 48), BFLOAT16)
    turn = (lambda x: x.T) if layout == "x.T is a view" else (lambda x: np.ascontiguousarray(x.T))
    tgmm(turn(poison(x)), poison(y), sizes, FLOAT32, interpret="cpu")
    x[sum(sizes) :], y[sum(sizes) :] = np.nan, np.inf
    out = np.full((7, 40, 48), np.nan, FLOAT32)
    tgmm(turn(x), y, sizes, FLOAT32, out=out, interpret="cpu")
    ends = np.cumsum(sizes)
    for found, size, end in zip(out, sizes, ends, strict=True):
        assert_right(found, reference(x[end - size : end].T, y[end - size : end], FLOAT32))
    assert on_tiles(tiles) == {"tdpbf16ps"}


@pytest.mark.parametrize(("m", "n", "causal"), [(64, 64, True), (50, 83, False), (17, 100, True)])
def test_attention(m: int, n: int, causal: bool, tiles: Texts) -> None:
    rng = np.random.default_rng(m)
    q, k, v = (random(rng, (2, size, 64), BFLOAT16) for size in (m, n, n))
    attention(*map(poison, (q, k, v)), causal=causal, block_q=32, block_k=32, interpret="cpu")
    out = attention(q, k, v, causal=causal, block_q=32, block_k=32, interpret="cpu")
    wide_q, wide_k, wide_v = (each.astype(np.float64) for each in (q, k, v))
    scores = wide_q @ wide_k.swapaxes(1, 2) / 8
    if causal:
        scores = np.where(np.arange(n) <= np.arange(m)[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ wide_v
    assert np.linalg.norm(out.astype(np.float64) - expected) <= 8e-3 * np.linalg.norm(expected)
    assert "tdpbf16ps" in on_tiles(tiles)


# Special values.


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("depth", "special"), [(24, np.nan), (64, -np.inf), (70, np.inf)])
def test_what_is_not_a_number_stays_in_its_row_and_column(
    depth: int, special: float, flips: tuple[bool, bool], tiles: Texts
) -> None:
    """Padding rows and steps of a tile do not affect others: an infinity is never multiplied by a padding zero."""
    rng = np.random.default_rng(0)
    x, y = np.abs(random(rng, (37, depth), BFLOAT16)) + 1, np.abs(random(rng, (depth, 48), BFLOAT16)) + 1
    x, y = x.astype(BFLOAT16), y.astype(BFLOAT16)
    call = pl.pallas_call(dot(*flips, FLOAT32), pl.ShapeDtypeStruct((37, 48), FLOAT32), interpret="cpu")
    plain = call(turned(x, flips[0]), turned(y, flips[1]))
    for row, column, step in ((0, 0, 0), (15, 16, depth - 1), (36, 47, depth - 2), (32, 31, 5)):
        left, right = x.copy(), y.copy()
        left[row, step] = right[depth - 1 - step, column] = special
        found = call(turned(left, flips[0]), turned(right, flips[1]))
        expected = plain.copy()
        expected[row] = expected[:, column] = special
        np.testing.assert_array_equal(found, expected)


def test_rows_after_those_of_a_group_do_not_show(tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, matrices = random(rng, (60, 64), BFLOAT16), random(rng, (3, 64, 32), BFLOAT16)
    sizes = [19, 9, 32]
    plain = gmm(x, matrices, sizes, FLOAT32, interpret="cpu")
    x[19:28], matrices[1] = np.nan, np.inf
    found = gmm(x, matrices, sizes, FLOAT32, interpret="cpu")
    assert np.isnan(found[19:28]).all()
    for rows in (slice(19), slice(28, 60)):
        np.testing.assert_array_equal(found[rows], plain[rows])


def test_subnormal_numbers_are_zero(tiles: Texts) -> None:
    """As operands and as sums; infinity times such a number is NaN."""
    x, y = np.ones((32, 32), BFLOAT16), np.zeros((32, 48), BFLOAT16)
    x[3, 5], x[7] = np.inf, 0.5
    y[5, 7], y[4, 9], y[3, 11] = 1e-39, 1e-38 * 1.5, 1.0
    call = pl.pallas_call(dot(False, False, FLOAT32), pl.ShapeDtypeStruct((32, 48), FLOAT32), interpret="cpu")
    found = call(x, y)
    assert np.isnan(found[3, 7]) and found[0, 7] == 0
    assert found[0, 9] == FLOAT32.type(y[4, 9]) and found[7, 9] == 0
    assert found[0, 11] == 1


def test_sums_of_integers_wrap_around(tiles: Texts) -> None:
    begin = np.full((20, 32), 2**31 - 5, INT32)
    x, y = np.full((20, 64), -128, INT8), np.full((64, 32), -128, INT8)
    call = pl.pallas_call(dot(False, False, INT32, True), pl.ShapeDtypeStruct((20, 32), INT32), interpret="cpu")
    expected = (begin.astype(np.int64) + 64 * 2**14 + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(call(x, y, begin), expected)
    assert on_tiles(tiles) == {"tdpbssd"}


# The instructions themselves.


def executed(name: str, total: Array, left: Array, right: Array) -> Array:
    """A tile after an instruction has multiplied two others and added the product to it."""
    configuration = np.zeros(64, np.uint8)
    configuration[0], configuration[16:32:2], configuration[48:56] = 1, 64, 16
    tiles = [np.ascontiguousarray(each).view(np.uint8).reshape(1024) for each in (total, left, right)]
    memory = np.concatenate([configuration, *tiles])
    places = [f"  %p{n} = getelementptr i8, ptr %memory, i64 {64 + 1024 * n}" for n in range(3)]
    loads = [f"  call void @llvm.x86.tileloadd64(i8 {n}, ptr %p{n}, i64 64)" for n in range(3)]
    text = [
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilerelease()",
        "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
        "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
        f"declare void @llvm.x86.{name}(i8 immarg, i8 immarg, i8 immarg)",
        "define i32 @kernel(ptr %memory, ptr %sizes, ptr %arena, i64 %first, i64 %last) {",
        "  call void @llvm.x86.ldtilecfg(ptr %memory)",
        *places,
        *loads,
        f"  call void @llvm.x86.{name}(i8 0, i8 1, i8 2)",
        "  call void @llvm.x86.tilestored64(i8 0, ptr %p0, i64 64)",
        "  call void @llvm.x86.tilerelease()",
        "  ret i32 0",
        "}",
    ]
    assert engine.MachineCode("\n".join(text)).call(memory.ctypes.data, None, None, 0, 1) == 0
    return memory[64:1088].view(total.dtype).reshape(16, 16)


def some_floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, spread: int) -> Array:
    """Numbers of either sign whose exponents lie apart, up to all that the dtype has."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(FLOAT32).astype(dtype)


def assert_same_bits(found: Array, expected: Array) -> None:
    """All bits are the same, but for those of NaN."""
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), ~number)
    np.testing.assert_array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number])


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("spread", [0, 6, 30, 64, 75, 130])
def test_pairs_are_multiplied_as_in_the_manual(spread: int, special: bool, tiles: Texts) -> None:
    """Up to products and sums that are subnormal, and such that overflow. The model has the processor's bits."""
    rng = np.random.default_rng(spread)
    for _ in range(20):
        left, right = (some_floats(rng, (16, 16, 2), BFLOAT16, spread) for _ in range(2))
        total = some_floats(rng, (16, 16), FLOAT32, min(2 * spread, 130))
        if special:
            values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-39, 2.0**-126, 3e38])
            left[rng.integers(0, 16, 3), rng.integers(0, 16, 3)] = rng.choice(values, (3, 1))
            right[rng.integers(0, 16, 3), rng.integers(0, 16, 3)] = rng.choice(values, (3, 1))
            total[rng.integers(0, 16, 3), rng.integers(0, 16, 3)] = rng.choice(values, 3)
        expected = tile_model.pairs_multiplied(total, left.view(np.uint16), right.view(np.uint16))
        assert_same_bits(executed("tdpbf16ps", total, left, right), expected)


@pytest.mark.parametrize(("name", "dtype"), [("tdpbssd", INT8), ("tdpbusd", UINT8)])
def test_quads_are_multiplied_as_in_the_manual(name: str, dtype: np.dtype, tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        left, right = random(rng, (16, 16, 4), dtype), random(rng, (16, 16, 4), INT8)
        total = random(rng, (16, 16), INT32)
        expected = tile_model.quads_multiplied(total, left, right)
        np.testing.assert_array_equal(executed(name, total, left, right), expected)


def one_pair(total: float, *products: tuple[float, float]) -> float:
    """The sum of a total and of products at successive places, by the model."""
    left, right = np.zeros((16, 32), BFLOAT16), np.zeros((16, 16, 2), BFLOAT16)
    for n, (x, y) in enumerate(products):
        left[0, n], right[n // 2, 0, n % 2] = x, y
    bits = left.view(np.uint16).reshape(16, 16, 2), right.view(np.uint16)
    return float(tile_model.pairs_multiplied(np.full((16, 16), total, FLOAT32), *bits)[0, 0])


def test_the_model_sums_even_and_odd_products_apart() -> None:
    big, small = (2.0**12, 2.0**12), (1.0, 1.0)
    minus = (-(2.0**12), 2.0**12)
    assert one_pair(0.0, big, small, minus, small) == 2.0
    assert one_pair(0.0, big, (0, 0), small, (0, 0), minus) == 0.0  # 2^24 + 1 is a tie, to even
    assert one_pair(2.0**24, small, (0, 0), small) == 2.0**24 + 2  # the total is added last
    assert one_pair(1.0, (2.0**-60, 2.0**-60), (0, 0), (2.0**-60, -(2.0**-60))) == 1.0


def test_the_model_flushes_subnormal_numbers() -> None:
    assert one_pair(0.0, (1e-39, 2.0**100)) == 0.0
    assert one_pair(0.0, (2.0**-70, 2.0**-60)) == 0.0
    assert one_pair(2.0**-130, (0, 0)) == 0.0
    assert one_pair(0.0, (2.0**-63, 2.0**-63)) == 2.0**-126
    assert one_pair(2.0**-126, (-1.5 * 2.0**-63, 2.0**-63)) == 0.0  # a sum of normal numbers
    assert np.isnan(one_pair(0.0, (np.inf, 1e-39)))


def test_the_model_rounds_once() -> None:
    """2^24 + 1 + 2^-40 is nearer to 2^24 + 2; rounded to float64 before it would be a tie."""
    assert one_pair(0.0, (2.0**12, 2.0**12), (0, 0), (2.0**-20, 2.0**-20)) == 2.0**24
    total = tile_model.added(np.array([2.0**24 + 1]), np.array([2.0**-40]))
    assert total == 2.0**24 + 2
    assert tile_model.added(np.array([2.0**24 + 1]), np.array([-(2.0**-40)])) == 2.0**24


def test_the_model_reports_registers_that_are_not_configured() -> None:
    registers = TileRegisters()
    registers.tilezero(0)
    assert registers.faults == ["tile registers are used that are not configured"]


# The code.


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind)))
def test_a_step_loads_as_many_tiles_as_it_multiplies(kind: tuple[np.dtype, ...], text_for_tiles: Any) -> None:
    """Two tiles of rows and two of columns have four products, whose sums stay in registers."""
    left, right, sums = kind
    call = pl.pallas_call(dot(False, False, sums), pl.ShapeDtypeStruct((64, 64), sums), interpret="cpu")
    text = text_for_tiles(call, np.zeros((64, 256), left), np.zeros((256, 64), right))
    code = assembly(text, SAPPHIRE)
    multiply = INSTRUCTIONS[left]
    blocks = re.split(r"^\.L\w+:", code, flags=re.MULTILINE)
    (block,) = (block for block in blocks if re.search(rf"^\s+{multiply}\s", block, re.MULTILINE))
    steps = re.split(r"^\s+j\w+", block, flags=re.MULTILINE)[0]
    products, loads = (len(re.findall(rf"^\s+{name}\s", steps, re.MULTILINE)) for name in (multiply, "tileloadd"))
    assert products and products % 4 == 0 and loads == products
    assert "tilestored" not in steps and "mm" not in steps.replace("tmm", "")
    assert code.count("tilerelease") >= 1
