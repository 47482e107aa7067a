"""A second call of a library function goes from its arguments to the machine code, for any number of rows."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
import torch

import palladio as pl
from palladio.call import ahead
from palladio.call.staged import CALLS as STAGED_CALLS
from palladio.cpu import chain
from palladio.cpu.runtime import host
from palladio.interop.torch import gmm as torch_gmm
from palladio.library import attention, gmm, gmm_vjp, grouped_matmul, matmul, rms_norm, softmax, staging, tgmm
from palladio.library.staging import STAGED_BYTES, row_parts, rows_together, staged_rows
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


@pytest.mark.one_executor
@pytest.mark.parametrize("transposed", [False, True])
def test_one_compiled_product_serves_any_number_of_rows_where_they_are(transposed):
    rhs = normal(1, 3, N, K) if transposed else RHS
    with pl.executor("cpu"):
        gmm(normal(0, 9, K), rhs, split(9), transpose_rhs=transposed)
        before = prepared()
        memory = np.full((2000, K + N), np.float32(7))
        for m in (5, 16, 17, 300, 1999):
            lhs = normal(m, m, K)
            x, out = memory.ravel()[: m * K].reshape(m, K), memory.ravel()[-(m + 1) * N :].reshape(m + 1, N)
            x[...], out[...] = lhs, 7
            sizes = split(m - 2)
            gmm(x, rhs, sizes, transpose_rhs=transposed, out=out[:m])
            plain = np.swapaxes(rhs, 1, 2) if transposed else rhs
            assert_close(out[: m - 2], gmm_reference(lhs[: m - 2], plain, sizes))
            assert (out[m - 2 : m] == 0).all() and (out[m] == 7).all()
        assert prepared() == before


@pytest.mark.one_executor
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_transposed_left_operand_of_a_sum_is_not_copied(dtype, monkeypatch):
    x, y = normal(0, 90, K).astype(dtype), normal(1, 90, N).astype(dtype)
    with pl.executor("cpu"):
        wanted = [tgmm(np.ascontiguousarray(x[:m].T), y[:m], split(m)) for m in (90, 33, 6)]
        copied = []
        monkeypatch.setattr(ahead, "_fitted", lambda value, *more: copied.append(value.shape))
        for m, each in zip((90, 33, 6), wanted, strict=True):
            if dtype == np.float32 or m % 2 == 0:
                np.testing.assert_array_equal(tgmm(x[:m].T, y[:m], split(m)), each)
        assert copied == []


def test_so_does_a_dense_product():
    matmul(normal(0, 16, K), RHS[0])
    before = prepared()
    for m in (5, 7, 9, 16):
        x = normal(m, m, K)
        assert_close(matmul(x, RHS[0]), x.astype(np.float64) @ RHS[0])
    assert prepared() == before


@pytest.mark.one_executor
def test_few_kernels_serve_all_numbers_of_rows_and_many_rows_are_filled_up_by_a_quarter_at_most():
    sizes = [staged_rows(m) for m in range(1, 4097)]
    assert sizes == sorted(sizes)
    assert all(m <= rows <= max(2 * m, 16) and (m <= 256 or rows <= 5 / 4 * m) for m, rows in enumerate(sizes, 1))
    for power in (16, 32, 64, 128, 256, 512, 1024, 2048):
        between = {rows for rows in sizes if power < rows <= 2 * power}
        assert len(between) == (1 if power < 256 else 4) and 2 * power in between


@pytest.mark.one_executor
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_row_of_a_compiled_product_is_the_same_whatever_other_rows_there_are(dtype):
    x, rhs = normal(0, 320, K).astype(dtype), RHS.astype(dtype)
    with pl.executor("cpu"):
        dense, grouped = matmul(x, rhs[0]), gmm(x, rhs, [0, 320, 0])
        for m in (40, 64, 257, 300):
            np.testing.assert_array_equal(matmul(x[:m], rhs[0]), dense[:m])
            np.testing.assert_array_equal(gmm(x[:m], rhs, [0, m, 0]), grouped[:m])
        if host.current().prefetches:  # else few rows read several parts of the matrix side by side
            few, some = dense, grouped
        else:
            few, some = matmul(x[:24], rhs[0]), gmm(x[:24], rhs, [0, 24, 0])
        for m in (3, 7, 12, 16, 24):
            np.testing.assert_array_equal(matmul(x[:m], rhs[0]), few[:m])
            np.testing.assert_array_equal(gmm(x[:m], rhs, [0, m, 0]), some[:m])


def test_so_does_a_product_that_sums_over_rows():
    for left in (normal(0, K, 32), np.asfortranarray(normal(0, K, 32))):
        tgmm(left, normal(1, 32, N), split(32))
    before = prepared()
    for m in (17, 20, 31, 32):
        lhs, rhs = normal(m, K, m), normal(1, m, N)
        for left in (lhs, np.asfortranarray(lhs)):
            assert_close(tgmm(left, rhs, split(m)), tgmm_reference(lhs, rhs, split(m)))
    assert prepared() == before


def test_one_staged_softmax_serves_any_number_of_rows_up_to_a_power_of_two():
    softmax(normal(0, 64, N))
    before = prepared()
    for m in (33, 50, 63, 64):
        x = normal(m, m, N)
        assert_close(softmax(x), np.exp(x) / np.exp(x.astype(np.float64)).sum(1, keepdims=True))
        np.testing.assert_array_equal(softmax(torch.from_numpy(x)).numpy(), softmax(x))
    assert prepared() == before


def test_so_does_one_rms_norm():
    weight = normal(1, N)
    rms_norm(normal(0, 64, N), weight)
    before = prepared()
    for m in (33, 50, 63, 64):
        x = normal(m, m, N)
        want = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6) * weight
        assert_close(rms_norm(x, weight), want)
    assert prepared() == before
    assert_close(rms_norm(x, weight, epsilon=1.0), want * np.sqrt(np.mean(x**2, 1) / (np.mean(x**2, 1) + 1))[:, None])


def queries_and_keys(heads, m, n):
    return [normal(seed, heads, *shape) for seed, shape in enumerate(((m, 8), (n, 8), (n, 4)))]


@pytest.mark.parametrize("causal", [False, True])
def test_one_staged_attention_serves_other_heads_queries_and_keys(causal):
    sizes = (8, 21, 37), (5, 32, 63), (6, 18, 33), (7, 31, 50)
    expected = [attention(*queries_and_keys(*each), causal=causal, block_k=16) for each in sizes]
    attention(*queries_and_keys(8, 32, 63), causal=causal)
    before = prepared()
    for each, want in zip(sizes, expected, strict=True):
        given = queries_and_keys(*each)
        assert_close(attention(*given, causal=causal), want.astype(np.float64))
        tensors = attention(*map(torch.from_numpy, given), causal=causal)
        assert tensors.is_contiguous()
        assert_close(tensors.numpy(), want.astype(np.float64))
    assert prepared() == before


def test_one_query_does_not_copy_the_keys(monkeypatch):
    q, k, v = queries_and_keys(3, 1, 40)
    expected = attention(q, k, v, block_k=8)
    shapes = []
    monkeypatch.setattr(ahead, "_fitted", lambda value, type, *more: shapes.append((value.shape, type.shape)))
    with pl.executor("cpu"):
        assert_close(attention(q, k, v), expected.astype(np.float64))
    assert shapes == []


def test_values_of_the_next_head_do_not_reach_this_one():
    q, k, v = queries_and_keys(2, 3, 37)
    expected = attention(q, k, v)[0]
    k[1], v[1] = np.nan, np.inf
    np.testing.assert_array_equal(attention(q, k, v)[0], expected)


def test_large_operands_of_a_sum_over_rows_are_copied_into_a_few_sizes(monkeypatch):
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * N * 4)
    tgmm(normal(0, K, 144), normal(1, 144, N), split(144))
    before = prepared()
    for m in (129, 130, 143, 144):
        lhs, rhs = normal(m, K, m), normal(1, m, N)
        assert_close(tgmm(lhs, rhs, split(m)), tgmm_reference(lhs, rhs, split(m)))
    assert prepared() == before


@pytest.mark.one_executor
@pytest.mark.parametrize("m", [1, 4, 5, 17, 1000, 4096, 4097, 100_001])
def test_a_copy_for_a_sum_over_rows_is_at_most_an_eighth_larger_or_small(m):
    for size in (4, 1024, 1 << 20):
        rows = rows_together(m, size)
        assert m <= rows <= max(m * 9 / 8, 16) or rows * size <= STAGED_BYTES
        assert rows_together(rows, size) == rows


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


@pytest.mark.one_executor
@pytest.mark.parametrize("m", [1, 4, 5, 16, 17, 100, 1000, 4095, 4096, 5001])
def test_parts_are_all_rows_in_order_in_few_sizes(m):
    for size in (4, 1024, 1 << 20):
        parts = row_parts(m, size)
        assert [row for part, _ in parts for row in range(part.start, part.stop)] == list(range(m))
        assert all(rows == part.stop - part.start and rows.bit_count() == 1 for part, rows in parts[:-1])
        last, rows = parts[-1]
        assert staged_rows(rows) == rows and last.stop - last.start <= rows
        assert rows in (16, last.stop - last.start) or rows * size <= STAGED_BYTES


FORMS = {
    "gmm": lambda x, **more: gmm(x, RHS, split(len(x)), **more),
    "gmm with an offset": lambda x, **more: gmm(x, RHS[:2], split(len(x)), group_offset=np.int32(1), **more),
    "gmm of some rows": lambda x, **more: gmm(
        x, RHS, [3, 0, len(x) // 2], existing_out=np.arange(len(x) * N, dtype=np.float32).reshape(-1, N), **more
    ),
    "matmul": lambda x, **more: matmul(x, RHS[0], **more),
}


@pytest.mark.one_executor
@pytest.mark.parametrize(("library", "rows"), [("numpy", [33, 50, 63]), ("torch", [35, 52, 61])])
def test_gradients_of_other_numbers_of_rows_compile_nothing(library, rows):
    def gradients(m):
        x, sizes, grad = normal(m, m, K), split(m), normal(7, m, N)
        wanted = gmm_reference(grad, np.swapaxes(RHS, 1, 2), sizes), tgmm_reference(x.T, grad, sizes)
        if library == "numpy":
            return gmm_vjp(x, RHS, sizes)[1](grad), wanted
        given = [torch.from_numpy(array).requires_grad_() for array in (x, RHS)]
        torch_gmm(*given, torch.from_numpy(sizes)).backward(torch.from_numpy(grad))
        return [tensor.grad.numpy() for tensor in given], wanted

    with pl.executor("cpu"):
        gradients(64)
        before = prepared()
        for m in rows:
            for found, wanted in zip(*gradients(m), strict=True):
                assert_close(found, wanted)
        assert prepared() == before


@pytest.mark.parametrize("name", FORMS)
def test_many_rows_are_computed_in_parts_that_other_numbers_of_rows_share(name, monkeypatch):
    call = FORMS[name]
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * K * 4)
    call(normal(0, 127, K))
    before = prepared()
    found = {m: call(normal(m, m, K)) for m in (64, 80, 85, 112)}
    assert prepared() == before
    for m, out in found.items():
        assert_close(out, call(normal(m, m, K), tiling=(m, K, N)).astype(np.float64))


@pytest.mark.parametrize("name", ["gmm", "matmul"])
def test_parts_are_written_to_the_array_of_the_caller(name, monkeypatch):
    x = normal(1, 85, K)
    expected = FORMS[name](x)
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * K * 4)
    out = np.empty((85, N), np.float32)
    assert FORMS[name](x, out=out) is out
    assert_close(out, expected.astype(np.float64))  # NumPy's own product may sum another number of rows differently


def test_tensors_are_computed_in_parts_too(monkeypatch):
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * K * 4)
    x, rhs = torch.from_numpy(normal(1, 85, K)), torch.from_numpy(RHS)
    expected = gmm_reference(x.numpy(), RHS, split(85))
    out = torch.empty(85, N)
    assert gmm(x, rhs, split(85), out=out) is out
    assert_close(out.numpy(), expected)
    assert_close(gmm(x.bfloat16(), rhs.bfloat16(), split(85)).float().numpy(), expected, 1e-2)


@pytest.mark.parametrize("name", ["gmm", "matmul"])
def test_parts_written_to_tensors_of_the_caller_share_kernels(name, monkeypatch):
    rhs = torch.from_numpy(RHS)
    calls = {
        "gmm": lambda x, **more: gmm(x, rhs, torch.from_numpy(split(len(x))), **more),
        "matmul": lambda x, **more: matmul(x, rhs[0], **more),
    }
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * K * 4)
    calls[name](torch.from_numpy(normal(0, 127, K)))
    before = prepared()
    for m in (85, 86, 87):
        x, out = torch.from_numpy(normal(m, m, K)), torch.empty(m, N)
        assert calls[name](x, out=out) is out
        assert prepared() == before
        assert torch.equal(out, calls[name](x))
    gradient = torch.empty(85, N, requires_grad=True)  # NumPy has no view of it
    with pytest.raises(pl.PalladioTypeError, match="the gradient of the tensor would be lost"):
        calls[name](torch.from_numpy(normal(0, 85, K)), out=gradient)


@pytest.mark.parametrize("shift", [0, 64, 70])
def test_an_array_for_the_result_never_overlaps_the_rows_of_a_later_part(shift, monkeypatch):
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * K * 4)
    memory = np.zeros((160, K), np.float32)
    for out in (memory[shift : shift + 85], torch.from_numpy(memory)[shift : shift + 85]):
        x = memory[:85] if isinstance(out, np.ndarray) else torch.from_numpy(memory)[:85]
        with pytest.raises(pl.PalladioValueError, match="overlaps an input"):
            matmul(x, np.eye(K, dtype=np.float32) if isinstance(out, np.ndarray) else torch.eye(K), out=out)


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


def test_a_look_up_is_called_on_every_call():
    calls = []
    for _ in range(3):
        gmm(normal(0, 20, K), RHS, split(20), tiling=lambda *sizes: calls.append(sizes) or (8, 8, 8))
    assert len(calls) == 3


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


def test_tensors_in_host_memory_use_the_calls_kept_for_arrays(monkeypatch):
    lhs, rhs = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((2, 8), (3, 8, 5)))
    sizes = np.array([1, 0, 1], np.int32)
    expected, dense = gmm(lhs, rhs, sizes), matmul(lhs, rhs[0])
    monkeypatch.delitem(sys.modules, "torch.distributed.fsdp", raising=False)  # tensors go another way with it
    monkeypatch.setattr(pl.KeptCalls, "keep", None)  # nothing is staged anew
    x, y, counts = map(torch.from_numpy, (lhs, rhs, sizes))
    out = torch.empty(2, 5)
    assert gmm(x, y, counts, out=out) is out
    for found, wanted in ((out, expected), (gmm(x, y, counts), expected), (matmul(x, y[0]), dense)):
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.one_executor
@pytest.mark.parametrize(("m", "groups"), [(2, 3), (20, 3), (20, 8)])
def test_a_call_like_an_earlier_one_goes_past_the_checks(m, groups, monkeypatch):
    lhs, rhs, sizes = normal(0, m, K), normal(1, groups, K, N), np.array([1, *[0] * (groups - 2), m - 2], np.int32)
    with pl.executor("cpu"):
        expected = [gmm(x, rhs, sizes) for x in (lhs, 2 * lhs)]
        gmm(lhs, rhs, sizes)
        monkeypatch.setattr(grouped_matmul, "call_key", None)  # nothing else is called
        for x, wanted in zip((lhs, 2 * lhs), expected, strict=True):
            np.testing.assert_array_equal(gmm(x, rhs, sizes), wanted)
        other = np.roll(sizes, 1)
        assert_close(gmm(lhs, rhs, other), gmm_reference(lhs, rhs, other))


@pytest.mark.one_executor
@pytest.mark.parametrize("m", [2, 20])
def test_so_does_a_dense_product_like_an_earlier_one(m, monkeypatch):
    x = normal(0, m, K)
    with pl.executor("cpu"):
        expected = [matmul(each, RHS[0]) for each in (x, 2 * x)]
        matmul(x, RHS[0])
        for module in (grouped_matmul, sys.modules[matmul.__module__]):
            monkeypatch.setattr(module, "call_key", None)
        for each, wanted in zip((x, 2 * x), expected, strict=True):
            np.testing.assert_array_equal(matmul(each, RHS[0]), wanted)


@pytest.mark.one_executor
def test_what_a_call_depends_on_besides_its_types_is_still_checked(monkeypatch):
    lhs, sizes = normal(0, 20, K), split(20)
    with pl.executor("cpu"):
        for _ in range(3):
            expected = gmm(lhs, RHS, sizes)
        with pytest.raises(pl.PalladioValueError, match="a group size is negative"):
            gmm(lhs, RHS, np.array([-1, 0, 1], np.int32))
        with pytest.raises(pl.PalladioValueError, match="sum to more than the number of rows"):
            gmm(lhs, RHS, split(21))
        wide = normal(2, 20, 2 * K)
        assert_close(gmm(wide[:, ::2], RHS, sizes), gmm_reference(wide[:, ::2], RHS, sizes))
        column_major = np.ascontiguousarray(RHS.swapaxes(1, 2)).swapaxes(1, 2)
        assert_close(gmm(lhs, column_major, sizes), expected)
        monkeypatch.setenv("PALLADIO_NUM_THREADS", "1")
        np.testing.assert_array_equal(gmm(lhs, RHS, sizes), expected)
        traced = pl.jit(lambda x: gmm(lhs, RHS, sizes) + x)(np.float32(1))
        np.testing.assert_array_equal(traced, expected + 1)
    with pl.executor("reference"):
        assert_close(gmm(lhs, RHS, sizes), expected)


@pytest.mark.one_executor
@pytest.mark.parametrize("position", [0, 1, 2])
def test_arrays_of_the_other_byte_order_are_converted_in_each_call(position):
    given = [normal(0, 20, K), normal(1, 8, K, N), np.array([6, 0, 0, 9, 0, 5, 0, 0], np.int32)]
    given[position] = given[position].astype(given[position].dtype.newbyteorder())
    expected = gmm_reference(*(each.astype(each.dtype.newbyteorder("=")) for each in given))
    with pl.executor("cpu"):
        for _ in range(4):
            assert_close(gmm(*given), expected)
            if position < 2:
                x, y = given[0], given[1][0]
                assert_close(matmul(x, y), x.astype(np.float64) @ y)


def test_a_transposed_product_is_kept_too():
    lhs, rhs = normal(0, K, 20), normal(1, 20, N)
    tgmm(lhs, rhs, split(20))
    before = prepared()
    assert_close(tgmm(lhs, rhs, [20, 0, 0]), tgmm_reference(lhs, rhs, [20, 0, 0]))
    assert prepared() == before


def test_only_the_axis_that_may_grow_is_filled_up():
    product = pl.jit(lambda x, y: x @ y).ahead(
        np.zeros((4, 6), np.float32), np.zeros((6, 5), np.float32), growing=(1, 0)
    )
    x, y = normal(0, 4, 3), normal(1, 3, 5)
    assert_close(product(x, y), x.astype(np.float64) @ y)
    for left in (normal(0, 3, 6), normal(0, 4, 7), normal(0, 4, 6).astype(np.float64), normal(0, 4)):
        with pytest.raises(pl.PalladioValueError, match="not an array that the function was staged for"):
            product(left, y)


TILINGS = [(8, K, 8), (16, K, N), (256, K, N), (4, K, 8), (8, 8, 8), (64, 8, N)]


@pytest.mark.one_executor
@pytest.mark.parametrize("tiling", TILINGS)
def test_tiles_of_the_caller_serve_other_numbers_of_rows_too(tiling):
    with pl.executor("cpu"):
        for m in (200, 144):
            gmm(normal(0, m, K), RHS, split(m), tiling=tiling)
            matmul(normal(0, m, K), RHS[0], tiling=tiling)
        before = prepared()
        for m in (199, 143, 193):
            x = normal(m, m, K)
            assert_close(gmm(x, RHS, split(m), tiling=tiling), gmm_reference(x, RHS, split(m)))
            assert_close(matmul(x, RHS[0], tiling=tiling), x.astype(np.float64) @ RHS[0])
        assert prepared() == before


@pytest.mark.one_executor
@pytest.mark.parametrize("tiling", TILINGS[:3])
def test_one_compiled_product_in_tiles_of_the_caller_serves_any_number_of_rows(tiling):
    with pl.executor("cpu"):
        gmm(normal(0, 20, K), RHS, split(20), tiling=tiling)
        gmm(normal(0, 500, K), RHS, split(500), tiling=tiling)
        before = prepared()
        for m in (21, 100, 333, 511):
            x = normal(m, m, K)
            found, expected = gmm(x, RHS, split(m), tiling=tiling), gmm(x, RHS, split(m))
            if host.current().prefetches:  # else few rows of a group in a tile sum in another order
                np.testing.assert_array_equal(found, expected)
            assert_close(found, gmm_reference(x, RHS, split(m)))
        assert prepared() <= before + 2  # of the tiles that the library chooses


@pytest.mark.one_executor
def test_the_work_of_a_sum_over_rows_is_their_number_whether_or_not_these_are_all(monkeypatch):
    weights, run = [], chain.Calls.run
    monkeypatch.setattr(chain.Calls, "run", lambda calls, *args: weights.append(args[3]) or run(calls, *args))
    with pl.executor("cpu"):
        for m in (20, 1023, 1024):  # it is staged for 1024 rows and 8 groups
            x, y, sizes = normal(0, m, K).T, normal(1, m, N), np.array([m - 9, 0, 4, 1, 1, 1, 1, 1], np.int32)
            assert_close(tgmm(x, y, sizes), tgmm_reference(x, y, sizes))
    assert [*dict.fromkeys(weights)] == [20, 1023, 1024]


@pytest.mark.one_executor
def test_one_compiled_product_serves_any_number_of_groups():
    many = normal(1, 12, K, N)
    with pl.executor("cpu"):
        gmm(normal(0, 9, K), many[:8], np.full(8, 1))
        tgmm(normal(0, 9, K).T, normal(1, 9, N), np.full(8, 1))
        before = prepared()
        for groups in (2, 3, 5, 8):
            x, y = normal(groups, 40, K), normal(groups + 1, 40, N)
            sizes = np.array([7, *[0] * (groups - 2), 30], np.int32)
            assert_close(gmm(x, many[:groups], sizes), gmm_reference(x, many[:groups], sizes))
            found = tgmm(x.T, y, sizes)
            assert found.shape == (groups, K, N)
            assert_close(found, tgmm_reference(x.T, y, sizes))
        assert prepared() == before


def test_matrices_of_other_groups_than_those_that_have_rows_are_not_read():
    matrices = np.full((5, K, N), np.nan, np.float32)
    matrices[3] = RHS[0]
    x = normal(0, 30, K)
    assert_close(gmm(x, matrices, [0, 0, 0, 30, 0]), x.astype(np.float64) @ RHS[0])


def test_blocks_of_the_caller_may_be_integers_of_numpy():
    x, two = normal(0, 6, N), np.int64(2)
    assert np.array_equal(softmax(x, block_rows=two), softmax(x, block_rows=2))
    ones = np.ones(N, np.float32)
    assert np.array_equal(rms_norm(x, ones, block_rows=two), rms_norm(x, ones, block_rows=2))
    q = normal(0, 6, N)[None]
    found = attention(q, q, q, block_q=two, block_k=two)
    assert np.array_equal(found, attention(q, q, q, block_q=2, block_k=2))


@pytest.mark.parametrize("block", [8, 7, 300])
def test_blocks_of_rows_of_the_caller_serve_other_numbers_of_rows_too(block):
    for function in (softmax, lambda x, **more: rms_norm(x, np.ones(N, np.float32), **more)):
        function(normal(0, 112, N), block_rows=block)
        before = prepared()
        for m in (111, 100, 97):
            x = normal(m, m, N)
            found = function(x, block_rows=block)
            assert prepared() == before
            assert_close(found, function(x).astype(np.float64))
            before = prepared()


def test_blocks_of_queries_and_keys_of_the_caller_serve_other_numbers_of_them_too():
    for block_q, block_k in ((16, 16), (None, 8), (16, 32)):
        blocks = {"block_q": block_q, "block_k": block_k}
        attention(*queries_and_keys(4, 40, 41), **blocks)
        before = prepared()
        for sizes in ((3, 41, 41), (4, 48, 50)):
            given = queries_and_keys(*sizes)
            found = attention(*given, **blocks)
            assert prepared() == before
            assert_close(found, attention(*given).astype(np.float64))
            before = prepared()


@pytest.mark.one_executor
@pytest.mark.parametrize(("name", "value"), [("PALLADIO_CPU", "portable"), ("PALLADIO_NUM_THREADS", "3")])
def test_kept_calls_notice_other_instructions_and_numbers_of_threads(name, value, monkeypatch):
    x, wide = normal(0, 64, K), normal(1, 3, K, 3072)
    asked = []
    staging.forget_calls()
    monkeypatch.setattr(pl, "processor", lambda real=pl.processor: asked.append(real()) or real())
    calls = [
        lambda: gmm(x, wide, split(64)),
        lambda: tgmm(x.T, normal(1, 64, N), split(64)),
        lambda: matmul(x, wide[0]),
    ]
    with pl.executor("cpu"):
        for call in calls:
            wanted = call()
            call()
            asked.clear()
            call()
            assert asked == []  # it was kept
            monkeypatch.setenv(name, value)
            found = call()
            assert asked and getattr(asked[0], "threads" if "THREADS" in name else "vector_bytes") in (3, 16)
            assert_close(found, wanted.astype(np.float64))
            monkeypatch.delenv(name)
            asked.clear()
            np.testing.assert_array_equal(call(), wanted)
            assert asked == []
