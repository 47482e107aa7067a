"""What comes in from outside: no arrays, dtypes that there are not, tensors elsewhere or with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library import gmm
from tests.errors.shown import OUT, N, X, copy, shows


def test_an_array_of_complex_numbers() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): an array of a dtype that Palladio does not have
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      complex64
          test_arguments.py:N, in test_an_array_of_complex_numbers
            pl.pallas_call(copy, OUT)(X.astype(np.complex64))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X.astype(np.complex64))


def test_an_array_of_objects() -> None:
    with shows(
        TypeError,
        """
        args[0]['weights'] (x_ref): an array of a dtype that Palladio does not have
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      object
          test_arguments.py:N, in test_an_array_of_objects
            pl.pallas_call(copy, OUT)({"weights": np.array([None, None])})
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)({"weights": np.array([None, None])})


def test_an_array_of_strings() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): an array of a dtype that Palladio does not have
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      <U3
          test_arguments.py:N, in test_an_array_of_strings
            pl.pallas_call(copy, OUT)(np.array(["one", "two"]))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(np.array(["one", "two"]))


def test_a_string() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): neither an array nor a number
          got:      str: 'weights'
          test_arguments.py:N, in test_a_string
            pl.pallas_call(copy, OUT)("weights")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)("weights")


def test_a_set() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): neither an array nor a number
          got:      set: {1, 2}
          test_arguments.py:N, in test_a_set
            pl.pallas_call(copy, OUT)({1, 2})
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)({1, 2})


def test_a_string_for_a_staged_function() -> None:
    @pl.jit
    def step(x: Any, name: Any) -> Any:
        return x

    with shows(
        TypeError,
        """
        args[1] (name): neither an array nor a number
          got:      str: 'weights'
          test_arguments.py:N, in test_a_string_for_a_staged_function
            step(X, "weights")
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        step(X, "weights")


def test_a_list_for_an_array_function() -> None:
    with shows(
        TypeError,
        """
        neither an array nor a scalar of a dtype that Palladio has
          got:      list: ['one']
          test_arguments.py:N, in test_a_list_for_an_array_function
            jnp.exp(["one"])
            ^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.exp(["one"])


class OnTheDevice:
    """A tensor of another device, as far as anybody looks at it."""

    device = torch.device("cuda", 0)
    shape = (8, 16)
    dtype = torch.float32
    requires_grad = False


OnTheDevice.__module__ = "torch"


def test_a_tensor_in_the_memory_of_a_device() -> None:
    with shows(
        ValueError,
        """
        args[0] (x_ref): the tensor is not in host memory
          got:      cuda:0
          hint:     tensor.cpu()
          test_arguments.py:N, in test_a_tensor_in_the_memory_of_a_device
            pl.pallas_call(copy, OUT)(OnTheDevice())
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(OnTheDevice())


def test_a_sparse_tensor() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): the tensor is not dense
          got:      torch.sparse_coo
          hint:     tensor.to_dense()
          test_arguments.py:N, in test_a_sparse_tensor
            pl.pallas_call(copy, OUT)(torch.ones(8, 16).to_sparse())
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(torch.ones(8, 16).to_sparse())


def test_a_tensor_that_requires_its_gradient() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): the gradient of the tensor would be lost
          got:      a tensor with requires_grad=True
          hint:     pass tensor.detach(), or call under torch.no_grad()
          test_arguments.py:N, in test_a_tensor_that_requires_its_gradient
            pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True))


def test_a_tensor_that_requires_its_gradient_in_the_library() -> None:
    rhs = torch.ones(1, 16, 4, requires_grad=True)
    with shows(
        TypeError,
        """
        rhs: the gradient of the tensor would be lost
          got:      a tensor with requires_grad=True
          hint:     pass tensor.detach(), or call under torch.no_grad()
          test_arguments.py:N, in test_a_tensor_that_requires_its_gradient_in_the_library
            gmm(torch.ones(8, 16), rhs, torch.tensor([8], dtype=torch.int32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(torch.ones(8, 16), rhs, torch.tensor([8], dtype=torch.int32))


def test_a_tensor_that_requires_its_gradient_where_gradients_are_off() -> None:
    with torch.no_grad():
        result = pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True))
    assert torch.equal(result, torch.ones(8, 16))


def test_a_detached_tensor() -> None:
    result = pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True).detach())
    assert torch.equal(result, torch.ones(8, 16))


def test_a_complex_tensor() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): not a dtype that Palladio has
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      complex64
          test_arguments.py:N, in test_a_complex_tensor
            pl.pallas_call(copy, OUT)(torch.ones(8, 16, dtype=torch.complex64))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(torch.ones(8, 16, dtype=torch.complex64))


def test_a_dtype_that_there_is_not() -> None:
    with shows(
        TypeError,
        """
        not a dtype that Palladio has
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      float12
          test_arguments.py:N, in test_a_dtype_that_there_is_not
            jnp.zeros(3, "float12")
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jnp.zeros(3, "float12")


def test_no_dtype() -> None:
    with shows(
        TypeError,
        """
        not a dtype that Palladio has
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      None
          test_arguments.py:N, in <lambda>
            pl.jit(lambda x: x.astype(None))(X)
                             ^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: x.astype(None))(X)


def test_inputs_are_untouched_by_a_call_that_fails_as_it_runs() -> None:
    x = X.copy()

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros((8, 16))
        pl.debug_check(o_ref[0, 0] > 0, "above zero")

    with pl.enable_debug_checks(), pytest.raises(pl.DebugCheckError):
        pl.pallas_call(kernel, OUT, input_output_aliases={0: 0})(x)
    assert np.array_equal(x, X)


def test_inputs_that_a_kernel_writes_to_are_untouched() -> None:
    n = N.copy()

    def kernel(n_ref: Any, o_ref: Any) -> None:
        n_ref[...] = n_ref[...] + 1
        o_ref[...] = n_ref[...]

    result = pl.pallas_call(kernel, pl.ShapeDtypeStruct((8,), np.int32))(n)
    assert np.array_equal(n, N)
    assert np.array_equal(result, N + 1)


def test_keywords_and_parts_of_a_staged_function() -> None:
    @pl.jit
    def step(x: Any, y: Any, *, scale: Any = 1.0) -> Any:
        return x

    with shows(
        TypeError,
        """
        args[1]['w'] (y): neither an array nor a number
          got:      str: 'weights'
          test_arguments.py:N, in test_keywords_and_parts_of_a_staged_function
            step(X, {"w": "weights"})
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        step(X, {"w": "weights"})
    with shows(
        TypeError,
        """
        scale: neither an array nor a number
          got:      str: 'large'
          test_arguments.py:N, in test_keywords_and_parts_of_a_staged_function
            step(X, X, scale="large")
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        step(X, X, scale="large")


def test_a_list_of_numbers() -> None:
    with shows(
        TypeError,
        """
        args[0] (x_ref): a list of numbers is not an array
          got:      [[1.0, 2.0], [3.0, 4.0]]
          hint:     np.array(values, dtype) makes one of it
          test_arguments.py:N, in test_a_list_of_numbers
            pl.pallas_call(copy, OUT)([[1.0, 2.0], [3.0, 4.0]])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)([[1.0, 2.0], [3.0, 4.0]])


def test_a_list_of_numbers_for_a_launch() -> None:
    with shows(
        TypeError,
        """
        args[0]: a list of numbers is not an array
          got:      [1, 2]
          hint:     np.array(values, dtype) makes one of it
          test_arguments.py:N, in test_a_list_of_numbers_for_a_launch
            plgpu.kernel(copy, OUT)([1, 2])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(copy, OUT)([1, 2])


def test_a_masked_array() -> None:
    masked = np.ma.masked_array(X, mask=X == X, fill_value=0)
    with shows(
        ValueError,
        """
        args[0] (x_ref): the mask of the array would be lost
          got:      a masked array with 128 masked elements
          hint:     array.filled(value) puts a value in their place
          test_arguments.py:N, in test_a_masked_array
            pl.pallas_call(copy, OUT)(masked)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(masked)
    unmasked = np.ma.masked_array(X, mask=False)
    assert np.array_equal(pl.pallas_call(copy, OUT)(unmasked), X)


def test_a_tensor_elsewhere_has_the_name_that_the_library_gives_it() -> None:
    lhs, rhs = torch.ones(2, 3, device="meta"), torch.ones(1, 3, 4)
    with shows(
        ValueError,
        """
        lhs: the tensor is not in host memory
          got:      meta
          hint:     tensor.cpu()
          test_arguments.py:N, in test_a_tensor_elsewhere_has_the_name_that_the_library_gives_it
            gmm(lhs, rhs, [2])
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        gmm(lhs, rhs, [2])
