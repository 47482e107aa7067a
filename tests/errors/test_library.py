"""The kernels of the library: every message points at the line that called them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.library import attention, gmm, gmm_vjp, make_group_metadata, matmul, softmax, tgmm
from tests.errors.shown import X, shown, shows

LHS = np.ones((8, 16), np.float32)
RHS = np.ones((2, 16, 4), np.float32)
SIZES = np.array([5, 3], np.int32)


# Group sizes.


def test_group_sizes_of_floats() -> None:
    with shows(
        TypeError,
        """
        group_sizes: integers are needed
          expected: i32[groups]
          got:      float64
          test_library.py:N, in test_group_sizes_of_floats
            gmm(LHS, RHS, np.array([5.0, 3.0]))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([5.0, 3.0]))


def test_group_sizes_that_are_no_array() -> None:
    with shows(
        TypeError,
        """
        group_sizes: no array
          expected: i32[groups]
          got:      str
          test_library.py:N, in test_group_sizes_that_are_no_array
            gmm(LHS, RHS, "all")
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, "all")


def test_a_negative_group_size() -> None:
    with shows(
        ValueError,
        """
        group_sizes: a group size is negative
          got:      [9, -1]
          test_library.py:N, in test_a_negative_group_size
            gmm(LHS, RHS, np.array([9, -1], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([9, -1], np.int32))


def test_group_sizes_that_sum_past_the_rows() -> None:
    with shows(
        ValueError,
        """
        group_sizes: the group sizes sum to more than the number of rows
          expected: at most 8
          got:      9
          test_library.py:N, in test_group_sizes_that_sum_past_the_rows
            gmm(LHS, RHS, np.array([5, 4], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([5, 4], np.int32))


def test_group_sizes_that_sum_past_the_columns_of_tgmm() -> None:
    with shows(
        ValueError,
        """
        group_sizes: the group sizes sum to more than the number of rows
          expected: at most 8
          got:      9
          test_library.py:N, in test_group_sizes_that_sum_past_the_columns_of_tgmm
            tgmm(LHS.T, LHS, np.array([5, 4], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS, np.array([5, 4], np.int32))


def test_group_sizes_that_sum_past_the_rows_by_overflow() -> None:
    with shows(
        ValueError,
        """
        group_sizes: the group sizes sum to more than the number of rows
          expected: at most 8
          got:      4294967294
          test_library.py:N, in test_group_sizes_that_sum_past_the_rows_by_overflow
            gmm(LHS, RHS, np.array([2**31 - 1, 2**31 - 1], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([2**31 - 1, 2**31 - 1], np.int32))


def test_group_sizes_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        group_sizes: an array of another rank
          expected: i32[groups]
          got:      (1, 2)
          test_library.py:N, in test_group_sizes_of_another_rank
            gmm(LHS, RHS, np.array([[5, 3]], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([[5, 3]], np.int32))


def test_no_groups() -> None:
    with shows(
        ValueError,
        """
        group_sizes: at least one group is needed
          got:      (0,)
          test_library.py:N, in test_no_groups
            gmm(LHS, RHS, np.zeros(0, np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.zeros(0, np.int32))


def test_another_number_of_group_sizes_than_of_matrices() -> None:
    with shows(
        ValueError,
        """
        group_sizes: without group_offset, there is one matrix for each group
          expected: 2 sizes
          got:      3 sizes
          test_library.py:N, in test_another_number_of_group_sizes_than_of_matrices
            gmm(LHS, RHS, np.array([5, 2, 1], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, np.array([5, 2, 1], np.int32))


# Tilings.


def test_a_tiling_of_two() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 8)
          test_library.py:N, in test_a_tiling_of_two
            gmm(LHS, RHS, SIZES, tiling=(8, 8))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, tiling=(8, 8))  # type: ignore[arg-type]


def test_a_tiling_with_a_zero() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 0, 8)
          test_library.py:N, in test_a_tiling_with_a_zero
            gmm(LHS, RHS, SIZES, tiling=(8, 0, 8))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, tiling=(8, 0, 8))


def test_a_tiling_with_a_float() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 8, 8.0)
          test_library.py:N, in test_a_tiling_with_a_float
            tgmm(LHS.T, LHS, SIZES, tiling=(8, 8, 8.0))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS, SIZES, tiling=(8, 8, 8.0))  # type: ignore[arg-type]


def test_a_tiling_of_a_product_that_is_no_tiling() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 8)
          test_library.py:N, in test_a_tiling_of_a_product_that_is_no_tiling
            gmm(LHS, RHS, SIZES, tiling=((8, 8), (8, 8, 8), (8, 8, 8)))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, tiling=((8, 8), (8, 8, 8), (8, 8, 8)))  # type: ignore[arg-type]


def test_a_look_up_that_finds_nothing() -> None:
    def look_up(m: int, k: int, n: int) -> None:
        return None

    with shows(
        ValueError,
        """
        tiling: no tuned tiling found for (m, k, n) = (8, 16, 4)
          test_library.py:N, in test_a_look_up_that_finds_nothing
            gmm(LHS, RHS, SIZES, tiling=look_up)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, tiling=look_up)


def test_a_look_up_that_finds_no_tiling() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 16)
          test_library.py:N, in test_a_look_up_that_finds_no_tiling
            gmm(LHS, RHS, SIZES, tiling=lambda m, k, n: (m, k))  # type: ignore[arg-type, return-value]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, tiling=lambda m, k, n: (m, k))  # type: ignore[arg-type, return-value]


def test_a_tiling_for_matmul_that_is_none() -> None:
    with shows(
        ValueError,
        """
        tiling: a tiling is three positive integers
          expected: (tm, tk, tn)
          got:      (8, 8, -8)
          test_library.py:N, in test_a_tiling_for_matmul_that_is_none
            matmul(LHS, LHS.T, tiling=(8, 8, -8))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        matmul(LHS, LHS.T, tiling=(8, 8, -8))


# Arrays.


def test_a_left_side_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        lhs: an array of another rank
          expected: [m, k]
          got:      (16,)
          test_library.py:N, in test_a_left_side_of_another_rank
            gmm(LHS[0], RHS, SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS[0], RHS, SIZES)


def test_a_right_side_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        rhs: an array of another rank
          expected: [g, k, n]
          got:      (16, 4)
          test_library.py:N, in test_a_right_side_of_another_rank
            gmm(LHS, RHS[0], SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS[0], SIZES)


def test_sides_that_do_not_multiply() -> None:
    with shows(
        ValueError,
        """
        rhs: does not multiply with lhs
          expected: [g, 16, n]
          got:      (2, 8, 4)
          test_library.py:N, in test_sides_that_do_not_multiply
            gmm(LHS, RHS[:, :8], SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS[:, :8], SIZES)


def test_transposed_sides_that_do_not_multiply() -> None:
    with shows(
        ValueError,
        """
        rhs: does not multiply with lhs
          expected: [g, n, 16]
          got:      (2, 16, 4)
          test_library.py:N, in test_transposed_sides_that_do_not_multiply
            gmm(LHS, RHS, SIZES, transpose_rhs=True)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, transpose_rhs=True)


def test_sides_of_tgmm_that_do_not_multiply() -> None:
    with shows(
        ValueError,
        """
        rhs: does not multiply with lhs
          expected: [8, n]
          got:      (5, 16)
          test_library.py:N, in test_sides_of_tgmm_that_do_not_multiply
            tgmm(LHS.T, LHS[:5], SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS[:5], SIZES)


def test_a_side_of_integers() -> None:
    with shows(
        TypeError,
        """
        lhs: floats are needed
          expected: a float dtype
          got:      int32
          test_library.py:N, in test_a_side_of_integers
            gmm(LHS.astype(np.int32), RHS, SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS.astype(np.int32), RHS, SIZES)


def test_a_side_of_complex_numbers() -> None:
    with shows(
        TypeError,
        """
        lhs: not a dtype that Palladio has
          expected: a float dtype
          got:      complex64
          test_library.py:N, in test_a_side_of_complex_numbers
            gmm(LHS.astype(np.complex64), RHS, SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS.astype(np.complex64), RHS, SIZES)


def test_a_side_that_is_no_array() -> None:
    with shows(
        TypeError,
        """
        lhs: no array
          expected: an array [m, k]
          got:      list
          test_library.py:N, in test_a_side_that_is_no_array
            gmm([[1.0]], RHS, SIZES)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm([[1.0]], RHS, SIZES)


def test_a_result_of_integers() -> None:
    with shows(
        TypeError,
        """
        preferred_element_type: floats are needed
          expected: a float dtype
          got:      palladio.numpy.int32
          test_library.py:N, in test_a_result_of_integers
            gmm(LHS, RHS, SIZES, preferred_element_type=jnp.int32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, preferred_element_type=jnp.int32)


def test_an_existing_output_of_another_shape() -> None:
    with shows(
        ValueError,
        """
        existing_out: not the shape of the result
          expected: (8, 4)
          got:      (8, 16)
          test_library.py:N, in test_an_existing_output_of_another_shape
            gmm(LHS, RHS, SIZES, existing_out=np.zeros((8, 16), np.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, existing_out=np.zeros((8, 16), np.float32))


def test_an_existing_output_of_another_dtype() -> None:
    with shows(
        TypeError,
        """
        existing_out: not the dtype of the result
          expected: float32
          got:      float16
          test_library.py:N, in test_an_existing_output_of_another_dtype
            gmm(LHS, RHS, SIZES, np.float32, existing_out=np.zeros((8, 4), np.float16))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, np.float32, existing_out=np.zeros((8, 4), np.float16))


def test_an_existing_output_of_tgmm_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        existing_out: an array of another rank
          expected: (2, 16, 16)
          got:      (16, 16)
          test_library.py:N, in test_an_existing_output_of_tgmm_of_another_rank
            tgmm(LHS.T, LHS, SIZES, existing_out=np.zeros((16, 16), np.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS, SIZES, existing_out=np.zeros((16, 16), np.float32))


def test_a_gradient_of_another_shape() -> None:
    _, pullback = gmm_vjp(LHS, RHS, SIZES)
    with shows(
        ValueError,
        """
        grad_out: not the shape of the product
          expected: (8, 4)
          got:      (8, 16)
          test_library.py:N, in test_a_gradient_of_another_shape
            pullback(LHS)
            ^^^^^^^^^^^^^
        """,
    ):
        pullback(LHS)


# Offsets and counts.


def test_a_group_offset_past_the_groups() -> None:
    with shows(
        ValueError,
        """
        group_offset: the groups from here on are not all there
          expected: 0 to 1
          got:      2
          test_library.py:N, in test_a_group_offset_past_the_groups
            gmm(LHS, RHS[:1], SIZES, group_offset=2)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS[:1], SIZES, group_offset=2)


def test_a_group_offset_that_is_no_integer() -> None:
    with shows(
        TypeError,
        """
        group_offset: integers are needed
          expected: i32[]
          got:      float32
          test_library.py:N, in test_a_group_offset_that_is_no_integer
            gmm(LHS, RHS[:1], SIZES, group_offset=0.5)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS[:1], SIZES, group_offset=0.5)


def test_a_group_offset_that_is_no_scalar() -> None:
    with shows(
        ValueError,
        """
        group_offset: an array of another rank
          expected: i32[]
          got:      (1,)
          test_library.py:N, in test_a_group_offset_that_is_no_scalar
            gmm(LHS, RHS[:1], SIZES, group_offset=np.array([1], np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS[:1], SIZES, group_offset=np.array([1], np.int32))


def test_more_groups_to_compute_than_there_are() -> None:
    with shows(
        ValueError,
        """
        num_actual_groups: a positive integer
          expected: 1 to 2
          got:      3
          test_library.py:N, in test_more_groups_to_compute_than_there_are
            tgmm(LHS.T, LHS, SIZES, num_actual_groups=3)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS, SIZES, num_actual_groups=3)


def test_a_number_of_groups_that_is_no_integer() -> None:
    with shows(
        ValueError,
        """
        num_actual_groups: a positive integer
          expected: 1 to 2
          got:      1.5
          test_library.py:N, in test_a_number_of_groups_that_is_no_integer
            tgmm(LHS.T, LHS, SIZES, num_actual_groups=1.5)  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        tgmm(LHS.T, LHS, SIZES, num_actual_groups=1.5)  # type: ignore[arg-type]


def test_metadata_of_tiles_without_rows() -> None:
    with shows(
        ValueError,
        """
        tm: a positive integer
          expected: 1 or more
          got:      0
          test_library.py:N, in test_metadata_of_tiles_without_rows
            make_group_metadata(group_sizes=SIZES, m=8, tm=0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        make_group_metadata(group_sizes=SIZES, m=8, tm=0)


def test_metadata_of_sizes_that_sum_past_the_rows() -> None:
    with shows(
        ValueError,
        """
        group_sizes: the group sizes sum to more than the number of rows
          expected: at most 7
          got:      8
          test_library.py:N, in test_metadata_of_sizes_that_sum_past_the_rows
            make_group_metadata(group_sizes=SIZES, m=7, tm=4)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        make_group_metadata(group_sizes=SIZES, m=7, tm=4)


# The others.


def test_matrices_that_do_not_multiply() -> None:
    with shows(
        ValueError,
        """
        y: the matrices do not multiply
          expected: [16, n]
          got:      (8, 16)
          test_library.py:N, in test_matrices_that_do_not_multiply
            matmul(X, X)
            ^^^^^^^^^^^^
        """,
    ):
        matmul(X, X)


def test_a_matrix_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        y: an array of another rank
          expected: [k, n]
          got:      (16,)
          test_library.py:N, in test_a_matrix_of_another_rank
            matmul(X, X[0])
            ^^^^^^^^^^^^^^^
        """,
    ):
        matmul(X, X[0])


def test_softmax_of_integers() -> None:
    with shows(
        TypeError,
        """
        x: floats are needed
          expected: a float dtype
          got:      int32
          test_library.py:N, in test_softmax_of_integers
            softmax(X.astype(np.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        softmax(X.astype(np.int32))


def test_softmax_of_a_scalar() -> None:
    with shows(
        ValueError,
        """
        x: softmax needs rows of at least one element
          got:      ()
          test_library.py:N, in test_softmax_of_a_scalar
            softmax(np.float32(1))
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        softmax(np.float32(1))


def test_an_executor_that_there_is_not() -> None:
    with shows(
        TypeError,
        """
        interpret: True, False or the name of an executor
          got:      ['abacus']
          test_library.py:N, in test_an_executor_that_there_is_not
            matmul(X, X.T, interpret=["abacus"])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        matmul(X, X.T, interpret=["abacus"])


# What a library kernel's own equations say shows both lines.


def test_an_error_inside_a_library_kernel_shows_its_line_and_the_callers() -> None:
    def library_call(x: Any) -> Any:
        return make_group_metadata(group_sizes=x, m=8, tm=4, start_group=np.arange(5))

    with pytest.raises(pl.PalladioValueError) as caught:
        pl.jit(library_call)(SIZES)
    assert "grouped_matmul.py:N, in make_group_metadata" in shown(caught.value)
    assert shown(caught.value).endswith(
        "  called from\n"
        "  test_library.py:N, in library_call\n"
        "    return make_group_metadata(group_sizes=x, m=8, tm=4, start_group=np.arange(5))\n"
        "           " + "^" * 71
    )


def test_gmm_on_no_executor() -> None:
    with shows(
        TypeError,
        """
        interpret: True, False or the name of an executor
          got:      ['abacus']
          test_library.py:N, in test_gmm_on_no_executor
            gmm(LHS, RHS, SIZES, interpret=["abacus"])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(LHS, RHS, SIZES, interpret=["abacus"])


# Attention.

Q = np.ones((2, 4, 8), np.float32)


def test_attention_of_a_vector() -> None:
    with shows(
        ValueError,
        """
        q: attention needs at least two axes
          got:      (8,)
          test_library.py:N, in test_attention_of_a_vector
            attention(Q[0, 0], Q, Q)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        attention(Q[0, 0], Q, Q)


def test_attention_to_keys_of_another_size() -> None:
    with shows(
        ValueError,
        """
        k: the keys do not go with the queries
          expected: (2, 'n', 8) with n and d at least 1
          got:      (2, 4, 7)
          test_library.py:N, in test_attention_to_keys_of_another_size
            attention(Q, Q[..., :7], Q)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        attention(Q, Q[..., :7], Q)


def test_attention_to_another_number_of_values() -> None:
    with shows(
        ValueError,
        """
        v: not one value for each key
          expected: (2, 4, 'e')
          got:      (2, 3, 8)
          test_library.py:N, in test_attention_to_another_number_of_values
            attention(Q, Q, Q[:, :3])
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        attention(Q, Q, Q[:, :3])


def test_attention_in_two_dtypes() -> None:
    with shows(
        TypeError,
        """
        k: another dtype than q
          expected: float32
          got:      float16
          test_library.py:N, in test_attention_in_two_dtypes
            attention(Q, Q.astype(np.float16), Q)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        attention(Q, Q.astype(np.float16), Q)
