"""Functions of arrays that are given what they do not take: inside a kernel, the kernel's line is shown."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from tests.errors.shown import OUT, N, X, shows

# Inside a kernel.


def test_shapes_that_do_not_broadcast() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + x_ref[:, 0:2]

    with shows(
        ValueError,
        """
        the shapes do not broadcast together
          got:      (8, 16), (8, 2)
          test_arrays.py:N, in kernel
            o_ref[...] = x_ref[...] + x_ref[:, 0:2]
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_product_of_sizes_that_differ() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] @ x_ref[...]

    with shows(
        ValueError,
        """
        the inner sizes of a matrix product differ
          expected: [..., m, k] and [..., k, n]
          got:      f32[8,16] and f32[8,16]
          test_arrays.py:N, in kernel
            o_ref[...] = x_ref[...] @ x_ref[...]
                         ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_dot_of_sizes_that_differ() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.dot(x_ref[...], x_ref[...])

    with shows(
        ValueError,
        """
        the summed sizes of a dot differ
          got:      f32[8,16] and f32[8,16]
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.dot(x_ref[...], x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reshape_to_another_size() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].reshape(3, 5)

    with shows(
        ValueError,
        """
        a reshape keeps the number of elements
          expected: 128 elements, as f32[8,16]
          got:      (3, 5)
          test_arrays.py:N, in kernel
            o_ref[...] = x_ref[...].reshape(3, 5)
                         ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reshape_that_nothing_fills() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].reshape(3, -1)

    with shows(
        ValueError,
        """
        shape: the elements do not fill the shape
          expected: 128 elements
          got:      (3, -1)
          test_arrays.py:N, in kernel
            o_ref[...] = x_ref[...].reshape(3, -1)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_concatenation_of_ranks_that_differ() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.concatenate([x_ref[...], x_ref[0]])

    with shows(
        ValueError,
        """
        concatenate takes arrays of one dtype that differ along its axis only
          got:      f32[8,16], f32[16]
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.concatenate([x_ref[...], x_ref[0]])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_concatenation_of_one_array() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.concatenate(x_ref[...])

    with shows(
        TypeError,
        """
        arrays: a tuple or list of arrays
          got:      traced f32[8,16]
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.concatenate(x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_letter_of_einsum_for_two_sizes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.einsum("ij,jk", x_ref[...], x_ref[...])

    with shows(
        ValueError,
        """
        subscripts: the letter 'j' stands for two sizes
          expected: 16
          got:      8
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.einsum("ij,jk", x_ref[...], x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_term_of_einsum_too_few() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.einsum("ij->ij", x_ref[...], x_ref[...])

    with shows(
        ValueError,
        """
        subscripts: one term for each operand
          expected: 2 terms
          got:      'ij->ij'
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.einsum("ij->ij", x_ref[...], x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_term_of_einsum_of_another_rank() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.einsum("ijk->ij", x_ref[...])

    with shows(
        ValueError,
        """
        subscripts: the term 'ijk' has another rank than its operand
          expected: (8, 16)
          got:      'ijk->ij'
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.einsum("ijk->ij", x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_an_einsum_without_subscripts() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.einsum(x_ref[...], x_ref[...])

    with shows(
        TypeError,
        """
        subscripts: the subscripts are a string
          got:      traced f32[8,16]
          test_arrays.py:N, in kernel
            o_ref[...] = jnp.einsum(x_ref[...], x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_an_arange_of_a_traced_size() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.arange(pl.program_id(0))

    with shows(
        TypeError,
        """
        the bounds of arange are static numbers
          got:      0, traced i32[], 1
          hint:     add to an arange of static size
          test_arrays.py:N, in kernel
            o_ref[0] = jnp.arange(pl.program_id(0))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_an_index_of_a_value_outside_an_axis() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[...][8]

    with shows(
        IndexError,
        """
        the index is outside axis 0
          expected: -8 <= index < 8
          got:      8
          test_arrays.py:N, in kernel
            o_ref[0] = x_ref[...][8]
                       ^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_mask_as_an_index_of_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = x[x > 0]

    with shows(
        TypeError,
        """
        a bool array cannot index a value: the size would not be static
          got:      bool[8,16]
          hint:     use where(mask, x, other)
          test_arrays.py:N, in kernel
            o_ref[...] = x[x > 0]
                         ^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_dtypes_without_a_common_one() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].astype(jnp.float8_e5m2) + x_ref[...]

    with shows(
        TypeError,
        """
        the dtypes do not promote to a common one
          got:      float8_e5m2, float32
          hint:     convert one explicitly with .astype(dtype)
          test_arrays.py:N, in kernel
            o_ref[...] = x_ref[...].astype(jnp.float8_e5m2) + x_ref[...]
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_an_axis_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = jnp.sum(x_ref[...], axis=2)

    with shows(
        IndexError,
        """
        axis: the array has no such axis, its rank is 2
          expected: -2 <= axis < 2
          got:      2
          test_arrays.py:N, in kernel
            o_ref[0, 0] = jnp.sum(x_ref[...], axis=2)
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Scans.


def test_a_scan_body_that_returns_no_pair() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.scan(lambda total, x: total + x, x_ref[0], x_ref[...])[0]

    with shows(
        TypeError,
        """
        the body of scan returns a pair, (carry, y)
          got:      traced f32[16]
          test_arrays.py:N, in kernel
            o_ref[0] = lax.scan(lambda total, x: total + x, x_ref[0], x_ref[...])[0]
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_scan_along_a_scalar() -> None:
    with shows(
        TypeError,
        """
        xs: scan goes along the first axis of its xs
          got:      a scalar
          test_arrays.py:N, in test_a_scan_along_a_scalar
            lax.scan(lambda total, x: (total, x), 0, np.float32(1))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.scan(lambda total, x: (total, x), 0, np.float32(1))


def test_a_scan_of_two_lengths() -> None:
    with shows(
        ValueError,
        """
        scan needs one length: that of the first axes of xs, or `length`
          got:      [7, 8]
          test_arrays.py:N, in test_a_scan_of_two_lengths
            lax.scan(lambda total, x: (total, x), 0, X, length=7)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.scan(lambda total, x: (total, x), 0, X, length=7)


def test_an_associative_scan_of_two_sizes() -> None:
    with shows(
        ValueError,
        """
        elems: the arrays have one size along the axis
          got:      [3, 8]
          test_arrays.py:N, in test_an_associative_scan_of_two_sizes
            lax.associative_scan(lambda a, b: a, (X, N[:3]))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.associative_scan(lambda a, b: a, (X, N[:3]))


def test_an_associative_scan_of_another_structure() -> None:
    with shows(
        TypeError,
        """
        the function returns the structure that it takes
          expected: one value
          got:      (*, *)
          test_arrays.py:N, in test_an_associative_scan_of_another_structure
            lax.associative_scan(lambda a, b: (a, b), X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.associative_scan(lambda a, b: (a, b), X)


# Outside of kernels, where NumPy's rules hold too.


def test_contracting_axes_that_are_no_pairs() -> None:
    with shows(
        ValueError,
        """
        dimension_numbers: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)), each a sequence of axes
          expected: such as (((1,), (0,)), ((), ()))
          got:      ((1,), (0,))
          test_arrays.py:N, in test_contracting_axes_that_are_no_pairs
            lax.dot_general(X, X, ((1,), (0,)))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.dot_general(X, X, ((1,), (0,)))  # type: ignore[arg-type]


def test_a_dot_of_a_cube() -> None:
    with shows(
        ValueError,
        """
        dot takes vectors and matrices
          got:      f32[8,16] and f32[2,2,2]
          test_arrays.py:N, in test_a_dot_of_a_cube
            lax.dot(X, np.ones((2, 2, 2), np.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.dot(X, np.ones((2, 2, 2), np.float32))


def test_a_batched_product_of_two_ranks() -> None:
    with shows(
        ValueError,
        """
        batch_matmul takes two arrays of one rank, at least 2
          got:      f32[8,16] and f32[16]
          test_arrays.py:N, in test_a_batched_product_of_two_ranks
            lax.batch_matmul(X, X[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.batch_matmul(X, X[0])


def test_an_order_of_elements_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        order: elements are in row-major order
          expected: 'C'
          got:      'F'
          test_arrays.py:N, in test_an_order_of_elements_that_there_is_not
            jnp.reshape(X, (16, 8), order="F")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.reshape(X, (16, 8), order="F")


def test_a_destination_too_few() -> None:
    with shows(
        ValueError,
        """
        destination: one destination for each source
          got:      (1,)
          test_arrays.py:N, in test_a_destination_too_few
            jnp.moveaxis(X, (0, 1), (1,))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.moveaxis(X, (0, 1), (1,))


def test_an_order_by_fields() -> None:
    with shows(
        TypeError,
        """
        order: arrays have no fields to order by
          got:      'name'
          test_arrays.py:N, in test_an_order_by_fields
            jnp.sort(X, order="name")
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.sort(X, order="name")


def test_an_extremum_of_nothing() -> None:
    with shows(
        ValueError,
        """
        a: nothing has neither a greatest nor a least element
          got:      f32[0,16]
          test_arrays.py:N, in test_an_extremum_of_nothing
            jnp.nanmax(X[:0])
            ^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.nanmax(X[:0])


def test_a_view_that_splits_an_element() -> None:
    with shows(
        ValueError,
        """
        the last axis has a whole number of elements of the other dtype
          got:      f32[8,3] as float64
          test_arrays.py:N, in <lambda>
            pl.jit(lambda x: x.view(jnp.float64))(X[:, :3])
                             ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: x.view(jnp.float64))(X[:, :3])


def test_a_grid_of_another_indexing() -> None:
    with shows(
        ValueError,
        """
        indexing: indexing is 'xy' or 'ij'
          got:      yx
          test_arrays.py:N, in test_a_grid_of_another_indexing
            jnp.meshgrid(X[0], X[0], indexing="yx")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.meshgrid(X[0], X[0], indexing="yx")


def test_a_negative_number_of_differences() -> None:
    with shows(
        ValueError,
        """
        n: the number of differences is at least 0
          got:      -1
          test_arrays.py:N, in test_a_negative_number_of_differences
            jnp.diff(X, n=-1)
            ^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.diff(X, n=-1)


def test_a_median_of_nothing() -> None:
    with shows(
        ValueError,
        """
        no elements have no median
          got:      f32[0,16]
          test_arrays.py:N, in test_a_median_of_nothing
            jnp.median(X[:0])
            ^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.median(X[:0])


def test_a_side_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        side: the side is 'left' or 'right'
          got:      middle
          test_arrays.py:N, in test_a_side_that_there_is_not
            jnp.searchsorted(X[0], X[0], side="middle")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.searchsorted(X[0], X[0], side="middle")


def test_a_search_in_a_matrix() -> None:
    with shows(
        ValueError,
        """
        a: the sorted elements are a vector
          got:      f32[8,16]
          test_arrays.py:N, in test_a_search_in_a_matrix
            jnp.searchsorted(X, X[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.searchsorted(X, X[0])


def test_positions_of_floats() -> None:
    with shows(
        TypeError,
        """
        indices: positions are integers
          got:      f32[16]
          test_arrays.py:N, in test_positions_of_floats
            jnp.unravel_index(X[0], (2, 8))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.unravel_index(X[0], (2, 8))


def test_a_running_sum_of_several_axes() -> None:
    with shows(
        ValueError,
        """
        axis: an array of several axes needs an axis
          got:      None
          test_arrays.py:N, in test_a_running_sum_of_several_axes
            jnp.cumulative_sum(X)
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.cumulative_sum(X)


def test_a_choice_without_cases() -> None:
    with shows(
        ValueError,
        """
        cases: select_n takes one case or more
          test_arrays.py:N, in test_a_choice_without_cases
            lax.select_n(X > 0)
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.select_n(X > 0)


def test_a_collapse_of_no_axes() -> None:
    with shows(
        ValueError,
        """
        start_dimension: at least one axis is collapsed
          got:      (2, None)
          test_arrays.py:N, in test_a_collapse_of_no_axes
            lax.collapse(X, 2)
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.collapse(X, 2)


def test_a_concatenation_of_nothing() -> None:
    with shows(
        ValueError,
        """
        operands: concatenate takes at least one array
          test_arrays.py:N, in test_a_concatenation_of_nothing
            lax.concatenate([], 0)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.concatenate([], 0)


def test_a_padding_of_pairs() -> None:
    with shows(
        ValueError,
        """
        padding_config: (before, behind, between) for each axis
          got:      (1, 1)
          test_arrays.py:N, in test_a_padding_of_pairs
            lax.pad(X, 0.0, [(1, 1), (1, 1)])  # type: ignore[list-item]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.pad(X, 0.0, [(1, 1), (1, 1)])  # type: ignore[list-item]


def test_an_array_full_of_an_array() -> None:
    with shows(
        TypeError,
        """
        fill_value: full takes a scalar
          got:      f32[16]
          test_arrays.py:N, in test_an_array_full_of_an_array
            lax.full((2, 16), X[0])
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.full((2, 16), X[0])


def test_a_split_that_does_not_make_up_the_axis() -> None:
    with shows(
        ValueError,
        """
        sizes: the parts make up the axis
          expected: a sum of 8
          got:      (3, 3)
          test_arrays.py:N, in test_a_split_that_does_not_make_up_the_axis
            lax.split(X, (3, 3))
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.split(X, (3, 3))


def test_a_slice_without_a_limit() -> None:
    with shows(
        ValueError,
        """
        slice takes a start, a limit and a stride for each axis
          expected: 2
          got:      (0, 0)
          test_arrays.py:N, in test_a_slice_without_a_limit
            lax.slice(X, (0, 0), (4,))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.slice(X, (0, 0), (4,))


def test_a_start_that_is_no_scalar() -> None:
    with shows(
        TypeError,
        """
        start_indices: a start is a scalar
          got:      i32[8]
          test_arrays.py:N, in test_a_start_that_is_no_scalar
            lax.dynamic_slice(X, (N, 0), (2, 2))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.dynamic_slice(X, (N, 0), (2, 2))


def test_an_einsum_with_an_unknown_letter_in_its_result() -> None:
    with shows(
        ValueError,
        """
        subscripts: the subscripts do not parse
          got:      'ij->z'
          test_arrays.py:N, in test_an_einsum_with_an_unknown_letter_in_its_result
            jnp.einsum("ij->z", X)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.einsum("ij->z", X)


def test_an_einsum_of_a_diagonal() -> None:
    with shows(
        ValueError,
        """
        subscripts: a letter stands twice in one operand: diagonals are not taken
          got:      'ii->i'
          test_arrays.py:N, in test_an_einsum_of_a_diagonal
            jnp.einsum("ii->i", X)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.einsum("ii->i", X)


def test_an_integer_that_is_too_large_as_an_argument() -> None:
    with shows(
        ValueError,
        """
        args[0] (x): a Python integer alone is an int32, which cannot hold this one
          got:      1099511627776
          hint:     pass an array of the dtype that is meant
          test_arrays.py:N, in test_an_integer_that_is_too_large_as_an_argument
            pl.jit(lambda x: x)(2**40)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: x)(2**40)


def test_a_tensor_made_inside_a_staged_function() -> None:
    import torch

    with shows(
        TypeError,
        """
        a staged function returns traced values and NumPy arrays
          got:      Tensor
          test_arrays.py:N, in test_a_tensor_made_inside_a_staged_function
            pl.jit(lambda x: torch.ones(3))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: torch.ones(3))(X)


def test_a_diagonal_of_a_vector() -> None:
    with shows(
        ValueError,
        """
        a diagonal needs two axes
          got:      f32[16]
          test_arrays.py:N, in test_a_diagonal_of_a_vector
            jnp.diagonal(X[0])
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.diagonal(X[0])


def test_a_triangle_of_a_vector() -> None:
    with shows(
        ValueError,
        """
        m: a matrix is needed
          expected: at least 2 axes
          got:      f32[16]
          test_arrays.py:N, in test_a_triangle_of_a_vector
            jnp.tril(X[0])
            ^^^^^^^^^^^^^^
        """,
    ):
        jnp.tril(X[0])


def test_a_size_that_is_traced() -> None:
    with shows(
        TypeError,
        """
        shape: static integers are wanted
          got:      (traced i32[], 2)
          test_arrays.py:N, in <lambda>
            pl.jit(lambda n: lax.broadcasted_iota(jnp.int32, (n, 2), 0))(np.int32(4))
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda n: lax.broadcasted_iota(jnp.int32, (n, 2), 0))(np.int32(4))
