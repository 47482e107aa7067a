"""PyTorch's tensors in host memory by their addresses, without making NumPy arrays on them.

A NumPy array on a tensor takes PyTorch 1.2 µs to make, and more to drop, which is as long as a small kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

Facts = tuple[tuple[Any, ...], list[int]]
"""The dtype and the shape of each tensor, and their addresses."""


def facts_of(values: Sequence[Any]) -> Facts | None:
    """The facts of tensors that a kernel can read where they are; None if one of the values is something else.

    None also wherever a tensor may stand for more than its memory, or PyTorch notes what is done with it: a gradient is
    recorded, or may be with a tangent; it is lazily negated; its memory was freed; a transformation, a trace or a mode
    that sees all operations is active. Subclasses are left out too.
    """
    torch = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", None)
    if kind is None or type(values[0]) is not kind or _sees_operations(torch):
        return None
    types: list[Any] = []
    addresses = []
    try:
        for value in values:
            if type(value) is not kind or not value.is_cpu or value.requires_grad or not value.is_contiguous():
                return None
            address = value.data_ptr()
            if not address or value.is_neg():
                return None
            types += value.dtype, value.shape
            addresses.append(address)
    except RuntimeError:  # of tensors without memory of their own: sparse, nested or wrapped ones
        return None
    return tuple(types), addresses


def _sees_operations(torch: Any) -> bool:
    """True inside a transformation of `torch.func`, a dispatch mode or a trace."""
    core = torch._C
    active = core._are_functorch_transforms_active() or core._len_torch_dispatch_stack()
    return bool(active) or core._get_tracing_state() is not None or may_have_tangents(torch)


def may_have_tangents(torch: Any) -> bool:
    """True inside `torch.autograd.forward_ad.dual_level`, where operations compute tangents."""
    return torch.autograd.forward_ad._current_level >= 0 and bool(torch._C._is_fwd_grad_enabled())


def has_tangent(torch: Any, tensor: Any) -> bool:
    """True for a tensor whose tangent an operation of PyTorch would use."""
    if not may_have_tangents(torch) or tensor.layout is not torch.strided or tensor.is_nested:
        return False  # PyTorch makes no views of these, as `unpack_dual` does
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
