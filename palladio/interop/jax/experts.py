"""The expert layer of a mixture of experts on JAX arrays: `gmm` with JAX's own functions around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from palladio.base.errors import at_call
from palladio.interop.jax.functions import gmm
from palladio.library.checks import expert_shapes

Array = Any


def _halves(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def gated(x: Array) -> Array:
        gate, up = jnp.split(x, 2, axis=-1)
        return function(gate) * up

    return gated


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _clamped(x: Array) -> Array:
    """GPT-OSS: gate and up alternate, both bounded by 7, and the gate is x sigmoid(1.702 x)."""
    gate, up = jnp.minimum(x[..., ::2], 7), jnp.clip(x[..., 1::2], -7, 7)
    return (up + 1) * gate * jax.nn.sigmoid(1.702 * gate)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swiglu": _halves(jax.nn.silu),
    "geglu": _halves(_gelu),
    "gpt_oss": _clamped,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": _gelu,
}
"""From `[rows, 2 i]` (gated) or `[rows, i]` to `[rows, i]`."""


def moe_mlp(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    *,
    activation: str = "swiglu",
    gate_up_bias: Array | None = None,
    down_bias: Array | None = None,
    transposed: bool = False,
    interpret: Any = None,
) -> Array:
    """`palladio.library.moe_mlp`, differentiable in all arrays but the ids: two `gmm` of the sorted tokens.

    Args:
        tokens, expert_ids, expert_weights, gate_up, down, activation, gate_up_bias, down_bias, transposed, interpret:
            as in `palladio.library.moe_mlp`; the ids may be traced.

    Returns:
        `dtype[t, h]`, of the dtype of `tokens`.

    Raises:
        PalladioError: as `palladio.library.moe_mlp`.
    """
    ids, biases = jnp.asarray(expert_ids), (gate_up_bias, down_bias)
    with at_call():
        shapes = expert_shapes(tokens, ids, expert_weights, gate_up, down, activation, biases, transposed)
    experts, dtype = shapes.experts, tokens.dtype
    numbers = ids.reshape(-1)
    numbers = jnp.where((numbers < 0) | (numbers >= experts), experts, numbers)
    order = jnp.argsort(numbers, stable=True)
    own = numbers[order]
    sizes = jnp.bincount(numbers, length=experts + 1)[:experts].astype(jnp.int32)
    weights = jnp.where(own < experts, expert_weights.reshape(-1)[order], 0)

    def product(rows: Array, matrices: Array, bias: Array | None) -> Array:
        out = gmm(rows, matrices, sizes, dtype, transpose_rhs=transposed, interpret=interpret)
        return out if bias is None else out + bias[jnp.minimum(own, experts - 1)]

    hidden = ACTIVATIONS[activation](product(tokens[order // shapes.each], gate_up, gate_up_bias))
    out = product(hidden.astype(dtype), down, down_bias) * weights[:, None]
    back = jnp.zeros_like(order).at[order].set(jnp.arange(len(order)))
    return out[back].reshape(*ids.shape, shapes.h).sum(axis=1).astype(dtype)
