"""What the library refuses, and how it says so: before anything runs, naming the argument and the caller's line."""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.library import gmm, gmm_vjp, make_group_metadata, matmul, rms_norm, softmax, tgmm
from tests.library.references import normal

LHS, RHS, OUT = normal(0, 8, 3), normal(1, 2, 3, 4), normal(2, 8, 4)
SIZES = np.array([5, 3], np.int32)

CASES = {
    "a list": (lambda: gmm([[1.0]], RHS, SIZES), "lhs: not an array\n  expected: an array [m, k]\n  got:      list"),
    "lhs of another rank": (
        lambda: gmm(LHS[0], RHS, SIZES),
        "lhs: an array of another rank\n  expected: [m, k]\n  got:      (3,)",
    ),
    "rhs of another rank": (
        lambda: gmm(LHS, RHS[0], SIZES, transpose_rhs=True),
        "rhs: an array of another rank\n  expected: [g, n, k]\n  got:      (3, 4)",
    ),
    "lhs of integers": (
        lambda: gmm(LHS.astype(np.int32), RHS, SIZES),
        "lhs: floats are needed\n  expected: a float dtype\n  got:      int32",
    ),
    "matrices that do not multiply": (
        lambda: gmm(LHS, RHS, SIZES, transpose_rhs=True),
        "rhs: does not multiply with lhs\n  expected: [g, n, 3]\n  got:      (2, 3, 4)\n"
        "  hint:     transpose_rhs=False takes matrices in this order",
    ),
    "no matrices": (
        lambda: gmm(LHS, RHS[:0], SIZES, group_offset=0),
        "rhs: at least one matrix is needed\n  got:      (0, 3, 4)",
    ),
    "group sizes that are not an array": (
        lambda: gmm(LHS, RHS, None),
        "group_sizes: not an array\n  expected: i32[groups]\n  got:      NoneType",
    ),
    "group sizes of floats": (
        lambda: gmm(LHS, RHS, SIZES.astype(np.float32)),
        "group_sizes: integers are needed\n  expected: i32[groups]\n  got:      float32",
    ),
    "group sizes of another rank": (
        lambda: gmm(LHS, RHS, SIZES[None]),
        "group_sizes: an array of another rank\n  expected: i32[groups]\n  got:      (1, 2)",
    ),
    "no groups": (
        lambda: tgmm(LHS.T, OUT, SIZES[:0]),
        "group_sizes: at least one group is needed\n  got:      (0,)",
    ),
    "a negative group size": (
        lambda: gmm(LHS, RHS, [9, -1]),
        "group_sizes: a group size is negative\n  got:      [9, -1]",
    ),
    "group sizes that sum past m": (
        lambda: tgmm(LHS.T, OUT, [5, 4]),
        "group_sizes: the group sizes sum to more than the number of rows\n  expected: at most 8\n  got:      9",
    ),
    "group sizes whose sum overflows": (
        lambda: gmm(LHS, RHS, np.array([2**63 - 1, 2**63 - 1])),
        "group_sizes: the group sizes sum to more than the number of rows\n  expected: at most 8\n"
        "  got:      18446744073709551614",
    ),
    "more groups than matrices": (
        lambda: gmm(LHS, RHS, [5, 2, 1]),
        "group_sizes: without group_offset, there is one matrix for each group\n"
        "  expected: 2 sizes\n  got:      3 sizes",
    ),
    "an offset with an axis": (
        lambda: gmm(LHS, RHS, [5, 2, 1], group_offset=np.array([1])),
        "group_offset: an array of another rank\n  expected: i32[]\n  got:      (1,)",
    ),
    "an offset of floats": (
        lambda: gmm(LHS, RHS, [5, 2, 1], group_offset=1.0),
        "group_offset: integers are needed\n  expected: i32[]\n  got:      float32",
    ),
    "an offset past the groups": (
        lambda: gmm(LHS, RHS, [5, 2, 1], group_offset=2),
        "group_offset: the groups from here on are not all there\n  expected: 0 to 1\n  got:      2",
    ),
    "more matrices than groups": (
        lambda: gmm(LHS, RHS, [8], group_offset=0),
        "group_offset: the groups from here on are not all there\n"
        "  expected: group_sizes of at least 2 groups\n  got:      0",
    ),
    "a negative offset": (
        lambda: tgmm(LHS.T, OUT, SIZES, group_offset=-1),
        "group_offset: the groups from here on are not all there\n  expected: 0 to 2\n  got:      -1",
    ),
    "too many groups": (
        lambda: tgmm(LHS.T, OUT, SIZES, num_actual_groups=3),
        "num_actual_groups: a positive integer\n  expected: 1 to 2\n  got:      3",
    ),
    "no number of groups for a traced offset": (
        lambda: pl.jit(lambda offset: tgmm(LHS.T, OUT, SIZES, group_offset=offset))(np.int32(1)),
        "num_actual_groups: the shape of the result depends on a traced group_offset\n"
        "  expected: the number of groups to compute\n  got:      None",
    ),
    "existing_out of another shape": (
        lambda: gmm(LHS, RHS, SIZES, existing_out=OUT[:-1]),
        "existing_out: not the shape of the result\n  expected: (8, 4)\n  got:      (7, 4)",
    ),
    "existing_out of another dtype": (
        lambda: gmm(LHS, RHS, SIZES, np.float16, existing_out=OUT),
        "existing_out: not the dtype of the result\n  expected: float16\n  got:      float32",
    ),
    "existing_out that is not an array": (
        lambda: gmm(LHS, RHS, SIZES, existing_out=0.0),
        "existing_out: not an array\n  expected: an array (8, 4)\n  got:      float",
    ),
    "a result of integers": (
        lambda: gmm(LHS, RHS, SIZES, np.int32),
        "preferred_element_type: floats are needed\n  expected: a float dtype\n  got:      <class 'numpy.int32'>",
    ),
    "a tiling of two": (
        lambda: gmm(LHS, RHS, SIZES, tiling=(8, 8)),
        "tiling: a tiling is three positive integers\n  expected: (tm, tk, tn)\n  got:      (8, 8)",
    ),
    "a tiling with a zero": (
        lambda: tgmm(LHS.T, OUT, SIZES, tiling=(8, 0, 8)),
        "tiling: a tiling is three positive integers\n  expected: (tm, tk, tn)\n  got:      (8, 0, 8)",
    ),
    "a tiling of floats": (
        lambda: matmul(LHS, RHS[0], tiling=(8.0, 8, 8)),
        "tiling: a tiling is three positive integers\n  expected: (tm, tk, tn)\n  got:      (8.0, 8, 8)",
    ),
    "a look-up that returns nonsense": (
        lambda: gmm(LHS, RHS, SIZES, tiling=lambda m, k, n: 8),
        "tiling: a tiling is three positive integers\n  expected: (tm, tk, tn)\n  got:      8",
    ),
    "a look-up that finds nothing": (
        lambda: gmm(LHS, RHS, SIZES, tiling=lambda m, k, n: None),
        "tiling: no tuned tiling found for (m, k, n) = (8, 3, 4)",
    ),
    "a look-up that finds nothing for a gradient": (
        lambda: gmm_vjp(LHS, RHS, SIZES, tiling=((8, 8, 8), lambda m, k, n: None, (8, 8, 8)))[1](OUT),
        "tiling: no tuned tiling found for (m, k, n) = (8, 4, 3)",
    ),
    "tgmm of sides that do not multiply": (
        lambda: tgmm(LHS, OUT, SIZES),
        "rhs: does not multiply with lhs\n  expected: [3, n]\n  got:      (8, 4)",
    ),
    "a gradient of another shape": (
        lambda: gmm_vjp(LHS, RHS, SIZES)[1](LHS),
        "grad_out: not the shape of the product\n  expected: (8, 4)\n  got:      (8, 3)",
    ),
    "a tile of no rows": (
        lambda: make_group_metadata(group_sizes=SIZES, m=8, tm=0),
        "tm: a positive integer\n  expected: 1 or more\n  got:      0",
    ),
    "dense matrices that do not multiply": (
        lambda: matmul(LHS, OUT),
        "y: the matrices do not multiply\n  expected: [3, n]\n  got:      (8, 4)",
    ),
    "softmax of integers": (
        lambda: softmax(np.arange(3)),
        "x: floats are needed\n  expected: a float dtype\n  got:      int64",
    ),
    "softmax of a scalar": (
        lambda: softmax(np.float32(1)),
        "x: softmax needs rows of at least one element\n  got:      ()",
    ),
    "softmax of empty rows": (
        lambda: softmax(np.zeros((3, 0))),
        "x: softmax needs rows of at least one element\n  got:      (3, 0)",
    ),
    "softmax of no rows at a time": (
        lambda: softmax(LHS, block_rows=0),
        "block_rows: a positive integer\n  expected: 1 or more\n  got:      0",
    ),
    "RMSNorm of a scalar": (
        lambda: rms_norm(np.float32(1), np.ones(1, np.float32)),
        "x: RMSNorm needs rows of at least one element\n  got:      ()",
    ),
    "RMSNorm with too few weights": (
        lambda: rms_norm(np.ones((2, 3), np.float32), np.ones(2, np.float32)),
        "weight: there is one weight for each element of a row\n  expected: (3,)\n  got:      (2,)",
    ),
}


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES.keys())
def test_the_argument_is_named_with_the_line_of_the_call(call, message):
    with pytest.raises(pl.PalladioError) as caught:
        call()
    said, _, where = str(caught.value).partition(f"\n  {__file__}:")
    assert said == message
    assert "lambda: " in where.splitlines()[1]


def test_a_wrong_dtype_is_a_type_error_and_a_wrong_size_a_value_error():
    with pytest.raises(TypeError):
        gmm(LHS, RHS, SIZES.astype(np.float32))
    with pytest.raises(ValueError):
        gmm(LHS, RHS, [9, 0])


def test_nothing_was_changed_by_a_refusal():
    existing = OUT.copy()
    with pytest.raises(pl.PalladioError):
        gmm(LHS, RHS, [9, 0], existing_out=existing)
    np.testing.assert_array_equal(existing, OUT)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ([9, -1], "group_sizes: a group size is negative"),
        ([5, 4], "group_sizes: the group sizes sum to more than the number of rows"),
    ],
    ids=["negative", "too many rows"],
)
@pytest.mark.parametrize("product", [gmm, lambda lhs, rhs, sizes: tgmm(lhs.T, OUT, sizes)], ids=["gmm", "tgmm"])
def test_group_sizes_of_a_staged_function_are_a_debug_check(product, sizes, message) -> None:
    staged = pl.jit(lambda sizes: product(LHS, RHS, sizes))
    with pl.enable_debug_checks():
        staged(SIZES)
        with pytest.raises(pl.DebugCheckError, match=message):
            staged(np.int32(sizes))
