"""The expert layer of a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from palladio.base.errors import PalladioValueError, at_call
from palladio.interop.extras import executor_name
from palladio.interop.torch import operators
from palladio.interop.torch.derivatives import is_transformed, nothing_watches
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


def _is_one_kernel(arrays: Sequence[Tensor | None]) -> bool:
    """True if the library's own layer computes this: it has no gradient."""
    tensors = [each for each in arrays if each is not None]
    floats = {each.dtype for each in tensors if each.is_floating_point()} - {tensors[2].dtype}
    if floats - {tensors[0].dtype} or torch.is_autocast_enabled("cpu") or is_transformed():
        return False
    if torch.compiler.is_compiling():
        return all(each.is_cpu for each in tensors) and not (
            torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        )
    return nothing_watches(tensors)


def _in_kernels(*args: Any) -> Tensor:
    """The operator, or directly its implementation, which has less overhead."""
    out: Tensor = (operators.moe_mlp if torch.compiler.is_compiling() else operators.moe_mlp._init_fn)(*args)
    return out


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

    Where no gradient is asked for and the activation has a name, it is `palladio.library.moe_mlp`, which permutes no
    tokens in memory; otherwise `gmm` with PyTorch's own functions around it.

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
    arrays = (tokens, expert_ids, expert_weights, up, down, up_bias, down_bias)
    if isinstance(activation, str) and after is None and _is_one_kernel(arrays):
        return _in_kernels(*arrays, activation, bool(transposed), executor_name(interpret))
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
