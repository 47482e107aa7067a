"""`matmul`: the tutorial's first kernel with state."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl
import palladio.numpy as jnp
from palladio.call.staged import CALLS as STAGED_CALLS
from palladio.library import gmm, matmul
from tests.library.references import FLOATS, assert_close, normal
from tests.pairs import every_pair


def reference(x, y):
    return np.asarray(x).astype(np.float64) @ np.asarray(y).astype(np.float64)


@pytest.mark.parametrize(("left", "right", "result"), every_pair(FLOATS, FLOATS, [None, *FLOATS]), ids=str)
def test_inputs_of_any_two_float_dtypes(left, right, result):
    x, y = normal(0, 19, 11, dtype=left), normal(1, 11, 13, dtype=right)
    out = matmul(x, y, preferred_element_type=result, tiling=(8, 4, 8))
    assert out.dtype == (jnp.promote_types(left, right) if result is None else result)
    single = np.dtype(np.float64) not in (left, right) and out.dtype == np.float64
    assert_close(out, reference(x, y), 1e-6 if single else None)


def test_products_of_narrow_floats_are_summed_in_float32():
    assert matmul(np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16), tiling=(1, 512, 1))[0, 0] == 4096


@settings(max_examples=25)
@given(st.tuples(*[st.integers(0, 20)] * 3), st.tuples(*[st.integers(1, 24)] * 3))
def test_any_sizes_and_tiles_agree_with_numpy(shape, tiling):
    m, k, n = shape
    x, y = normal(0, m, k), normal(1, k, n)
    assert_close(matmul(x, y, tiling=tiling), reference(x, y))


def test_arrays_need_not_be_contiguous():
    x, y = normal(0, 9, 20).T[::2], normal(1, 9, 14)[::-1, ::2]
    assert_close(matmul(x, y, tiling=(4, 4, 4)), reference(x, y))


def test_numbers_that_are_none_stay_in_their_row_and_column():
    x, y = normal(0, 9, 5), normal(1, 5, 7)
    x[3], y[:, 2] = np.nan, np.nan
    out = matmul(x, y, tiling=(4, 4, 4))
    np.testing.assert_array_equal(np.isnan(out), (np.arange(9) == 3)[:, None] | (np.arange(7) == 2))


def test_inside_jit():
    x, y = normal(0, 9, 5), normal(1, 5, 7)
    assert_close(pl.jit(lambda x, y: matmul(x, y, tiling=(4, 4, 4)))(x, y), reference(x, y))


@pytest.fixture
def reordering_refused(monkeypatch):
    """Copies of more than a page to row-major order are errors; those to more rows are not."""
    monkeypatch.setenv("PALLADIO_WARN_COPIES", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.CopyWarning)
        warnings.filterwarnings("error", r".*row-major", pl.CopyWarning)
        yield


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16, 128, 200])
@pytest.mark.usefixtures("reordering_refused")
def test_weights_of_column_major_order_are_multiplied_in_place(rows, dtype):
    x, weight = normal(0, rows, 128, dtype=dtype), normal(1, 96, 128, dtype=dtype)
    out = np.empty((rows, 96), dtype)
    for _ in range(2):  # the second call is served by what the first one kept
        assert_close(matmul(x[:1], weight.T), reference(x[:1], weight.T))
        assert matmul(x, weight.T, out=out) is out
        assert_close(out, reference(x, weight.T))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 16, 32])
@pytest.mark.usefixtures("reordering_refused")
def test_weights_of_linear_layers_are_multiplied_in_place(rows, dtype):
    x, weight = (torch.from_numpy(normal(i, n, 128)).to(getattr(torch, dtype)) for i, n in enumerate((rows, 96)))
    expected = (x.double() @ weight.T.double()).numpy()
    assert_close(matmul(x, weight.T).float().numpy(), expected, 1e-2 if dtype == "bfloat16" else None)


@pytest.mark.parametrize("dtype", [*FLOATS, "tensors"], ids=str)
@pytest.mark.one_executor
@pytest.mark.usefixtures("reordering_refused")
def test_gradients_of_weights_are_sums_of_any_number_of_rows_in_place(dtype):
    def product(tokens):
        x, grad = (
            normal(i, tokens, n, dtype="float32" if dtype == "tensors" else dtype) for i, n in ((0, 96), (1, 64))
        )
        out = np.full((96, 64), 7, x.dtype)
        given = [torch.from_numpy(array) for array in (x, grad, out)] if dtype == "tensors" else [x, grad, out]
        assert matmul(given[0].T, given[1], out=given[2]) is given[2]
        assert_close(out, reference(x.T, grad))
        assert_close(np.asarray(matmul(given[0].T, given[1])), reference(x.T, grad))

    with pl.executor("cpu"):
        product(60)
        before = STAGED_CALLS.prepared
        for tokens in (34, 50, 64):
            product(tokens)
        assert STAGED_CALLS.prepared == before


def test_an_error_of_a_left_operand_in_column_major_order_names_it():
    x, y = np.ones((5, 3), np.float32), np.ones((5, 3), np.float32)
    with pytest.raises(pl.PalladioValueError, match=r"^out: overlaps an input\n  got: +memory of y\n"):
        matmul(x.T, y, interpret="cpu", out=y[:3])
    with pytest.raises(pl.PalladioValueError, match=r"^out: .*\n  expected: \(3, 3\)\n"):
        matmul(x.T, y, interpret="cpu", out=y[:2])
    with pytest.raises(pl.PalladioTypeError, match=r"^x: floats are needed\n"):
        matmul(x.astype(np.int32).T, y.astype(np.int32), interpret="cpu")


@pytest.mark.parametrize("tiling", [None, (8, 4, 8), (4, 5, 64)])
def test_both_orders_of_a_matrix_give_its_product(tiling):
    x, weight = normal(0, 19, 11), normal(1, 13, 11)
    for _ in range(2):
        for y in (weight.T, weight.T.copy(), np.array(weight)[::-1].T[:, ::-1]):
            assert_close(matmul(x, y, tiling=tiling), reference(x, y))
            assert_close(matmul(x[:2], y, tiling=tiling), reference(x[:2], y))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_of_the_other_byte_order(dtype):
    x, y = normal(0, 19, 11, dtype=dtype), normal(1, 11, 13, dtype=dtype)
    swapped = [each.astype(each.dtype.newbyteorder()) for each in (x, y)]
    for _ in range(2):
        for operands in (swapped, [x, swapped[1]], [swapped[0], np.asfortranarray(swapped[1])]):
            assert_close(matmul(*operands), reference(x, y))
        np.testing.assert_array_equal(gmm(swapped[0], swapped[1][None], [19]), gmm(x, y[None], [19]))


def test_a_result_cannot_be_written_to_an_operand():
    x = normal(0, 12, 12)
    with pytest.raises(pl.PalladioValueError, match=r"overlaps an input\n  got: +memory of rhs\n  hint: .* own\n"):
        gmm(x.copy(), x[None], [12], out=x)


@pytest.mark.parametrize("n", [3, 12, 300])
def test_every_operand_that_the_result_overlaps_is_named(n):
    x = normal(0, n, n)
    for _ in range(2):
        with pytest.raises(pl.PalladioValueError, match=r"out: overlaps inputs\n  got: +memory of x and y\n"):
            matmul(x, x, interpret="cpu", out=x)
        with pytest.raises(pl.PalladioValueError, match=r"out: overlaps an input\n  got: +memory of y\n"):
            matmul(x.copy(), x, interpret="cpu", out=x)


def test_matrices_of_column_major_order_that_do_not_multiply_are_described_as_given():
    with pytest.raises(pl.PalladioValueError, match=r"got: +\(96, 128\)"):
        matmul(normal(0, 3, 128), normal(1, 128, 96).T)
