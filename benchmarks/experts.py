"""The expert layer of a mixture of experts in PyTorch, beside the same layer of Transformers.

Sizes are those of Qwen3-MoE, scaled: 128 experts of 1024 × 384, each token with 8 of them, by skewed popularity.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import inputs
from benchmarks.measure import OURS, Comparison, Contender, goal
from benchmarks.torch_peers import Result

Array = np.ndarray[Any, Any]

GROUPED = "Transformers, grouped_mm"
COMPOSED = "Palladio, gmm among PyTorch's functions"
EXPERTS, HIDDEN, INNER, CHOICES = 128, 1024, 384, 8


def layer(tokens: int, backward: bool, floor: float) -> Comparison:
    """Forward, or forward and backward, in float32; the result is the output, or the gradient of the tokens."""
    import torch
    from transformers.integrations import moe

    from palladio.interop.torch import moe_mlp
    from palladio.interop.torch.composed_experts import composed

    x, grad, up, down = inputs.normal(
        (tokens, HIDDEN), (tokens, HIDDEN), (EXPERTS, 2 * INNER, HIDDEN), (EXPERTS, HIDDEN, INNER)
    )
    ids, weights = _chosen(tokens)
    given = [torch.from_numpy(each).requires_grad_(backward) for each in (x, weights, up / 32, down / 32)]
    x_tensor, weight_tensor, up_tensor, down_tensor = given
    id_tensor, grad_tensor = torch.from_numpy(ids), torch.from_numpy(grad)
    module = SimpleNamespace(
        num_experts=EXPERTS,
        gate_up_proj=up_tensor,
        down_proj=down_tensor,
        has_gate=True,
        has_bias=False,
        is_transposed=False,
        has_post_expert_norm=False,
        _is_expert_parallel=False,
        act_fn=torch.nn.SiLU(),
    )
    module._apply_gate = lambda values: moe._default_apply_gate(module, values)
    matrices = up_tensor, down_tensor

    def contender(name: str, run: Callable[[], Any]) -> Contender:
        def measured() -> Any:
            out = run()
            return Result(torch.autograd.grad(out, given, grad_tensor)[0] if backward else out.detach())

        return Contender(name, measured, 5 if tokens < 1024 else 2)

    contenders = [
        contender(OURS, lambda: moe_mlp(x_tensor, id_tensor, weight_tensor, *matrices, transposed=True)),
        contender(GROUPED, lambda: moe.grouped_mm_experts_forward(module, x_tensor, id_tensor, weight_tensor)),
        contender(
            COMPOSED,
            lambda: composed(x_tensor, id_tensor, weight_tensor, *matrices, None, None, "swiglu", True, None),
        ),
    ]
    out, x_gradient = _expected(x, ids, weights, up / 32, down / 32, grad)
    name = f"expert layer, {tokens} tokens, {EXPERTS} experts of {HIDDEN}×{INNER}, top {CHOICES}, "
    operations = 2 * tokens * CHOICES * 3 * HIDDEN * INNER * (3 if backward else 1)
    name += "forward and backward" if backward else "forward"
    return Comparison(name, contenders, x_gradient if backward else out, 1e-5, operations, goal(GROUPED, floor))


def _chosen(tokens: int) -> tuple[Array, Array]:
    """The experts of each token and their weights, by a popularity drawn from Dirichlet(2)."""
    draw = np.random.default_rng(inputs.SEED)
    scores = draw.gumbel(size=(tokens, EXPERTS)) + np.log(draw.dirichlet(np.full(EXPERTS, 2.0)))
    ids = np.argsort(-scores, axis=1)[:, :CHOICES].copy()
    weights = np.exp(np.take_along_axis(scores, ids, axis=1))
    return ids, (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _expected(x: Array, ids: Array, weights: Array, up: Array, down: Array, grad: Array) -> tuple[Array, Array]:
    """The result and the gradient of the tokens in float64, expert by expert."""
    x, grad = x.astype(np.float64), grad.astype(np.float64)
    out, x_gradient = np.zeros_like(x), np.zeros_like(x)
    for expert in range(EXPERTS):
        token, place = np.nonzero(ids == expert)
        if not len(token):
            continue
        weight = weights[token, place][:, None].astype(np.float64)
        first, second = up[expert].astype(np.float64), down[expert].astype(np.float64)
        gate, other = np.split(x[token] @ first.T, 2, axis=1)
        share = 1 / (1 + np.exp(-gate))
        np.add.at(out, token, weight * ((gate * share * other) @ second.T))
        inner = weight * grad[token] @ second
        both = [inner * other * share * (1 + gate * (1 - share)), inner * gate * share]
        np.add.at(x_gradient, token, np.concatenate(both, axis=1) @ first)
    return out, x_gradient


CASES = {
    f"experts-{tokens}{suffix}": (lambda tokens=tokens, backward=backward: layer(tokens, backward, 1.3))
    for tokens in (16, 256, 4096)
    for backward, suffix in ((False, ""), (True, "-gradients"))
}
