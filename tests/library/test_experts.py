"""The expert layer, beside the same layer in float64 NumPy, token by token."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
import torch

import palladio as pl
from palladio.call.staged import CALLS
from palladio.library import experts, moe_mlp, moe_mlp_vjp, staging
from palladio.library.activations import ACTIVATIONS
from tests.library.references import assert_close, normal

T, H, INNER, E, K = 9, 32, 16, 4, 2
IDS = np.random.default_rng(0).integers(-1, E + 1, (T, K))
WEIGHTS = np.random.default_rng(1).random((T, K)).astype(np.float32)
TOKENS = normal(2, T, H)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def halves(function):
    return lambda x: function(x[: len(x) // 2]) * x[len(x) // 2 :]


def gpt_oss(x):
    gate, up = np.minimum(x[::2], 7), np.clip(x[1::2], -7, 7)
    return (up + 1) * gate / (1 + np.exp(-1.702 * gate))


def silu(x):
    return x / (1 + np.exp(-x))


REFERENCES = {
    "swiglu": halves(silu),
    "geglu": halves(gelu),
    "gpt_oss": gpt_oss,
    "silu": silu,
    "gelu": gelu,
    "relu": lambda x: np.maximum(x, 0),
}


def reference(tokens, ids, weights, up, down, activation="swiglu", up_bias=None, down_bias=None):
    tokens, weights, up, down = (np.asarray(each).astype(np.float64) for each in (tokens, weights, up, down))
    out = np.zeros_like(tokens)
    for token, place in itertools.product(range(len(tokens)), range(ids.shape[1])):
        expert = ids[token, place]
        if 0 <= expert < len(up):
            hidden = tokens[token] @ up[expert] + (0 if up_bias is None else up_bias[expert])
            found = REFERENCES[activation](hidden) @ down[expert] + (0 if down_bias is None else down_bias[expert])
            out[token] += weights[token, place] * found
    return out


def matrices(activation="swiglu"):
    """Weights and biases; large ones for the clamped activation."""
    wide = INNER if activation in ("silu", "gelu", "relu") else 2 * INNER
    return normal(3, E, H, wide), normal(4, E, INNER, H), normal(5, E, wide), normal(6, E, H)


UP, DOWN, *_ = matrices()


@pytest.mark.parametrize("activation", REFERENCES)
def test_each_token_goes_through_its_experts(activation):
    up, down, up_bias, down_bias = matrices(activation)
    biases = {"gate_up_bias": up_bias, "down_bias": down_bias}
    out = moe_mlp(TOKENS, IDS, WEIGHTS, up, down, activation=activation, **biases)
    assert out.dtype == np.float32
    assert_close(out, reference(TOKENS, IDS, WEIGHTS, up, down, activation, up_bias, down_bias))


def test_weights_lie_in_either_order():
    flipped = [np.ascontiguousarray(each.swapaxes(1, 2)) for each in (UP, DOWN)]
    out = moe_mlp(TOKENS, IDS, WEIGHTS, *flipped, transposed=True)
    assert_close(out, reference(TOKENS, IDS, WEIGHTS, UP, DOWN))


def test_bfloat16_is_summed_in_float32():
    tokens, up, down = (each.astype(ml_dtypes.bfloat16) for each in (TOKENS, UP, DOWN))
    out = moe_mlp(tokens, IDS, WEIGHTS, up, down)
    assert out.dtype == ml_dtypes.bfloat16
    assert_close(out, reference(tokens, IDS, WEIGHTS, up, down), 8e-3)


@pytest.mark.parametrize(("name", "count"), [("SMALL_ROWS", 40), ("MOST_ROWS", 70 * E)])
def test_an_expert_with_more_rows_than_a_tile_is_done_in_several(name, count, monkeypatch):
    monkeypatch.setattr(experts, name, 16)
    tokens, ids, weights = normal(7, count, H), np.zeros((count, 1), np.int64), np.ones((count, 1), np.float32)
    ids[3:7] = 2
    assert_close(moe_mlp(tokens, ids, weights, UP, DOWN), reference(tokens, ids, weights, UP, DOWN))


MANY, NARROW = 128, 48


@pytest.mark.one_executor
@pytest.mark.parametrize("inner", [NARROW, NARROW - 8])
@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss"])
def test_experts_are_spread_over_the_threads_with_the_same_bits(activation, inner, monkeypatch):
    monkeypatch.setattr(experts, "SMALL_ROWS", 32)  # the popular expert has more
    monkeypatch.setattr(experts, "_KEPT", pl.KeptCalls())
    monkeypatch.setattr(experts, "_KNOWN", pl.KeptCalls())
    tokens, weights, found = normal(20, 40, 64), normal(21, 40, 3), []
    up, down, bias = normal(22, MANY, 64, 2 * inner), normal(23, MANY, inner, 64), normal(24, MANY, 2 * inner)
    ids = np.random.default_rng(25).integers(0, MANY, (40, 3))
    ids[:37, 1] = 5
    for threads in ("1", "2", "64"):
        monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
        with pl.executor("cpu"):
            out, pullback = moe_mlp_vjp(tokens, ids, weights, up, down, activation=activation, gate_up_bias=bias)
            again = moe_mlp(tokens, ids, weights, up, down, activation=activation, gate_up_bias=bias)
        found.append([out, again, *(each for each in pullback(tokens) if each is not None)])
    assert_close(found[0][1], reference(tokens, ids, weights, up, down, activation, bias))
    for one, other in zip(found[0] * 2, [*found[1], *found[2]], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_token_may_go_through_one_expert_twice_and_through_none():
    ids = np.full((T, K), E + 3)
    assert not moe_mlp(TOKENS, ids, WEIGHTS, UP, DOWN).any()
    assert not moe_mlp(TOKENS, -ids, WEIGHTS, UP, DOWN).any()
    ids[4] = 1
    assert_close(moe_mlp(TOKENS, ids, WEIGHTS, UP, DOWN), reference(TOKENS, ids, WEIGHTS, UP, DOWN))


def test_one_staged_layer_serves_any_number_of_tokens_up_to_a_power_of_two():
    moe_mlp(normal(0, 16, H), np.zeros((16, K), int), np.ones((16, K), np.float32), UP, DOWN)
    before = CALLS.prepared
    assert_close(moe_mlp(TOKENS, IDS, WEIGHTS, UP, DOWN), reference(TOKENS, IDS, WEIGHTS, UP, DOWN))
    assert CALLS.prepared == before


def test_many_tokens_are_done_in_parts(monkeypatch):
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * H * 4)
    tokens, ids, weights = normal(8, 37, H), np.arange(74).reshape(37, 2) % E, normal(9, 37, 2)
    out = np.empty((37, H), np.float32)
    assert moe_mlp(tokens, ids, weights, UP, DOWN, out=out) is out
    assert_close(out, reference(tokens, ids, weights, UP, DOWN))


def test_tensors_give_tensors():
    given = [torch.from_numpy(each) for each in (TOKENS, IDS, WEIGHTS, UP, DOWN)]
    out = moe_mlp(*given)
    assert isinstance(out, torch.Tensor)
    assert_close(out.numpy(), reference(TOKENS, IDS, WEIGHTS, UP, DOWN))


def test_no_tokens_give_no_rows_and_no_inner_size_zeros():
    none = moe_mlp(TOKENS[:0], IDS[:0], WEIGHTS[:0], UP, DOWN)
    assert none.shape == (0, H)
    assert not moe_mlp(TOKENS, IDS, WEIGHTS, UP[:, :, :0], DOWN[:, :0]).any()


# Gradients.


def derivative(function, x, grad):
    """The gradient of `sum(function(x) * grad)` by central differences."""
    found = np.zeros_like(x)
    for n in range(len(x)):
        step = np.zeros_like(x)
        step[n] = 1e-6
        found[n] = ((function(x + step) - function(x - step)) * grad).sum() / 2e-6
    return found


def gradients(grad_out, tokens, ids, weights, up, down, activation="swiglu", up_bias=None, down_bias=None):
    """In float64: of tokens, weights, matrices and biases, as `moe_mlp_vjp` names them."""
    names = "tokens", "expert_weights", "gate_up", "down", "gate_up_bias", "down_bias"
    up_bias = np.zeros((len(up), up.shape[2])) if up_bias is None else up_bias
    down_bias = np.zeros((len(down), down.shape[2])) if down_bias is None else down_bias
    given = [np.asarray(each).astype(np.float64) for each in (tokens, weights, up, down, up_bias, down_bias)]
    tokens, weights, up, down, up_bias, down_bias = given
    found = {name: np.zeros_like(each) for name, each in zip(names, given, strict=True)}
    act = REFERENCES[activation]
    for token, place in itertools.product(range(len(tokens)), range(ids.shape[1])):
        expert, grad = ids[token, place], np.asarray(grad_out[token]).astype(np.float64)
        if not 0 <= expert < len(up):
            continue
        before = tokens[token] @ up[expert] + up_bias[expert]
        found["expert_weights"][token, place] = (act(before) @ down[expert] + down_bias[expert]) @ grad
        grad = grad * weights[token, place]
        found["down"][expert] += np.outer(act(before), grad)
        found["down_bias"][expert] += grad
        grad = derivative(act, before, down[expert] @ grad)
        found["gate_up"][expert] += np.outer(tokens[token], grad)
        found["gate_up_bias"][expert] += grad
        found["tokens"][token] += up[expert] @ grad
    return found


def assert_gradients(found, expected, tolerance=1e-6):
    for name, gradient in zip(found._fields, found, strict=True):
        if gradient is not None:
            assert_close(np.asarray(gradient), expected[name], tolerance)


GRAD = normal(10, T, H)


@pytest.mark.parametrize("activation", REFERENCES)
def test_gradients_are_those_of_the_layer_token_by_token(activation, request):
    compiled = "cpu" in request.node.callspec.id.split("-")
    if compiled and activation != "gpt_oss":
        return  # the others differ in the activation alone, whose operations are compiled elsewhere
    up, down, up_bias, down_bias = matrices(activation)
    up = up / 2  # inside and outside of the bounds of the clamped activation
    biases = {"gate_up_bias": up_bias, "down_bias": down_bias}
    out, pullback = moe_mlp_vjp(TOKENS, IDS, WEIGHTS, up, down, activation=activation, **biases)
    assert_close(out, reference(TOKENS, IDS, WEIGHTS, up, down, activation, up_bias, down_bias))
    found = pullback(GRAD)
    assert {gradient.dtype for gradient in found} == {np.dtype(np.float32)}
    assert_gradients(found, gradients(GRAD, TOKENS, IDS, WEIGHTS, up, down, activation, up_bias, down_bias))


def test_activations_of_float64_are_computed_in_float64():
    x = normal(11, T, H).astype(np.float64)
    (slope,) = ACTIVATIONS["gelu"].derivative(x, np.ones_like(x))
    assert_close(ACTIVATIONS["gelu"].function(x), gelu(x), 1e-15)
    assert_close(slope, gelu(x) / x + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), 1e-15)


def test_gradients_of_transposed_bfloat16_matrices():
    tokens, up, down, grad = (each.astype(ml_dtypes.bfloat16) for each in (TOKENS, UP, DOWN, GRAD))
    flipped = [np.ascontiguousarray(each.swapaxes(1, 2)) for each in (up, down)]
    found = moe_mlp_vjp(tokens, IDS, WEIGHTS, *flipped, transposed=True)[1](grad)
    assert found.gate_up_bias is None and found.down_bias is None
    found = found._replace(gate_up=found.gate_up.swapaxes(1, 2), down=found.down.swapaxes(1, 2))
    assert_gradients(found, gradients(grad, tokens, IDS, WEIGHTS, up, down), 1e-2)


def test_gradients_of_experts_with_more_rows_than_a_tile_and_with_none(monkeypatch):
    monkeypatch.setattr(experts, "SMALL_ROWS", 16)
    tokens, ids, weights, grad = normal(7, 40, H), np.zeros((40, 1), np.int64), normal(8, 40, 1), normal(9, 40, H)
    ids[3:7], ids[9] = 2, -4
    found = moe_mlp_vjp(tokens, ids, weights, UP, DOWN)[1](grad)
    assert not found.gate_up[1].any() and not found.down[3].any()
    assert_gradients(found, gradients(grad, tokens, ids, weights, UP, DOWN))


@pytest.mark.one_executor
def test_gradients_have_the_same_bits_on_any_number_of_threads(monkeypatch):
    up, down, found = normal(11, E, H, 96), normal(12, E, 96, H), []
    for threads in ("1", "3"):
        monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
        with pl.executor("cpu"):
            found.append(moe_mlp_vjp(TOKENS, IDS, WEIGHTS, up, down, activation="relu")[1](GRAD)[:4])
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


def test_gradients_of_many_tokens_are_staged_for_a_few_sizes(monkeypatch):
    monkeypatch.setattr(staging, "STAGED_BYTES", 16 * H * 4)
    before = None
    for t in (36, 35, 33):
        tokens, ids, weights = normal(t, t, H), np.arange(t)[:, None] % E, np.ones((t, 1), np.float32)
        out, pullback = moe_mlp_vjp(tokens, ids, weights, UP, DOWN)
        found = pullback(tokens)
        assert_close(out, reference(tokens, ids, weights, UP, DOWN))
        assert found.tokens.shape == (t, H) and found.expert_weights.shape == (t, 1)
        assert before is None or CALLS.prepared == before
        before = CALLS.prepared


def test_gradients_of_nothing_are_zeros():
    out, pullback = moe_mlp_vjp(TOKENS[:0], IDS[:0], WEIGHTS[:0], UP, DOWN)
    found = pullback(out)
    assert found.tokens.shape == (0, H) and found.expert_weights.shape == (0, K)
    assert found.gate_up.shape == UP.shape and not found.gate_up.any() and not found.down.any()


def test_a_gradient_of_another_shape_or_dtype_is_refused():
    out, pullback = moe_mlp_vjp(TOKENS, IDS, WEIGHTS, UP, DOWN)
    with pytest.raises(pl.PalladioValueError) as raised:
        pullback(out[1:])
    message = "grad_out: does not go with the other arrays\n  expected: (9, 32)\n  got:      (8, 32)"
    assert str(raised.value).startswith(message)
    with pytest.raises(pl.PalladioTypeError) as raised:
        pullback(out.astype(np.float64))
    message = "grad_out: not the dtype of the result\n  expected: float32\n  got:      float64"
    assert str(raised.value).startswith(message)


WRONG = {
    "an activation": (
        {"activation": "tanh"},
        "activation: no such activation\n  expected: swiglu, geglu, gpt_oss, silu, gelu, relu\n  got:      'tanh'",
    ),
    "a misspelt activation": (
        {"activation": "swigelu"},
        "activation: no such activation\n  expected: swiglu, geglu, gpt_oss, silu, gelu, relu\n"
        "  got:      'swigelu'\n  hint:     did you mean swiglu?",
    ),
    "an odd number of columns": (
        {"gate_up": UP[:, :, 1:]},
        "gate_up: a gated activation takes two columns for each of the results\n"
        "  expected: an even number of columns\n  got:      31",
    ),
    "no experts": ({"gate_up": UP[:0]}, "gate_up: at least one expert is needed\n  got:      (0, 32, 32)"),
    "another inner size": (
        {"down": DOWN[:, 1:]},
        "down: does not go with the other arrays\n  expected: (4, 16, 32)\n  got:      (4, 15, 32)",
    ),
    "a bias of another size": (
        {"down_bias": DOWN[:, 0, 1:]},
        "down_bias: does not go with the other arrays\n  expected: (4, 32)\n  got:      (4, 31)",
    ),
    "experts of other tokens": (
        {"expert_ids": IDS[1:]},
        "expert_ids: not the experts of each token\n  expected: [9, k]\n  got:      (8, 2)",
    ),
    "weights of other tokens": (
        {"expert_weights": WEIGHTS[1:]},
        "expert_weights: does not go with the other arrays\n  expected: (9, 2)\n  got:      (8, 2)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name):
    changed, message = WRONG[name]
    given = {"tokens": TOKENS, "expert_ids": IDS, "expert_weights": WEIGHTS, "gate_up": UP, "down": DOWN} | changed
    with pytest.raises(pl.PalladioError) as raised:
        moe_mlp(**given)
    assert str(raised.value).startswith(message)


def test_a_staged_function_has_no_assignments_to_sort():
    layer = pl.jit(lambda tokens: moe_mlp(tokens, IDS, WEIGHTS, UP, DOWN))
    with pytest.raises(pl.PalladioTypeError, match="are sorted before anything is staged, and must be known"):
        layer(TOKENS)


def test_a_call_like_an_earlier_one_is_not_checked_again(monkeypatch):
    up, down = normal(3, E, H, 2 * INNER), normal(4, E, INNER, H)
    moe_mlp(TOKENS, IDS, WEIGHTS, up, down)
    checked = []
    monkeypatch.setattr(
        experts, "expert_call", lambda *given, own=experts.expert_call: checked.append(1) or own(*given)
    )
    ids, weights, tokens = np.roll(IDS, 1), WEIGHTS[::-1], normal(5, T, H)
    out = np.empty_like(tokens)
    found = moe_mlp(tokens, ids, weights, up, down, out=out)
    assert found is out and not checked
    assert_close(found, reference(tokens, ids, weights, up, down))
    moe_mlp(tokens, ids, weights, up, down, activation="geglu")
    moe_mlp(tokens[:5], ids[:5], weights[:5], up, down)
    moe_mlp(tokens, ids, weights, up, down, down_bias=normal(6, E, H))
    assert len(checked) == 3
    with pytest.raises(pl.PalladioTypeError, match="expert_ids"):
        moe_mlp(tokens, ids.astype(np.float32), weights, up, down)


def test_ids_of_8_bits_may_name_none_of_more_experts_than_they_can_name():
    tokens, up, down = normal(0, 3, 8), normal(1, 130, 8, 8), normal(2, 130, 4, 8)
    ids = np.array([[-1, 3], [127, -128], [0, 1]], np.int8)
    found = moe_mlp(tokens, ids, WEIGHTS[:3], up, down)
    assert_close(found, reference(tokens, ids, WEIGHTS[:3], up, down))
