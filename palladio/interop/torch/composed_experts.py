"""The expert layer as `gmm` with PyTorch's own functions around it, which differentiates to any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from palladio.interop.torch.derivatives import is_of_8_bits, widened
from palladio.interop.torch.functions import gmm

Tensor = torch.Tensor
Activation = Callable[[Tensor], Tensor]


def _halves(function: Callable[[Tensor], Tensor]) -> Activation:
    def gated(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return function(gate) * up

    return gated


def _clamped(x: Tensor) -> Tensor:
    """GPT-OSS: gate and up alternate, both bounded by 7, and the gate is x sigmoid(1.702 x)."""
    gate, up = x[..., ::2].clamp(max=7), x[..., 1::2].clamp(-7, 7)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


ACTIVATIONS: dict[str, Activation] = {
    "swiglu": _halves(torch.nn.functional.silu),
    "geglu": _halves(torch.nn.functional.gelu),
    "gpt_oss": _clamped,
    "relu": torch.nn.functional.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
}
"""From `[rows, 2 i]` (gated) or `[rows, i]` to `[rows, i]`."""


def composed(
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str | Activation,
    transposed: bool,
    interpret: Any,
    after: Activation | None = None,
) -> Tensor:
    """The layer; arguments as those of `moe_mlp`.

    PyTorch does not calculate with floats of 8 bits: only the operands of the products are of these, all else is in
    float32.
    """
    act = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    given, narrow = tokens.dtype, is_of_8_bits(tokens)
    if narrow:
        tokens, expert_weights = widened(tokens), widened(expert_weights)
        up_bias, down_bias = (None if each is None else widened(each) for each in (up_bias, down_bias))
    experts, each = up.shape[0], expert_ids.shape[1]
    numbers = expert_ids.flatten()
    ids, order = torch.sort(torch.where(numbers < 0, experts, numbers), stable=True)
    counts = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    counts = counts.scatter_add(0, ids.clamp(max=experts).long(), torch.ones_like(ids, dtype=torch.int32))
    sizes = counts[:experts]
    weights = expert_weights.flatten()[order]
    weights = torch.where(ids < experts, weights, torch.zeros_like(weights))

    def product(rows: Tensor, matrices: Tensor, bias: Tensor | None) -> Tensor:
        operand = rows.to(given) if narrow else rows
        out = gmm(operand, matrices, sizes, rows.dtype, transpose_rhs=transposed, interpret=interpret)
        return out if bias is None else out + bias[ids.clamp(max=experts - 1)]

    hidden = act(product(tokens[order // each], up, up_bias))
    out = product(hidden, down, down_bias)
    if after is not None:
        out = after(out)
    out = out * weights[:, None]
    back = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0], device=order.device))
    return out[back].view(*expert_ids.shape, out.shape[-1]).sum(dim=1).to(given)
