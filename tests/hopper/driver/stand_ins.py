"""Arrays of PyTorch and CuPy that claim to be on a card, in memory that the imitated driver takes for its own.

Neither library has a card here: a tensor is a real one of PyTorch, whose subclass says that it is on `cuda:0`; CuPy and
JAX are modules of the few names that are used of them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from palladio.array import on_card
from palladio.types import dtypes
from tests.hopper.driver.fake import FakeDriver

_WORDS = {1: torch.uint8, 2: torch.uint16}


class Tensor(torch.Tensor):
    """A tensor on `cuda:0`."""

    index = 0

    is_cuda = True
    is_cpu = False
    device = torch.device("cuda", 0)  # type: ignore[assignment]

    def get_device(self) -> int:
        return self.index


class OnSecond(Tensor):
    """A tensor on `cuda:1`."""

    index = 1


class Torch:
    """PyTorch with a card."""

    def __init__(self, card: FakeDriver, patch: pytest.MonkeyPatch) -> None:
        self.card = card
        self.stream = 2
        self.allocated = 0
        self._empty, self._empty_strided = torch.empty, torch.empty_strided
        patch.setattr(torch, "empty", self._made)
        patch.setattr(torch, "empty_strided", self._strided)
        patch.setattr(Tensor, "clone", lambda tensor: self.tensor(numpy_of(tensor)), raising=False)
        patch.setattr(Tensor, "int", lambda tensor: self.tensor(numpy_of(tensor).astype(np.int32)), raising=False)
        patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: self.stream, raising=False)

    def tensor(self, array: np.ndarray, kind: type[torch.Tensor] = Tensor) -> Any:
        held = self.card.on_card(array)
        if dtypes.is_narrow_float(held.dtype):
            word = {1: np.uint8, 2: np.uint16}[held.dtype.itemsize]
            plain = torch.from_numpy(held.view(word)).view(getattr(torch, str(held.dtype)))
        else:
            plain = torch.from_numpy(held)
        return plain.as_subclass(kind)

    def _made(self, *shape: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        if torch.device(device or "cpu").type != "cuda":
            return self._empty(*shape, dtype=dtype, device=device, **options)
        self.allocated += 1
        return self.tensor(np.full(shape[0], 0, dtypes.canonical(dtype)))

    def _strided(self, shape: Any, strides: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        if torch.device(device or "cpu").type != "cuda":
            return self._empty_strided(shape, strides, dtype=dtype, device=device, **options)
        self.allocated += 1
        dense = self.tensor(np.full(shape, 0, dtypes.canonical(dtype)))
        return dense.as_strided(shape, strides)


def by_address(card: FakeDriver, patch: pytest.MonkeyPatch) -> None:
    """From now on a tensor is on `cuda:0` if its memory is the card's, whatever class it has: that of a tensor that
    autograd has kept is PyTorch's own."""
    device = torch.Tensor.device

    def on_card(tensor: torch.Tensor) -> bool:
        return isinstance(tensor, Tensor) or bool(tensor.numel() and card.has(tensor.data_ptr()))

    patch.setattr(torch.Tensor, "is_cuda", property(on_card), raising=False)
    patch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: not on_card(tensor)), raising=False)
    patch.setattr(torch.Tensor, "get_device", lambda tensor: 0 if on_card(tensor) else -1, raising=False)
    place = property(lambda tensor: torch.device("cuda", 0) if on_card(tensor) else device.__get__(tensor))
    patch.setattr(torch.Tensor, "device", place, raising=False)
    patch.setattr(torch.cuda, "_lazy_init", lambda: None)
    dense = torch.Tensor.contiguous

    def contiguous(tensor: torch.Tensor) -> torch.Tensor:
        found = dense(tensor)
        if on_card(tensor) and not on_card(found):
            card.adopt(found)
        return found

    patch.setattr(torch.Tensor, "contiguous", contiguous, raising=False)


def own_all_memory(card: FakeDriver, patch: pytest.MonkeyPatch, stream: int) -> None:
    """All memory of the process is the card's: for PyTorch, for its functions of C, and for the driver."""
    patch.setattr(torch.Tensor, "get_device", lambda tensor: 0, raising=False)
    patch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    patch.setattr(torch.Tensor, "is_cpu", False, raising=False)
    patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: stream, raising=False)
    patch.setattr(on_card, "_CUDA", 1)  # `kDLCPU`
    patch.setattr(on_card, "_torch_device", lambda device: torch.device("cpu"))
    on_card._torch_exchange.cache_clear()
    card.library.fake_adopt(1 << 12, 1 << 47)


class Computed(TorchDispatchMode):
    """PyTorch's own functions of tensors on the card: they are computed by the processor, in the card's memory."""

    def __init__(self, card: FakeDriver) -> None:
        super().__init__()
        self.card = card

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        made = torch.device(options.get("device") or "cpu").type == "cuda"
        if made:
            options["device"] = torch.device("cpu")
        given = [each for each in tree_leaves((args, options)) if isinstance(each, torch.Tensor)]
        made = made or any(each.is_cuda for each in given)
        found = function(*args, **options)
        for each in tree_leaves(found) if made else ():
            if isinstance(each, torch.Tensor) and each.numel() and not self.card.has(each.data_ptr()):
                self.card.adopt(each)
        return found


def numpy_of(tensor: Any) -> np.ndarray:
    """The values of a tensor or of an array of the imitated CuPy."""
    if isinstance(tensor, torch.Tensor):
        plain = tensor.as_subclass(torch.Tensor)
        dtype = dtypes.canonical(plain.dtype)
        if dtypes.is_narrow_float(dtype):
            return plain.view(_WORDS[dtype.itemsize]).numpy().view(dtype)
        return plain.numpy()
    return tensor.held


class CupyArray:
    """An array of CuPy."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held
        self.shape, self.dtype, self.flags = held.shape, held.dtype, held.flags
        self.data = types.SimpleNamespace(ptr=held.ctypes.data)
        self.device = types.SimpleNamespace(id=0)


CupyArray.__module__ = "cupy"


def imitated_cupy(card: FakeDriver, patch: pytest.MonkeyPatch) -> Callable[[np.ndarray], CupyArray]:
    """A module `cupy`; the result makes its arrays."""

    def array(values: np.ndarray) -> CupyArray:
        return CupyArray(card.on_card(values))

    cupy = types.ModuleType("cupy")
    stream = types.SimpleNamespace(ptr=2)
    cupy.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        Device=lambda index: nullcontext(), get_current_stream=lambda device=None: stream
    )
    cupy.empty = lambda shape, dtype: array(np.zeros(shape, dtype))  # type: ignore[attr-defined]
    cupy.asarray = array  # type: ignore[attr-defined]
    cupy.ascontiguousarray = lambda x: array(np.ascontiguousarray(x.held))  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "cupy", cupy)
    on_card.library_of.cache_clear()
    return array


class JaxArray:
    """An array of JAX."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held
        self.shape, self.dtype = held.shape, held.dtype

    def devices(self) -> list[Any]:
        return [types.SimpleNamespace(platform="gpu", local_hardware_id=0)]

    def block_until_ready(self) -> JaxArray:
        return self

    def unsafe_buffer_pointer(self) -> int:
        return int(self.held.ctypes.data)


JaxArray.__module__ = "jaxlib"


def imitated_jax(card: FakeDriver, patch: pytest.MonkeyPatch) -> Callable[[np.ndarray], JaxArray]:
    """A module `jax`; the result makes its arrays."""

    def array(values: np.ndarray) -> JaxArray:
        return JaxArray(card.on_card(values))

    jax = types.ModuleType("jax")
    device = types.SimpleNamespace(platform="gpu", local_hardware_id=0)
    jax.devices = lambda platform: [device]  # type: ignore[attr-defined]
    jax.numpy = types.SimpleNamespace(zeros=lambda shape, dtype, device: array(np.zeros(shape, dtype)))  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "jax", jax)
    return array


class Exchanged:
    """An array of a library that only has DLPack."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.as_subclass(torch.Tensor).__dlpack__()


class Interfaced:
    """An array of a library that only has `__cuda_array_interface__`."""

    def __init__(self, held: np.ndarray, strides: tuple[int, ...] | None = None) -> None:
        self.held = held
        self.__cuda_array_interface__ = {
            "shape": held.shape,
            "typestr": held.dtype.str,
            "data": (held.ctypes.data, False),
            "strides": strides,
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._facts

    @__cuda_array_interface__.setter
    def __cuda_array_interface__(self, facts: Any) -> None:
        self._facts = facts
