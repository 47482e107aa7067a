"""Activations and what goes with them, with the names and formulas of `jax.nn`. Integers become float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type
from palladio.array.functions.arithmetic import add, divide, maximum, minimum, multiply, negative, subtract
from palladio.array.functions.compare import equal, greater, where
from palladio.array.functions.creation import arange
from palladio.array.functions.math import exp, expm1, log, log1p, tanh
from palladio.array.functions.reduce import as_array, max, sum
from palladio.array.functions.shape import expand_dims
from palladio.ops.arrays import math as ops
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike

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


def _floats(x: ArrayLike) -> Array:
    x = as_array(x)
    return x if dtypes.is_float(array_type(x).dtype) else convert.cast(x, dtypes.FLOAT32)


def relu(x: ArrayLike) -> Array:
    """`max(x, 0)`."""
    return maximum(x, 0)


def relu6(x: ArrayLike) -> Array:
    """`min(max(x, 0), 6)`."""
    return minimum(maximum(x, 0), 6)


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """`x` where it is positive or 0, else `negative_slope * x`."""
    x = _floats(x)
    return where(greater(x, 0) | equal(x, 0), x, multiply(x, negative_slope))


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """`x` where it is positive, else `alpha * (exp(x) - 1)`."""
    x = _floats(x)
    safe = where(greater(x, 0), multiply(x, 0), x)
    return where(greater(x, 0), x, multiply(expm1(safe), alpha))


def sigmoid(x: ArrayLike) -> Array:
    """`1 / (1 + exp(-x))`."""
    return divide(1.0, add(1.0, exp(negative(_floats(x)))))


def silu(x: ArrayLike) -> Array:
    """`x * sigmoid(x)`, also called `swish`."""
    x = _floats(x)
    return multiply(x, sigmoid(x))


swish = silu


def softplus(x: ArrayLike) -> Array:
    """`log(1 + exp(x))`, without overflow."""
    x = _floats(x)
    return add(maximum(x, 0), log1p(exp(negative(maximum(x, negative(x))))))


def log_sigmoid(x: ArrayLike) -> Array:
    """`log(sigmoid(x))`."""
    return negative(softplus(negative(_floats(x))))


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """`x` times the normal distribution function of `x`; with `approximate` by tanh.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, section 2.
    """
    x = _floats(x)
    if approximate:
        cubic = add(x, multiply(0.044715, multiply(x, multiply(x, x))))
        return multiply(x, multiply(0.5, add(1.0, tanh(multiply(math.sqrt(2 / math.pi), cubic)))))
    return multiply(multiply(0.5, x), convert.call(ops.erfc, divide(negative(x), math.sqrt(2))))


def logsumexp(a: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Array:
    """`log(sum(exp(a)))` along axes, without overflow."""
    a = _floats(a)
    largest = max(a, axis, keepdims=True)
    largest = where(greater(multiply(largest, 0), -1), largest, 0)  # 0 for infinite values
    total = add(log(sum(exp(subtract(a, largest)), axis, keepdims=True)), largest)
    return total if keepdims else sum(total, axis)  # of one element


def softmax(x: ArrayLike, axis: int | tuple[int, ...] | None = -1) -> Array:
    """`exp(x) / sum(exp(x))` along axes."""
    x = _floats(x)
    powers = exp(subtract(x, max(x, axis, keepdims=True)))
    return divide(powers, sum(powers, axis, keepdims=True))


def log_softmax(x: ArrayLike, axis: int | tuple[int, ...] | None = -1) -> Array:
    """`log(softmax(x))` along axes."""
    x = _floats(x)
    shifted = subtract(x, max(x, axis, keepdims=True))
    return subtract(shifted, log(sum(exp(shifted), axis, keepdims=True)))


def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike = np.float32, axis: int = -1) -> Array:
    """`dtype[..., num_classes]` that is 1 where the new axis has the index `x`, else 0.

    Args:
        x: integers; those outside give zeros.
        axis: the place of the new axis in the result.
    """
    place = normalize_axis(axis, array_type(x).ndim + 1)
    ndim = array_type(x).ndim + 1
    classes = convert.cast(arange(num_classes), array_type(x).dtype)
    shape = tuple(num_classes if n == place else 1 for n in range(ndim))
    return convert.cast(equal(expand_dims(x, place), classes.reshape(shape)), dtypes.canonical(dtype))
