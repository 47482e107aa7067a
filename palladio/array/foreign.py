"""Conversion of arrays: NumPy, PyTorch and JAX arrays, and objects with DLPack or the array protocol.

This module imports no library that the caller has not imported: a PyTorch tensor is recognised by its own module.
Results have the kind of the arguments: if any argument is a tensor, they are tensors.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.array.copies import note_copy
from palladio.array.tensors import has_tangent, is_freed, require_dense, require_memory
from palladio.base import trees
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.types import dtypes
from palladio.types.types import ArrayType, ShapeDtypeStruct

_WORDS = {1: np.uint8, 2: np.uint16}


def library_of(value: Any) -> str:
    """The library of a value: `numpy`, `torch` or `jax`."""
    return _library_of(type(value))


@functools.lru_cache(1024)
def _library_of(kind: type) -> str:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("torch", "jax", "jaxlib"):
            return "torch" if root == "torch" else "jax"
    return "numpy"


def to_numpy(value: Any, argument: str) -> np.ndarray[Any, Any] | np.generic:
    """The value as a NumPy array, without a copy where the memory can be shared.

    Raises:
        PalladioTypeError: no array, or one of a dtype that Palladio does not have.
        PalladioValueError: an array that is not in host memory.
    """
    if library_of(value) == "torch":
        return _from_torch(value, argument)
    kind = dtypes.of_scalar(value)
    if isinstance(value, np.ndarray):
        _refuse_mask(value, argument)
        array = np.asarray(value)  # a matrix or a memory map is an array here
    elif kind is not None:
        array = _from_scalar(value, kind[0], argument)
    elif hasattr(value, "__array__"):
        if library_of(value) == "jax":
            _refuse_tracer(value, argument)
        array = np.asarray(value)
        if not getattr(value, "is_fully_replicated", True):
            note_copy(array, "an array of several devices is gathered", "palladio.interop.jax takes it as it is")
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        raise PalladioTypeError(
            "neither an array nor a number", argument=argument, got=f"{type(value).__name__}: {value!r:.60}"
        )
    if not array.dtype.isnative:
        hint = 'array.astype(array.dtype.newbyteorder("=")) copies it once'
        note_copy(array, "kernels take arrays in the byte order of this machine", hint)
        array = array.astype(array.dtype.newbyteorder("="))
    if not dtypes.is_supported(array.dtype):
        raise PalladioTypeError(
            "an array of a dtype that Palladio does not have",
            argument=argument,
            expected=dtypes.LISTED,
            got=array.dtype,
        )
    return array


def all_to_numpy(leaves: Sequence[Any], tree: Any, root: str) -> list[Any]:
    """The leaves of a tree of arguments as NumPy arrays.

    Args:
        tree, root: what an error needs to name a leaf, `root[0]['weights']`. No name is made without one.

    Raises:
        PalladioTypeError, PalladioValueError: as in `to_numpy`.
    """
    values: list[Any] = []
    for leaf in leaves:
        if type(leaf) is np.ndarray and dtypes.is_supported(leaf.dtype):
            values.append(leaf)
            continue
        try:
            values.append(to_numpy(leaf, root))
        except PalladioError as error:
            if error.argument == root:
                error.argument = trees.leaf_names(tree, root)[len(values)]
            raise
    return values


def refuse_numbers(args: Sequence[Any], root: str) -> None:
    """Refuse lists of plain numbers where arrays are meant: a list is a tree, so each number would be an array.

    Raises:
        PalladioTypeError: for an argument that is a list, or lists in a list, of numbers alone.
    """
    for position, value in enumerate(args):
        if isinstance(value, list):
            leaves, _ = trees.flatten(value)
            if leaves and all(isinstance(leaf, (bool, int, float)) for leaf in leaves):
                raise PalladioTypeError(
                    "a list of numbers is not an array",
                    argument=f"{root}[{position}]",
                    got=f"{value!r:.60}",
                    hint="np.array(values, dtype) makes one of it",
                )


def described(leaf: Any, argument: str) -> ArrayType:
    """The type of an array or scalar, or the one that a `ShapeDtypeStruct` describes."""
    if isinstance(leaf, ShapeDtypeStruct):
        return ArrayType(leaf.shape, leaf.dtype)
    if isinstance(getattr(leaf, "palladio_type", None), ArrayType):
        return leaf.palladio_type
    array = to_numpy(leaf, argument)
    return ArrayType(array.shape, array.dtype)


def _refuse_mask(array: np.ndarray[Any, Any], argument: str) -> None:
    """Refuse an array with masked elements: kernels would compute with the values under the mask."""
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise PalladioValueError(
            "the mask of the array would be lost",
            argument=argument,
            got=f"a masked array with {int(np.ma.count_masked(array))} masked elements",
            hint="array.filled(value) puts a value in their place",
        )


def _refuse_tracer(value: Any, argument: str) -> None:
    """Refuse a value that JAX traces."""
    if isinstance(value, sys.modules["jax"].core.Tracer):
        raise PalladioTypeError(
            "JAX knows no values of the array while it traces a function",
            argument=argument,
            got=f"a {type(value).__name__}, {value.aval}",
            hint="palladio.interop.jax has the library for jit, grad and vmap",
        )


def _from_scalar(value: Any, dtype: dtypes.DType, argument: str) -> np.ndarray[Any, Any]:
    if dtype == dtypes.INT32 and not -(2**31) <= value < 2**31:
        raise PalladioValueError(
            "a Python integer alone is an int32, which cannot hold this one",
            argument=argument,
            got=value,
            hint="pass an array of the dtype that is meant",
        )
    with np.errstate(all="ignore"):  # a float that is too large for the dtype is infinite, whatever the caller set
        return np.asarray(value, dtype)


def _from_torch(tensor: Any, argument: str) -> np.ndarray[Any, Any]:
    torch = sys.modules["torch"]
    dual = has_tangent(torch, tensor)
    if tensor.is_cpu and _is_shared(tensor.dtype) and _RESIZES not in sys.modules and not dual:
        try:
            if not is_freed(tensor):
                return tensor.numpy()
        except (RuntimeError, TypeError):
            pass  # the checks below say why
    if not (tensor.is_cpu or tensor.device.type == "meta"):
        raise PalladioValueError(
            "the tensor is not in host memory", argument=argument, got=str(tensor.device), hint="tensor.cpu()"
        )
    require_dense(torch, tensor, argument)
    if dual or (tensor.requires_grad and torch.is_grad_enabled()):
        raise PalladioTypeError(
            "the gradient of the tensor would be lost",
            argument=argument,
            got="a tensor with a tangent" if dual else "a tensor with requires_grad=True",
            hint="palladio.interop.torch has the library with gradients; without them, pass tensor.detach()",
        )
    require_memory(tensor, argument)
    try:
        dtype = _of_torch(tensor.dtype)
    except PalladioError as error:
        error.argument = argument
        raise
    if tensor.is_neg():
        note_copy(tensor, "the tensor is negated when it is read", "tensor.resolve_neg() copies it once")
    if tensor.requires_grad or tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    if _RESIZES in sys.modules and tensor.untyped_storage().resizable():
        return np.asarray(_Memory(tensor, dtype)).view(dtype)
    if not dtypes.is_narrow_float(dtype):
        return tensor.numpy()
    word = torch.uint8 if dtype.itemsize == 1 else torch.uint16
    return tensor.view(word).numpy().view(dtype)


_RESIZES = "torch.distributed.fsdp"
"""The module that resizes the memory of tensors."""


@functools.cache
def _is_shared(dtype: Any) -> bool:
    """True for a dtype of PyTorch that NumPy has too."""
    try:
        return not dtypes.is_narrow_float(_of_torch(dtype))
    except PalladioError:
        return False


class _Memory:
    """The memory of a tensor in NumPy's array interface, version 3.

    A storage that `Tensor.numpy` has shown can no longer be resized, and FSDP resizes those of gathered parameters.
    """

    def __init__(self, tensor: Any, dtype: dtypes.DType) -> None:
        self.tensor = tensor  # kept alive by the array
        kind = f"V{dtype.itemsize}" if dtypes.is_narrow_float(dtype) else np.dtype(dtype).str
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": kind,
            "data": (tensor.data_ptr(), False),
            "strides": tuple(step * dtype.itemsize for step in tensor.stride()),
        }


@functools.cache
def _of_torch(dtype: Any) -> dtypes.DType:
    return dtypes.canonical(dtype)


def from_numpy(array: np.ndarray[Any, Any], library: str) -> Any:
    """A result as an array of `library`, sharing memory where it can."""
    if library == "torch":
        return _to_torch(np.asarray(array))
    if library == "jax":
        return _to_jax(array)
    return array


def _to_jax(array: np.ndarray[Any, Any]) -> Any:
    jax = sys.modules["jax"]
    note_copy(array, "a result goes to JAX", "palladio.interop.jax writes results to JAX's own memory")
    if array.dtype.itemsize < 8:
        return jax.numpy.asarray(array)
    # By default JAX would make 32 bits of them, and change their values silently.
    wide = jax.enable_x64 if hasattr(jax, "enable_x64") else __import__("jax.experimental").experimental.enable_x64
    with wide(True):
        return jax.numpy.asarray(array)


def _to_torch(array: np.ndarray[Any, Any]) -> Any:
    if not array.flags.writeable or array.ndim == 0:
        note_copy(array, "a tensor is made of memory that can be written", "pass arrays that are writeable")
        array = np.array(array)
    return tensor_maker(array.dtype)(array)


@functools.cache
def tensor_maker(dtype: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    """The function that makes a tensor on the memory of a writable array of a dtype, with at least one axis."""
    torch = sys.modules["torch"]
    from_numpy = torch.from_numpy
    if not dtypes.is_narrow_float(dtype):
        return from_numpy  # type: ignore[no-any-return]
    word, kind = _WORDS[dtype.itemsize], getattr(torch, str(dtype))
    return lambda array: from_numpy(array.view(word)).view(kind)


def common_library(values: Sequence[Any]) -> str:
    """The library that results go to: that of the first argument that is not a NumPy array."""
    for value in values:
        if type(value) is not np.ndarray and (library := library_of(value)) != "numpy":
            return library
    return "numpy"
