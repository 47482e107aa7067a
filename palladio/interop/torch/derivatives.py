"""Parts of operators' derivatives and batching rules, and the active transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def primal(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor without the tangent that it has at the current level of `torch.func`.

    PyTorch has one level of tangents; a compiled graph does not have its number.
    """
    unpack: Any = torch.autograd.forward_ad.unpack_dual
    return None if tensor is None else unpack(tensor, level=0).primal


def keep(ctx: Any, *tensors: torch.Tensor | None) -> None:
    """Keep tensors for the derivatives of either mode."""
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in float32, or float64 if it is of that: PyTorch does not calculate with floats of 8 bits."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def is_of_8_bits(tensor: torch.Tensor) -> bool:
    """True for floats of 8 bits."""
    return tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1


def alike(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands of a product; one in floats of 8 bits, which promote to no other dtype, in that of the other one.

    A product of 8-bit floats may have a wider result, and so a wider gradient.
    """
    narrow = is_of_8_bits(x), is_of_8_bits(y)
    if narrow[0] == narrow[1]:
        return x, y
    return (x.to(y.dtype), y) if narrow[0] else (x, y.to(x.dtype))


def total(*terms: torch.Tensor | None) -> torch.Tensor | None:
    """The sum of tangents; None is zero."""
    given = [each for each in terms if each is not None]
    if len(given) < 2:
        return given[0] if given else None
    return functools.reduce(torch.add, map(widened, given)).to(given[0].dtype)


def is_transformed() -> bool:
    """True inside `torch.func` and forward differentiation."""
    return bool(torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0)


def is_recording(args: Any) -> bool:
    """True if a call with these arguments is recorded for a gradient."""
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def is_plain(args: Any) -> bool:
    """True if a call is of plain tensors in memory, without a mode or a trace that sees operators."""
    if _has_observers():
        return False
    for each in args:
        if isinstance(each, torch.Tensor):
            in_memory = type(each) in _PLAIN and (each.is_cpu or each.is_cuda)
            if not in_memory or is_batch_of_gradients(each):
                return False
    return True


def _has_observers() -> bool:
    """True inside a mode that sees operators or functions, and inside `torch.jit.trace`.

    A trace takes the result of anything but an operator for a constant.
    """
    core = torch._C
    seen = core._len_torch_dispatch_stack() or core._is_torch_function_mode_enabled()
    return bool(seen) or core._get_tracing_state() is not None


def is_batch_of_gradients(tensor: torch.Tensor) -> bool:
    """True for a tensor of PyTorch's first `vmap`, which `torch.autograd.grad(is_grads_batched=True)` still uses."""
    return bool(torch._C._functorch.is_legacy_batchedtensor(tensor))


def is_unobserved(args: Any) -> bool:
    """True if a call is of plain tensors in memory, without a gradient to record or a mode that sees operators."""
    return is_plain(args) and not is_recording(args)


def is_unwatched() -> bool:
    """True if no region changes what functions of tensors do: none is compiled, and none is under autocast."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return not torch._C._is_torch_function_mode_enabled()


def is_direct(tensors: Any) -> bool:
    """True if a call of these tensors, and no others, can go to the library directly: nothing watches.

    It runs before every small product, and so it is written without generators.
    """
    if torch.compiler.is_compiling() or is_transformed() or torch.is_autocast_enabled("cpu"):
        return False
    if _has_observers():
        return False
    recording = torch.is_grad_enabled()
    for each in tensors:
        if type(each) is not torch.Tensor or not each.is_cpu or (recording and each.requires_grad):
            return False
    return True


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """The batching rule of a function of tensors, and lists of tensors, that returns a tensor or several.

    It runs the function once for each element of the batch; for a batch of none, on zeros, for the shape of its result.
    """

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        def element(value: Any, dim: Any, number: int) -> Any:
            if isinstance(value, (list, tuple)) and isinstance(dim, (list, tuple)):
                return [element(each, one, number) for each, one in zip(value, dim, strict=True)]
            if dim is None or info.batch_size:
                return value if dim is None else value.select(dim, number)
            return value.new_zeros(value.shape[:dim] + value.shape[dim + 1 :])

        results = [
            function(*(element(arg, dim, number) for arg, dim in zip(args, in_dims, strict=True)))
            for number in range(info.batch_size or 1)
        ]

        def stacked(elements: Any) -> torch.Tensor:
            return torch.stack(elements)[: info.batch_size]

        if isinstance(results[0], (list, tuple)):
            return [stacked(each) for each in zip(*results, strict=True)], [0] * len(results[0])
        return stacked(results), 0

    return rule
