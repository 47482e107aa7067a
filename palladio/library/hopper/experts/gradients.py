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

import functools
from collections.abc import Callable, Sequence
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library.card_calls import HALVES, KEPT
from palladio.library.checks import ExpertGradients, ExpertShapes, dtype_of, require_gradient, zeros
from palladio.library.hopper.experts.layer import checked, inputs_product
from palladio.library.hopper.experts.products import GatheredProduct, hidden_gradient_product
from palladio.library.hopper.experts.routing import route
from palladio.library.hopper.experts.rows import activate, activation_gradient, bias_gradient, combine
from palladio.library.hopper.grouped_matmul import GroupedProblem, Selection, gathered_tgmm, gmm
from palladio.library.hopper.model import Product, choose

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
        found: tuple[Array, Array] = self._run("moe_mlp_vjp", _forward, self.arrays)
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
        found = self._run(
            ("moe_mlp_gradients", requested), functools.partial(_gradients, requested), (inputs, grad, *self.arrays)
        )
        results = iter(found)
        of: list[Any] = [next(results) if want else None for want in requested]
        if requested[1]:
            of[1] = of[1].reshape((shapes.tokens, shapes.each))
        return ExpertGradients(*of)

    def _run(self, key: Any, build: Callable[..., Any], arrays: Sequence[Array]) -> Any:
        """The results of a function of arrays, which is staged and cached if they are on a GPU."""
        made = functools.partial(build, self.shapes, *self.options, self.interpret)
        if not KEPT.usable or not pl.is_on_gpu(arrays[0]):
            return made()(*arrays)
        types = tuple((type(each), str(each.dtype), tuple(each.shape)) for each in arrays)
        known = key, self.options, self.shapes, types, plgpu.multiprocessors()
        staged = KEPT.find(known, self.interpret, arrays)
        if staged is None:
            staged = pl.jit(made(), interpret=self.interpret).ahead(*arrays)
            KEPT.keep(known, staged, self.interpret, arrays)
        return staged(*arrays)


def _forward(shapes: ExpertShapes, activation: str, transposed: bool, interpret: Any) -> Any:
    """The layer with the inputs of the activation, a function of `LayerCall.arrays`."""
    first = inputs_product(shapes, activation, transposed, interpret)
    routed = route(shapes.tokens * shapes.each, shapes.each, shapes.experts, interpret)
    activated, summed = activate(shapes, activation, interpret), combine(shapes, True, interpret)

    def run(ids: Array, weights: Array, tokens: Array, up: Array, down: Array, *biases: Array) -> tuple[Array, Array]:
        split = 1 if shapes.biased[0] else 0
        sizes, token_of, row_of = routed(ids)
        inputs = first(sizes, token_of, tokens, up, *biases[:split])
        hidden = activated(ids, row_of, inputs)
        rows = gmm(hidden, down, sizes, shapes.dtype, transpose_rhs=transposed, interpret=interpret)
        return summed(ids, weights, row_of, rows, *biases[split:]), inputs

    return run


def _gradients(
    requested: Sequence[bool], shapes: ExpertShapes, activation: str, transposed: bool, interpret: Any
) -> Any:
    """The requested gradients, a function of the inputs, the gradient of the result, and `LayerCall.arrays`."""
    count, dtype = shapes.tokens * shapes.each, shapes.dtype
    routed = route(count, shapes.each, shapes.experts, interpret)
    product = _hidden_gradient(shapes, transposed, interpret)

    def matrix(sizes: Array, token_of: Array, of_tokens: Array, rows: Array, first: bool) -> Array:
        """The sum of rows of tokens, transposed, times those of assignments; or its transpose."""
        operands = (of_tokens, rows) if first else (rows, of_tokens)
        return gathered_tgmm(sizes, token_of, *operands, 0 if first else 1, dtype, interpret)

    def run(
        inputs: Array,
        grad: Array,
        ids: Array,
        weights: Array,
        tokens: Array,
        up: Array,
        down: Array,
        *biases: Array,
    ) -> tuple[Array, ...]:
        sizes, token_of, row_of = routed(ids)
        of_hidden = product(sizes, token_of, grad, down)
        derive = activation_gradient(shapes, activation, weights.dtype, interpret)
        biased = (grad, biases[-1]) if shapes.biased[1] else ()
        of_inputs, hidden, weight_of, of_weights = derive(ids, weights, row_of, inputs, of_hidden, *biased)

        def of_tokens() -> Array:
            rows = gmm(of_inputs, up, sizes, dtype, transpose_rhs=not transposed, interpret=interpret)
            return combine(shapes, False, interpret)(ids, weights, row_of, rows)

        def of_up_bias() -> Array:
            columns = of_inputs.shape[1]
            return bias_gradient(shapes.experts, columns, biases[0].dtype, interpret)(sizes, of_inputs)

        def of_down_bias() -> Array:
            call = bias_gradient(shapes.experts, shapes.h, biases[-1].dtype, interpret)
            return call(sizes, token_of, weight_of, grad)

        makers: list[Callable[[], Array]] = [
            of_tokens,
            lambda: of_weights,
            lambda: matrix(sizes, token_of, tokens, of_inputs, not transposed),
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
