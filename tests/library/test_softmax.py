"""`softmax`: the tutorial's kernel of whole rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl
from palladio.library import softmax
from tests.library.references import FLOATS, assert_close, normal


def reference(x):
    return torch.softmax(torch.tensor(np.asarray(x).astype(np.float64)), dim=-1).numpy()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (7, 9), (2, 3, 4, 5), (1, 1)], ids=str)
def test_any_shape_and_float_dtype(dtype, shape):
    x = normal(0, *shape, dtype=dtype)
    out = softmax(x)
    assert out.dtype == dtype
    assert_close(out, reference(x))


@settings(max_examples=40)
@given(st.integers(0, 20), st.integers(1, 20), st.integers(1, 24))
def test_blocks_need_not_divide_the_rows(rows, columns, block_rows):
    x = normal(0, rows, columns)
    assert_close(softmax(x, block_rows=block_rows), reference(x))


def test_large_elements_do_not_overflow():
    x = np.array([[1e30, 0, -1e30], [-3e38, -3e38, 3e38]], np.float32)
    np.testing.assert_array_equal(softmax(x), [[1, 0, 0], [0, 0, 1]])


def test_minus_infinity_is_a_probability_of_zero():
    np.testing.assert_array_equal(softmax(np.array([0, -np.inf, 0], np.float32)), [0.5, 0, 0.5])


def test_the_input_is_not_changed_and_need_not_be_contiguous():
    x = normal(0, 9, 8).T[::2]
    before = x.copy()
    assert_close(softmax(x, block_rows=3), reference(x))
    np.testing.assert_array_equal(x, before)


def test_no_rows_are_no_rows():
    assert softmax(np.zeros((0, 3), np.float16)).shape == (0, 3)


def test_inside_jit():
    x = normal(0, 5, 6)
    assert_close(pl.jit(lambda x: softmax(2 * x, block_rows=2))(x), reference(2 * x))
