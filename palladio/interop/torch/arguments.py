"""Arguments of the functions of this package, in the form that an operator's schema can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from palladio.array.tensors import require_dense
from palladio.base.errors import PalladioTypeError

Tensor = torch.Tensor


def index_tensor(value: Any, argument: str) -> Tensor:
    """Sizes or an offset as a tensor of integers."""
    if isinstance(value, Tensor):
        require_dense(torch, value, argument)
        return value
    try:
        return torch.as_tensor(value if hasattr(value, "__array__") else np.asarray(value))
    except (TypeError, ValueError, RuntimeError):
        raise PalladioTypeError(
            "neither a tensor nor an array of integers", argument=argument, got=f"{value!r:.60}"
        ) from None


def index_like(value: Any, argument: str, operand: Tensor) -> Tensor:
    """Sizes or an offset for an operand: as a distributed tensor, the same on each rank, where the operand is one.

    PyTorch counts in int64; kernels on a GPU take int32.
    """
    found = index_tensor(value, argument)
    if found.is_cuda and found.dtype == torch.int64:
        found = found.int()
    if not hasattr(operand, "device_mesh") or hasattr(found, "device_mesh"):
        return found
    everywhere: Tensor = type(operand).from_local(found, operand.device_mesh, run_check=False)  # type: ignore[attr-defined]
    return everywhere


def dtype_of(dtype: Any) -> torch.dtype | None:
    """A dtype of any library, or its name, as PyTorch's."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise PalladioTypeError("PyTorch has no such dtype", argument="preferred_element_type", got=repr(dtype))
    return found


def require_tensors(**tensors: Any) -> None:
    """Refuse operands that are not tensors, or not strided ones, or of the meta device where the first one is not.

    Raises:
        PalladioTypeError: naming the first one.
    """
    for argument, value in tensors.items():
        if not isinstance(value, Tensor):
            raise PalladioTypeError(
                "the functions of palladio.interop.torch take tensors",
                argument=argument,
                got=type(value).__name__,
                hint="palladio.library takes arrays of any library",
            )
        require_dense(torch, value, argument)
    require_data(tensors)


def require_data(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors of the meta device where the first one has data, and so the result.

    Raises:
        PalladioTypeError: naming the first one.
    """
    without = [argument for argument, tensor in tensors.items() if tensor.device.type == "meta"]
    if without and without[0] != next(iter(tensors)):
        rule, got = "the tensor has no memory of its own", "a tensor of the meta device"
        raise PalladioTypeError(rule, argument=without[0], expected="memory, as of the other tensors", got=got)


def under_autocast(*tensors: Tensor) -> Sequence[Tensor]:
    """The tensors in the dtype of the autocast region around the call, if there is one; float64 stays."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [each.to(dtype) if each.is_floating_point() and each.dtype != torch.float64 else each for each in tensors]
