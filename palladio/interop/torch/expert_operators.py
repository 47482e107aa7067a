"""The library's expert layer as `torch.library` operators: by itself, and with what its gradient needs."""

from __future__ import annotations

from typing import Any

import torch

from palladio import library
from palladio.interop.extras import executor_named
from palladio.interop.torch.composed_experts import composed
from palladio.library.experts import gradients, with_inputs

Tensor = torch.Tensor

_DIFFERENTIABLE = (0, 2, 3, 4, 5, 6)
"""The arguments of the layer with a gradient, in the order of `ExpertGradients`."""


def _options(
    up_bias: Tensor | None, down_bias: Tensor | None, activation: str, transposed: bool, interpret: str
) -> dict[str, Any]:
    return {
        "activation": activation,
        "gate_up_bias": up_bias,
        "down_bias": down_bias,
        "transposed": transposed,
        "interpret": executor_named(interpret),
    }


@torch.library.custom_op("palladio::moe_mlp", mutates_args=())
def moe_mlp(
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    transposed: bool,
    interpret: str,
) -> Tensor:
    """`palladio.library.moe_mlp`, where nothing asks for its gradient."""
    options = _options(up_bias, down_bias, activation, transposed, interpret)
    out: Tensor = library.moe_mlp(tokens, expert_ids, expert_weights, up, down, **options)
    return out


@moe_mlp.register_fake
def _(tokens: Tensor, *others: Any) -> Tensor:
    return tokens.new_empty(tokens.shape)


@torch.library.custom_op("palladio::moe_mlp_with_inputs", mutates_args=())
def moe_mlp_with_inputs(
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    transposed: bool,
    interpret: str,
) -> tuple[Tensor, Tensor]:
    """The layer, differentiable, with the inputs of its activation, `[t k, parts, columns]`."""
    options = _options(up_bias, down_bias, activation, transposed, interpret)
    found: tuple[Tensor, Tensor] = with_inputs(tokens, expert_ids, expert_weights, up, down, **options)
    return found


@moe_mlp_with_inputs.register_fake
def _(tokens: Tensor, expert_ids: Tensor, _: Tensor, up: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_, activation, transposed, _ = others
    parts = 2 if activation in ("swiglu", "geglu") else 1
    columns = up.shape[1 if transposed else 2] // parts
    rows = expert_ids.shape[0] * expert_ids.shape[1]
    return tokens.new_empty(tokens.shape), tokens.new_empty((rows, parts, columns))


@torch.library.custom_op("palladio::moe_mlp_gradients", mutates_args=())
def moe_mlp_gradients(
    grad: Tensor,
    inputs: Tensor,
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    wanted: list[int],
    activation: str,
    transposed: bool,
    interpret: str,
) -> list[Tensor]:
    """The gradients with these numbers among tokens, weights, matrices and biases."""
    options = _options(up_bias, down_bias, activation, transposed, interpret)
    chosen = [number in wanted for number in range(6)]
    found: Any = gradients(grad, inputs, chosen, tokens, expert_ids, expert_weights, up, down, **options)
    return [found[number] for number in wanted]


@moe_mlp_gradients.register_fake
def _(grad: Tensor, inputs: Tensor, *others: Any) -> list[Tensor]:
    *layer, wanted, _, _, _ = others
    arrays = [layer[place] for place in _DIFFERENTIABLE]
    return [torch.empty_like(arrays[number], memory_format=torch.contiguous_format) for number in wanted]  # type: ignore[arg-type]


def _context(ctx: Any, inputs: Any, output: Any) -> None:
    *arrays, ctx.activation, ctx.transposed, ctx.interpret = inputs
    arrays[1] = arrays[1].clone()  # whoever changes the ids between forward and backward changes nothing here
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*arrays, output[1])


def _backward(ctx: Any, grad: Tensor | None, _: Any) -> Any:
    *arrays, inputs = ctx.saved_tensors
    options = ctx.activation, ctx.transposed, ctx.interpret
    found: list[Tensor | None] = [None] * (len(arrays) + len(options))
    wanted = [number for number, place in enumerate(_DIFFERENTIABLE) if ctx.needs_input_grad[place]]
    if grad is None or not wanted:
        return tuple(found)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        results = _differentiable_gradients(grad, arrays, [_DIFFERENTIABLE[number] for number in wanted], options)
    else:
        results = moe_mlp_gradients(grad, inputs, *arrays, wanted, *options)
    for number, result in zip(wanted, results, strict=True):
        found[_DIFFERENTIABLE[number]] = result
    return tuple(found)


def _differentiable_gradients(grad: Tensor, arrays: Any, places: list[int], options: Any) -> Any:
    """The gradients as functions that can be differentiated again: those of the composed layer."""
    activation, transposed, interpret = options
    # Separate tensors, since one of the caller's may be several arguments.
    given: list[Any] = [each.view_as(each) if place in places else each for place, each in enumerate(arrays)]
    out = composed(*(*given, activation, transposed, executor_named(interpret)))
    return torch.autograd.grad(out, [given[place] for place in places], grad, create_graph=True)


moe_mlp_with_inputs.register_autograd(_backward, setup_context=_context)
