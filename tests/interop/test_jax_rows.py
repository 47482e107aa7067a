"""`softmax`, `attention` and `moe_mlp` on JAX arrays, under each transformation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import palladio as pl
from palladio import library
from palladio.interop.jax import attention, gmm, moe_mlp, softmax
from tests.interop.test_jax import array

IDS = jnp.array([[0, 1], [3, 1], [2, 0], [-1, 2], [1, 1]])  # expert 3 and expert -1 are elsewhere


def expected_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_attention_and_its_derivatives_are_those_of_its_formula(causal: bool, wrap: Any) -> None:
    given = array(2, 7, 4), array(2, 6, 4, seed=1), array(2, 6, 3, seed=2)
    ours = lambda q, k, v: attention(q, k, v, causal=causal)
    theirs = lambda q, k, v: expected_attention(q, k, v, causal)
    np.testing.assert_allclose(wrap(ours)(*given), theirs(*given), rtol=1e-5, atol=1e-6)
    loss = lambda function: lambda *x: (function(*x) ** 2).sum()
    found = wrap(jax.grad(loss(ours), argnums=(0, 1, 2)))(*given)
    for one, other in zip(found, jax.grad(loss(theirs), argnums=(0, 1, 2))(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    check_grads(ours, given, 2, modes=("fwd", "rev"), eps=1e-2, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_heads_of_queries_that_share_keys_share_their_gradients(wrap: Any) -> None:
    given = array(2, 4, 7, 4), array(2, 2, 6, 4, seed=1), array(2, 2, 6, 3, seed=2)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return expected_attention(q, jnp.repeat(k, 2, axis=1), jnp.repeat(v, 2, axis=1), False)

    np.testing.assert_allclose(wrap(attention)(*given), theirs(*given), rtol=1e-5, atol=1e-6)
    loss = lambda function: lambda *x: (function(*x) ** 2).sum()
    found = wrap(jax.grad(loss(attention), argnums=(0, 1, 2)))(*given)
    for one, other in zip(found, jax.grad(loss(theirs), argnums=(0, 1, 2))(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_options_of_attention_reach_the_library() -> None:
    q, k, v = array(2, 7, 4), array(2, 6, 4, seed=1), array(2, 6, 3, seed=2)
    found = attention(q, k, v, scale=0.3, block_q=4, block_k=2, interpret=True)
    np.testing.assert_allclose(found, expected_attention(q * 0.6, k, v, False), rtol=1e-5, atol=1e-6)
    with pytest.raises(pl.PalladioValueError, match="v: not one value for each key") as caught:
        jax.jit(lambda q: attention(q, k, v[:, :5]))(q)
    assert f"{__file__}:" in str(caught.value)


def test_batches_are_further_leading_axes() -> None:
    x, k, v = array(3, 5, 4), array(2, 6, 4, seed=1), array(2, 6, 3, seed=2)
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(jax.vmap(softmax, in_axes=1, out_axes=1)(x), jax.nn.softmax(x), rtol=1e-6)
    q = array(4, 2, 7, 4)
    found = jax.vmap(attention, in_axes=(0, None, None))(q, k, v)
    np.testing.assert_allclose(found, jnp.stack([attention(each, k, v) for each in q]), rtol=1e-6)
    gradient = jax.vmap(jax.grad(lambda q: attention(q, k, v).sum()))(q)
    np.testing.assert_allclose(gradient[1], jax.grad(lambda q: attention(q, k, v).sum())(q[1]), rtol=1e-4, atol=1e-6)


def layer(activation: str = "swiglu", dtype: Any = jnp.float32) -> tuple[Any, ...]:
    columns = 12 if activation in ("swiglu", "geglu", "gpt_oss") else 6
    biases = {"gate_up_bias": array(3, columns, dtype=dtype), "down_bias": array(3, 8, dtype=dtype)}
    weights = jnp.abs(array(5, 2, dtype=dtype))
    return (
        array(5, 8, dtype=dtype),
        IDS,
        weights,
        array(3, 8, columns, dtype=dtype),
        array(3, 6, 8, dtype=dtype),
    ), biases


@pytest.mark.parametrize("activation", ["swiglu", "geglu", "gpt_oss", "silu", "gelu", "relu"])
def test_the_expert_layer_and_its_gradients_are_those_of_the_library(activation: str) -> None:
    given, biases = layer(activation)
    plain = [np.asarray(each) for each in given]
    options = {name: np.asarray(each) for name, each in biases.items()}
    out, pullback = library.moe_mlp_vjp(*plain, activation=activation, **options)
    run = lambda tokens, weights, up, down, biases: moe_mlp(
        tokens, IDS, weights, up, down, activation=activation, **biases
    )
    arguments = given[0], given[2], given[3], given[4], biases
    np.testing.assert_allclose(jax.jit(run)(*arguments), out, rtol=1e-4, atol=1e-5)
    found = jax.jit(jax.grad(lambda *x: run(*x).sum(), argnums=(0, 1, 2, 3, 4)))(*arguments)
    expected = pullback(np.ones_like(out))
    pairs = zip(("tokens", "expert_weights", "gate_up", "down"), found[:4], strict=True)
    for name, one in (*pairs, *found[4].items()):
        np.testing.assert_allclose(one, getattr(expected, name), rtol=1e-4, atol=1e-4, err_msg=name)


def test_the_expert_layer_takes_both_orders_of_weights_and_traced_ids() -> None:
    (tokens, ids, weights, up, down), _ = layer()
    expected = moe_mlp(tokens, ids, weights, up, down)
    found = jax.jit(lambda ids: moe_mlp(tokens, ids, weights, up.mT, down.mT, transposed=True))(ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    half, _ = layer(dtype=jnp.bfloat16)
    assert moe_mlp(*half).dtype == jnp.bfloat16
    with pytest.raises(pl.PalladioValueError, match="activation: no such activation") as caught:
        moe_mlp(tokens, ids, weights, up, down, activation="swigloo")
    assert f"{__file__}:" in str(caught.value) and "did you mean swiglu?" in str(caught.value)


def test_functions_run_in_loops_branches_and_checkpoints() -> None:
    x, w = array(9, 4), array(3, 4, 4)
    sizes = jnp.array([3, 0, 4])
    step = lambda x: softmax(gmm(x, w, sizes))
    expected = step(step(step(x)))
    scanned = jax.jit(lambda x: jax.lax.scan(lambda x, _: (step(x), None), x, None, length=3)[0])
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: step(x), x))
    chosen = jax.jit(lambda x: jax.lax.cond(x[0, 0] > 9, lambda x: x, lambda x: step(step(step(x))), x))
    kept = jax.checkpoint(lambda x: step(step(step(x))))
    for run in (scanned, looped, chosen, kept):
        np.testing.assert_allclose(run(x), expected, rtol=1e-6)
    gradient = lambda run: jax.grad(lambda x: (run(x) ** 2).sum())(x)
    for run in (scanned, chosen, kept):
        np.testing.assert_allclose(gradient(run), gradient(lambda x: step(step(step(x)))), rtol=1e-4, atol=1e-7)
