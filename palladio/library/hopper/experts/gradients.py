"""Gradients of the expert layer for Hopper.

The forward pass saves the inputs of the activation, `[t k, 2 i]`. The backward pass:

    moe_hidden_gradient      of_hidden[row] = grad[token of row] @ down[expert of row].T
    moe_activation_gradient  the gradients of the inputs and of the weights; hidden[row], times its weight
    gmm, moe_combine         tokens:  the rows of `of_inputs[row] @ gate_up[expert of row].T`, summed up
    tgmm                     gate_up: tokens[token of row].T @ of_inputs[row], over the rows of an expert
                             down:    hidden[row].T @ grad[token of row]
    moe_bias_gradient        the sums of `of_inputs[row]`, and of grad[token of row] times the weight

The kernels that multiply rows of tokens, and of the gradient of the result, gather them; none are permuted in memory.
Sums are in float32, in an order that depends only on the assignments.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import palladio as pl
from palladio.library.card_calls import HALVES
from palladio.library.checks import ExpertGradients, ExpertShapes, dtype_of, require_gradient
from palladio.library.hopper.experts.layer import LayerArrays, checked, layer_kernels, routed
from palladio.library.hopper.experts.products import GatheredProduct, hidden_gradient_product
from palladio.library.hopper.experts.rows import activation_gradient, bias_gradient, combine
from palladio.library.hopper.grouped_matmul import GroupedProblem, Selection, gathered_tgmm, gmm
from palladio.library.hopper.kept import RowBucket, counting, keeps, staged
from palladio.library.hopper.model import Product, choose
from palladio.library.staging import zeros

Array = Any

_SIXTEEN_BITS = tuple(sorted(HALVES, key=str))


@pl.checked_call
def moe_mlp_vjp(
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
) -> tuple[Array, Callable[[Array], ExpertGradients]]:
    """`moe_mlp` with its gradients.

    Args:
        tokens: `dtype[t, h]`, float16 or bfloat16.
        expert_ids, expert_weights, gate_up, down, activation, gate_up_bias, down_bias, transposed, interpret: as in
            `moe_mlp`.

    Returns:
        `(out, pullback)`, as `palladio.library.moe_mlp_vjp`.

    Raises:
        PalladioValueError, PalladioTypeError: as `moe_mlp`; from the pullback, if `grad_out` does not have the shape
            and dtype of `out`.
    """
    biases = gate_up_bias, down_bias
    call = LayerCall(tokens, expert_ids, expert_weights, gate_up, down, *biases, activation, transposed, interpret)
    out, inputs = call.forward()
    return out, lambda grad_out: call.gradients(grad_out, inputs)


class LayerCall:
    """The layer and its gradients for one set of arguments of `moe_mlp_vjp`.

    Raises:
        PalladioValueError, PalladioTypeError: as there.
    """

    def __init__(
        self,
        tokens: Array,
        expert_ids: Array,
        expert_weights: Array,
        gate_up: Array,
        down: Array,
        gate_up_bias: Array | None,
        down_bias: Array | None,
        activation: str,
        transposed: bool,
        interpret: Any,
    ) -> None:
        biases, layer = (gate_up_bias, down_bias), (tokens, expert_ids, expert_weights, gate_up, down)
        self.shapes = checked(*layer, activation, biases, transposed, _SIXTEEN_BITS)
        self.options = activation, bool(transposed)
        self.interpret = interpret
        count = self.shapes.tokens * self.shapes.each
        self.ids, self.weights = expert_ids.reshape((count,)), expert_weights.reshape((count,))
        self.given = tokens, expert_weights, gate_up, down, gate_up_bias, down_bias
        there = [each for each in biases if each is not None]
        self.arrays = self.ids, self.weights, tokens, gate_up, down, *there

    @property
    def columns(self) -> int:
        """The columns of the inputs of the activation."""
        return int(self.given[2].shape[1 if self.options[1] else 2])

    def forward(self) -> tuple[Array, Array]:
        """The result, and the inputs of the activation in each assignment, `dtype[t k, columns]`."""
        shapes, tokens = self.shapes, self.given[0]
        if shapes.is_empty:
            rows = shapes.tokens * shapes.each
            shape = shapes.tokens, shapes.h
            return zeros(shape, shapes.dtype, tokens), zeros((rows, self.columns), shapes.dtype, tokens)
        saving = functools.partial(layer_kernels, with_inputs=True)
        found: tuple[Array, Array] = self._run(
            "moe_mlp_vjp", saving, self.arrays, {0: shapes.each, 1: shapes.each, 2: 1}, {0: 1, 1: shapes.each}
        )
        return found

    def with_inputs(self) -> tuple[Array, Array]:
        """As `forward`, with the columns split into parts, gates and values, unless they alternate."""
        out, inputs = self.forward()
        activation = self.options[0]
        parts = 2 if activation in ("swiglu", "geglu") else 1
        return out, inputs.reshape((inputs.shape[0], parts, self.columns // parts))

    def gradients(self, grad: Array, inputs: Array, wanted: Sequence[bool] = (True,) * 6) -> ExpertGradients:
        """The requested gradients, of the arguments in the order of `ExpertGradients`.

        Args:
            inputs: the inputs of the activation, from `forward` or `with_inputs`.
        """
        shapes = self.shapes
        require_gradient(grad, (shapes.tokens, shapes.h), shapes.dtype)
        requested = tuple(want and each is not None for want, each in zip(wanted, self.given, strict=True))
        tokens = self.given[0]
        if shapes.is_empty or not any(requested):
            given = zip(self.given, requested, strict=True)
            return ExpertGradients(*(zeros(tuple(x.shape), dtype_of(x), tokens) if want else None for x, want in given))
        inputs = inputs.reshape((shapes.tokens * shapes.each, self.columns))
        results = iter(self._gradients(requested, (inputs, grad, *self.arrays)))
        of: list[Any] = [next(results) if want else None for want in requested]
        if requested[1]:
            of[1] = of[1].reshape((shapes.tokens, shapes.each))
        return ExpertGradients(*of)

    def _gradients(self, requested: tuple[bool, ...], arrays: Sequence[Array]) -> Sequence[Array]:
        """The requested gradients, from the arrays of `_gradients`."""
        each = self.shapes.each
        rows = {number: many for number, many in enumerate((1, each)) if requested[number]}  # of tokens and weights
        results = dict(enumerate(rows.values()))
        operands = {0: each, 1: 1, 2: each, 3: each, 4: 1}
        key, build = ("moe_mlp_gradients", requested), functools.partial(_gradients, requested)
        found = self._run(key, build, arrays, operands, results)
        return found if isinstance(found, tuple) else (found,)

    def _run(
        self,
        key: Any,
        build: Callable[..., Any],
        arrays: Sequence[Array],
        operands: Mapping[int, int],
        results: Mapping[int, int],
    ) -> Any:
        """The results of a function of arrays, which is staged and cached if they are on a GPU.

        Args:
            build: makes the function for some shapes, of the number of tokens, or None for all, and the arrays.
            operands, results: as in `RowBucket.with_count`.
        """
        shapes, options = self.shapes, (*self.options, self.interpret)

        def whole() -> Any:
            return functools.partial(build(shapes, *options), None)

        def of_some(rows: int) -> Any:
            run = build(dataclasses.replace(shapes, tokens=rows), *options)
            return counting(lambda present: functools.partial(run, present))

        if not keeps(arrays):
            return whole()(*arrays)
        bucket = RowBucket.with_count(shapes.tokens, operands, results, of_some)
        return staged((key, self.options, shapes.biased), whole, self.interpret, arrays, bucket)(*arrays)


def _gradients(
    requested: Sequence[bool], shapes: ExpertShapes, activation: str, transposed: bool, interpret: Any
) -> Any:
    """The requested gradients, a function of the number of tokens, None for all, the inputs, the gradient of the
    result, and `LayerArrays`.
    """
    dtype = shapes.dtype
    product = _hidden_gradient(shapes, transposed, interpret)

    def matrix(sizes: Array, token_of: Array, of_tokens: Array, rows: Array, first: bool) -> Array:
        """The sum of rows of tokens, transposed, times those of assignments; or its transpose."""
        operands = (of_tokens, rows) if first else (rows, of_tokens)
        return gathered_tgmm(sizes, token_of, *operands, 0 if first else 1, dtype, interpret)

    def run(present: Array | None, inputs: Array, grad: Array, *arrays: Array) -> tuple[Array, ...]:
        given = LayerArrays.of(shapes, arrays)
        sizes, token_of, row_of = routed(shapes, present, interpret)(given.ids)
        of_hidden = product(sizes, token_of, grad, given.down)
        assigned = given.ids, given.weights, row_of
        derive = activation_gradient(shapes, activation, given.weights.dtype, interpret, present)
        biased = (grad, *given.down_bias) if given.down_bias else ()
        of_inputs, hidden, weight_of, of_weights = derive(*assigned, inputs, of_hidden, *biased)

        def of_tokens() -> Array:
            rows = gmm(of_inputs, given.up, sizes, dtype, transpose_rhs=not transposed, interpret=interpret)
            return combine(shapes, False, interpret, present)(*assigned, rows)

        def of_up_bias() -> Array:
            columns = of_inputs.shape[1]
            return bias_gradient(shapes.experts, columns, given.up_bias[0].dtype, interpret)(sizes, of_inputs)

        def of_down_bias() -> Array:
            call = bias_gradient(shapes.experts, shapes.h, given.down_bias[0].dtype, interpret)
            return call(sizes, token_of, weight_of, grad)

        makers: list[Callable[[], Array]] = [
            of_tokens,
            lambda: of_weights,
            lambda: matrix(sizes, token_of, given.tokens, of_inputs, not transposed),
            lambda: matrix(sizes, token_of, grad, hidden, transposed),
            of_up_bias,
            of_down_bias,
        ]
        return tuple(make() for make, each in zip(makers, requested, strict=True) if each)

    return run


def _hidden_gradient(shapes: ExpertShapes, transposed: bool, interpret: Any) -> Any:
    """The launch of the product with `down`, a function of the sizes, the token of each row, `grad`, and `down`."""
    count, dtype, experts = shapes.tokens * shapes.each, shapes.dtype, shapes.experts
    config = choose(Product(pl.cdiv(count, experts), shapes.i, shapes.h, dtype, dtype, experts, ()))
    product = GroupedProblem(count, shapes.h, shapes.i, experts, config, not transposed, Selection(experts))
    return hidden_gradient_product(GatheredProduct(product, None, False), dtype, interpret)
