"""The activations between the two products of an expert, with their derivatives."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.numpy as jnp
from palladio import lax

Array = Any


@dataclass(frozen=True)
class Activation:
    """An activation function between the two products.

    Fields:
        function: a function of a gate and the value that it multiplies, or of one value.
        derivative: a function of these and the gradient of the result, which gives the gradient of each.
        gated: True if it takes a gate and a value, two results of the first product for each column.
        alternate: True if gates and values alternate along the columns; otherwise the gates are the first half.
    """

    function: Callable[..., Array]
    derivative: Callable[..., tuple[Array, ...]]
    gated: bool = True
    alternate: bool = False


def _silu(x: Array) -> Array:
    return x * lax.logistic(x)


def _silu_slope(x: Array) -> Array:
    share = lax.logistic(x)
    return share * (1 + x * (1 - share))


def _normal_share(x: Array) -> Array:
    """The cumulative distribution function of the standard normal distribution."""
    return 0.5 * (1 + lax.erf(x * 0.5**0.5))


def _gelu(x: Array) -> Array:
    return x * _normal_share(x)


def _gelu_slope(x: Array) -> Array:
    return _normal_share(x) + x * jnp.exp(-0.5 * x * x) * (2 * math.pi) ** -0.5


def _gated(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Activation:
    """`function(gate) * up`."""
    return Activation(
        lambda gate, up: function(gate) * up,
        lambda gate, up, grad: (grad * up * slope(gate), grad * function(gate)),
    )


def _plain(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Activation:
    return Activation(function, lambda x, grad: (grad * slope(x),), gated=False)


_BOUND, _STEEPNESS = 7, 1.702


def _gpt_oss(gate: Array, up: Array) -> Array:
    """The activation of Agarwal et al., "gpt-oss-120b & gpt-oss-20b Model Card" (2025): both are bounded by 7."""
    low = jnp.minimum(gate, _BOUND)
    return (jnp.clip(up, -_BOUND, _BOUND) + 1) * low * lax.logistic(_STEEPNESS * low)


def _gpt_oss_derivative(gate: Array, up: Array, grad: Array) -> tuple[Array, Array]:
    low = jnp.minimum(gate, _BOUND)
    share = lax.logistic(_STEEPNESS * low)
    slope = share * (1 + _STEEPNESS * low * (1 - share))
    of_gate = grad * (jnp.clip(up, -_BOUND, _BOUND) + 1) * slope
    inside = (up >= -_BOUND) & (up <= _BOUND)
    return jnp.where(gate <= _BOUND, of_gate, 0), jnp.where(inside, grad * low * share, 0)


ACTIVATIONS = {
    "swiglu": _gated(_silu, _silu_slope),
    "geglu": _gated(_gelu, _gelu_slope),
    "gpt_oss": Activation(_gpt_oss, _gpt_oss_derivative, alternate=True),
    "silu": _plain(_silu, _silu_slope),
    "gelu": _plain(_gelu, _gelu_slope),
    "relu": _plain(lambda x: jnp.maximum(x, 0), lambda x: jnp.where(x > 0, 1, 0).astype(x.dtype)),
}


def require_activation(name: Any) -> Activation:
    """The activation of a name.

    Raises:
        PalladioValueError: there is none.
    """
    if isinstance(name, str) and name in ACTIVATIONS:
        return ACTIVATIONS[name]
    close = difflib.get_close_matches(str(name).lower(), ACTIVATIONS, n=1)
    raise pl.PalladioValueError(
        "no such activation",
        argument="activation",
        expected=", ".join(ACTIVATIONS),
        got=repr(name),
        hint=f"did you mean {close[0]}?" if close else None,
        location=pl.caller_location(),
    )
