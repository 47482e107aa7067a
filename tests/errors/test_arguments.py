"""What comes in from outside: no arrays, dtypes that there are not, tensors elsewhere or with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.numpy as jnp
from tests.errors.shown import OUT, N, X, copy, shows


def test_a_tensor_that_requires_its_gradient_where_gradients_are_off() -> None:
    with torch.no_grad():
        result = pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True))
    assert torch.equal(result, torch.ones(8, 16))


def test_a_detached_tensor() -> None:
    result = pl.pallas_call(copy, OUT)(torch.ones(8, 16, requires_grad=True).detach())
    assert torch.equal(result, torch.ones(8, 16))


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
