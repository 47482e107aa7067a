"""`hopper.gmm` and `hopper.tgmm` against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig
from tests.library.references import BFLOAT16, assert_close, gmm_reference, normal, tgmm_reference
from tests.pairs import every_pair

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SIZES = [5, 0, 9, 3]
SMALL = MatmulConfig(tile_m=8, tile_n=8, tile_k=4, stages=2, blocks=3)
DTYPES = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)]

CONFIGS = {
    "rows split": SMALL,
    "columns split": MatmulConfig(4, 16, 8, 3, split="n", blocks=5),
    "pieces of one column": MatmulConfig(8, 4, 4, 2, epilogue_n=1, blocks=2),
    "an odd number of pieces": MatmulConfig(8, 12, 4, 2, epilogue_n=4, blocks=1),
    "bands of columns": MatmulConfig(2, 2, 2, 4, snake="n", snake_width=2, blocks=4),
    "rows that are not a power of two": MatmulConfig(12, 8, 3, 2, blocks=2),
}

GROUPS = {
    "one group": [20],
    "all rows in the first group": [20, 0, 0, 0, 0, 0, 0, 0],
    "all rows in the last group": [0, 0, 0, 0, 0, 0, 0, 20],
    "empty groups at both ends and inside": [0, 3, 0, 0, 17, 0, 0, 0],
    "a tile shared by many groups": [1, 1, 2, 1, 1, 1, 1, 12],
    "sizes that sum to less than m": [3, 4, 0, 0, 0, 0, 0, 0],
    "all groups empty": [0, 0, 0, 0, 0, 0, 0, 0],
    "one row": [0, 1, 0, 0, 0, 0, 0, 0],
    "bounds on the edges of tiles": [8, 8, 0, 0, 0, 0, 0, 0],
}
"""One number of groups, but for a single one, so that the cases share kernels."""


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("operand", "result", "default_executor"),
    every_pair(DTYPES, DTYPES, ["reference", "cpu"]),
    indirect=["default_executor"],
    ids=str,
)
def test_every_dtype_of_the_tensor_cores_gives_a_result_in_the_preferred_one(operand, result):
    lhs, rhs = normal(0, 19, 11, dtype=operand), normal(1, 4, 11, 13, dtype=operand)
    out = hopper.gmm(lhs, rhs, SIZES, result, SMALL)
    assert out.dtype == result
    assert_close(out, gmm_reference(lhs, rhs, SIZES))
    left, right = normal(2, 11, 19, dtype=operand), normal(3, 19, 13, dtype=operand)
    out = hopper.tgmm(left, right, SIZES, result, SMALL)
    assert out.dtype == result
    assert_close(out, tgmm_reference(left, right, SIZES))


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("name", "transpose_rhs", "default_executor"),
    every_pair(list(CONFIGS), [False, True], ["reference", "cpu"]),
    indirect=["default_executor"],
)
def test_any_tiles_of_gmm(name, transpose_rhs):
    lhs = normal(0, 21, 9)
    rhs = normal(1, 4, 13, 9) if transpose_rhs else normal(1, 4, 9, 13)
    out = hopper.gmm(lhs, rhs, SIZES, config=CONFIGS[name], transpose_rhs=transpose_rhs)
    assert_close(out, gmm_reference(lhs, rhs, SIZES, transpose_rhs=transpose_rhs))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_any_tiles_of_tgmm(config):
    lhs, rhs = normal(0, 9, 21), normal(1, 21, 13)
    assert_close(hopper.tgmm(lhs, rhs, SIZES, config=config), tgmm_reference(lhs, rhs, SIZES))


@pytest.mark.usefixtures("optimised")
@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("operand", "default_executor"),
    [(np.float16, "cpu"), (np.float32, "reference")],
    indirect=["default_executor"],
)
def test_the_default_tiles(operand):
    lhs, rhs = normal(0, 300, 70, dtype=operand), normal(1, 3, 70, 130, dtype=operand)
    sizes = [140, 0, 101]
    assert_close(hopper.gmm(lhs, rhs, sizes), gmm_reference(lhs, rhs, sizes))
    right = normal(2, 300, 130, dtype=operand)
    assert_close(hopper.tgmm(lhs.T, right, sizes), tgmm_reference(lhs.T, right, sizes))


@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_rows_may_be_spread_in_any_way(sizes):
    lhs, rhs = normal(0, 20, 6), normal(1, len(sizes), 6, 7)
    out = hopper.gmm(lhs, rhs, sizes, config=SMALL)
    assert_close(out, gmm_reference(lhs, rhs, sizes))
    np.testing.assert_array_equal(out[sum(sizes) :], 0)
    right = normal(2, 20, 7)
    assert_close(hopper.tgmm(lhs.T, right, sizes, config=SMALL), tgmm_reference(lhs.T, right, sizes))


@settings(max_examples=20)
@given(st.lists(st.integers(0, 25), min_size=5, max_size=5), st.sampled_from([(1, 9), (9, 1), (5, 6)]))
def test_random_groups(ends, shape):
    """Ends of groups among 25 rows. The kernels of a shape are compiled once."""
    m, (k, n) = 25, shape
    sizes = np.diff([0, *sorted(ends)]).tolist()
    lhs, rhs = normal(0, m, k), normal(1, len(sizes), k, n)
    assert_close(hopper.gmm(lhs, rhs, sizes, config=SMALL), gmm_reference(lhs, rhs, sizes), 1e-5)
    right = normal(2, m, n)
    assert_close(hopper.tgmm(lhs.T, right, sizes, config=SMALL), tgmm_reference(lhs.T, right, sizes), 1e-5)


def test_no_value_of_a_row_reaches_the_results_of_other_groups():
    """Tiles reach into the next group, whose values must not matter, not even as 0 times infinity."""
    lhs, rhs, right = normal(0, 20, 6), normal(1, 4, 6, 7), normal(2, 20, 7)
    lhs[5:14], right[5:14] = np.inf, np.nan
    lhs[17:], right[17:] = np.nan, np.inf
    out = hopper.gmm(lhs, rhs, SIZES, config=SMALL)
    expected = gmm_reference(np.where(np.isfinite(lhs), lhs, 0), rhs, SIZES)
    assert_close(out[:5], expected[:5])
    assert_close(out[14:], expected[14:])
    with np.errstate(invalid="ignore"):
        out = hopper.tgmm(lhs.T, right, SIZES, config=SMALL)
        expected = tgmm_reference(lhs.T, right, SIZES)
    for group in (0, 1, 3):
        assert_close(out[group], expected[group])


def test_sums_of_nothing_are_zero():
    np.testing.assert_array_equal(hopper.gmm(np.ones((4, 0), np.float32), np.ones((1, 0, 3), np.float32), [4]), 0)
    none = hopper.tgmm(np.ones((4, 0), np.float32), np.ones((0, 3), np.float32), [0, 0])
    np.testing.assert_array_equal(none, np.zeros((2, 4, 3)))


@pytest.mark.parametrize(("m", "n"), [(0, 3), (4, 0)])
def test_no_rows_or_columns_give_an_empty_result(m, n):
    lhs, rhs = np.ones((m, 5), np.float32), np.ones((1, 5, n), np.float32)
    assert hopper.gmm(lhs, rhs, [m]).shape == (m, n)
    assert hopper.tgmm(np.ones((m, 6), np.float32), np.ones((6, n), np.float32), [6]).shape == (1, m, n)


def test_the_sizes_may_be_known_only_when_the_program_runs():
    lhs, rhs = normal(0, 20, 6), normal(1, 4, 6, 7)
    run = pl.jit(lambda sizes: hopper.gmm(lhs, rhs, sizes, config=SMALL))
    for sizes in (SIZES, [0, 0, 0, 20], [20, 0, 0, 0]):
        assert_close(run(np.array(sizes, np.int32)), gmm_reference(lhs, rhs, sizes))


LHS, RHS, OUT = normal(0, 8, 3), normal(1, 2, 3, 4), normal(2, 8, 4)
REFUSED = {
    "matrices that do not multiply": (
        lambda: hopper.gmm(LHS, RHS, [5, 3], transpose_rhs=True),
        "rhs: does not multiply with lhs\n  expected: [g, n, 3]\n  got:      (2, 3, 4)",
    ),
    "rows that do not go together": (
        lambda: hopper.tgmm(LHS.T, OUT[:7], [5, 2]),
        "rhs: does not multiply with lhs\n  expected: [8, n]\n  got:      (7, 4)",
    ),
    "another number of sizes": (
        lambda: hopper.gmm(LHS, RHS, [8]),
        "group_sizes: there is one matrix for each group\n  expected: 2 sizes\n  got:      1 sizes",
    ),
    "sizes that sum past m": (
        lambda: hopper.tgmm(LHS.T, OUT, [5, 4]),
        "group_sizes: the group sizes sum to more than the number of rows\n  expected: at most 8\n  got:      9",
    ),
    "operands of two dtypes": (
        lambda: hopper.gmm(LHS, RHS.astype(BFLOAT16), [5, 3]),
        "rhs: the operands of a product have one dtype\n  expected: float32\n  got:      bfloat16",
    ),
    "a cluster": (
        lambda: hopper.gmm(LHS, RHS, [5, 3], config=MatmulConfig(cluster="m")),
        "config.cluster: no such axis\n  expected: None or 'n'\n  got:      'm'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case):
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper." in str(caught.value)


CONFIG_ERRORS = {
    "an odd tile": (
        MatmulConfig(tile_m=5),
        "config.tile_m: the two computing warpgroups share a tile equally\n  expected: a multiple of 2\n  got:      5",
    ),
    "one stage": (
        MatmulConfig(stages=1),
        "config.stages: the products of a step are in flight during the next one\n  expected: at least 2 stages\n"
        "  got:      1",
    ),
    "pieces that do not divide the columns": (
        MatmulConfig(8, 8, 8, epilogue_n=3),
        "config.epilogue_n: the pieces of the result have the same number of columns\n"
        "  expected: a divisor of the 8 columns of a warpgroup\n  got:      3",
    ),
    "pieces of nothing": (
        MatmulConfig(8, 8, 8, epilogue_n=0),
        "config.epilogue_n: a positive integer\n  expected: 1 or more\n  got:      0",
    ),
    "no axis": (MatmulConfig(split="k"), "config.split: no such axis\n  expected: 'm' or 'n'\n  got:      'k'"),
    "too much": (
        MatmulConfig(256, 256),
        "config: the buffers do not fit into shared memory\n  expected: at most 232448 bytes\n"
        "  got:      589824 bytes\n",
    ),
}


@pytest.mark.parametrize("case", CONFIG_ERRORS)
def test_a_configuration_that_makes_no_sense_is_refused(case):
    config, text = CONFIG_ERRORS[case]
    with pytest.raises(pl.PalladioValueError) as caught:
        hopper.tgmm(LHS.T, OUT, [5, 3], config=config)
    assert text in str(caught.value)


@pytest.mark.parametrize("offset", [0, 1, 2, np.int32(2)], ids=str)
def test_some_of_the_groups(offset):
    lhs, rhs, existing = normal(0, 21, 9), normal(1, 2, 9, 13), normal(2, 21, 13)
    bounds = np.cumsum([0, *SIZES])
    first, end = bounds[offset], bounds[offset + 2]
    own = np.diff(bounds)[offset : offset + 2]
    wanted = np.zeros((21, 13))
    wanted[first:end] = gmm_reference(lhs[first:end], rhs, own)
    assert_close(hopper.gmm(lhs, rhs, SIZES, config=SMALL, group_offset=offset), wanted)
    wanted[:first], wanted[end:] = existing[:first], existing[end:]
    before = existing.copy()
    assert_close(hopper.gmm(lhs, rhs, SIZES, config=SMALL, group_offset=offset, existing_out=existing), wanted)
    assert np.array_equal(existing, before)


def test_some_matrices_are_added_to():
    lhs, rhs, existing = normal(0, 9, 21), normal(1, 21, 13), normal(2, 2, 9, 13)
    wanted = tgmm_reference(lhs, rhs, SIZES)
    assert_close(hopper.tgmm(lhs, rhs, SIZES, config=SMALL, group_offset=2), wanted[2:])
    options = {"config": SMALL, "group_offset": 1, "num_actual_groups": 2}
    assert_close(hopper.tgmm(lhs, rhs, SIZES, existing_out=existing, **options), wanted[1:3] + existing)
    assert_close(
        hopper.tgmm(lhs, rhs, SIZES, existing_out=existing, **options, out=existing * 0), wanted[1:3] + existing
    )


def test_the_first_group_may_be_traced():
    lhs, rhs = normal(0, 21, 9), normal(1, 2, 9, 13)
    found = pl.jit(lambda first: hopper.gmm(lhs, rhs, SIZES, config=SMALL, group_offset=first))(np.int32(1))
    assert_close(found, hopper.gmm(lhs, rhs, SIZES, config=SMALL, group_offset=1))
