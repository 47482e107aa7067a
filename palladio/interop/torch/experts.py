"""The expert layer of a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from palladio.base.errors import PalladioValueError, at_call
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


def moe_mlp(
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    activation: str | Activation = "swiglu",
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    transposed: bool = False,
    after: Activation | None = None,
    interpret: Any = None,
) -> Tensor:
    """The expert layer: each token goes through its experts, whose results are added up by weight; differentiable.

    Args:
        tokens: `dtype[t, h]`.
        expert_ids: `i64[t, k]`, the experts of each token. An id from `e` on is an expert elsewhere and adds nothing.
        expert_weights: `dtype[t, k]`.
        up: `dtype[e, h, 2 i]` for gated activations, whose halves are the gate and what it multiplies; `dtype[e, h, i]`
            for others. With `transposed` the last two axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: "swiglu", "geglu", "gpt_oss" (clamped; gate and up alternate), "relu", "silu", "gelu", or a function
            from the result of `up` to the input of `down`.
        up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        after: applied to the rows that leave an expert, before they are weighted.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `dtype[t, h]`.

    Raises:
        PalladioValueError: for an activation that is not known.
        PalladioError: as `gmm`.
    """
    if isinstance(activation, str) and activation not in ACTIVATIONS:
        with at_call():
            raise PalladioValueError(
                "no such activation", argument="activation", expected=", ".join(ACTIVATIONS), got=repr(activation)
            )
    act = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    experts, each = up.shape[0], expert_ids.shape[1]
    ids, order = torch.sort(expert_ids.reshape(-1), stable=True)
    ends = torch.searchsorted(ids, torch.arange(experts, device=ids.device), right=True)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1)).to(torch.int32)
    weights = expert_weights.reshape(-1)[order]
    weights = torch.where(ids < experts, weights, torch.zeros_like(weights))

    def product(rows: Tensor, matrices: Tensor, bias: Tensor | None) -> Tensor:
        out = gmm(rows, matrices, sizes, rows.dtype, transpose_rhs=transposed, interpret=interpret)
        return out if bias is None else out + bias[ids.clamp(max=experts - 1)]

    hidden = act(product(tokens[order // each], up, up_bias))
    out = product(hidden, down, down_bias)
    if after is not None:
        out = after(out)
    out = out * weights[:, None]
    back = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0], device=order.device))
    return out[back].view(*expert_ids.shape, out.shape[-1]).sum(dim=1).to(tokens.dtype)
