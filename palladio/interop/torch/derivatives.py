"""Gradients and batches of operators, in PyTorch's two systems of transformations.

An operator made by `torch.library.custom_op` with `register_autograd` serves autograd and `torch.compile`, but not the
transformations of `torch.func` that differentiate (PyTorch 2.13: its autograd function lacks `setup_context`), nor
forward differentiation. For these the same derivative stands in an `autograd.Function` of our own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

_functions: dict[Any, Any] = {}
"""The autograd function of each operator, for `torch.func`."""


def differentiable(
    operator: Any, context: Callable[..., None], backward: Callable[..., Any], forward: Callable[..., Any]
) -> None:
    """Give an operator its derivatives and its batching rule.

    Args:
        context: `(ctx, inputs, output)`, keeps what the derivatives need, by `keep`.
        backward: `(ctx, grad)`, returns a gradient or None for each input.
        forward: `(ctx, saved tensors, *tangents)`, returns the tangent of the result; None is the tangent of an input
            that has none.
    """
    operator.register_autograd(backward, setup_context=context)
    rule = one_at_a_time(lambda *args: apply(operator, *args))
    operator.register_vmap(rule)

    def nested(ctx: Any, *tangents: Any) -> Any:
        # PyTorch calls this with forward differentiation off, which loses the tangents of an outer `jvp`. Those of
        # this one are taken off the tensors that were kept.
        with torch.autograd.forward_ad._set_fwd_grad_enabled(True):
            return forward(ctx, [_primal(each) for each in ctx.saved_tensors], *tangents)

    members = {
        "forward": staticmethod(operator.__call__),
        "setup_context": staticmethod(context),
        "backward": staticmethod(backward),
        "jvp": staticmethod(nested),
        "vmap": staticmethod(rule),
    }
    _functions[operator] = type(operator._name.rpartition("::")[2], (torch.autograd.Function,), members)


def _primal(tensor: torch.Tensor | None) -> torch.Tensor | None:
    unpack: Any = torch.autograd.forward_ad.unpack_dual
    return None if tensor is None else unpack(tensor).primal


def keep(ctx: Any, *tensors: torch.Tensor | None) -> None:
    """Keep tensors for the derivatives of either mode."""
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def total(*terms: torch.Tensor | None) -> torch.Tensor | None:
    """The sum of tangents, of which None is zero."""
    given = [each for each in terms if each is not None]
    return functools.reduce(torch.add, given) if given else None


def apply(operator: Any, *args: Any) -> Any:
    """Call an operator so that the transformations under way see its derivative.

    Where nothing is under way the kernel runs at once: PyTorch's dispatch of an operator written in Python takes longer
    than a small product.
    """
    if needs_function():
        return _functions[operator].apply(*args)
    if torch.compiler.is_compiling():
        return operator(*args)
    if nothing_watches(args):
        return operator._init_fn(*args)
    if "torch.distributed.tensor" in sys.modules:
        __import__("palladio.interop.torch.sharding")  # registers the operators for distributed tensors, once
    return operator(*args)


def is_transformed() -> bool:
    """True inside `torch.func` and forward differentiation."""
    return bool(torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0)


def needs_function() -> bool:
    """True if the transformations under way see a derivative only by an `autograd.Function`.

    A graph that is compiled breaks there. It has an operator's own rule for `vmap`, if nothing else is under way.
    """
    return is_transformed() and not (torch.compiler.is_compiling() and _is_only_batched())


def _is_only_batched() -> bool:
    stack = torch._C._functorch.get_interpreter_stack() or ()
    kinds = {each.key() for each in stack}
    return kinds <= {torch._C._functorch.TransformType.Vmap} and torch.autograd.forward_ad._current_level < 0


_is_only_batched._dynamo_marked_constant = True  # type: ignore[attr-defined]  # asked once, while a graph is traced


def is_recording(args: Any) -> bool:
    """True if a call with these arguments is recorded for a gradient."""
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def is_plain(args: Any) -> bool:
    """True if a call is of plain tensors in memory, without a mode that sees operators."""
    if torch._C._len_torch_dispatch_stack() or torch._C._is_torch_function_mode_enabled():
        return False
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    return all(type(each) in _PLAIN and (each.is_cpu or each.is_cuda) for each in tensors)


def nothing_watches(args: Any) -> bool:
    """True if a call is of plain tensors in memory, without a gradient to record or a mode that sees operators."""
    return is_plain(args) and not is_recording(args)


def is_direct(tensors: Any) -> bool:
    """True if a call of these tensors, and nothing else that is a tensor, is one of the library: nothing watches.

    It is asked before every small product, and so it is written without generators.
    """
    if torch.compiler.is_compiling() or is_transformed() or torch.is_autocast_enabled("cpu"):
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._is_torch_function_mode_enabled():
        return False
    recording = torch.is_grad_enabled()
    for each in tensors:
        if type(each) is not torch.Tensor or not each.is_cpu or (recording and each.requires_grad):
            return False
    return True


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """The batching rule of a function of tensors, and lists of tensors, that returns a tensor or several.

    It runs the function once for each element of the batch.
    """

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        def element(value: Any, dim: Any, number: int) -> Any:
            if isinstance(value, (list, tuple)) and isinstance(dim, (list, tuple)):
                return [element(each, one, number) for each, one in zip(value, dim, strict=True)]
            return value if dim is None else value.select(dim, number)

        results = [
            function(*(element(arg, dim, number) for arg, dim in zip(args, in_dims, strict=True)))
            for number in range(info.batch_size)
        ]
        if isinstance(results[0], (list, tuple)):
            return [torch.stack(each) for each in zip(*results, strict=True)], [0] * len(results[0])
        return torch.stack(results), 0

    return rule
