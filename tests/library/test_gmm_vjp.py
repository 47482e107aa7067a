"""`gmm_vjp`: the grouped product and its two gradients, against PyTorch's and against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import palladio as pl
from palladio.library import gmm, gmm_vjp
from tests.library.references import FLOATS, assert_close, bounds, gmm_reference, normal
from tests.library.test_gmm import problems
from tests.pairs import every_pair

SIZES = [5, 0, 9, 3]
TILES = (8, 4, 8)


def torch_gradients(lhs, rhs, sizes, grad, offset=0, transpose_rhs=False):
    """The gradients of the same product, group by group in float64, by automatic differentiation."""
    lhs = torch.tensor(np.asarray(lhs).astype(np.float64), requires_grad=True)
    rhs = torch.tensor(np.asarray(rhs).astype(np.float64), requires_grad=True)
    total = torch.zeros(())
    for group, (start, end) in enumerate(bounds(sizes, offset, len(rhs))):
        matrix = rhs[group].T if transpose_rhs else rhs[group]
        total = total + ((lhs[start:end] @ matrix) * torch.tensor(grad[start:end].astype(np.float64))).sum()
    total.backward()
    return lhs.grad.numpy(), rhs.grad.numpy()


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("dtype", "transpose_rhs", "default_executor"),
    every_pair(FLOATS, [False, True], ["reference", "cpu"]),
    indirect=["default_executor"],
    ids=str,
)
def test_gradients_agree_with_automatic_differentiation(dtype, transpose_rhs):
    lhs, rhs = normal(0, 20, 6, dtype=dtype), normal(1, 4, *((7, 6) if transpose_rhs else (6, 7)), dtype=dtype)
    grad = normal(2, 20, 7, dtype=dtype)
    out, pullback = gmm_vjp(lhs, rhs, SIZES, dtype, TILES, transpose_rhs=transpose_rhs)
    np.testing.assert_array_equal(out, gmm(lhs, rhs, SIZES, dtype, TILES, transpose_rhs=transpose_rhs))
    for found, expected in zip(
        pullback(grad), torch_gradients(lhs, rhs, SIZES, grad, transpose_rhs=transpose_rhs), strict=True
    ):
        assert found.dtype == dtype
        assert_close(found, expected)


def test_gradients_have_the_dtypes_of_what_they_are_gradients_of():
    lhs, rhs = normal(0, 20, 6, dtype=np.float16), normal(1, 4, 6, 7)
    out, pullback = gmm_vjp(lhs, rhs, SIZES, np.float64)
    assert out.dtype == np.float64
    assert [each.dtype for each in pullback(out)] == [np.float16, np.float32]


@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_gradients_agree_with_differences(transpose_rhs):
    lhs = normal(0, 9, 3, dtype=np.float64)
    rhs = normal(1, 3, *((4, 3) if transpose_rhs else (3, 4)), dtype=np.float64)
    grad, sizes, step = normal(2, 9, 4, dtype=np.float64), [4, 0, 3], 1e-3

    def value(lhs, rhs):
        return (gmm(lhs, rhs, sizes, np.float64, (4, 2, 2), transpose_rhs=transpose_rhs) * grad).sum()

    _, pullback = gmm_vjp(lhs, rhs, sizes, np.float64, (4, 2, 2), transpose_rhs=transpose_rhs)
    grad_lhs, grad_rhs = pullback(grad)
    for array, gradient, moved in (
        (lhs, grad_lhs, lambda d: (lhs + d, rhs)),
        (rhs, grad_rhs, lambda d: (lhs, rhs + d)),
    ):
        for index in np.ndindex(array.shape):
            delta = np.zeros_like(array)
            delta[index] = step
            # The product is linear in each side: the difference is exact but for rounding.
            difference = (value(*moved(delta)) - value(*moved(-delta))) / (2 * step)
            assert gradient[index] == pytest.approx(difference, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_gradients_of_a_shard(transpose_rhs):
    lhs, rhs = normal(0, 20, 6), normal(1, 2, *((7, 6) if transpose_rhs else (6, 7)))
    grad = normal(2, 20, 7)
    out, pullback = gmm_vjp(lhs, rhs, SIZES, tiling=TILES, group_offset=np.int32(1), transpose_rhs=transpose_rhs)
    assert_close(out, gmm_reference(lhs, rhs, SIZES, 1, transpose_rhs=transpose_rhs))
    for found, expected in zip(pullback(grad), torch_gradients(lhs, rhs, SIZES, grad, 1, transpose_rhs), strict=True):
        assert_close(found, expected)


def test_rows_of_no_group_have_no_part_in_the_gradients_whatever_they_hold():
    lhs, rhs, grad = normal(0, 20, 6), normal(1, 4, 6, 7), normal(2, 20, 7)
    clean = gmm_vjp(lhs, rhs, SIZES, tiling=TILES)[1](grad)
    lhs[17:], grad[17:] = np.nan, np.nan
    found = gmm_vjp(lhs, rhs, SIZES, tiling=TILES)[1](grad)
    for each, expected in zip(found, clean, strict=True):
        np.testing.assert_array_equal(each, expected)
    np.testing.assert_array_equal(found[0][17:], 0)
    np.testing.assert_array_equal(found[1][1], 0)


@pytest.mark.parametrize("shape", [(0, 4, 5), (6, 0, 5), (6, 4, 0)], ids=str)
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_arrays_without_elements_have_gradients_of_their_shapes(shape, transpose_rhs):
    m, k, n = shape
    lhs, rhs = normal(0, m, k), normal(1, 2, *((n, k) if transpose_rhs else (k, n)))
    out, pullback = gmm_vjp(lhs, rhs, [min(m, 2), 0], transpose_rhs=transpose_rhs)
    grad_lhs, grad_rhs = pullback(np.ones((m, n), np.float32))
    np.testing.assert_array_equal(grad_lhs, np.zeros((m, k)))
    np.testing.assert_array_equal(grad_rhs, np.zeros(rhs.shape))


def test_inside_jit_the_pair_is_one_program():
    lhs, rhs, grad = normal(0, 20, 6), normal(1, 4, 6, 7), normal(2, 20, 7)

    @pl.jit
    def step(lhs, rhs, sizes, grad):
        out, pullback = gmm_vjp(lhs, rhs, sizes, tiling=TILES)
        return out, *pullback(grad)

    out, grad_lhs, grad_rhs = step(lhs, rhs, np.array(SIZES), grad)
    assert_close(out, gmm_reference(lhs, rhs, SIZES))
    for found, expected in zip((grad_lhs, grad_rhs), torch_gradients(lhs, rhs, SIZES, grad), strict=True):
        assert_close(found, expected)


@settings(max_examples=8)  # both products have such tests of their own
@given(problems())
def test_any_problem_agrees_with_automatic_differentiation(problem):
    m, k, n, _, tiling, divisions = problem
    for sizes, _ in divisions:
        lhs, rhs, grad = normal(0, m, k), normal(1, len(sizes), k, n), normal(2, m, n)
        _, pullback = gmm_vjp(lhs, rhs, sizes, tiling=tiling)
        for found, expected in zip(pullback(grad), torch_gradients(lhs, rhs, sizes, grad), strict=True):
            assert_close(found, expected)
