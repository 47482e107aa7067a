"""Row kernels of the expert layer: one block for each assignment, token, or expert.

    moe_activate             hidden[row] = activation(inputs[row])
    moe_combine              out[t] = sum of weight of a * rows[row of a] over the assignments of token t
    moe_activation_gradient  the gradients of the inputs of the activation and of the weights
    moe_bias_gradient        out[e] = sum of the rows of expert e

All are bound by memory. The threads of a warpgroup hold neighbouring elements of a row.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.activations import ACTIVATIONS, Activation
from palladio.library.checks import ExpertShapes

Ref = Any
Value = Any

HELD = 8192
"""The most columns that a warpgroup sums together, 64 in each thread."""

ACTIVATED = 2048
"""The most columns that pass through an activation together: each has several values in registers."""

SUMMED = 512
"""The most columns that a warpgroup sums over the rows of an expert."""

TOGETHER = 8
"""The number of those rows that are loaded before the first one is added."""


def _in_parts(columns: int, most: int, visit: Any) -> None:
    """Split columns into equal parts and call `visit` with the first column and the width of each."""
    width = columns if columns <= most else math.gcd(columns, most)

    @pl.loop(0, columns // width)
    def _(number: Value) -> None:
        visit(pl.multiple_of(number * width, width), width)


@dataclass(frozen=True)
class _Assignments:
    """References to the experts and rows of the assignments."""

    ids: Ref
    row_of: Ref
    experts: int

    def row(self, assignment: Value) -> tuple[Value, Value, Value]:
        """(there, expert, row) of an assignment: True, its expert and its row, if it is one of these; else zeros."""
        expert = self.ids[assignment]
        there = (expert >= 0) & (expert < self.experts)
        # The row of an assignment without an expert is uninitialised.
        row = jnp.clip(jnp.where(there, self.row_of[assignment], 0), 0, self.row_of.shape[0] - 1)
        return there, jnp.where(there, expert, 0).astype(jnp.int32), row


def _parts(act: Activation, columns: int, first: Value, count: int) -> list[Any]:
    """The slices of a row of inputs for the activation of some columns: gates and values."""
    if not act.gated:
        return [pl.ds(first, count)]
    if act.alternate:
        return [pl.ds(2 * first + half, count, 2) for half in range(2)]
    return [pl.ds(half * columns + first, count) for half in range(2)]


# The activation.


def _moe_activate_kernel(ids: Ref, row_of: Ref, inputs: Ref, out: Ref, *, activation: str, experts: int) -> None:
    """One block: one assignment."""
    act, columns = ACTIVATIONS[activation], out.shape[1]
    there, _, row = _Assignments(ids, row_of, experts).row(pl.axis_index("assignment"))

    def activate(first: Value, count: int) -> None:
        given = [inputs[row, part].astype(jnp.float32) for part in _parts(act, columns, first, count)]
        out[row, pl.ds(first, count)] = act.function(*given).astype(out.dtype)

    pl.when(there)(lambda: _in_parts(columns, ACTIVATED, activate))


def activate(shapes: ExpertShapes, activation: str, interpret: Any, present: Value | None = None) -> Any:
    """The launch, a function of ids, the row of each assignment, and the inputs of the activation.

    Args:
        present: the number of tokens that there are, i32[], at most `shapes.tokens`; None for all.
    """
    count = shapes.tokens * shapes.each
    return plgpu.kernel(
        functools.partial(_moe_activate_kernel, activation=activation, experts=shapes.experts),
        pl.ShapeDtypeStruct((count, shapes.i), shapes.dtype),
        grid=(count if present is None else present * shapes.each,),
        grid_names=("assignment",),
        interpret=interpret,
        name="moe_activate",
    )


def _moe_activation_gradient_kernel(
    ids: Ref,
    weights: Ref,
    row_of: Ref,
    inputs: Ref,
    of_hidden: Ref,
    *refs: Ref,
    activation: str,
    each: int,
    experts: int,
) -> None:
    """One block: one assignment. `of_hidden` is the unweighted gradient of `hidden`."""
    *biased, of_inputs, hidden, weight_of, of_weights = refs
    act, columns, assignment = ACTIVATIONS[activation], hidden.shape[1], pl.axis_index("assignment")
    there, expert, row = _Assignments(ids, row_of, experts).row(assignment)
    weight = weights[assignment].astype(jnp.float32)
    width = columns if columns <= ACTIVATED else math.gcd(columns, ACTIVATED)

    def derive(number: Value, total: Value) -> Value:
        first = pl.multiple_of(number * width, width)
        own, parts = pl.ds(first, width), _parts(act, columns, first, width)
        given = [inputs[row, part].astype(jnp.float32) for part in parts]
        found = of_hidden[row, own].astype(jnp.float32)
        result = act.function(*given)
        gradients = act.derivative(*given, weight * found)

        @pl.when(there)
        def _() -> None:
            hidden[row, own] = (weight * result).astype(hidden.dtype)
            for part, gradient in zip(parts, gradients, strict=True):
                of_inputs[row, part] = gradient.astype(of_inputs.dtype)

        return total + jnp.sum(result * found)

    total = lax.fori_loop(0, columns // width, derive, jnp.float32(0))
    if biased:
        grad, bias = biased
        token, h = assignment // each, grad.shape[1]
        width = h if h <= HELD else math.gcd(h, HELD)

        def add(number: Value, total: Value) -> Value:
            own = pl.ds(pl.multiple_of(number * width, width), width)
            return total + jnp.sum(grad[token, own].astype(jnp.float32) * bias[expert, own].astype(jnp.float32))

        total = lax.fori_loop(0, h // width, add, total)
    of_weights[assignment] = jnp.where(there, total, 0).astype(of_weights.dtype)

    @pl.when(there)
    def _() -> None:
        weight_of[row] = weight


def activation_gradient(
    shapes: ExpertShapes, activation: str, dtype: Any, interpret: Any, present: Value | None = None
) -> Any:
    """The launch, a function of ids and weights, the row of each assignment, the inputs of the activation, and the
    gradient of `hidden`, not weighted; then, if the second product has a bias, of the gradient of the result and it.

    Its results are the gradient of the inputs, `hidden` weighted, the weight of each row, and the gradient of the
    weights, of a dtype. `present` as in `activate`.
    """
    count, wide = shapes.tokens * shapes.each, 2 if ACTIVATIONS[activation].gated else 1
    body = functools.partial(
        _moe_activation_gradient_kernel, activation=activation, each=shapes.each, experts=shapes.experts
    )
    return plgpu.kernel(
        body,
        (
            pl.ShapeDtypeStruct((count, wide * shapes.i), shapes.dtype),
            pl.ShapeDtypeStruct((count, shapes.i), shapes.dtype),
            pl.ShapeDtypeStruct((count,), jnp.float32),
            pl.ShapeDtypeStruct((count,), dtype),
        ),
        grid=(count if present is None else present * shapes.each,),
        grid_names=("assignment",),
        interpret=interpret,
        name="moe_activation_gradient",
    )


# Sums.


def _moe_combine_kernel(
    ids: Ref, weights: Ref, row_of: Ref, rows: Ref, *refs: Ref, each: int, experts: int, weighted: bool
) -> None:
    """One block: one token."""
    *bias, out = refs
    token, assignments = pl.axis_index("token"), _Assignments(ids, row_of, experts)

    def sum_of(first: Value, count: int) -> None:
        columns = pl.ds(first, count)
        total: Value = jnp.zeros((count,), jnp.float32)
        for number in range(each):
            assignment = token * each + number
            there, expert, row = assignments.row(assignment)
            found = rows[row, columns].astype(jnp.float32)
            if bias:
                found = found + bias[0][expert, columns].astype(jnp.float32)
            if weighted:
                found = found * weights[assignment].astype(jnp.float32)
            total = total + jnp.where(there, found, 0.0)
        out[token, columns] = total.astype(out.dtype)

    _in_parts(out.shape[1], HELD, sum_of)


def combine(shapes: ExpertShapes, weighted: bool, interpret: Any, present: Value | None = None) -> Any:
    """The launch, a function of ids and weights, the row of each assignment, the rows, and the bias if there is one.

    `present` as in `activate`.
    """
    body = functools.partial(_moe_combine_kernel, each=shapes.each, experts=shapes.experts, weighted=weighted)
    return plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((shapes.tokens, shapes.h), shapes.dtype),
        grid=(shapes.tokens if present is None else present,),
        grid_names=("token",),
        interpret=interpret,
        name="moe_combine",
    )


def _moe_bias_gradient_kernel(sizes: Ref, *refs: Ref, width: int) -> None:
    """One block: some columns of one expert."""
    *looked_up, rows, out = refs
    expert, first = pl.axis_index("expert"), pl.axis_index("part") * width
    known, number = sizes[...], jnp.arange(sizes.shape[0])
    start = jnp.sum(jnp.where(number < expert, known, 0))
    end = start + jnp.sum(jnp.where(number == expert, known, 0))
    own, inside = pl.ds(first, width), first + jnp.arange(width) < out.shape[1]

    def add(step: Value, total: Value) -> Value:
        found = []
        for n in range(TOGETHER):
            row = start + step * TOGETHER + n
            there = row < end
            row = jnp.where(there, row, start)
            place = looked_up[0][row] if looked_up else row
            value = plgpu.load(rows.at[place, own], mask=inside, other=0).astype(jnp.float32)
            found.append(jnp.where(there, value * looked_up[1][row] if looked_up else value, 0.0))
        for value in found:
            total = total + value
        return total

    steps = pl.cdiv(end - start, TOGETHER)
    total = lax.fori_loop(0, steps, add, jnp.zeros((width,), jnp.float32))
    plgpu.store(out.at[expert, own], total.astype(out.dtype), mask=inside)


def bias_gradient(experts: int, columns: int, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of the sizes and the rows of all experts; or, for weighted rows of tokens, of the sizes,
    the token and the weight of each row, and the tokens."""
    width = min(SUMMED, pl.next_power_of_2(columns))
    return plgpu.kernel(
        functools.partial(_moe_bias_gradient_kernel, width=width),
        pl.ShapeDtypeStruct((experts, columns), dtype),
        grid=(experts, pl.cdiv(columns, width)),
        grid_names=("expert", "part"),
        interpret=interpret,
        name="moe_bias_gradient",
    )
