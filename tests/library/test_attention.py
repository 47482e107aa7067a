"""`attention` against float64."""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.library import attention
from tests.library.references import FLOATS, assert_close, normal
from tests.pairs import every_pair


def reference(q, k, v, causal=False, scale=None):
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def inputs(m, n, d, e, lead=(2,), dtype=np.float32):
    return [normal(seed, *lead, *shape, dtype=dtype) for seed, shape in enumerate(((m, d), (n, d), (n, e)))]


TOLERANCE = {FLOATS[0]: 1e-3, FLOATS[1]: 8e-3, FLOATS[2]: 2e-6, FLOATS[3]: 1e-14}


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "cpu"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_float_dtype(dtype, causal, executor):
    q, k, v = inputs(40, 40, 16, 8, dtype=dtype)
    with pl.executor(executor):
        out = attention(q, k, v, causal=causal, block_q=16, block_k=16)
    assert out.dtype == dtype
    assert_close(out, reference(q, k, v, causal), TOLERANCE[dtype])


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "cpu"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 33), (33, 7), (16, 32), (37, 37)])
def test_lengths_that_blocks_do_not_divide(m, n, causal, executor):
    q, k, v = inputs(m, n, 5, 3)
    with pl.executor(executor):
        out = attention(q, k, v, causal=causal, block_q=16, block_k=8)
    assert_close(out, reference(q, k, v, causal), 2e-6)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_any_leading_axes(lead):
    q, k, v = inputs(4, 6, 5, 3, lead)
    assert_close(attention(q, k, v), reference(q, k, v), 2e-6)


def shared_heads(lead, own, m, n, dtype=np.float32):
    """Operands, and the same with each head of keys and values repeated for the heads of queries that share it."""
    q = normal(0, *lead, m, 8, dtype=dtype)
    k, v = (normal(seed, *lead[:-1], own, n, width, dtype=dtype) for seed, width in ((1, 8), (2, 5)))
    return (q, k, v), (q, *(np.repeat(each, lead[-1] // own, axis=-3) for each in (k, v)))


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("lengths", "heads", "causal", "executor"),
    every_pair(
        [(7, 33, {"block_q": 4, "block_k": 8}), (33, 7, {}), (16, 32, {})],
        [((4,), 2), ((2, 6), 3), ((3, 4), 1)],
        [False, True],
        ["reference", "cpu"],
    ),
    ids=str,
)
def test_heads_of_queries_share_keys(lengths, heads, causal, executor):
    (m, n, blocks), (lead, own) = lengths, heads
    given, repeated = shared_heads(lead, own, m, n)
    out = attention(*given, causal=causal, interpret=executor if executor == "cpu" else True, **blocks)
    assert_close(out, reference(*repeated, causal), 2e-6)
    into = np.full_like(out, np.nan)
    assert attention(*given, causal=causal, interpret="cpu", out=into, **blocks) is into
    assert_close(into, reference(*repeated, causal), 2e-6)


def test_a_head_sees_no_keys_of_others_than_its_own():
    (q, k, v), repeated = shared_heads((6,), 2, 9, 21)
    expected = reference(*repeated)
    k[1], v[1] = np.nan, np.inf
    assert_close(attention(q, k, v, block_k=8, interpret="cpu")[:3], expected[:3], 2e-6)


def test_other_numbers_of_heads_share_a_kernel():
    for heads, own in ((8, 4), (6, 3), (2, 1)):
        given, repeated = shared_heads((heads,), own, 16, 24)
        assert_close(attention(*given, interpret="cpu"), reference(*repeated), 2e-6)


def test_heads_of_keys_that_do_not_divide_those_of_queries_are_refused():
    (q, k, v), _ = shared_heads((4,), 2, 5, 6)
    with pytest.raises(pl.PalladioValueError, match=r"a divisor of 4"):
        attention(q, np.concatenate([k, k[:1]]), np.concatenate([v, v[:1]]))
    with pytest.raises(pl.PalladioValueError, match="v: "):
        attention(q, k, np.repeat(v, 2, axis=0))


def test_scale_multiplies_the_scores():
    q, k, v = inputs(4, 6, 5, 3)
    assert_close(attention(q, k, v, scale=0.1), reference(q, k, v, scale=0.1), 2e-6)


def test_large_scores_do_not_overflow():
    q, k, v = inputs(4, 24, 5, 3)
    q *= np.float32(1e4)
    assert_close(attention(q, k, v, block_k=8), reference(q, k, v), 2e-4)


def test_no_queries():
    assert attention(*inputs(0, 6, 5, 3)).shape == (2, 0, 3)


Q, K, V = inputs(4, 6, 5, 3)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: attention(Q[0, 0], K, V), "q"),
        (lambda: attention(Q, K[:0], V), "k"),
        (lambda: attention(Q, K[0, 0], V), "k"),
        (lambda: attention(Q, K[:, :0], V[:, :0]), "k"),
        (lambda: attention(Q, K, V[:, :3]), "v"),
        (lambda: attention(Q, K.astype(np.float16), V), "k"),
        (lambda: attention(Q, K, V, block_q=0), "block_q"),
    ],
)
def test_what_does_not_go_together_is_refused(call, argument):
    with pytest.raises(pl.PalladioError, match=f"{argument}: "):
        call()
