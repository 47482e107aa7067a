"""Activations and what goes with them, with the names of `jax.nn`, in kernels and outside.

from palladio import nn
"""

from palladio.array.functions.activations import (
    elu,
    gelu,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    logsumexp,
    one_hot,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
    swish,
    tanh,
)

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "one_hot",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swish",
    "tanh",
]
