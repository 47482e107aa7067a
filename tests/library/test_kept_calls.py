"""A second call of a library function goes from its arguments to the machine code, for any number of rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import palladio as pl
from palladio.call.staged import CALLS as STAGED_CALLS
from palladio.library import attention, gmm, grouped_matmul, matmul, softmax, tgmm
from tests.library.references import assert_close, gmm_reference, normal, tgmm_reference

K, N = 24, 40
RHS = normal(1, 3, K, N)


def prepared() -> int:
    return STAGED_CALLS.prepared


def split(m: int) -> np.ndarray:
    return np.array([m // 3, 0, m - m // 3], np.int32)


def test_one_staged_product_serves_any_number_of_rows_up_to_a_power_of_two():
    gmm(normal(0, 64, K), RHS, split(64))
    before = prepared()
    for m in (33, 34, 50, 63, 64, 33):
        lhs = normal(m, m, K)
        out = gmm(lhs, RHS, split(m))
        assert out.shape == (m, N)
        assert_close(out, gmm_reference(lhs, RHS, split(m)))
    assert prepared() == before


def test_so_does_a_dense_product():
    matmul(normal(0, 16, K), RHS[0])
    before = prepared()
    for m in (1, 2, 9, 16):
        x = normal(m, m, K)
        assert_close(matmul(x, RHS[0]), x.astype(np.float64) @ RHS[0])
    assert prepared() == before


def test_rows_of_no_group_are_zero_whatever_was_there():
    lhs = normal(0, 20, K)
    gmm(np.full((32, K), np.nan, np.float32), RHS, [10, 10, 12])
    out = gmm(lhs, RHS, [4, 0, 5])
    assert_close(out, gmm_reference(lhs, RHS, [4, 0, 5]))
    assert not out[9:].any()


def test_a_large_left_operand_is_not_copied():
    lhs = normal(0, 1100, 1024)
    out = gmm(lhs, normal(1, 1, 1024, 8), [1100])
    assert out.base is None or out.base.size <= 1100 * 8 * 4


def test_sizes_are_checked_on_every_call():
    lhs = normal(0, 20, K)
    gmm(lhs, RHS, split(20))
    with pytest.raises(pl.PalladioValueError, match="sum to more"):
        gmm(lhs, RHS, np.array([20, 0, 1], np.int32))
    with pytest.raises(pl.PalladioValueError, match="negative"):
        gmm(lhs, RHS, np.array([20, -1, 0], np.int32))


def test_another_dtype_tiling_or_order_is_another_call():
    lhs = normal(0, 20, K)
    expected = gmm_reference(lhs, RHS, split(20))
    for rhs, options in (
        (RHS, {}),
        (RHS, {"tiling": (8, 8, 8)}),
        (RHS.transpose(0, 2, 1).copy(), {"transpose_rhs": True}),
        (RHS, {"preferred_element_type": np.float64}),
    ):
        assert_close(gmm(lhs, rhs, split(20), **options), expected, 1e-6)
    assert gmm(lhs, RHS, split(20), np.float16).dtype == np.float16


def test_a_look_up_is_asked_on_every_call():
    asked = []
    for _ in range(3):
        gmm(normal(0, 20, K), RHS, split(20), tiling=lambda *sizes: asked.append(sizes) or (8, 8, 8))
    assert len(asked) == 3


def test_the_executor_of_the_context_is_used():
    lhs = normal(0, 20, K)
    grouped_matmul._GMM.clear()
    gmm(lhs, RHS, split(20))
    before = prepared()
    for executor in ("reference", "cpu"):
        with pl.executor(executor):
            assert_close(gmm(lhs, RHS, split(20)), gmm_reference(lhs, RHS, split(20)))
    assert prepared() > before


def test_inside_a_staged_function_a_product_is_part_of_it():
    lhs = normal(0, 20, K)
    gmm(lhs, RHS, split(20))
    assert_close(pl.jit(lambda x: gmm(x, RHS, split(20)) * 2)(lhs), 2 * gmm_reference(lhs, RHS, split(20)))


CALLS = {
    "gmm": (lambda out=None: gmm(normal(0, 20, K), RHS, split(20), out=out), (20, N)),
    "gmm with an offset": (
        lambda out=None: gmm(normal(0, 20, K), RHS[:1], split(20), group_offset=np.int32(1), out=out),
        (20, N),
    ),
    "tgmm": (lambda out=None: tgmm(normal(0, K, 20), normal(1, 20, N), split(20), out=out), (3, K, N)),
    "matmul": (lambda out=None: matmul(normal(0, 20, K), RHS[0], out=out), (20, N)),
    "softmax": (lambda out=None: softmax(normal(0, 2, 3, N), out=out), (2, 3, N)),
    "attention": (lambda out=None: attention(*(normal(n, 2, 3, 8, 4) for n in range(3)), out=out), (2, 3, 8, 4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_written_to_the_array_of_the_caller(name):
    call, shape = CALLS[name]
    for make in (np.empty, torch.empty):
        out = make(shape, dtype=np.float32 if make is np.empty else torch.float32)
        assert call(out) is out
        np.testing.assert_array_equal(np.asarray(out), call())


@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_does_not_fit_the_result_is_refused(name):
    call, shape = CALLS[name]
    with pytest.raises(pl.PalladioValueError, match="not the shape of the output"):
        call(np.empty((*shape[:-1], shape[-1] + 1), np.float32))
    with pytest.raises(pl.PalladioTypeError, match="not the dtype of the output"):
        call(np.empty(shape, ml_dtypes.bfloat16))


def test_tensors_give_tensors():
    lhs, rhs, sizes = torch.from_numpy(normal(0, 20, K)), torch.from_numpy(RHS), torch.from_numpy(split(20))
    for _ in range(2):
        out = gmm(lhs.bfloat16(), rhs.bfloat16(), sizes.long())
        assert isinstance(out, torch.Tensor) and out.dtype == torch.bfloat16
        assert_close(out.float().numpy(), gmm_reference(lhs.numpy(), RHS, split(20)), 1e-2)


def test_a_transposed_product_is_kept_too():
    lhs, rhs = normal(0, K, 20), normal(1, 20, N)
    tgmm(lhs, rhs, split(20))
    before = prepared()
    assert_close(tgmm(lhs, rhs, [20, 0, 0]), tgmm_reference(lhs, rhs, [20, 0, 0]))
    assert prepared() == before
