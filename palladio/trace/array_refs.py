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
from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError
from palladio.trace.gpu.rounds import carried_out_in_rounds, made_in_round
from palladio.trace.grid import is_inside_kernel
from palladio.trace.reference import Ref, Reference, WholeReference, fitted, require_reference
from palladio.trace.semaphores import semaphore_signal
from palladio.trace.trace import current_trace
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ANY, COUNTING, SYNCHRONISING, MemorySpace, Owned, RefType, Shape, described_shape


class ArrayRef(WholeReference):
    """A reference outside of kernels: an array that kernels, staged functions and the caller change in place."""

    __slots__ = ("palladio_array", "palladio_type")

    def __init__(self, type: RefType, array: np.ndarray[Any, Any]) -> None:
        self.palladio_type = type
        self.palladio_array = array


class BetweenLaunches(WholeReference):
    """The base of references of a function that launches kernels, which are other memory in each launch.

    Fields:
        memory: the reference that replaces it while a launch is traced; None outside of launches.
    """

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory: Reference | None = None

    def outside(self) -> Reference:
        """The reference itself, where no launch has replaced it."""
        return self

    @property
    def root(self) -> Any:  # type: ignore[override]
        """Itself, or the memory that it is a part of."""
        return self.outside() if self.memory is None else self.memory.root

    @property
    def transforms(self) -> Any:
        """Those of the memory."""
        return () if self.memory is None else self.memory.transforms

    @property
    def operands(self) -> Any:
        """Those of the memory."""
        return () if self.memory is None else self.memory.operands


class DeviceRef(BetweenLaunches):
    """A reference of a function that all devices run in rounds: a value between launches, memory of the device in one.

    Fields:
        value: `dtype[shape]`.
    """

    __slots__ = ("space", "value")

    def __init__(self, value: Any, space: MemorySpace) -> None:
        super().__init__()
        self.value = value
        self.space = space

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


class Semaphores:
    """Semaphores as the output of a launch: a value, their counts. `new_ref` makes a reference of it.

    Fields:
        counts: i32[shape], or in the arguments of a launch a reference to them.
        space: the kind of semaphore.
    """

    __slots__ = ("counts", "space")

    def __init__(self, counts: Any, space: MemorySpace) -> None:
        self.counts = counts
        self.space = space

    def __repr__(self) -> str:
        return f"{self.space}{list(getattr(self.counts, 'shape', ()))}"


trees.register(
    Semaphores, lambda value: ((value.counts,), value.space), lambda space, counts: Semaphores(*counts, space)
)


class SemaphoresNeeded(Exception):
    """A program uses semaphores of the function that launches it: the launch is traced again with them."""

    def __init__(self, semaphores: KeptSemaphores) -> None:
        super().__init__()
        self.semaphores = semaphores


class KeptSemaphores(BetweenLaunches):
    """Semaphores outside of kernels: counts between launches, semaphores of the core in one.

    Fields:
        counts: a reference to them, `i32[shape]`.
        space: the kind of semaphore.
    """

    __slots__ = ("counts", "space")

    def __init__(self, counts: Reference, space: MemorySpace) -> None:
        super().__init__()
        self.counts = counts
        self.space = space

    def outside(self) -> Reference:
        """Refused outside of kernels; in one, the launch is traced again."""
        if is_inside_kernel():
            raise SemaphoresNeeded(self)
        raise PalladioValueError(
            "semaphores are signalled and awaited in kernels",
            got=repr(self),
            hint="launch a kernel that closes over it",
        )

    @property
    def palladio_type(self) -> RefType:
        """Its type."""
        return RefType(self.counts.shape, self.counts.dtype, self.space)

    @property
    def palladio_array(self) -> None:
        """None: launches get its counts."""

    @property
    def array(self) -> Any:
        """The type of its counts."""
        return self.counts.array

    @property
    def memory_space(self) -> MemorySpace:
        """The kind of semaphore."""
        return self.space


def _kept(shape: Shape, space: MemorySpace) -> KeptSemaphores:
    counts = _allocated(shape, dtypes.INT32, ANY, "")
    counts[...] = np.zeros(shape, dtypes.INT32)
    return KeptSemaphores(counts, space)


def _allocated(
    shape: Shape, dtype: DType, memory_space: Any, argument: str
) -> Ref | ArrayRef | DeviceRef | KeptSemaphores:
    space = memory_space.what if isinstance(memory_space, Owned) else memory_space
    space = ANY if space is None else space
    if not isinstance(space, MemorySpace):
        raise PalladioTypeError("this is not a memory space", argument="memory_space", got=repr(memory_space))
    kind = RefType(shape, dtype, space)
    if carried_out_in_rounds() and space not in SYNCHRONISING:
        return made_in_round(DeviceRef(np.full(shape, kind.initial, dtype), space))  # type: ignore[no-any-return]
    if space in COUNTING and not is_inside_kernel():
        return _kept(shape, space)
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
        init_val: `dtype[shape]`, a number too; or the semaphores that a launch returned.
        memory_space: where it lies, such as `pltpu.VMEM`; any memory by default.

    Returns:
        A reference `dtype[shape]`.

    Raises:
        PalladioTypeError: not an array or a memory space; barriers.
    """
    if isinstance(init_val, Semaphores):
        init_val, memory_space = init_val.counts, init_val.space
    value = init_val if hasattr(init_val, "palladio_type") else to_numpy(init_val, "init_val")
    kind = convert.array_type(value)
    ref = _allocated(kind.shape, kind.dtype, memory_space, "memory_space")
    if isinstance(ref, Ref) and ref.memory_space in COUNTING:
        for place in np.ndindex(*ref.shape):
            semaphore_signal(ref.at[place], getitem(value, place))
        return ref
    (ref.counts if isinstance(ref, KeptSemaphores) else ref)[...] = value
    return ref


def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A reference to new memory that nothing has written yet.

    Args:
        ty: anything with a shape and a dtype: an array, a `ShapeDtypeStruct`, a description such as
            `pltpu.VMEM((8, 128), jnp.float32)`, whose memory space it has.
        memory_space: where it lies, as in `new_ref`.

    Raises:
        PalladioTypeError: no shape and dtype; not a memory space; outside of kernels and staged
            functions, barriers.
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
    if isinstance(ref, KeptSemaphores):
        return Semaphores(ref.counts[...], ref.space)
    return require_reference(ref, "ref")[...]
