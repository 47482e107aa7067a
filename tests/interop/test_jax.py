"""JAX's transformations over the library's kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import palladio as pl
from palladio import library
from palladio.interop.jax import gmm, matmul, softmax, tgmm

TILES = (4, 2, 2)
SIZES = jnp.array([3, 0, 4])


def array(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), dtype)


def loop(lhs, rhs, sizes):
    """The same product by JAX alone: each row with the matrix of its group, rows of no group with zeros."""
    ends = jnp.cumsum(sizes)
    group = jnp.searchsorted(ends, jnp.arange(lhs.shape[0]), side="right")
    matrices = jnp.concatenate([rhs, jnp.zeros_like(rhs[:1])])[group]
    return jnp.einsum("mk,mkn->mn", lhs, matrices, precision="highest")


def check(function, *inputs, order=2):
    check_grads(function, inputs, order, modes=["rev"], eps=1e-2, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_gradients_agree_with_those_of_jax(wrap):
    lhs, rhs, weights = array(9, 3), array(3, 3, 2), array(9, 2, seed=1)
    ours = wrap(jax.grad(lambda lhs, rhs, sizes: (gmm(lhs, rhs, sizes, tiling=TILES) * weights).sum(), argnums=(0, 1)))
    theirs = jax.grad(lambda lhs, rhs, sizes: (loop(lhs, rhs, sizes) * weights).sum(), argnums=(0, 1))
    for sizes in (SIZES, SIZES[::-1]):
        for found, expected in zip(ours(lhs, rhs, sizes), theirs(lhs, rhs, sizes), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_gmm_and_its_gradient_have_gradients(transpose_rhs):
    rhs = array(3, 2, 3) if transpose_rhs else array(3, 3, 2)
    check(lambda lhs, rhs: gmm(lhs, rhs, SIZES, tiling=TILES, transpose_rhs=transpose_rhs), array(9, 3), rhs)


def test_a_shard_and_existing_out_have_gradients():
    sizes = jnp.array([2, 3, 0, 4])
    function = lambda lhs, rhs, existing: gmm(lhs, rhs, sizes, jnp.float32, TILES, jnp.int32(1), existing)
    check(function, array(10, 3), array(2, 3, 2), array(10, 2))


def test_tgmm_and_its_gradient_have_gradients():
    check(lambda lhs, rhs: tgmm(lhs, rhs, SIZES, tiling=TILES), array(3, 9), array(9, 2))
    function = lambda lhs, rhs, existing: tgmm(lhs, rhs, SIZES, jnp.float32, TILES, 1, 2, existing)
    check(function, array(3, 9), array(9, 2), array(2, 3, 2))


def test_matmul_and_softmax_have_gradients():
    check(lambda x, y: matmul(x, y, tiling=TILES), array(5, 3), array(3, 4))
    check(lambda x: softmax(x, block_rows=2), array(5, 3))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32], ids=lambda dtype: dtype.__name__)
def test_results_are_those_of_the_library_in_its_dtypes(dtype):
    lhs, rhs = array(9, 3, dtype=dtype), array(3, 3, 2, dtype=dtype)
    out = jax.jit(gmm)(lhs, rhs, SIZES)
    assert isinstance(out, jax.Array) and out.dtype == dtype
    np.testing.assert_array_equal(out, library.gmm(np.asarray(lhs), np.asarray(rhs), SIZES))
    grads = jax.grad(lambda lhs, rhs: gmm(lhs, rhs, SIZES).sum(), argnums=(0, 1))(lhs, rhs)
    assert [grad.dtype for grad in grads] == [dtype, dtype]


def test_offset_and_sizes_may_be_traced():
    lhs, rhs = array(9, 3), array(2, 3, 2)
    found = jax.jit(lambda sizes, offset: gmm(lhs, rhs, sizes, group_offset=offset))(SIZES, jnp.int32(1))
    np.testing.assert_array_equal(found, library.gmm(np.asarray(lhs), np.asarray(rhs), SIZES, group_offset=1))


def test_vmap_runs_one_product_after_another():
    lhs, rhs = array(4, 9, 3), array(3, 3, 2)
    found = jax.vmap(lambda lhs: gmm(lhs, rhs, SIZES))(lhs)
    np.testing.assert_array_equal(found, jnp.stack([gmm(each, rhs, SIZES) for each in lhs]))


def test_what_is_refused_is_refused_at_once_with_the_line_of_the_call():
    with pytest.raises(pl.PalladioValueError, match="rhs: does not multiply with lhs") as caught:
        jax.jit(lambda lhs: gmm(lhs, array(3, 3, 2), SIZES))(array(9, 4))
    assert f"{__file__}:" in str(caught.value)
    with pytest.raises(pl.PalladioValueError, match="group sizes sum to more") as caught:
        gmm(array(9, 3), array(3, 3, 2), [5, 5, 5])
    assert f"{__file__}:" in str(caught.value)


def test_traced_sizes_are_checked_when_the_product_runs():
    with pytest.raises(Exception, match="group sizes sum to more than the number of rows"):
        jax.jit(gmm)(array(9, 3), array(3, 3, 2), jnp.array([5, 5, 5])).block_until_ready()
