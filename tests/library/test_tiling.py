"""A tiling is three numbers, a look-up, or one of these for each of the three products of a layer."""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.library import gmm, gmm_vjp, grouped_matmul, matmul, tgmm
from tests.library.references import assert_close, gmm_reference, normal, tgmm_reference

M, K, N = 40, 24, 32
SIZES = [13, 0, 20]


@pytest.fixture
def used(monkeypatch):
    """The (tm, tk, tn) of each kernel call, in order, read off its blocks."""
    calls = []
    pallas_call = pl.pallas_call

    def remember(kernel, out_shape, *, grid_spec, name, **options):
        first, second = (spec.block_shape for spec in grid_spec.in_specs[:2])
        (tm, tk), tn = (first if name == "gmm" else first[::-1]), grid_spec.out_specs.block_shape[-1]
        assert set(second) >= {tn}
        calls.append((name, tm, tk, tn))
        return pallas_call(kernel, out_shape, grid_spec=grid_spec, name=name, **options)

    monkeypatch.setattr(pl, "pallas_call", remember)
    CALLS.clear()  # what is prepared already calls nothing
    for kept in (grouped_matmul._GMM, grouped_matmul._TGMM):
        kept.clear()
    return calls


@pytest.fixture
def layer():
    return normal(0, M, K), normal(1, 3, K, N), normal(2, M, N)


@pytest.mark.parametrize(
    "tiling",
    [(16, 8, 4), [16, 8, 4], tuple(np.int64([16, 8, 4])), lambda m, k, n: (16, 8, 4)],
    ids=("tuple", "list", "numpy", "look-up"),
)
def test_three_numbers_serve_every_product(tiling, layer, used):
    lhs, rhs, grad = layer
    _, pullback = gmm_vjp(lhs, rhs, SIZES, tiling=tiling)
    pullback(grad)
    assert used == [("gmm", 16, 8, 4), ("gmm", 16, 8, 4), ("tgmm", 16, 8, 4)]


EACH = ((16, 8, 4), (8, 4, 2), (4, 2, 8))


@pytest.mark.parametrize("kind", [tuple, list])
def test_three_tilings_serve_forward_left_and_right_gradient(kind, layer, used):
    lhs, rhs, grad = layer
    _, pullback = gmm_vjp(lhs, rhs, SIZES, tiling=kind(EACH))
    grad_lhs, grad_rhs = pullback(grad)
    assert used == [("gmm", 16, 8, 4), ("gmm", 8, 4, 2), ("tgmm", 4, 2, 8)]
    assert_close(grad_lhs, gmm_reference(grad, rhs, SIZES, transpose_rhs=True))
    assert_close(grad_rhs, tgmm_reference(lhs.T, grad, SIZES))


def test_each_of_three_may_be_a_look_up_which_sees_the_sizes_of_its_product(layer, used):
    lhs, rhs, grad = layer
    calls = []

    def look_up(which):
        return lambda *sizes: calls.append((which, sizes)) or EACH[which]

    _, pullback = gmm_vjp(lhs, rhs, SIZES, tiling=(look_up(0), look_up(1), look_up(2)))
    pullback(grad)
    assert calls == [(0, (M, K, N)), (1, (M, N, K)), (2, (M, K, N))]
    assert used == [("gmm", 16, 8, 4), ("gmm", 8, 4, 2), ("tgmm", 4, 2, 8)]


def test_with_transposed_matrices_the_right_gradient_is_transposed_too(layer, used):
    lhs, rhs, grad = layer
    calls = []
    tiling = lambda *sizes: calls.append(sizes) or (16, 8, 4)
    _, pullback = gmm_vjp(lhs, rhs.transpose(0, 2, 1), SIZES, tiling=tiling, transpose_rhs=True)
    pullback(grad)
    assert calls == [(M, K, N), (M, N, K), (M, N, K)]


def test_of_three_tilings_gmm_takes_the_first_and_tgmm_the_third(layer, used):
    lhs, rhs, grad = layer
    gmm(lhs, rhs, SIZES, tiling=EACH)
    tgmm(lhs.T, grad, SIZES, tiling=EACH)
    assert used == [("gmm", 16, 8, 4), ("tgmm", 4, 2, 8)]


def test_tiles_are_cut_to_the_sizes(layer, used):
    lhs, rhs, _ = layer
    gmm(lhs, rhs, SIZES, tiling=(512, 512, 16))
    ((kind, rows, *others),) = used
    assert (kind, others) == ("gmm", [K, 16])
    assert rows in (48, 1 << 16)  # the next multiple of 16; the compiler for CPUs makes one kernel for up to 65536


def test_a_look_up_table_is_a_function_of_its_get_method(layer, used):
    lhs, rhs, _ = layer
    table = {(M, K, N): (8, 8, 8)}
    gmm(lhs, rhs, SIZES, tiling=lambda *sizes: table.get(sizes))
    assert used == [("gmm", 8, 8, 8)]


def test_matmul_takes_a_look_up_too():
    x, y, calls = normal(0, 9, 5), normal(1, 5, 7), []
    assert_close(matmul(x, y, tiling=lambda *sizes: calls.append(sizes) or (4, 2, 4)), x.astype(np.float64) @ y)
    assert calls == [(9, 5, 7)]
