"""PyTorch's tensors in host memory by their addresses, without making NumPy arrays on them; and those without memory.

A NumPy array on a tensor takes PyTorch 1.2 µs to make, and more to drop, which is as long as a small kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from palladio.base.calls import refuses
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call

Facts = tuple[tuple[Any, ...], list[int]]
"""The dtype and the shape of each tensor, and their addresses."""


def facts_of(values: Sequence[Any]) -> Facts | None:
    """The facts of tensors that a kernel can read where they are; None if one of the values is something else.

    None also wherever a tensor may stand for more than its memory, or PyTorch notes what is done with it: a gradient is
    recorded, or may be with a tangent; it is lazily negated; its memory was freed; a transformation, a trace or a mode
    that sees all operations is active. Subclasses are left out too, except for parameters.
    """
    torch: Any = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", None)
    if kind is None or not isinstance(values[0], kind) or _sees_operations(torch):
        return None
    records, parameter = torch.is_grad_enabled(), torch.nn.Parameter
    types: list[Any] = []
    addresses = []
    try:
        for value in values:
            if (type(value) is not kind and type(value) is not parameter) or not value.is_cpu:
                return None
            if (records and value.requires_grad) or not value.is_contiguous():
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


def is_freed(tensor: Any) -> bool:
    """True for a tensor with elements whose storage was resized to 0 bytes: `numpy()` of it is new memory of NumPy's,
    and other operations of PyTorch read at address 0.

    Raises:
        RuntimeError: a tensor without memory of its own, e.g. one of a transformation.
    """
    return not tensor.data_ptr() and tensor.numel() > 0 and tensor.device.type != "meta"


def require_dense(torch: Any, tensor: Any, argument: str) -> None:
    """Refuse a tensor whose elements are not in memory by strides, or are not the numbers that they stand for.

    Args:
        torch: the module. From `sys.modules`, `torch.compile` would take a variable of each module that is there.

    Raises:
        PalladioTypeError: for a nested, sparse or quantised tensor, or one in an order of its own.
    """
    if tensor.is_nested:
        got, hint = "a nested tensor", "tensor.unbind()"
    elif tensor.layout is not torch.strided:
        got, hint = str(tensor.layout), "tensor.to_dense()"
    elif tensor.is_quantized:
        got, hint = str(tensor.dtype), "tensor.dequantize()"
    else:
        return
    raise PalladioTypeError("the tensor is not dense", argument=argument, got=got, hint=hint)


def require_memory(tensor: Any, argument: str) -> None:
    """Refuse a dense tensor whose values are not in memory.

    Raises:
        PalladioTypeError: for a tensor of the meta device, or one around other tensors.
        PalladioValueError: for one whose storage was resized to 0 bytes.
    """
    if tensor.device.type == "meta" or _is_wrapped(tensor):
        raise PalladioTypeError(
            "the tensor has no memory of its own",
            argument=argument,
            got=_wrapper(tensor),
            hint="palladio.interop.torch has the library for torch.func, torch.compile and the subclasses of tensors",
        )
    if is_freed(tensor):
        raise PalladioValueError(
            "the memory of the tensor was freed",
            argument=argument,
            got="a tensor whose storage has 0 bytes",
            hint="a parameter of FSDP has memory after unshard() of its module",
        )


def _is_wrapped(tensor: Any) -> bool:
    """True for a tensor around another one: of a transformation, or of a subclass with a dispatch of its own."""
    torch = sys.modules["torch"]
    transformed = torch._C._functorch
    if torch._C._are_functorch_transforms_active():
        # Differentiation wraps even a tensor from outside, as soon as it is read.
        return bool(transformed.is_functorch_wrapped_tensor(tensor.detach()))
    if transformed.is_legacy_batchedtensor(tensor):
        return True
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _wrapper(tensor: Any) -> str:
    """The kind of a tensor without memory of its own."""
    if tensor.device.type == "meta":
        return "a tensor of the meta device"
    kind = type(tensor).__name__
    return "a tensor inside a transformation of torch.func" if kind in ("Tensor", "Parameter") else f"a {kind}"


@refuses
def _require_readable(value: Any, argument: str) -> None:
    """Refuse a tensor that no kernel can read, e.g. after PyTorch has refused to tell its shape or its strides."""
    if _is_tensor(value):
        require_dense(sys.modules["torch"], value, argument)
        require_memory(value, argument)


def refuse_freed(array: Any, argument: str) -> None:
    """Refuse a tensor of PyTorch whose storage was resized to 0 bytes, before PyTorch copies or reshapes it.

    Args:
        array: of any library.

    Raises:
        PalladioValueError: for such a tensor.
    """
    try:
        freed = _is_tensor(array) and not _is_wrapped(array) and is_freed(array)
    except RuntimeError:  # it has no memory of its own
        return
    if freed:
        with at_call():
            _require_readable(array, argument)


def _is_tensor(value: Any) -> bool:
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)
