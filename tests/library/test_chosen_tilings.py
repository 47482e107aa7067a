"""The tiles that the library chooses where its caller names none."""

from __future__ import annotations

import itertools
import math
import sys

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.cpu import engine
from palladio.cpu.runtime import native
from palladio.cpu.runtime.workers import run_tasks
from palladio.library import (
    attention_blocks,
    gmm,
    gmm_tiling,
    grouped_matmul,
    matmul,
    matmul_tiling,
    tgmm,
    tgmm_tiling,
    tilings,
)
from palladio.library.tilings import evenly
from tests.library.references import assert_close, gmm_reference, normal, tgmm_reference

HOSTS = [
    pl.Processor("narrow", 16, (32 << 10, 256 << 10, 4 << 20), 1),
    pl.Processor("small", 32, (32 << 10, 512 << 10, 8 << 20), 4),
    pl.Processor("wide", 64, (48 << 10, 2 << 20, 32 << 20), 2),
    pl.Processor("server", 64, (48 << 10, 2 << 20, 256 << 20), 64),
]
SIZES = [1, 2, 31, 64, 384, 1000, 3584, 20000]


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def host(request, monkeypatch):
    monkeypatch.setattr(pl, "processor", lambda: request.param)
    return request.param


def test_an_axis_is_cut_into_even_pieces():
    assert evenly(3584, 512, 2, 32) == 448  # 8 pieces, not 7
    assert evenly(384, 512, 2, 32) == 192
    assert evenly(384, 512, 64, 32) == 32  # as many as there are granules
    assert evenly(1000, 512, 1, 32) == 500  # no rest
    assert evenly(1009, 512, 1, 32) == 1009  # a prime
    assert evenly(2003, 512, 1, 32) == 512
    assert evenly(5, 512, 2, 32) == 5


@pytest.mark.parametrize("choose", [gmm_tiling, tgmm_tiling, matmul_tiling])
def test_every_choice_is_three_positive_sizes(choose, host):
    for m, k, n in itertools.product(SIZES, repeat=3):
        assert min(choose(m, k, n)) >= 1


@pytest.mark.parametrize("choose", [gmm_tiling, matmul_tiling])
def test_packed_columns_fit_a_share_of_the_last_cache(choose, host):
    for k, n in itertools.product(SIZES, repeat=2):
        _, tk, tn = choose(4096, k, n)
        granule = 2 * host.vector_bytes // 4
        assert 4 * tk * tn <= 2 * max(host.cache_bytes[-1] // (2 * host.threads), 4 * granule * granule)
        assert tn <= 2 * tilings.MOST_COLUMNS


def test_the_summed_axis_is_whole_wherever_a_few_columns_of_it_fit(host):
    for k in (64, 1024, 3584):
        assert gmm_tiling(4096, k, 1024)[1] == k
        assert matmul_tiling(4096, k, 1024)[1] == k


def test_columns_of_a_grouped_product_give_every_thread_as_many_tiles(host):
    for n in (1024, 3584, 4096):
        tiles = math.ceil(n / gmm_tiling(4096, 1024, n)[2])
        assert tiles % host.threads == 0 if host.threads <= 4 else tiles >= min(host.threads, n // 64) // 2


def test_a_dense_product_has_a_tile_for_every_thread(host):
    for m, n in ((1, 4096), (64, 4096), (4096, 64), (512, 512)):
        tm, _, tn = matmul_tiling(m, 512, n)
        assert math.ceil(m / tm) * math.ceil(n / tn) >= min(host.threads, 32)


def test_rows_are_divided_where_columns_do_not_divide(host):
    for m, n in ((512, 509), (1000, 817), (4096, 1009)):
        tm, _, tn = matmul_tiling(m, 512, n)
        assert tn < n or math.ceil(m / tm) >= min(host.threads, m // 20)
    assert matmul_tiling(4096, 512, 50257)[0] == 4096
    assert matmul_tiling(10, 512, 509)[0] == 10


@pytest.mark.parametrize("n", [1, 5, 16, 33, 100, 101, 384, 1000, 1008, 2003, 2006, 3149, 3584])
def test_what_sums_depend_on_is_chosen_whatever_the_threads(n, monkeypatch):
    found = set()
    for threads in (1, 2, 3, 7, 64):
        monkeypatch.setattr(pl, "processor", lambda: pl.Processor("", 64, (48 << 10, 1 << 20, 32 << 20), threads))  # noqa: B023
        for choose, m in itertools.product((gmm_tiling, tgmm_tiling, matmul_tiling), (1, 5, 9, 4000)):
            for k in (70, 4096, 100000):
                tm, tk, tn = choose(m, k, n)
                few = choose is matmul_tiling and tm <= 4
                found.add((choose, m, k, tm if choose is tgmm_tiling else tk, tn % tilings.PAIR_COLUMNS == 0, few))
    assert len(found) == 3 * 4 * 3


@pytest.mark.parametrize("host", HOSTS[2:], ids=lambda host: host.name, indirect=True)  # others have no pairs
def test_bfloat16_is_multiplied_in_pairs_whatever_the_rows_of_more_than_four_and_the_groups(host):
    for k, n in itertools.product((70, 4096), (5, 33, 1000, 1008, 1027, 1511, 2003, 2006, 3149, 3584)):
        tiles = itertools.starmap(gmm_tiling, itertools.product((5, 16, 17, 2048), (k,), (n,), (1, 8, 512)))
        assert len({tn % tilings.PAIR_COLUMNS == 0 for _, _, tn in tiles}) == 1


@pytest.mark.one_executor
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_results_have_the_same_bits_on_any_number_of_threads(dtype, monkeypatch):
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    sizes, found = [5, 0, 90, 30], []
    lhs, rhs, grad = (each.astype(dtype) for each in (normal(0, 130, 70), normal(1, 4, 70, 288), normal(2, 130, 288)))
    many, deep = normal(3, 16, 70, 288).astype(dtype), normal(4, 288, 48).astype(dtype)
    flipped = np.ascontiguousarray(deep.T).T
    tall, even, skewed = normal(5, 1100, 288).astype(dtype), [60, 140, *[0] * 4, *[90] * 10], [1000, *[6] * 15]
    narrow = normal(6, 16, 288, 48).astype(dtype)
    for threads in ("1", "3"):
        monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
        for kept in (grouped_matmul._GMM, grouped_matmul._TGMM, sys.modules[matmul.__module__]._KEPT):
            kept.clear()
        with pl.executor("cpu"):
            back = gmm(grad, rhs, sizes, transpose_rhs=True)
            thin = gmm(grad[:1], rhs, [0, 1, 0, 0], transpose_rhs=True)
            few = gmm(lhs[:10], many, [0, 5, *[0] * 10, 3, 2, 0, 0])  # by columns, or by groups
            row = matmul(lhs[:1], rhs[0])
            found.append([gmm(lhs, rhs, sizes), back, thin, few, row, tgmm(lhs.T, grad, sizes), matmul(lhs, rhs[0])])
            found[-1] += [matmul(grad[:m], each) for m in (20, 30, 40) for each in (deep, flipped)]
            found[-1] += [gmm(tall[: sum(sizes)], narrow, sizes) for sizes in (even, skewed)]
    assert gmm_tiling(130, 70, 288)[2] < 288 and gmm_tiling(130, 288, 70)[2] < 70
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


@pytest.mark.one_executor
@pytest.mark.parametrize("depth", [16, 62, 64])
def test_small_tiles_of_fewer_rows_have_the_same_bits(depth):
    """A product is multiplied on tile registers, where a processor has them, whatever the rows of a tile."""
    x, y = (normal(n, *shape).astype(ml_dtypes.bfloat16) for n, shape in enumerate([(64, depth), (depth, 512)]))
    sizes = [depth // 2, depth // 2, *[0] * 6]
    found = [
        tgmm(x, y, sizes, tiling=(depth, rows, 512), preferred_element_type=np.float32, interpret="cpu")
        for rows in (64, 32, 16)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.one_executor
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_the_groups_of_a_tile_of_columns_are_tasks_of_several_threads(dtype, monkeypatch):
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "3")
    grouped_matmul._GMM.clear()
    spread = []
    monkeypatch.setattr(native, "_of_openmp", lambda: None)  # or PyTorch's threads would run them
    monkeypatch.setattr(engine, "run_tasks", lambda tasks, *rest: spread.append(tasks) or run_tasks(tasks, *rest))
    lhs, rhs, sizes = normal(0, 130, 70).astype(dtype), normal(1, 4, 70, 288).astype(dtype), [5, 0, 90, 30]
    out = np.full((130, 288), np.nan, dtype)
    with pl.executor("cpu"):
        gmm(lhs, rhs, sizes, out=out)
        whole = gmm(lhs, rhs, sizes, tiling=(130, 70, 288))
    assert spread[0] == (3 + 1) * (288 // gmm_tiling(130, 70, 288, 4)[2])  # groups with rows, and rows of no group
    np.testing.assert_array_equal(out, whole)
    assert (out[125:] == 0).all() and not np.isnan(out.astype(np.float32)).any()


@pytest.mark.one_executor
def test_the_groups_of_a_few_rows_are_tasks_with_all_columns(monkeypatch):
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    grouped_matmul._GMM.clear()
    spread = []
    monkeypatch.setattr(native, "_of_openmp", lambda: None)  # or PyTorch's threads would run them
    monkeypatch.setattr(engine, "run_tasks", lambda tasks, *rest: spread.append(tasks) or run_tasks(tasks, *rest))
    lhs, rhs, sizes = normal(0, 40, 70), normal(1, 9, 70, 288), [0, 2, 0, 1, 4, 0, 0, 3, 0]
    with pl.executor("cpu"):
        before = gmm(lhs, rhs, [0, 40, *[0] * 7])  # its kernel is another one
        few = gmm(lhs[:12], rhs, sizes)
    assert spread[1:] == [4 + 1]  # groups with rows, and rows of no group
    assert_close(before, gmm_reference(lhs, rhs, [0, 40, *[0] * 7]))
    assert_close(few, gmm_reference(lhs[:12], rhs, sizes))


@pytest.mark.one_executor
def test_groups_of_which_one_has_most_rows_are_divided_by_columns_too(monkeypatch):
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    grouped_matmul._GMM.clear()
    spread = []
    monkeypatch.setattr(native, "_of_openmp", lambda: None)  # or PyTorch's threads would run them
    monkeypatch.setattr(engine, "run_tasks", lambda tasks, *rest: spread.append(tasks) or run_tasks(tasks, *rest))
    lhs, rhs = normal(0, 60, 70), normal(1, 9, 70, 288)
    several, one = [7, 6, 7, 20, 10, 10, 0, 0, 0], [3, 2, 5, 50, 0, 0, 0, 0, 0]
    for first, later in ((several, one), (one, several)):
        grouped_matmul._GMM.clear()
        for sizes in (first, later, first):
            out = np.full((60, 288), np.nan, np.float32)
            with pl.executor("cpu"):
                gmm(lhs, rhs, np.array(sizes, np.int32), out=out)
            assert_close(out, gmm_reference(lhs, rhs, sizes))
    assert spread[0] == 6 and 2 * 4 in spread  # groups with rows, of all columns or of half of them


@pytest.mark.one_executor
def test_only_groups_with_a_matrix_count_for_which_kernel_runs(monkeypatch):
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    spread = []
    monkeypatch.setattr(native, "_of_openmp", lambda: None)  # or PyTorch's threads would run them
    monkeypatch.setattr(engine, "run_tasks", lambda tasks, *rest: spread.append(tasks) or run_tasks(tasks, *rest))
    lhs, rhs = normal(0, 105, 70), normal(1, 9, 70, 288)
    mine, others = [0, 60, *[0] * 7], [5] * 9
    with pl.executor("cpu"):
        for offset in (0, 9):
            grouped_matmul._GMM.clear()
            sizes = mine + others if offset == 0 else others + mine
            found = gmm(lhs, rhs, sizes, group_offset=np.int32(offset))
            rows = slice(60) if offset == 0 else slice(45, 105)
            assert_close(found[rows], gmm_reference(lhs[rows], rhs, mine))
            assert not np.delete(found, np.r_[rows], 0).any()
    assert spread == [(1 + 1) * 2] * 2  # a group and rows of no group, of half of the columns


def test_groups_are_even_if_none_takes_longer_than_the_share_of_a_thread():
    rng, found = np.random.default_rng(0), set()
    for threads, groups in itertools.product((2, 3, 8), (1, 2, 8, 40)):
        product = grouped_matmul._Balanced(None, lambda: None)
        product.threads = threads
        for scale in (2, 30, 300):
            sizes = (rng.integers(0, scale, groups) * rng.integers(0, 2, groups)).astype(np.int32)
            times = np.maximum(sizes[sizes > 0], tilings.ROWS_READ)
            is_even = times.max(initial=0) * threads <= times.sum()
            assert product.is_even(sizes, max(tilings.ROWS_READ + 1, sizes.sum())) == is_even
            found.add(bool(is_even))
    assert found == {True, False}


def test_matrices_that_are_read_once_are_read_in_long_pieces(host):
    for m, choose in itertools.product((1, 3, 4), (matmul_tiling, gmm_tiling)):
        tn = choose(m, 4096, 1 << 16)[2]
        assert tn >= choose(17, 4096, 1 << 16)[2]
        sums = (
            4 * m * tn <= host.cache_bytes[0] // 2 if host.vector_bytes == 64 else 64 * tn <= host.cache_bytes[1] // 2
        )
        assert tn <= tilings.MOST_COLUMNS or sums
    assert matmul_tiling(1, 4096, 1 << 16)[2] > tilings.MOST_COLUMNS or host.threads > 32


def test_whole_rows_of_the_matrices_of_few_rows_are_read_where_only_the_hardware_prefetches(host):
    by_hardware = host.vector_bytes < 64
    for n in (384, 1792):
        assert gmm_tiling(128, 1024, n, 32)[2] == n or not by_hardware  # 4 rows a group
        assert gmm_tiling(9, 1024, n, 2)[2] >= min(n, 1024) or not by_hardware
        assert gmm_tiling(32 * 32, 1024, n, 32)[2] <= 2 * tilings.MOST_COLUMNS or not by_hardware  # more are packed
    assert gmm_tiling(128, 1024, 1 << 16, 32)[2] * 64 <= max(host.cache_bytes[1] // 2, 64 * tilings.MOST_COLUMNS)


def test_a_tile_of_a_grouped_product_has_all_rows():
    assert [gmm_tiling(m, 64, 64)[0] for m in (1, 17, 100003)] == [1, 17, 100003]


def test_a_brief_product_near_one_thread_is_not_cut_for_others():
    host = pl.processor()
    assert gmm_tiling(200, 128, 128, 8)[2] == 128 == matmul_tiling(200, 128, 128)[2]
    if host.threads > 1:
        far = host.cache_bytes[1] // 4 // (1024 * 128) + 1
        assert gmm_tiling(30, 1024, 128, far)[2] < 128 and gmm_tiling(100_000, 128, 128, 3)[2] < 128


def test_many_groups_have_tiles_of_at_least_128_columns(monkeypatch):
    monkeypatch.setattr(pl, "processor", lambda: pl.Processor("", 32, (32 << 10, 512 << 10, 32 << 20), 4))
    assert [gmm_tiling(100_000, 128, n, 16)[2] for n in (96, 128, 192, 384, 512)] == [96, 128, 192, 128, 128]
    assert gmm_tiling(100_000, 128, 384, 15)[2] == 96  # so few groups may take the threads different times


def test_attention_has_blocks_for_every_thread(host):
    queries, keys = attention_blocks(1, 4096, 64)
    assert 32 <= queries <= 128 and keys in (128, 256)
    assert math.ceil(4096 / queries) >= host.threads


def test_attention_has_long_blocks_of_many_keys(monkeypatch):
    monkeypatch.setattr(pl, "processor", lambda: pl.Processor("wide", 64, (48 << 10, 2 << 20, 32 << 20), 1))
    assert attention_blocks(8, 1024, 64) == attention_blocks(8, 512, 64, 5000) == (128, 256)
    assert attention_blocks(8, 1024, 64, 1000) == attention_blocks(8, 1024, 64, causal=True) == (128, 128)
    assert attention_blocks(8, 1024, 512) == (128, 128)  # twice as many keys would not fit half of the second level


def test_products_are_right_with_chosen_tiles():
    sizes = [5, 0, 90, 30]
    lhs, rhs, grad = normal(0, 130, 70), normal(1, 4, 70, 100), normal(2, 130, 100)
    assert_close(gmm(lhs, rhs, sizes), gmm_reference(lhs, rhs, sizes))
    assert_close(tgmm(lhs.T, grad, sizes), tgmm_reference(lhs.T, grad, sizes))
    assert_close(matmul(lhs, rhs[0]), lhs.astype(np.float64) @ rhs[0])


def test_a_result_has_the_dtype_of_the_inputs():
    lhs, rhs = normal(0, 4, 3).astype(ml_dtypes.bfloat16), normal(1, 1, 3, 5).astype(ml_dtypes.bfloat16)
    assert gmm(lhs, rhs, [4]).dtype == lhs.dtype
    assert tgmm(lhs.T, rhs[0, :, :1].T.repeat(4, 0), [4]).dtype == lhs.dtype
    assert gmm(lhs.astype(np.float32), rhs, [4]).dtype == np.float32
    assert gmm(lhs, rhs, [4], np.float32).dtype == np.float32
    assert gmm(lhs, rhs, [4], existing_out=np.zeros((4, 5), np.float32)).dtype == np.float32
