"""What goes wrong inside a kernel: reads and writes of references, traced values where Python wants its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.errors.shown import OUT, X, shows

# What a kernel is.


def test_a_kernel_that_returns_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> Any:
        return x_ref[...] + 1

    with shows(
        TypeError,
        """
        kernel: the kernel kernel must return None; it writes to its output references
          got:      returns traced f32[8,16]
          test_kernels.py:N, in kernel
            def kernel(x_ref: Any, o_ref: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_kernel_that_captures_an_array() -> None:
    weights = np.ones((8, 16), np.float32)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * weights

    with shows(
        TypeError,
        """
        kernel: the kernel kernel captures an array constant
          got:      f32[8,16]
          hint:     pass it as an input, or make it of jnp.arange, jnp.full and their like; only scalars may be captured
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[...] * weights
                         ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_mistake_of_pythons_own_in_a_kernel_stays_what_it_is() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        math.sqrt(1, 2)  # type: ignore[call-arg]

    try:
        pl.pallas_call(kernel, OUT)(X)
    except TypeError as error:
        assert not isinstance(error, pl.PalladioError)


# Bounds.


def test_a_read_outside_a_static_bound() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[8]

    with shows(
        IndexError,
        """
        the index is outside axis 0
          expected: -8 <= index < 8
          got:      8
          test_kernels.py:N, in kernel
            o_ref[0] = x_ref[8]
                       ^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_write_outside_a_static_bound() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[-9] = x_ref[0]

    with shows(
        IndexError,
        """
        the index is outside axis 0
          expected: -8 <= index < 8
          got:      -9
          test_kernels.py:N, in kernel
            o_ref[-9] = x_ref[0]
            ^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_slice_outside_a_static_bound() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[1:9]

    with shows(
        IndexError,
        """
        the slice reaches outside axis 0
          expected: bounds within 8
          got:      slice(1, 9, None)
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[1:9]
                         ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_sized_slice_outside_a_static_bound() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[pl.ds(4, 8)]

    with shows(
        IndexError,
        """
        the slice reaches outside axis 0
          expected: elements 0 to 7
          got:      elements 4 to 11
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[pl.ds(4, 8)]
                         ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_too_many_indices() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = x_ref[0, 0, 0]

    with shows(
        IndexError,
        """
        too many indices for the reference
          expected: at most 2
          got:      3
          test_kernels.py:N, in kernel
            o_ref[0, 0] = x_ref[0, 0, 0]
                          ^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_two_ellipses() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[..., ...]

    with shows(
        IndexError,
        """
        an index has at most one ellipsis
          got:      2
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[..., ...]
                         ^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Kinds of indices.


def test_a_mask_as_an_index() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[x_ref[...] > 0] = 0.0

    with shows(
        TypeError,
        """
        an index is an integer or an integer array
          got:      bool[8,16]
          hint:     use a masked load or np.where
          test_kernels.py:N, in kernel
            o_ref[x_ref[...] > 0] = 0.0
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_traced_float_as_an_index() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[x_ref[0, 0]]

    with shows(
        TypeError,
        """
        an index is an integer or an integer array
          got:      f32[]
          test_kernels.py:N, in kernel
            o_ref[0] = x_ref[x_ref[0, 0]]
                       ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_string_as_an_index() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref["first"]

    with shows(
        TypeError,
        """
        a reference is indexed by integers, slices, ds(start, size), integer arrays and one ellipsis
          got:      str: 'first'
          test_kernels.py:N, in kernel
            o_ref[0] = x_ref["first"]
                       ^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reference_as_an_index() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[o_ref]

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      ref<any, f32[8,16]>
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[0] = x_ref[o_ref]
                       ^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_index_arrays_that_do_not_broadcast() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0:3] = x_ref[jnp.arange(3), jnp.arange(4)]

    with shows(
        IndexError,
        """
        index arrays must broadcast together
          got:      (3,), (4,)
          test_kernels.py:N, in kernel
            o_ref[0, 0:3] = x_ref[jnp.arange(3), jnp.arange(4)]
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_slice_with_a_traced_bound() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0:2] = x_ref[pl.program_id(0) : 2]

    with shows(
        TypeError,
        """
        a slice of axis 0 has bounds that are not static
          hint:     write ds(start, size): the size must be static
          test_kernels.py:N, in kernel
            o_ref[0:2] = x_ref[pl.program_id(0) : 2]
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_a_slice_backwards() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[::-1]

    with shows(
        ValueError,
        """
        the step of a slice of axis 0 is a static integer of at least 1
          got:      -1
          hint:     np.flip(value, axis) reverses what was read
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[::-1]
                         ^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_slice_of_a_traced_size() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0:1] = x_ref[pl.ds(0, pl.program_id(0))]

    with shows(
        TypeError,
        """
        the size of a slice of axis 0 is a static integer
          got:      traced i32[]
          test_kernels.py:N, in kernel
            o_ref[0:1] = x_ref[pl.ds(0, pl.program_id(0))]
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_a_slice_of_a_negative_size() -> None:
    with shows(
        ValueError,
        """
        a slice has a size of at least 0 and a stride of at least 1
          got:      -1, 1
          test_kernels.py:N, in test_a_slice_of_a_negative_size
            pl.ds(0, -1)
            ^^^^^^^^^^^^
        """,
    ):
        pl.ds(0, -1)


def test_a_slice_with_half_a_stride() -> None:
    with shows(
        TypeError,
        """
        the stride of a slice is a static integer
          got:      0.5
          test_kernels.py:N, in test_a_slice_with_half_a_stride
            pl.ds(0, 1, 0.5)  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^
        """,
    ):
        pl.ds(0, 1, 0.5)  # type: ignore[arg-type]


# Writing.


def test_a_store_of_another_dtype() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].astype(jnp.int32)

    with shows(
        TypeError,
        """
        the value has another dtype than the reference
          expected: f32[8,16]
          got:      i32[8,16]
          hint:     convert it: value.astype(ref.dtype)
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[...].astype(jnp.int32)
            ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_store_of_another_shape() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[0:4]

    with shows(
        ValueError,
        """
        the value does not broadcast to the shape that the reference has here
          expected: f32[8,16]
          got:      f32[4,16]
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[0:4]
            ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_store_of_a_larger_shape() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[...]

    with shows(
        ValueError,
        """
        the value does not broadcast to the shape that the reference has here
          expected: f32[16]
          got:      f32[8,16]
          test_kernels.py:N, in kernel
            o_ref[0] = x_ref[...]
            ^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_store_of_a_list() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0:2] = [1.0, 2.0]

    with shows(
        TypeError,
        """
        neither an array nor a scalar of a dtype that Palladio has
          got:      list: [1.0, 2.0]
          test_kernels.py:N, in kernel
            o_ref[0, 0:2] = [1.0, 2.0]
            ^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_store_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref
            ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_masked_load_with_numbers_for_a_mask() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.load(x_ref, mask=x_ref[...])

    with shows(
        TypeError,
        """
        mask: a mask is a bool array
          got:      f32[8,16]
          test_kernels.py:N, in kernel
            o_ref[...] = pltpu.load(x_ref, mask=x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_load_with_other_but_no_mask() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.load(x_ref, other=0.0)

    with shows(
        TypeError,
        """
        other: other has a meaning only with a mask
          test_kernels.py:N, in kernel
            o_ref[...] = pltpu.load(x_ref, other=0.0)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_load_of_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.load(x_ref[...])

    with shows(
        TypeError,
        """
        ref: a reference is needed
          got:      traced f32[8,16]
          test_kernels.py:N, in kernel
            o_ref[...] = pltpu.load(x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# References are not values.


def test_arithmetic_on_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref + 1

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref + 1
                         ^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_comparison_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.where(x_ref == 0, 1.0, 0.0)

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[...] = jnp.where(x_ref == 0, 1.0, 0.0)
                                   ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_function_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.exp(x_ref)

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      ref<any, f32[8,16]>
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[...] = jnp.exp(x_ref)
                         ^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_function_of_numpy_on_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = np.exp(x_ref)

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[...] = np.exp(x_ref)
                         ^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_method_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = x_ref.sum()

    with shows(
        AttributeError,
        """
        a reference has no attribute 'sum'
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref[0, 0] = x_ref.sum()
                          ^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_sum_into_a_name_instead_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref += x_ref[...]

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      reference to f32[8,16] in any
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            o_ref += x_ref[...]
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_the_length_of_a_reference_to_a_scalar() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        len(x_ref.at[0, 0])

    with shows(
        TypeError,
        """
        a reference to a scalar has no length
          got:      reference to f32[] in any
          test_kernels.py:N, in kernel
            len(x_ref.at[0, 0])
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_reference_in_another_size() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0:15] = x_ref.reshape(3, 5)[0]

    with shows(
        ValueError,
        """
        a reshape keeps the number of elements
          expected: 128 elements
          got:      (3, 5)
          test_kernels.py:N, in kernel
            o_ref[0, 0:15] = x_ref.reshape(3, 5)[0]
                             ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_reference_with_an_axis_twice() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref.transpose(0, 0)[...]

    with shows(
        ValueError,
        """
        a transpose names every axis once
          expected: a permutation of 0..1
          got:      (0, 0)
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref.transpose(0, 0)[...]
                         ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_reference_as_bools() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref.bitcast(jnp.bool_)[...]

    with shows(
        TypeError,
        """
        the bits of bool have no other meaning
          got:      f32[8,16] to bool
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref.bitcast(jnp.bool_)[...]
                         ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_reference_that_splits_an_element() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref.at[0:3].bitcast(jnp.float64)

    with shows(
        ValueError,
        """
        the bytes along axis 0 are not a whole number of elements of the new dtype
          expected: a multiple of 8 bytes
          got:      3 x 4 bytes
          test_kernels.py:N, in kernel
            x_ref.at[0:3].bitcast(jnp.float64)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_scalar_in_another_width() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref.at[0, 0].bitcast(jnp.int16)

    with shows(
        ValueError,
        """
        a scalar can only be bitcast to a dtype of its own width
          got:      f32[] to int16
          test_kernels.py:N, in kernel
            x_ref.at[0, 0].bitcast(jnp.int16)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Traced values are not Python values.


def test_if_on_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        if x_ref[0, 0] > 0:
            o_ref[...] = x_ref[...]

    with shows(
        TypeError,
        """
        a traced value has no truth value while the kernel is being traced
          got:      traced bool[]
          hint:     use palladio.when, lax.cond or np.where instead of if, and & | ~ instead of and or not
          test_kernels.py:N, in kernel
            if x_ref[0, 0] > 0:
               ^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_and_on_traced_values() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = x_ref[0, 0] > 0 and x_ref[0, 1] > 0

    with shows(
        TypeError,
        """
        a traced value has no truth value while the kernel is being traced
          got:      traced bool[]
          hint:     use palladio.when, lax.cond or np.where instead of if, and & | ~ instead of and or not
          test_kernels.py:N, in kernel
            o_ref[0, 0] = x_ref[0, 0] > 0 and x_ref[0, 1] > 0
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_int_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[int(x_ref[0, 0])] = 0.0

    with shows(
        TypeError,
        """
        a traced value has no Python integer while the kernel is being traced
          got:      traced f32[]
          hint:     sizes and Python loops need static integers; use lax.fori_loop or palladio.ds(start, size)
          test_kernels.py:N, in kernel
            o_ref[int(x_ref[0, 0])] = 0.0
                  ^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_range_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        for row in range(pl.program_id(0)):
            o_ref[row] = x_ref[row]

    with shows(
        TypeError,
        """
        a traced value has no Python integer while the kernel is being traced
          got:      traced i32[]
          hint:     sizes and Python loops need static integers; use lax.fori_loop or palladio.ds(start, size)
          test_kernels.py:N, in kernel
            for row in range(pl.program_id(0)):
                       ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_float_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = math.exp(x_ref[0, 0])

    with shows(
        TypeError,
        """
        a traced value has no Python float while the kernel is being traced
          got:      traced f32[]
          hint:     keep computing with the traced value
          test_kernels.py:N, in kernel
            o_ref[...] = math.exp(x_ref[0, 0])
                         ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_complex_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        complex(x_ref[0, 0])

    with shows(
        TypeError,
        """
        a traced value has no Python complex number while the kernel is being traced
          got:      traced f32[]
          hint:     keep computing with the traced value
          test_kernels.py:N, in kernel
            complex(x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_formatted_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        print(f"{x_ref[0, 0]:.2f}")

    with shows(
        TypeError,
        """
        a traced value has no formatted text while the kernel is being traced
          got:      traced f32[]
          hint:     use palladio.debug_print
          test_kernels.py:N, in kernel
            print(f"{x_ref[0, 0]:.2f}")
                  ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_asarray_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = np.asarray(x_ref[...])

    with shows(
        TypeError,
        """
        a traced value has no NumPy array while the kernel is being traced
          got:      traced f32[8,16]
          hint:     use NumPy's functions directly on the value; jnp.take(table, i) looks it up in a table
          test_kernels.py:N, in kernel
            o_ref[...] = np.asarray(x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_item_of_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[0, 0].item()

    with shows(
        AttributeError,
        """
        a traced value has no attribute 'item'
          got:      traced f32[]
          hint:     read its elements after the kernel has run
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[0, 0].item()
                         ^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_an_attribute_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].softmax()

    with shows(
        AttributeError,
        """
        a traced value has no attribute 'softmax'
          got:      traced f32[8,16]
          hint:     palladio.numpy has the functions
          test_kernels.py:N, in kernel
            o_ref[...] = x_ref[...].softmax()
                         ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_the_length_of_a_traced_scalar() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        list(x_ref[0, 0])

    with shows(
        TypeError,
        """
        a scalar has no length
          got:      traced f32[]
          test_kernels.py:N, in kernel
            list(x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_change_of_a_value_in_place() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        x[0] = 0.0
        o_ref[...] = x

    with shows(
        TypeError,
        """
        a value cannot be changed in place
          got:      traced f32[8,16]
          hint:     use x.at[index].set(value), or write to a reference
          test_kernels.py:N, in kernel
            x[0] = 0.0
            ^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_function_of_numpy_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = np.linalg.inv(x_ref[...])

    with shows(
        NotImplementedError,
        """
        np.linalg.inv has no meaning on a traced value
          hint:     palladio.numpy lists the functions that have
          test_kernels.py:N, in kernel
            o_ref[...] = np.linalg.inv(x_ref[...])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_python_integer_that_is_too_large() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = jnp.sum(2**40).astype(jnp.float32)

    with shows(
        ValueError,
        """
        the integer does not fit into int32
          got:      1099511627776
          test_kernels.py:N, in kernel
            o_ref[0, 0] = jnp.sum(2**40).astype(jnp.float32)
                          ^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Escapes.


def test_a_reference_that_a_scope_returns() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.run_scoped(lambda ref: ref, pltpu.VMEM((8,), jnp.float32))

    with shows(
        TypeError,
        """
        no references are allowed to escape a scope
          got:      ref<vmem, f32[8]>
          hint:     return what it holds: ref[...]
          test_kernels.py:N, in kernel
            pl.run_scoped(lambda ref: ref, pltpu.VMEM((8,), jnp.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_that_a_scope_returns() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.run_scoped(lambda ref: {"first": ref.at[0]}, pltpu.VMEM((8,), jnp.float32))

    with shows(
        TypeError,
        """
        no references are allowed to escape a scope
          got:      ref<vmem, f32[]>
          hint:     return what it holds: ref[...]
          test_kernels.py:N, in kernel
            pl.run_scoped(lambda ref: {"first": ref.at[0]}, pltpu.VMEM((8,), jnp.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reference_used_after_its_scope() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        kept = []
        pl.run_scoped(kept.append, pltpu.VMEM((8, 16), jnp.float32))
        o_ref[...] = kept[0][...]

    with shows(
        TypeError,
        """
        a reference was used outside of the scope that it belongs to
          got:      ref<vmem, f32[8,16]>
          hint:     a reference ends with its scope; return what it holds, ref[...], instead
          test_kernels.py:N, in kernel
            o_ref[...] = kept[0][...]
                         ^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reference_used_after_its_kernel() -> None:
    kept = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        kept.append(x_ref)

    pl.pallas_call(kernel, OUT)(X)
    with shows(
        TypeError,
        """
        a reference was used outside of the scope that it belongs to
          got:      ref<any, f32[8,16]>
          hint:     a reference ends with its scope; return what it holds, ref[...], instead
          test_kernels.py:N, in test_a_reference_used_after_its_kernel
            kept[0][0] + 1
            ^^^^^^^^^^
        """,
    ):
        kept[0][0] + 1


def test_a_reference_returned_from_jit() -> None:
    kept = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        kept.append(x_ref)

    @pl.jit
    def step(x: Any) -> Any:
        pl.pallas_call(kernel, OUT)(x)
        return kept[0]

    with shows(
        TypeError,
        """
        no references are allowed to escape a scope
          got:      ref<any, f32[8,16]>
          hint:     return what it holds: ref[...]
          test_kernels.py:N, in test_a_reference_returned_from_jit
            step(X)
            ^^^^^^^
        """,
    ):
        step(X)


def test_a_value_used_after_its_branch() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        kept = []

        @pl.when(pl.program_id(0) == 0)
        def first() -> None:
            kept.append(x_ref[...] + 1)

        o_ref[...] = kept[0]

    with shows(
        TypeError,
        """
        a traced value was used outside of the function that it belongs to
          got:      f32[8,16]
          hint:     return it from the function, or write it to a reference
          test_kernels.py:N, in kernel
            o_ref[...] = kept[0]
            ^^^^^^^^^^
          it was made here
          test_kernels.py:N, in first
            kept.append(x_ref[...] + 1)
                        ^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(2,))(X)


def test_a_value_used_after_jit() -> None:
    kept = []

    @pl.jit
    def step(x: Any) -> Any:
        kept.append(x * 2)
        return x

    step(X)
    with shows(
        TypeError,
        """
        a traced value was used outside of the function that it belongs to
          got:      f32[8,16]
          hint:     return it from the function, or write it to a reference
          test_kernels.py:N, in test_a_value_used_after_jit
            np.sum(kept[0])
            ^^^^^^^^^^^^^^^
          it was made here
          test_kernels.py:N, in step
            kept.append(x * 2)
                        ^^^^^
        """,
    ):
        np.sum(kept[0])


def test_a_value_printed_after_jit() -> None:
    kept = []

    @pl.jit
    def step(x: Any) -> Any:
        kept.append(x)
        return x

    step(X)
    with shows(
        TypeError,
        """
        a traced value was used outside of the function that it belongs to
          got:      f32[8,16]
          hint:     return it from the function, or write it to a reference
          test_kernels.py:N, in test_a_value_printed_after_jit
            float(kept[0])
            ^^^^^^^^^^^^^^
        """,
    ):
        float(kept[0])


def test_a_value_of_a_kernel_as_an_argument() -> None:
    kept = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        kept.append(x_ref[...])

    call = pl.pallas_call(kernel, OUT)
    call(X)
    with shows(
        TypeError,
        """
        a traced value was used outside of the function that it belongs to
          got:      f32[8,16]
          hint:     return it from the function, or write it to a reference
          test_kernels.py:N, in test_a_value_of_a_kernel_as_an_argument
            call(kept[0])
            ^^^^^^^^^^^^^
          it was made here
          test_kernels.py:N, in kernel
            kept.append(x_ref[...])
                        ^^^^^^^^^^
        """,
    ):
        call(kept[0])


def test_a_reference_as_an_argument() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.pallas_call(kernel, OUT)(x_ref)

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      ref<any, f32[8,16]>
          hint:     read it first: ref[...]
          test_kernels.py:N, in kernel
            pl.pallas_call(kernel, OUT)(x_ref)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_view_of_a_reference_by_an_axis_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref.transpose(0, 2)

    with shows(
        IndexError,
        """
        axis: the array has no such axis, its rank is 2
          expected: -2 <= axis < 2
          got:      2
          test_kernels.py:N, in kernel
            x_ref.transpose(0, 2)
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)
