"""What was prepared is kept: a second call of the same shapes prepares nothing."""

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.library import gmm, grouped_matmul, tgmm

SIZES = np.array([5, 0, 9], np.int32)


@pytest.fixture
def prepared():
    CALLS.clear()
    for kept in (grouped_matmul._GMM, grouped_matmul._TGMM):
        kept.clear()
    return lambda: CALLS.prepared


def arrays(*shapes):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_a_second_grouped_product_of_the_same_shapes_prepares_nothing(prepared):
    lhs, rhs = arrays((16, 8), (3, 8, 4))
    gmm(lhs, rhs, SIZES, tiling=(8, 8, 8), interpret=True)
    before = prepared()
    gmm(2 * lhs, rhs + 1, SIZES[::-1].copy(), tiling=(8, 8, 8), interpret=True)
    assert prepared() == before


def test_a_second_transposed_grouped_product_of_the_same_shapes_prepares_nothing(prepared):
    lhs, rhs = arrays((8, 16), (16, 4))
    tgmm(lhs, rhs, SIZES, tiling=(8, 8, 8), interpret=True)
    before = prepared()
    tgmm(2 * lhs, rhs + 1, SIZES[::-1].copy(), tiling=(8, 8, 8), interpret=True)
    assert prepared() == before


@pytest.mark.parametrize("changed", ["shape", "dtype", "tiling"])
def test_another_shape_dtype_or_tiling_prepares_once_more(prepared, changed):
    lhs, rhs = arrays((16, 8), (3, 8, 4))
    gmm(lhs, rhs, SIZES, tiling=(8, 8, 8), interpret=True)
    before = prepared()
    if changed == "shape":
        lhs = np.concatenate([lhs, lhs])
    if changed == "dtype":
        lhs = lhs.astype(np.float16)
    gmm(lhs, rhs, SIZES, tiling=(8, 4, 8) if changed == "tiling" else (8, 8, 8), interpret=True)
    assert prepared() > before


def test_a_kernel_whose_captured_number_changed_is_prepared_again(prepared):
    def scaled(x, factor):
        def kernel(x_ref, out_ref):
            out_ref[...] = x_ref[...] * factor

        return pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(scaled(x, 2), 2 * x)
    before = prepared()
    np.testing.assert_array_equal(scaled(x, 3), 3 * x)
    np.testing.assert_array_equal(scaled(x, 2), 2 * x)
    assert prepared() > before
