"""Functions of `jax.nn` and others that are made of the rest, against those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax, nn
from tests.errors.shown import shows

X = np.linspace(-4, 5, 24, dtype=np.float32).reshape(4, 6)
ONE_ARGUMENT = [name for name in nn.__all__ if name not in ("one_hot",)]


def close(ours: Any, theirs: Any, tolerance: float = 1e-6) -> bool:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return ours.shape == theirs.shape and np.linalg.norm(ours - theirs) <= tolerance * np.linalg.norm(theirs)


def test_activations_are_those_of_jax() -> None:
    theirs = jax.jit(lambda x: {name: getattr(jax.nn, name)(x) for name in ONE_ARGUMENT})(X)
    for name in ONE_ARGUMENT:
        assert close(getattr(nn, name)(X), theirs[name]), name
    assert close(nn.gelu(X, approximate=False), jax.nn.gelu(X, approximate=False), 3e-6)
    assert close(nn.logsumexp(X, axis=1), jax.nn.logsumexp(X, axis=1))
    assert np.array_equal(nn.one_hot(np.int32([0, 2, 5]), 3), jax.nn.one_hot(np.int32([0, 2, 5]), 3))
    assert np.array_equal(nn.one_hot(np.int32([0, 2]), 3, axis=0), jax.nn.one_hot(np.int32([0, 2]), 3, axis=0))


@pytest.mark.parametrize("interpret", [None, "reference"])
def test_activations_in_a_kernel(interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = nn.silu(x_ref[...]) + nn.softmax(x_ref[...]) * nn.gelu(x_ref[...])

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(X), interpret=interpret)(X)
    assert close(found, jax.nn.silu(X) + jax.nn.softmax(X) * jax.nn.gelu(X), 2e-6)


def test_extremes_do_not_overflow() -> None:
    x = np.float32([-1000, 1000, -np.inf])
    assert close(nn.softplus(x[:2]), [0, 1000])
    assert nn.logsumexp(x) == 1000
    assert nn.logsumexp(x[2:]) == -np.inf


def test_ragged_products_are_those_of_jax() -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.normal(size=shape).astype(np.float32) for shape in ((10, 4), (3, 4, 5)))
    sizes = np.int32([3, 0, 5])
    theirs = np.asarray(jax.lax.ragged_dot(lhs, rhs, sizes))
    assert close(lax.ragged_dot(lhs, rhs, sizes), theirs)
    assert close(pl.jit(lax.ragged_dot)(lhs, rhs, sizes), theirs)
    assert lax.ragged_dot(lhs, rhs, sizes, preferred_element_type=np.float64).dtype == np.float64


def test_the_algorithm_of_a_product_is_accepted() -> None:
    preset = lax.DotAlgorithmPreset.BF16_BF16_F32_X3
    assert [each.name for each in lax.DotAlgorithmPreset] == [each.name for each in jax.lax.DotAlgorithmPreset]
    assert np.array_equal(lax.dot(X, X.T, precision=preset), lax.dot(X, X.T))


def test_repeats_of_a_given_total() -> None:
    for repeats, total in ((np.int32([1, 2, 0]), 5), (np.int32([1, 2, 3]), 2), (2, 6)):
        theirs = jax.numpy.repeat(np.arange(3), repeats, total_repeat_length=total)
        assert jnp.repeat(np.arange(3), repeats, total_repeat_length=total).tolist() == theirs.tolist()
    assert jnp.repeat(X, np.int32([2, 0, 1, 1]), axis=0).tolist() == np.repeat(X, [2, 0, 1, 1], axis=0).tolist()

    def kernel(n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.repeat(jnp.arange(3), n_ref[...], total_repeat_length=4)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.int32))
    assert call(np.int32([2, 1, 1])).tolist() == [0, 0, 1, 2]


def test_a_roll_by_a_traced_shift() -> None:
    def kernel(n_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.roll(x_ref[...], n_ref[0], axis=1) + jnp.roll(x_ref[...], (1, n_ref[0]), (0, 1))

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(X))
    for shift in (-7, 0, 2):
        assert np.array_equal(call(np.int32([shift]), X), np.roll(X, shift, 1) + np.roll(X, (1, shift), (0, 1)))


@pytest.mark.parametrize(
    "options", [{}, {"bins": 4}, {"bins": 3, "range": (-1, 2)}, {"bins": np.float32([-2, 0, 1, 4])}, {"density": True}]
)
def test_histograms_are_those_of_jax(options: Any) -> None:
    counts, edges = jnp.histogram(X, **options)
    theirs, their_edges = jax.numpy.histogram(X, **options)
    assert counts.dtype == theirs.dtype
    assert close(counts, theirs)
    assert close(edges, their_edges)


def test_weights_of_a_histogram() -> None:
    weights = np.abs(X)
    assert close(jnp.histogram(X, 4, weights=weights)[0], jax.numpy.histogram(X, 4, weights=weights)[0])


def test_ragged_products_of_other_shapes() -> None:
    with shows(
        ValueError,
        """
        ragged_dot takes lhs[m, k], rhs[groups, k, n] and group_sizes[groups]
          got:      f32[4,6], f32[4,6] and i32[2]
          test_activations.py:N, in test_ragged_products_of_other_shapes
            lax.ragged_dot(X, X, np.int32([1, 2]))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.ragged_dot(X, X, np.int32([1, 2]))


def test_ragged_products_that_begin_with_another_group() -> None:
    with shows(
        NotImplementedError,
        """
        group_offset: ragged_dot begins with the first group
          got:      1
          hint:     palladio.library.gmm has a group_offset
          test_activations.py:N, in test_ragged_products_that_begin_with_another_group
            lax.ragged_dot(X, X.T[None], np.int32([1]), group_offset=1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        lax.ragged_dot(X, X.T[None], np.int32([1]), group_offset=1)
