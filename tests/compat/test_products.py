"""Products of arrays of JAX outside of kernels: summed as compiled kernels sum them, so that the two are equal."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat
from palladio.compat import products
from palladio.cpu.runtime import host


@pytest.fixture
def jax() -> Iterator[Any]:
    with compat.jax():
        import jax
    yield jax


def _accumulated(jax: Any, x: Any, y: Any, block: int) -> Any:
    """The product by a kernel that sums over blocks of the inner axis."""
    jnp = jax.numpy

    def kernel(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out_ref[...] = jnp.zeros_like(out_ref)

        out_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    with compat.jax():
        from jax.experimental import pallas
    (m, k), n = x.shape, y.shape[1]
    return pallas.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((m, n), jnp.float32),
        grid=(2, k // block),
        in_specs=[
            pallas.BlockSpec((m // 2, block), lambda i, step: (i, step)),
            pallas.BlockSpec((block, n), lambda i, step: (step, 0)),
        ],
        out_specs=pallas.BlockSpec((m // 2, n), lambda i, step: (i, 0)),
    )(x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_long_product_equals_that_of_a_kernel_in_blocks(jax: Any, dtype: str) -> None:
    jnp = jax.numpy
    x, y = (jax.random.normal(jax.random.key(n), shape, dtype) for n, shape in enumerate([(32, 1024), (1024, 48)]))
    wanted = _accumulated(jax, x, y, 256)
    exact = np.asarray(x, np.float64) @ np.asarray(y, np.float64)
    assert np.linalg.norm(wanted - exact) < 1e-5 * np.linalg.norm(exact)
    # Tile registers add up the products of float32 part by part, and the parts of a block are others.
    rtol, atol = {"float16": (2e-3, 1e-2)}.get(dtype, (1e-5, 1e-4))
    alike: Any = np.testing.assert_array_equal
    if host.current().multiplies_tiles and dtype != "bfloat16":
        alike = functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol)
    for found in (jnp.dot(x, y, preferred_element_type=jnp.float32), jnp.einsum("ij,jk->ik", x, y)):
        alike(np.asarray(found), np.asarray(wanted).astype(found.dtype))
    alike(np.asarray(x @ y), np.asarray(wanted).astype(dtype))


def test_short_and_batched_products_compile_nothing(jax: Any) -> None:
    jnp, before = jax.numpy, products._compiled.cache_info()
    x = jnp.ones((2, 3, products.LEAST_TERMS))
    jnp.ones((3, 8)) @ jnp.ones((8, 3)), jnp.matmul(x, x.mT), jnp.ones((3, 900), int) @ jnp.ones((900, 3), int)
    with pl.executor("reference"):
        x[0] @ x[1].T
    assert products._compiled.cache_info() == before
    x[0] @ x[1].T
    assert products._compiled.cache_info() != before


def test_products_of_each_slice_are_those_of_one(jax: Any) -> None:
    jnp = jax.numpy
    x, y = (jax.random.normal(jax.random.key(n), (3, *shape)) for n, shape in enumerate([(8, 512), (512, 16)]))
    found = jax.vmap(jnp.matmul, out_axes=1)(x, y)
    np.testing.assert_array_equal(found, np.stack([a @ b for a, b in zip(x, y, strict=True)], axis=1))


def test_the_function_of_each_slice_gets_arrays_of_jax(jax: Any) -> None:
    x = jax.numpy.arange(6.0).reshape(2, 3)
    found = jax.vmap(lambda row, number: {"set": row.at[number].set(9), "sum": row.sum()})(x, np.array([0, 2]))
    np.testing.assert_array_equal(found["set"], [[9, 1, 2], [3, 4, 9]])
    np.testing.assert_array_equal(found["sum"], [3, 12])
    assert isinstance(found["sum"], jax.Array) and jax.vmap(lambda row: row, axis_size=0)(x[:0]).shape == (0, 3)
