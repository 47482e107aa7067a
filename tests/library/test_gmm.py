"""`gmm`: each row times the matrix of its group."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl
from palladio.library import gmm
from tests.library.references import FLOATS, assert_close, gmm_reference, normal
from tests.pairs import every_pair

SIZES = np.array([5, 0, 9, 3], np.int32)
TILES = (8, 4, 8)


@pytest.mark.parametrize(("left", "right", "result"), every_pair(FLOATS, FLOATS, FLOATS), ids=str)
def test_inputs_of_any_two_float_dtypes_give_a_result_in_the_preferred_one(left, right, result):
    lhs, rhs = normal(0, 19, 11, dtype=left), normal(1, 4, 11, 13, dtype=right)
    out = gmm(lhs, rhs, SIZES, result, TILES)
    assert out.dtype == result
    single = np.dtype(np.float64) not in (left, right) and result == np.float64
    assert_close(out, gmm_reference(lhs, rhs, SIZES), 1e-6 if single else None)


def test_products_of_narrow_floats_are_summed_in_float32():
    lhs, rhs = np.ones((1, 4096), np.float16), np.ones((1, 4096, 1), np.float16)
    assert gmm(lhs, rhs, [1], tiling=(8, 512, 8))[0, 0] == 4096


@pytest.mark.parametrize(
    ("m", "k", "n", "transpose_rhs"), every_pair([16, 17, 23], [8, 9, 3], [8, 11, 1], [False, True])
)
def test_tiles_need_not_divide_the_sizes(m, k, n, transpose_rhs):
    lhs = normal(0, m, k)
    rhs = normal(1, 3, n, k) if transpose_rhs else normal(1, 3, k, n)
    sizes = [7, 1, 8]
    out = gmm(lhs, rhs, sizes, tiling=(8, 4, 8), transpose_rhs=transpose_rhs)
    assert_close(out, gmm_reference(lhs, rhs, sizes, transpose_rhs=transpose_rhs))


def test_tiles_may_be_larger_than_the_arrays():
    lhs, rhs = normal(0, 5, 3), normal(1, 2, 3, 4)
    assert_close(gmm(lhs, rhs, [2, 3], tiling=(512, 1024, 1024)), gmm_reference(lhs, rhs, [2, 3]))


GROUPS = {
    "one group": [20],
    "all rows in the first group": [20, 0, 0],
    "all rows in the last group": [0, 0, 20],
    "empty groups at both ends and inside": [0, 3, 0, 0, 17, 0],
    "a tile shared by many groups": [1, 1, 2, 1, 1, 1, 1, 12],
    "sizes that sum to less than m": [3, 4],
    "all groups empty": [0, 0, 0],
    "one row": [0, 1],
    "bounds on the edges of tiles": [8, 8],
}


@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("keeps", [False, True], ids=["zeros", "existing"])
def test_rows_may_be_spread_in_any_way(sizes, keeps):
    lhs, rhs = normal(0, 20, 6), normal(1, len(sizes), 6, 7)
    existing = normal(2, 20, 7) if keeps else None
    out = gmm(lhs, rhs, sizes, tiling=TILES, existing_out=existing)
    assert_close(out, gmm_reference(lhs, rhs, sizes, existing=existing))
    rest = sum(sizes)
    np.testing.assert_array_equal(out[rest:], np.zeros((20 - rest, 7)) if existing is None else existing[rest:])


def test_existing_out_is_not_changed_and_not_handed_back():
    lhs, rhs, existing = normal(0, 20, 6), normal(1, 2, 6, 7), normal(2, 20, 7)
    before = existing.copy()
    out = gmm(lhs, rhs, [5, 6], tiling=TILES, existing_out=existing)
    out[...] = 0
    np.testing.assert_array_equal(existing, before)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_existing_out_of_any_float_dtype_is_kept_exactly(dtype):
    lhs, rhs, existing = normal(0, 20, 6), normal(1, 2, 6, 7), normal(2, 20, 7, dtype=dtype)
    out = gmm(lhs, rhs, [5, 6], dtype, TILES, existing_out=existing)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out[11:], existing[11:])


def test_numbers_that_are_none_stay_in_their_own_rows():
    lhs, rhs = normal(0, 20, 6), normal(1, 3, 6, 7)
    sizes = [5, 0, 8]
    clean = gmm(lhs, rhs, sizes, tiling=TILES)
    lhs[13:], rhs[1] = np.nan, np.inf
    np.testing.assert_array_equal(gmm(lhs, rhs, sizes, tiling=TILES), clean)
    lhs[2] = np.nan
    np.testing.assert_array_equal(np.isnan(gmm(lhs, rhs, sizes, tiling=TILES)).any(axis=1), np.arange(20) == 2)


@pytest.mark.parametrize("shape", [(0, 4, 5), (6, 0, 5), (6, 4, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_arrays_without_elements(shape, transpose_rhs):
    m, k, n = shape
    lhs, rhs = normal(0, m, k), normal(1, 2, n, k) if transpose_rhs else normal(1, 2, k, n)
    sizes, existing = [min(m, 2), 0], normal(2, m, n)
    expected = gmm_reference(lhs, rhs, sizes, transpose_rhs=transpose_rhs, existing=existing)
    out = gmm(lhs, rhs, sizes, existing_out=existing, transpose_rhs=transpose_rhs)
    np.testing.assert_array_equal(out, expected)
    assert out is not existing
    np.testing.assert_array_equal(gmm(lhs, rhs, sizes, transpose_rhs=transpose_rhs), np.zeros((m, n)))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_shards_of_the_groups_sum_to_the_whole(count, transpose_rhs):
    lhs = normal(0, 21, 6)
    rhs = normal(1, 4, 7, 6) if transpose_rhs else normal(1, 4, 6, 7)
    whole = gmm(lhs, rhs, SIZES, tiling=TILES, transpose_rhs=transpose_rhs)
    shards = [
        gmm(lhs, rhs[start : start + count], SIZES, tiling=TILES, group_offset=start, transpose_rhs=transpose_rhs)
        for start in range(0, 4, count)
    ]
    np.testing.assert_array_equal(sum(shards), whole)


def test_shards_fill_one_result_through_existing_out():
    lhs, rhs = normal(0, 21, 6), normal(1, 4, 6, 7)
    out = None
    for start in (2, 0):
        out = gmm(lhs, rhs[start : start + 2], SIZES, tiling=TILES, group_offset=start, existing_out=out)
    np.testing.assert_array_equal(out, gmm(lhs, rhs, SIZES, tiling=TILES))


def test_a_shard_keeps_existing_rows_before_and_after_its_groups():
    lhs, rhs, existing = normal(0, 21, 6), normal(1, 2, 6, 7), normal(2, 21, 7)
    out = gmm(lhs, rhs, SIZES, tiling=TILES, group_offset=np.int32(1), existing_out=existing)
    assert_close(out, gmm_reference(lhs, rhs, SIZES, offset=1, existing=existing))
    np.testing.assert_array_equal(out[:5], existing[:5])
    np.testing.assert_array_equal(out[14:], existing[14:])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_group_sizes_of_any_integer_dtype(dtype):
    lhs, rhs = normal(0, 200, 6), normal(1, 2, 6, 7)
    sizes = np.array([100, 100], dtype)
    assert_close(gmm(lhs, rhs, sizes), gmm_reference(lhs, rhs, [100, 100]))


def test_arrays_need_not_be_contiguous():
    lhs, rhs = normal(0, 6, 40)[:, ::-2].T, normal(1, 7, 6, 4).transpose(2, 1, 0)
    sizes = np.array([5, 99, 0, 99, 9, 99, 3, 99])[::2]
    assert_close(gmm(lhs, rhs, sizes, tiling=TILES), gmm_reference(lhs, rhs, sizes))


@pytest.mark.parametrize("transpose_rhs", [False, True])
@pytest.mark.parametrize("sizes", [[1, 0, 2], [9, 40, 60]])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matrices_of_column_major_order_are_multiplied_in_place(dtype, sizes, transpose_rhs, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("PALLADIO_WARN_COPIES", "1")
    lhs, stored = normal(0, sum(sizes), 64), normal(1, 3, 64, 48) if transpose_rhs else normal(1, 3, 48, 64)
    rounded = [torch.from_numpy(each).to(getattr(torch, dtype)) for each in (lhs, stored)]
    expected = gmm_reference(rounded[0].double(), rounded[1].mT.double(), sizes, transpose_rhs=transpose_rhs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.CopyWarning)
        warnings.filterwarnings("error", r".*row-major", pl.CopyWarning)
        for _ in range(2):  # the second call is served by what the first one kept
            found = gmm(rounded[0], rounded[1].mT, sizes, transpose_rhs=transpose_rhs)
            assert_close(found.float(), expected, 4e-3 if dtype == "bfloat16" else None)


def test_matrices_of_column_major_order_that_do_not_multiply_are_described_as_given():
    with pytest.raises(pl.PalladioValueError, match=r"got: +\(3, 96, 128\)"):
        gmm(normal(0, 3, 128), normal(1, 3, 128, 96).transpose(0, 2, 1), [1, 1, 1])


def test_inputs_are_not_changed():
    lhs, rhs, sizes = normal(0, 20, 6), normal(1, 4, 6, 7), SIZES.copy()
    copies = lhs.copy(), rhs.copy()
    gmm(lhs, rhs, sizes, tiling=TILES)
    for found, expected in zip((lhs, rhs, sizes), (*copies, SIZES)):
        np.testing.assert_array_equal(found, expected)


def test_inside_jit_sizes_and_offset_are_traced():
    lhs, rhs = normal(0, 21, 6), normal(1, 2, 6, 7)

    @pl.jit
    def both(lhs, rhs, sizes, offset):
        return gmm(lhs, rhs, sizes[:2], tiling=TILES), gmm(lhs, rhs, sizes, tiling=TILES, group_offset=offset)

    for sizes, offset in ((SIZES, 1), (SIZES[::-1].copy(), 2), (np.array([0, 0, 0, 0], np.int32), 0)):
        first, second = both(lhs, rhs, sizes, np.int32(offset))
        assert_close(first, gmm_reference(lhs, rhs, sizes[:2]))
        assert_close(second, gmm_reference(lhs, rhs, sizes, offset=offset))


@st.composite
def problems(draw):
    """Sizes of a product, and several divisions of its rows into groups, which take the same compiled kernel."""
    m, k, n = draw(st.integers(0, 50)), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    count = draw(st.integers(1, 6))
    groups = draw(st.integers(1, count))
    ends = st.lists(st.integers(0, m), min_size=count, max_size=count).map(sorted)
    offsets = st.integers(0, count - groups)
    divisions = draw(st.lists(st.tuples(ends, offsets), min_size=3, max_size=3))
    tiling = draw(st.tuples(*[st.integers(1, 16)] * 3))
    return m, k, n, groups, tiling, [(np.diff(ends, prepend=0), offset) for ends, offset in divisions]


@settings(max_examples=20)
@given(problems(), st.booleans(), st.booleans())
def test_any_problem_agrees_with_numpy(problem, transpose_rhs, keeps):
    m, k, n, groups, tiling, divisions = problem
    rhs = normal(1, groups, n, k) if transpose_rhs else normal(1, groups, k, n)
    existing = normal(2, m, n) if keeps else None
    for sizes, offset in divisions:
        lhs = normal(0, m, k)
        lhs[sum(sizes) :] = np.nan
        out = gmm(lhs, rhs, sizes, np.float32, tiling, offset, existing, transpose_rhs)
        assert_close(out, gmm_reference(lhs, rhs, sizes, offset, existing, transpose_rhs))
