"""References created on demand: `new_ref`, `empty_ref` and `freeze`.

In a kernel, or in a function that is being traced, such a reference lasts until the end of the function, loop body or
branch that makes it. Elsewhere it holds an array until nothing refers to it, and is read and written immediately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import to_numpy
from palladio.array.functions.indexing import At, getitem
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError
from palladio.trace.gpu.rounds import carried_out_in_rounds, made_in_round
from palladio.trace.reference import Ref, Reference, WholeReference, fitted, require_reference
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


class DeviceRef(WholeReference):
    """A reference of a function that all devices run in rounds: a value between launches, memory of the device in one.

    Fields:
        value: `dtype[shape]`.
        memory: the reference that replaces it while a launch is traced; None outside of launches.
    """

    __slots__ = ("memory", "space", "value")

    def __init__(self, value: Any, space: MemorySpace) -> None:
        self.value = value
        self.space = space
        self.memory: Reference | None = None

    @property
    def root(self) -> Any:  # type: ignore[override]
        """Itself, or the memory that it is a part of."""
        return self if self.memory is None else self.memory.root

    @property
    def transforms(self) -> Any:
        """Those of the memory."""
        return () if self.memory is None else self.memory.transforms

    @property
    def operands(self) -> Any:
        """Those of the memory."""
        return () if self.memory is None else self.memory.operands

    @property
    def palladio_type(self) -> RefType:
        """Its type."""
        kind = convert.array_type(self.value)
        return RefType(kind.shape, kind.dtype, self.space)

    @property
    def palladio_array(self) -> Any:
        """None: launches get its memory."""
        raise PalladioNotImplementedError(
            "on several devices a launch closes over references of the function as they are",
            got=repr(self),
            hint="take parts of it in the kernel, ref.at[...]; on GPUs pass arrays",
        )

    def __getitem__(self, key: Any) -> Any:
        return getitem(self.value, key) if self.memory is None else self.memory[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.memory is not None:
            self.memory[key] = value
        elif key is ...:
            self.value = fitted(value, self)
        else:
            self.value = At(self.value)[key].set(value)


def _allocated(shape: Shape, dtype: DType, memory_space: Any, argument: str) -> Ref | ArrayRef | DeviceRef:
    space = memory_space.what if isinstance(memory_space, Owned) else memory_space
    space = ANY if space is None else space
    if not isinstance(space, MemorySpace):
        raise PalladioTypeError("this is not a memory space", argument="memory_space", got=repr(memory_space))
    kind = RefType(shape, dtype, space)
    if carried_out_in_rounds() and space not in SYNCHRONISING:
        return made_in_round(DeviceRef(np.full(shape, kind.initial, dtype), space))  # type: ignore[no-any-return]
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
        PalladioTypeError: not an array or a memory space; barriers and semaphores.
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
        PalladioTypeError: no shape and dtype; not a memory space; outside of kernels and staged
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
        PalladioTypeError: not a reference.
    """
    return require_reference(ref, "ref")[...]
