"""References that are made where they are needed: `new_ref`, `empty_ref` and `freeze`.

In a kernel, or in a function that is being traced, such a reference lasts until the end of the function, loop body or
branch that makes it. Elsewhere it holds an array until nothing refers to it, and is read and written at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import to_numpy
from palladio.base.errors import PalladioTypeError
from palladio.trace.reference import Ref, WholeReference, require_reference
from palladio.trace.trace import current_trace
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ANY, SYNCHRONISING, MemorySpace, Owned, RefType, Shape, described_shape


class ArrayRef(WholeReference):
    """A reference outside of kernels: an array that kernels, staged functions and the caller change in place."""

    __slots__ = ("palladio_array", "palladio_type")

    def __init__(self, type: RefType, array: np.ndarray[Any, Any]) -> None:
        self.palladio_type = type
        self.palladio_array = array


def _allocated(shape: Shape, dtype: DType, memory_space: Any, argument: str) -> Ref | ArrayRef:
    space = memory_space.what if isinstance(memory_space, Owned) else memory_space
    space = ANY if space is None else space
    if not isinstance(space, MemorySpace):
        raise PalladioTypeError("this is not a memory space", argument="memory_space", got=repr(memory_space))
    kind = RefType(shape, dtype, space)
    trace = current_trace()
    if trace is not None:
        return Ref(trace, trace.allocate(kind))
    if space in SYNCHRONISING:
        raise PalladioTypeError(
            "barriers and semaphores belong to kernels",
            argument=argument,
            got=str(kind),
            hint="allocate them in the kernel: scratch_types, or pl.run_scoped",
        )
    return ArrayRef(kind, np.full(shape, kind.initial, dtype))


def new_ref(init_val: Any, *, memory_space: Any = None) -> Any:
    """A reference to new memory that starts with the values of an array.

    Kernels take it as an argument or close over it; `freeze(ref)` gives its last values. Later changes of the array
    do not change it, nor the other way round.

    Args:
        init_val: `dtype[shape]`, a number too.
        memory_space: where it lies, such as `pltpu.VMEM`; any memory by default.

    Returns:
        A reference `dtype[shape]`.

    Raises:
        PalladioTypeError: what is not an array or a memory space; barriers and semaphores.
    """
    value = init_val if hasattr(init_val, "palladio_type") else to_numpy(init_val, "init_val")
    kind = convert.array_type(value)
    ref = _allocated(kind.shape, kind.dtype, memory_space, "memory_space")
    ref[...] = value
    return ref


def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A reference to new memory that nothing has written yet.

    Args:
        ty: anything with a shape and a dtype: an array, a `ShapeDtypeStruct`, a description such as
            `pltpu.VMEM((8, 128), jnp.float32)`, whose memory space it has.
        memory_space: where it lies, as in `new_ref`.

    Raises:
        PalladioTypeError: what has no shape and dtype; what is not a memory space; outside of kernels and staged
            functions, barriers and semaphores.
    """
    described = getattr(ty, "ref_type", None)
    if isinstance(described, RefType):
        space = described.space if memory_space is None else memory_space
        return _allocated(described.shape, described.dtype, space, "ty")
    shape, dtype = getattr(ty, "shape", None), getattr(ty, "dtype", None)
    if shape is None or dtype is None:
        raise PalladioTypeError("this has no shape and dtype", argument="ty", got=repr(ty))
    return _allocated(described_shape(shape), dtypes.canonical(dtype), memory_space, "memory_space")


def freeze(ref: Any) -> Any:
    """The last values of a reference, `dtype[shape]`. The reference must not be used afterwards.

    Raises:
        PalladioTypeError: what is not a reference.
    """
    return require_reference(ref, "ref")[...]
