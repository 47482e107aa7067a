"""`tgmm`: for each group, its columns of the left side times its rows of the right side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl
from palladio.library import tgmm
from tests.library.references import FLOATS, assert_close, normal, tgmm_reference
from tests.library.test_gmm import GROUPS, problems
from tests.pairs import every_pair

SIZES = np.array([5, 0, 9, 3], np.int32)
TILES = (8, 4, 8)


@pytest.mark.parametrize(("left", "right", "result"), every_pair(FLOATS, FLOATS, FLOATS), ids=str)
def test_inputs_of_any_two_float_dtypes_give_a_result_in_the_preferred_one(left, right, result):
    lhs, rhs = normal(0, 11, 19, dtype=left), normal(1, 19, 13, dtype=right)
    out = tgmm(lhs, rhs, SIZES, result, TILES)
    assert out.dtype == result
    single = np.dtype(np.float64) not in (left, right) and result == np.float64
    assert_close(out, tgmm_reference(lhs, rhs, SIZES), 1e-6 if single else None)


@pytest.mark.parametrize(("m", "k", "n"), every_pair([16, 17, 23], [8, 9, 3], [8, 11, 1]))
def test_tiles_need_not_divide_the_sizes(m, k, n):
    lhs, rhs = normal(0, k, m), normal(1, m, n)
    assert_close(tgmm(lhs, rhs, [7, 1, 8], tiling=TILES), tgmm_reference(lhs, rhs, [7, 1, 8]))


def test_tiles_may_be_larger_than_the_arrays():
    lhs, rhs = normal(0, 3, 5), normal(1, 5, 4)
    assert_close(tgmm(lhs, rhs, [2, 3], tiling=(512, 1024, 1024)), tgmm_reference(lhs, rhs, [2, 3]))


@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("adds", [False, True], ids=["alone", "existing"])
def test_rows_may_be_spread_in_any_way(sizes, adds):
    lhs, rhs = normal(0, 6, 20), normal(1, 20, 7)
    existing = normal(2, len(sizes), 6, 7) if adds else None
    out = tgmm(lhs, rhs, sizes, tiling=TILES, existing_out=existing)
    assert_close(out, tgmm_reference(lhs, rhs, sizes, existing=existing))
    for group in np.flatnonzero(np.equal(sizes, 0)):
        np.testing.assert_array_equal(out[group], np.zeros((6, 7)) if existing is None else existing[group])


def test_products_are_added_to_existing_out_which_is_not_changed():
    lhs, rhs, existing = normal(0, 6, 20), normal(1, 20, 7), normal(2, 4, 6, 7)
    before = existing.copy()
    out = tgmm(lhs, rhs, SIZES, tiling=TILES, existing_out=existing)
    assert_close(out, tgmm_reference(lhs, rhs, SIZES) + before)
    out[...] = 0
    np.testing.assert_array_equal(existing, before)


def test_numbers_that_are_none_stay_in_their_own_group():
    lhs, rhs = normal(0, 6, 20), normal(1, 20, 7)
    clean = tgmm(lhs, rhs, SIZES, tiling=TILES)
    lhs[:, 17:], rhs[17:] = np.nan, np.inf
    np.testing.assert_array_equal(tgmm(lhs, rhs, SIZES, tiling=TILES), clean)
    rhs[3] = np.nan
    out = tgmm(lhs, rhs, SIZES, tiling=TILES)
    np.testing.assert_array_equal(np.isnan(out).all(axis=(1, 2)), [True, False, False, False])
    np.testing.assert_array_equal(out[1:], clean[1:])


@pytest.mark.parametrize("shape", [(0, 4, 5), (6, 0, 5), (6, 4, 0), (0, 0, 0)], ids=str)
def test_arrays_without_elements(shape):
    m, k, n = shape
    lhs, rhs, sizes, existing = normal(0, k, m), normal(1, m, n), [min(m, 2), 0], normal(2, 2, k, n)
    assert_close(tgmm(lhs, rhs, sizes), np.zeros((2, k, n)))
    out = tgmm(lhs, rhs, sizes, existing_out=existing)
    np.testing.assert_array_equal(out, existing)
    assert out is not existing


@pytest.mark.parametrize("count", [1, 2, 4])
def test_shards_of_the_groups_are_parts_of_the_whole(count):
    lhs, rhs = normal(0, 6, 21), normal(1, 21, 7)
    whole = tgmm(lhs, rhs, SIZES, tiling=TILES)
    shards = [
        tgmm(lhs, rhs, SIZES, tiling=TILES, group_offset=start, num_actual_groups=count) for start in range(0, 4, count)
    ]
    np.testing.assert_array_equal(np.concatenate(shards), whole)


@pytest.mark.parametrize("count", [True, 1.0])
def test_a_number_of_groups_of_another_type_is_refused_in_every_call(count):
    lhs, rhs, sizes = normal(0, 4, 6), normal(1, 6, 3), np.array([6], np.int32)
    tgmm(lhs, rhs, sizes)
    with pytest.raises(pl.PalladioError, match=r"^num_actual_groups: "):
        tgmm(lhs, rhs, sizes, num_actual_groups=count)


def test_without_an_offset_the_first_groups_are_computed():
    lhs, rhs = normal(0, 6, 21), normal(1, 21, 7)
    assert_close(tgmm(lhs, rhs, SIZES, num_actual_groups=3), tgmm_reference(lhs, rhs, SIZES, groups=3))


def test_without_a_number_all_groups_from_the_offset_on_are_computed():
    lhs, rhs = normal(0, 6, 21), normal(1, 21, 7)
    assert_close(tgmm(lhs, rhs, SIZES, group_offset=np.int32(1)), tgmm_reference(lhs, rhs, SIZES, offset=1))


def test_parts_of_the_rows_add_up_through_existing_out():
    lhs, rhs = normal(0, 6, 17), normal(1, 17, 7)
    first = tgmm(lhs[:, :8], rhs[:8], [5, 0, 3, 0], tiling=TILES)
    both = tgmm(lhs[:, 8:], rhs[8:], [0, 0, 6, 3], tiling=TILES, existing_out=first)
    assert_close(both, tgmm_reference(lhs, rhs, SIZES))


def test_arrays_need_not_be_contiguous():
    lhs, rhs = normal(0, 20, 12).T[::2], normal(1, 40, 7)[::-2]
    assert_close(tgmm(lhs, rhs, SIZES, tiling=TILES), tgmm_reference(lhs, rhs, SIZES))


def test_inside_jit_sizes_and_offset_are_traced():
    lhs, rhs = normal(0, 6, 21), normal(1, 21, 7)

    @pl.jit
    def both(lhs, rhs, sizes, offset):
        shard = tgmm(lhs, rhs, sizes, tiling=TILES, group_offset=offset, num_actual_groups=2)
        return tgmm(lhs, rhs, sizes, tiling=TILES), shard

    for sizes, offset in ((SIZES, 1), (SIZES[::-1].copy(), 2), (np.array([0, 0, 0, 0]), 0)):
        whole, shard = both(lhs, rhs, sizes, np.int32(offset))
        assert_close(whole, tgmm_reference(lhs, rhs, sizes))
        assert_close(shard, tgmm_reference(lhs, rhs, sizes, offset, 2))


@settings(max_examples=20)
@given(problems(), st.booleans())
def test_any_problem_agrees_with_numpy(problem, adds):
    m, k, n, groups, tiling, divisions = problem
    existing = normal(2, groups, k, n) if adds else None
    for sizes, offset in divisions:
        lhs, rhs = normal(0, k, m), normal(1, m, n)
        expected = tgmm_reference(lhs, rhs, sizes, offset, groups, existing)
        lhs[:, sum(sizes) :], rhs[sum(sizes) :] = np.nan, np.nan
        assert_close(tgmm(lhs, rhs, sizes, np.float32, tiling, offset, groups, existing), expected)
