"""The library's expert layer as `torch.library` operators: alone, and with the inputs that its gradient needs."""

from __future__ import annotations

from typing import Any

import torch

from palladio import library
from palladio.interop.extras import executor_named
from palladio.interop.torch.composed_experts import composed
from palladio.interop.torch.derivatives import is_batch_of_gradients
from palladio.interop.torch.registration import operator
from palladio.library.experts import layer_call

Tensor = torch.Tensor

_DIFFERENTIABLE = (0, 2, 3, 4, 5, 6)
"""The arguments of the layer with a gradient, in the order of `ExpertGradients`."""


# Every operator has the arguments of the layer: its arrays, then its options.
_BIASES = "Tensor? up_bias, Tensor? down_bias"
_ARRAYS = f"Tensor tokens, Tensor expert_ids, Tensor expert_weights, Tensor up, Tensor down, {_BIASES}"
_OPTIONS = "str activation, bool transposed, str interpret"


def _call(*layer: Any) -> Any:
    given = [*layer]
    given[-1] = executor_named(given[-1])
    return layer_call(*given)


@operator("palladio::moe_mlp", f"({_ARRAYS}, {_OPTIONS}) -> Tensor")
def moe_mlp(*layer: Any) -> Tensor:
    """`palladio.library.moe_mlp`. Its gradient computes the inputs of the activation again."""
    *arrays, up_bias, down_bias, activation, transposed, interpret = layer
    out: Tensor = library.moe_mlp(
        *arrays,
        activation=activation,
        gate_up_bias=up_bias,
        down_bias=down_bias,
        transposed=transposed,
        interpret=executor_named(interpret),
    )
    return out


@moe_mlp.register_fake
def _(tokens: Tensor, *others: Any) -> Tensor:
    return tokens.new_empty(tokens.shape)


@operator("palladio::moe_mlp_with_inputs", f"({_ARRAYS}, {_OPTIONS}) -> (Tensor, Tensor)")
def moe_mlp_with_inputs(*layer: Any) -> tuple[Tensor, Tensor]:
    """The differentiable layer, and the inputs of its activation, `[t k, parts, columns]`."""
    found: tuple[Tensor, Tensor] = _call(*layer).with_inputs()
    return found


@moe_mlp_with_inputs.register_fake
def _(tokens: Tensor, expert_ids: Tensor, weights: Tensor, up: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_, activation, transposed, _ = others
    parts = 2 if activation in ("swiglu", "geglu") else 1
    columns = up.shape[1 if transposed else 2] // parts
    rows = expert_ids.shape[0] * expert_ids.shape[1]
    return tokens.new_empty(tokens.shape), tokens.new_empty((rows, parts, columns))


@operator(
    "palladio::moe_mlp_gradients", f"(Tensor grad, Tensor inputs, int[] wanted, {_ARRAYS}, {_OPTIONS}) -> Tensor[]"
)
def moe_mlp_gradients(grad: Tensor, inputs: Tensor, wanted: list[int], *layer: Any) -> list[Tensor]:
    """The gradients with these numbers among tokens, weights, matrices and biases."""
    found: Any = _call(*layer).gradients(grad, inputs, [number in wanted for number in range(6)])
    return [found[number] for number in wanted]


@moe_mlp_gradients.register_fake
def _(grad: Tensor, inputs: Tensor, wanted: list[int], *layer: Any) -> list[Tensor]:
    arrays = [layer[_DIFFERENTIABLE[number]] for number in wanted]
    return [torch.empty_like(array, memory_format=torch.contiguous_format) for array in arrays]


def _context(ctx: Any, inputs: Any, output: Any) -> None:
    *arrays, ctx.activation, ctx.transposed, ctx.interpret = inputs
    arrays[1] = arrays[1].clone()  # the caller may change the ids between forward and backward
    ctx.set_materialize_grads(False)
    kept = []
    if isinstance(output, tuple):
        kept = [output[1]]
        ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*arrays, *kept)


def _backward(ctx: Any, grad: Tensor | None, _: Any = None) -> Any:
    saved = ctx.saved_tensors  # read once: checkpointing gives each of them away only once
    arrays, kept = saved[:7], saved[7:]
    options = ctx.activation, ctx.transposed, ctx.interpret
    found: list[Tensor | None] = [None] * (len(arrays) + len(options))
    wanted = [number for number, place in enumerate(_DIFFERENTIABLE) if ctx.needs_input_grad[place]]
    if grad is None or not wanted:
        return tuple(found)
    # A batch of gradients has no rule for operators that return a list.
    composes = torch.is_grad_enabled() or is_batch_of_gradients(grad)
    if composes and not torch.compiler.is_compiling():
        results = _differentiable_gradients(grad, arrays, [_DIFFERENTIABLE[number] for number in wanted], options)
    else:
        # The layer alone keeps no inputs of its activation, and computes them again.
        inputs = kept[0] if kept else moe_mlp_with_inputs(*arrays, *options)[1]
        results = moe_mlp_gradients(grad, inputs, wanted, *arrays, *options)
    for number, result in zip(wanted, results, strict=True):
        found[_DIFFERENTIABLE[number]] = result
    return tuple(found)


def _differentiable_gradients(grad: Tensor, arrays: Any, places: list[int], options: Any) -> Any:
    """The gradients as functions that can be differentiated again: those of the composed layer."""
    activation, transposed, interpret = options
    # Separate tensors, since one of the caller's may be several arguments.
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        given: list[Any] = [each.view_as(each) if place in places else each for place, each in enumerate(arrays)]
        out = composed(*(*given, activation, transposed, executor_named(interpret)))
        return torch.autograd.grad(out, [given[place] for place in places], grad, create_graph=twice)


moe_mlp.register_derivatives(_context, _backward)
moe_mlp_with_inputs.register_derivatives(_context, _backward)
