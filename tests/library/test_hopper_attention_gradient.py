"""`hopper.attention` of shared heads, its residuals, and `hopper.attention_vjp`, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import AttentionConfig, AttentionGradientConfig
from tests.library.references import assert_close, attention_reference, normal

pytestmark = pytest.mark.usefixtures("compiled_quickly")
FORWARD = AttentionConfig(block_q=4, block_kv=8, stages=2)
SMALL = AttentionGradientConfig(block_own=4, block_step=8, stages=2)


def inputs(heads: int, kv_heads: int, m: int, n: int, d: int = 8, e: int = 6) -> list[np.ndarray]:
    """q, k, v and a gradient."""
    shapes = (heads, m, d), (kv_heads, n, d), (kv_heads, n, e), (heads, m, e)
    return [normal(seed, *shape) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "m", "n", "causal"),
    [(4, 2, 18, 26, False), (4, 2, 18, 26, True), (1, 1, 26, 18, True), (3, 1, 1, 1, False)],
)
def test_gradients(heads: int, kv_heads: int, m: int, n: int, causal: bool) -> None:
    q, k, v, grad = inputs(heads, kv_heads, m, n)
    out, lse, *gradients = attention_reference(q, k, v, grad, causal)
    found, found_lse = hopper.attention(q, k, v, causal=causal, save_residuals=True, config=FORWARD)
    assert_close(found, out, 2e-6)
    assert_close(found_lse, lse, 2e-6)
    for got, want in zip(
        hopper.attention_vjp(q, k, v, found, found_lse, grad, causal=causal, config=SMALL), gradients, strict=True
    ):
        assert_close(got, want, 1e-5) if np.any(want) else np.testing.assert_allclose(got, want, atol=1e-6)


def test_heads_of_several_leading_axes_share_keys() -> None:
    q, k, v, _ = inputs(12, 6, 5, 7)
    out = hopper.attention(q.reshape(3, 4, 5, 8), k.reshape(3, 2, 7, 8), v.reshape(3, 2, 7, 6), config=FORWARD)
    assert_close(np.asarray(out).reshape(12, 5, 6), attention_reference(q, k, v, out.reshape(12, 5, 6), False)[0], 2e-6)


def test_a_scale_is_that_of_the_gradients_too() -> None:
    q, k, v, grad = inputs(2, 2, 6, 7)
    out, lse, *gradients = attention_reference(q, k, v, grad, False, scale=0.3)
    arrays = [each.astype(np.float32) for each in (out, lse)]
    found = hopper.attention_vjp(q, k, v, *arrays, grad, scale=0.3, config=SMALL)
    for got, want in zip(found, gradients, strict=True):
        assert_close(got, want, 1e-5)


@pytest.mark.one_executor
def test_warpgroups_share_keys_whose_gradients_are_wide() -> None:
    q, k, v, grad = inputs(2, 1, 5, 6, 136, 128)
    out, lse, *gradients = attention_reference(q, k, v, grad, True)
    arrays = [each.astype(np.float32) for each in (out, lse)]

    def run() -> None:
        found = hopper.attention_vjp(q, k, v, *arrays, grad, causal=True, config=SMALL)
        for got, want in zip(found, gradients, strict=True):
            assert_close(got, want, 1e-5)

    report = pl.check(run, schedules=4)
    assert report.ok, report.render()


@pytest.mark.one_executor
def test_no_schedule_of_the_gradients_has_a_finding() -> None:
    q, k, v, grad = inputs(2, 1, 10, 12, 4, 4)
    out, lse, *gradients = attention_reference(q, k, v, grad, True)
    arrays = [each.astype(np.float32) for each in (out, lse)]

    def run(*given: Any) -> None:
        for got, want in zip(hopper.attention_vjp(*given, causal=True, config=SMALL), gradients, strict=True):
            assert_close(got, want, 1e-5)

    report = pl.check(run, q, k, v, *arrays, grad, schedules=8)
    assert report.ok, report.render()


def test_no_queries_give_gradients_of_zero() -> None:
    q, k, v, grad = inputs(2, 2, 0, 3)
    found = hopper.attention_vjp(q, k, v, grad, np.zeros((2, 0), np.float32), grad)
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape]
    assert not np.any(found[1])


Q, K, V, GRAD = inputs(2, 2, 4, 6)
LSE = np.zeros((2, 4), np.float32)
WIDE = inputs(1, 1, 4, 6, 264, 128)
REFUSED = {
    "heads that do not divide": (
        lambda: hopper.attention(np.concatenate([Q, Q[:1]]), K, V),
        "k: the keys do not go with the queries\n"
        "  expected: (3, 'n', 8) with n and d at least 1, or fewer heads, a divisor of 3\n  got:      (2, 6, 8)",
    ),
    "a gradient of another shape": (
        lambda: hopper.attention_vjp(Q, K, V, GRAD, LSE, GRAD[:, :3]),
        "grad: not of the result of attention\n  expected: float32[2, 4, 6]\n  got:      float32[2, 3, 6]",
    ),
    "residuals of another dtype": (
        lambda: hopper.attention_vjp(Q, K, V, GRAD, LSE.astype(np.float16), GRAD),
        "lse: not of the result of attention\n  expected: float32[2, 4]\n  got:      float16[2, 4]",
    ),
    "heads too wide for their gradients": (
        lambda: hopper.attention_vjp(*WIDE[:3], WIDE[3], np.zeros((1, 4), np.float32), WIDE[3]),
        "k, v: the gradient of keys or values does not fit into registers\n"
        "  expected: widths of at most 256\n  got:      264 and 128",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper.attention" in str(caught.value)
