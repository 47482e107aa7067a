"""The reverse derivative of each operation that has one: from the gradient of its result to those of its inputs.

A rule takes the equation, the values of its inputs and of its result, and the gradient of the result, `dtype[shape]` of
the result. It returns one gradient for each input, or None where there is none. A gradient may have the shape of the
result where the input is a scalar, and another float dtype than the input: `fitted` adds it up and converts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio import lax
from palladio.ir.bind import bind
from palladio.ir.core import Eqn
from palladio.ops.references.memory import extract, insert
from palladio.types.types import ArrayType

Rule = Callable[[Eqn, Sequence[Any], Any, Any], Sequence[Any]]


def fitted(gradient: Any, type: ArrayType) -> Any:
    """A gradient in the shape and the dtype of the value that it belongs to."""
    if gradient.shape != type.shape:
        gradient = jnp.sum(gradient)
    return gradient.astype(type.dtype)


def _slope(derivative: Callable[[Any, Any], Any]) -> Rule:
    """The rule of an elementwise operation, from its derivative as a function of the element and the result."""
    return lambda eqn, inputs, out, g: [g * derivative(inputs[0], out)]


def _none(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    """The rule of a step function."""
    return [None] * len(inputs)


def _extremum(wins: Callable[[Any, Any], Any]) -> Rule:
    """The rule of the greater or lesser of two: that operand gets the gradient, and two equal ones share it."""

    def rule(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
        x, y = inputs
        share = jnp.where(x == y, 0.5, 1.0).astype(g.dtype) * g
        return [jnp.where(wins(y, x), 0, share), jnp.where(wins(x, y), 0, share)]

    return rule


def _pow(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    x, y = inputs
    safe = jnp.where(x > 0, x, 1)
    return [g * y * jnp.power(x, jnp.where(y == 0, 1, y - 1)), jnp.where(x > 0, g * out * jnp.log(safe), 0)]


def _integer_pow(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [g * eqn.y * lax.integer_pow(inputs[0], eqn.y - 1) if eqn.y else None]


def _clamp(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    low, x, high = inputs
    return [jnp.where(x < low, g, 0), jnp.where((x >= low) & (x <= high), g, 0), jnp.where(x > high, g, 0)]


def _select(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [None, jnp.where(inputs[0], g, 0), jnp.where(inputs[0], 0, g)]


def _kept(eqn: Eqn, value: Any) -> Any:
    """A result of a reduction in the shape of its operand, with the reduced axes of size 1."""
    shape = eqn.array.type.shape
    return jnp.reshape(value, tuple(1 if axis in eqn.axes else size for axis, size in enumerate(shape)))


def _sum(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [jnp.broadcast_to(_kept(eqn, g), eqn.array.type.shape)]


def _extreme_element(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    """All equal elements share the gradient."""
    found = (inputs[0] == _kept(eqn, out)).astype(g.dtype)
    return [found * _kept(eqn, g) / jnp.sum(found, axis=eqn.axes, keepdims=True)]


def _cumsum(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [lax.cumsum(g, axis=eqn.axis, reverse=not eqn.reverse)]


def _broadcast(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    shape = eqn.array.type.shape
    repeated = [axis for axis, size in zip(eqn.axes, shape, strict=True) if size != eqn.shape[axis]]
    added = [axis for axis in range(len(eqn.shape)) if axis not in eqn.axes]
    return [jnp.reshape(jnp.sum(g, axis=(*added, *repeated)), shape)]


def _reshape(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [jnp.reshape(g, eqn.array.type.shape)]


def _transpose(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    return [jnp.transpose(g, tuple(np.argsort(eqn.permutation).tolist()))]


def _concatenate(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    stops = np.cumsum([atom.type.shape[eqn.axis] for atom in eqn.inputs]).tolist()
    return jnp.split(g, stops[:-1], axis=eqn.axis)  # type: ignore[no-any-return]


def _pad(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    undone = [(-before, -after, 0) for before, after, _ in eqn.padding]
    whole = lax.pad(g, 0, undone)
    own = whole[tuple(slice(None, None, between + 1) for _, _, between in eqn.padding)]
    return [own, jnp.sum(g) - jnp.sum(own)]


def _extract(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    array, *indices = inputs
    zeros = jnp.zeros(eqn.array.type.shape, g.dtype)
    return [*bind(insert, zeros, g, *indices, transforms=eqn.transforms, kind="add"), *[None] * len(indices)]


def _insert(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any] | None:
    """The rule of a replacement or of an addition; of other combinations there is none."""
    _, value, *indices = inputs
    (own,) = bind(extract, g, *indices, transforms=eqn.transforms)
    if eqn.kind == "set":
        zeros = jnp.zeros(eqn.value.type.shape, g.dtype)
        (g,) = bind(insert, g, zeros, *indices, transforms=eqn.transforms, kind="set")
    elif eqn.kind != "add":
        return None
    return [g, own, *[None] * len(indices)]


def _dot(eqn: Eqn, inputs: Sequence[Any], out: Any, g: Any) -> Sequence[Any]:
    """Each gradient is the product of that of the result and the other factor, its axes put in order."""
    sides = []
    for mine, other in ((0, 1), (1, 0)):
        batch = len(eqn.batch[0])
        free = [_free(eqn, side) for side in (0, 1)]
        first = batch + (len(free[0]) if mine == 0 else 0)
        over = tuple(range(first, first + len(free[other])))
        dims = ((over, free[other]), (tuple(range(batch)), eqn.batch[other]))
        product = lax.dot_general(g, inputs[other], dims, preferred_element_type=eqn.inputs[mine].type.dtype)
        # The product's axes: batch, own free ones, then the contracted ones in the other factor's order.
        contracted = dict(zip(eqn.contracting[other], eqn.contracting[mine], strict=True))
        places = (*eqn.batch[mine], *free[mine], *(contracted[axis] for axis in sorted(contracted)))
        sides.append(jnp.transpose(product, tuple(np.argsort(places).tolist())))
    return sides


def _free(eqn: Eqn, side: int) -> tuple[int, ...]:
    """The free axes of a factor: neither contracted nor batch axes."""
    taken = (*eqn.contracting[side], *eqn.batch[side])
    return tuple(axis for axis in range(len(eqn.inputs[side].type.shape)) if axis not in taken)


RULES: dict[str, Rule] = {
    "abs": _slope(lambda x, out: jnp.sign(x)),
    "add": lambda eqn, inputs, out, g: [g, g],
    "broadcast": _broadcast,
    "cbrt": _slope(lambda x, out: 1 / (3 * out * out)),
    "ceil": _none,
    "clamp": _clamp,
    "concatenate": _concatenate,
    "convert": lambda eqn, inputs, out, g: [g],
    "cos": _slope(lambda x, out: -jnp.sin(x)),
    "cosh": _slope(lambda x, out: jnp.sinh(x)),
    "cumsum": _cumsum,
    "div": lambda eqn, inputs, out, g: [g / inputs[1], -g * out / inputs[1]],
    "dot_general": _dot,
    "erf": _slope(lambda x, out: 2 / math.sqrt(math.pi) * jnp.exp(-x * x)),
    "exp": _slope(lambda x, out: out),
    "exp2": _slope(lambda x, out: math.log(2) * out),
    "expm1": _slope(lambda x, out: out + 1),
    "extract": _extract,
    "floor": _none,
    "insert": _insert,  # type: ignore[dict-item]
    "integer_pow": _integer_pow,
    "log": _slope(lambda x, out: 1 / x),
    "log1p": _slope(lambda x, out: 1 / (1 + x)),
    "logistic": _slope(lambda x, out: out * (1 - out)),
    "max": _extremum(jnp.greater),
    "min": _extremum(jnp.less),
    "mul": lambda eqn, inputs, out, g: [g * inputs[1], g * inputs[0]],
    "neg": lambda eqn, inputs, out, g: [-g],
    "pad": _pad,
    "pow": _pow,
    "reduce_max": _extreme_element,
    "reduce_min": _extreme_element,
    "reduce_sum": _sum,
    "reshape": _reshape,
    "reverse": lambda eqn, inputs, out, g: [lax.rev(g, eqn.axes)],
    "round": _none,
    "rsqrt": _slope(lambda x, out: -0.5 * out / x),
    "select": _select,
    "sign": _none,
    "sin": _slope(lambda x, out: jnp.cos(x)),
    "sinh": _slope(lambda x, out: jnp.cosh(x)),
    "sqrt": _slope(lambda x, out: 0.5 / out),
    "sub": lambda eqn, inputs, out, g: [g, -g],
    "tan": _slope(lambda x, out: 1 + out * out),
    "tanh": _slope(lambda x, out: 1 - out * out),
    "transpose": _transpose,
}
"""Operation -> its rule. Comparisons and operations on integers and bits propagate no gradient: never looked up."""
