"""PyTorch and JAX arrays go in, and results come out as what the arrays were."""

from __future__ import annotations

import sys

import jax
import jax.numpy
import numpy as np
import pytest
import torch

import palladio as pl
from palladio.library import gmm, gmm_vjp, matmul, moe_mlp, softmax, tgmm
from tests.library.references import BFLOAT16, assert_close, gmm_reference, normal, tgmm_reference

SIZES = [5, 0, 9, 3]


def to_torch(array):
    array = np.asarray(array)
    if array.dtype == BFLOAT16:
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


def to_numpy(array):
    if isinstance(array, torch.Tensor):
        return array.float().numpy() if array.dtype == torch.bfloat16 else array.numpy()
    return np.asarray(array)


KINDS = {"torch": (to_torch, torch.Tensor), "jax": (jax.numpy.asarray, jax.Array), "numpy": (np.asarray, np.ndarray)}
kinds = pytest.mark.parametrize(("make", "kind"), KINDS.values(), ids=KINDS)
dtypes = pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32], ids=str)


@kinds
@dtypes
def test_grouped_products(make, kind, dtype):
    lhs, rhs, grad = normal(0, 20, 6, dtype=dtype), normal(1, 4, 6, 7, dtype=dtype), normal(2, 20, 7, dtype=dtype)
    out, pullback = gmm_vjp(make(lhs), make(rhs), make(np.array(SIZES, np.int32)), tiling=(8, 4, 8))
    grad_lhs, grad_rhs = pullback(make(grad))
    assert all(isinstance(each, kind) for each in (out, grad_lhs, grad_rhs))
    assert str(grad_lhs.dtype).endswith(np.dtype(dtype).name)
    assert_close(to_numpy(out).astype(np.float32), gmm_reference(lhs, rhs, SIZES), 4e-3)
    assert_close(to_numpy(grad_rhs), tgmm_reference(lhs.T, grad, SIZES), 4e-3)


@kinds
@pytest.mark.parametrize("shape", [(0, 4, 5), (6, 0, 5), (6, 4, 0)], ids=str)
def test_arrays_without_elements_come_back_as_what_they_were(make, kind, shape):
    m, k, n = shape
    results = [
        gmm(make(normal(0, m, k)), make(normal(1, 2, k, n)), [0, 0]),
        tgmm(make(normal(0, k, m)), make(normal(1, m, n)), [0, 0]),
        matmul(make(normal(0, m, k)), make(normal(1, k, n))),
    ]
    assert [type(each) is np.ndarray if kind is np.ndarray else isinstance(each, kind) for each in results] == [
        True
    ] * 3
    assert [tuple(each.shape) for each in results] == [(m, n), (2, k, n), (m, n)]


@kinds
@dtypes
def test_matmul_and_softmax(make, kind, dtype):
    x, y = normal(0, 9, 5, dtype=dtype), normal(1, 5, 7, dtype=dtype)
    product, shares = matmul(make(x), make(y)), softmax(make(x))
    assert isinstance(product, kind) and isinstance(shares, kind)
    assert str(product.dtype).endswith(np.dtype(dtype).name)
    assert_close(to_numpy(product), x.astype(np.float64) @ y.astype(np.float64), 4e-3)
    np.testing.assert_allclose(to_numpy(shares).astype(np.float64).sum(axis=1), 1, rtol=1e-2)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_a_result_dtype_may_be_named_as_any_library_does(name):
    lhs, rhs = normal(0, 20, 6), normal(1, 4, 6, 7)
    named = [name, getattr(torch, name), getattr(jax.numpy, name), np.dtype(BFLOAT16 if name == "bfloat16" else name)]
    assert {gmm(lhs, rhs, SIZES, dtype).dtype.name for dtype in named} == {name}


def test_group_sizes_may_be_of_another_library_than_the_matrices():
    lhs, rhs = normal(0, 20, 6), normal(1, 4, 6, 7)
    expected = gmm_reference(lhs, rhs, SIZES)
    for sizes in (torch.tensor(SIZES), jax.numpy.array(SIZES), tuple(SIZES), np.array(SIZES, np.int64)):
        out = gmm(lhs, rhs, sizes)
        assert type(out) is np.ndarray
        assert_close(out, expected)


def test_tensors_of_strange_strides_are_read_right():
    lhs, rhs = torch.randn(6, 40)[:, ::2].T, torch.randn(7, 6, 4).permute(2, 1, 0)
    assert_close(gmm(lhs, rhs, SIZES).numpy(), gmm_reference(lhs, rhs, SIZES))


def test_existing_out_of_a_tensor_is_kept():
    lhs, rhs, existing = torch.randn(20, 6), torch.randn(4, 6, 7), torch.randn(20, 7)
    before = existing.clone()
    out = gmm(lhs, rhs, SIZES, existing_out=existing)
    assert torch.equal(out[17:], before[17:]) and torch.equal(existing, before)


def test_a_gradient_is_not_lost_silently():
    lhs, rhs = torch.randn(20, 6, requires_grad=True), torch.randn(4, 6, 7)
    with pytest.raises(pl.PalladioTypeError, match="the gradient of the tensor would be lost"):
        gmm(lhs, rhs, SIZES)
    with torch.no_grad():
        assert not gmm(lhs, rhs, SIZES).requires_grad


def test_later_calls_with_arrays_of_jax_need_no_pytorch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    x, y = jax.numpy.asarray(normal(0, 4, 8)), jax.numpy.asarray(normal(1, 2, 8, 16))
    sizes, ids = jax.numpy.asarray([1, 3], dtype=np.int32), jax.numpy.asarray([[0], [1], [0], [1]], dtype=np.int32)
    weights, down = jax.numpy.ones((4, 1)), jax.numpy.asarray(normal(2, 2, 8, 8))
    with pl.executor("cpu"):
        for _ in range(4):
            assert_close(np.asarray(gmm(x, y, sizes)), gmm_reference(np.asarray(x), np.asarray(y), [1, 3]))
            assert isinstance(moe_mlp(x, ids, weights, y, down), jax.Array)
