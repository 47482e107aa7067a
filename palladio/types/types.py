"""Types of values: arrays (`f32[128,64]`) and references to memory (`ref<smem, bf16[4,128,64]>`)."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from palladio.base.arguments import entries
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.types import dtypes
from palladio.types.attributes import Attribute
from palladio.types.dtypes import DType

Shape = tuple[int, ...]
Kind = TypeVar("Kind", bound=Attribute)


class _Shaped:
    """The properties that follow from a shape, for every type that has one."""

    shape: Shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ArrayType(_Shaped):
    """The type of an array value."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


def described_shape(shape: Any) -> Shape:
    """The shape that a user gives: an integer or a sequence of them, at least 0.

    Raises:
        PalladioTypeError: for what is not an integer.
        PalladioValueError: for a negative size.
    """
    try:
        found = tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
    except TypeError:
        raise PalladioTypeError("a shape is integers", argument="shape", got=repr(shape)) from None
    if min(found, default=0) < 0:
        raise PalladioValueError("a size is at least 0", argument="shape", got=found)
    return found


@dataclass(frozen=True, eq=False)
class Owned:
    """A type for each core or block of one mesh: `VMEM @ mesh`, `Barrier(...) @ mesh`.

    Calling an owned memory space describes a buffer in it: `(VMEM @ mesh)((8, 128), jnp.float32)`.
    """

    what: Any
    mesh: Any

    def __call__(self, *args: Any, **options: Any) -> Owned:
        return Owned(self.what(*args, **options), self.mesh)

    def __repr__(self) -> str:
        return f"{self.what} @ {self.mesh}"

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to it, without its owner."""
        return self.what.ref_type  # type: ignore[no-any-return]


class Ownable:
    """A description that `@ mesh` gives to a mesh."""

    def __matmul__(self, mesh: Any) -> Owned:
        if not hasattr(mesh, "axes"):
            with at_call():
                raise PalladioTypeError("memory belongs to a mesh", argument="mesh", got=repr(mesh))
        return Owned(self, mesh)


@dataclass(frozen=True)
class MemorySpace(Ownable):
    """A kind of memory. Calling one describes a buffer in it: `VMEM((8, 128), jnp.float32)`.

    Those of a TPU are its attributes too: `MemorySpace.VMEM` is `VMEM`. Keys of random numbers, `KEY`, are in `SMEM`.
    """

    name: str

    ANY: ClassVar[MemorySpace]
    CMEM: ClassVar[MemorySpace]
    HBM: ClassVar[MemorySpace]
    HOST: ClassVar[MemorySpace]
    KEY: ClassVar[MemorySpace]
    SEMAPHORE: ClassVar[MemorySpace]
    SMEM: ClassVar[MemorySpace]
    VMEM: ClassVar[MemorySpace]
    VMEM_SHARED: ClassVar[MemorySpace]

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _space, (type(self), self.name)

    def __call__(self, shape: Shape, dtype: Any, *, transforms: Sequence[Attribute] = ()) -> MemoryRef:
        """Describe a buffer of `dtype[shape]` in this space, for `scratch_shapes` and `run_scoped`.

        Args:
            transforms: how it is laid out, such as `(TilingTransform((8, 64)), SwizzleTransform(128))`.
        """
        with at_call():
            kept = entries(transforms, "transforms", "a tuple of transforms")
            return MemoryRef(described_shape(shape), dtypes.canonical(dtype), self, kept)

    def like(self, array: Any) -> MemoryRef:
        """Describe a buffer in this space of the shape and dtype of an array."""
        return self(array.shape, array.dtype)


ANY = MemorySpace.ANY = MemorySpace("any")
HOST = MemorySpace.HOST = MemorySpace("host")


class GPUMemorySpace(MemorySpace):
    """The memories of a GPU, also as its attributes: `GPUMemorySpace.SMEM` is `SMEM`."""

    GMEM: ClassVar[GPUMemorySpace]
    SMEM: ClassVar[GPUMemorySpace]
    REGS: ClassVar[GPUMemorySpace]


GMEM = GPUMemorySpace.GMEM = GPUMemorySpace("gmem")
SMEM = GPUMemorySpace.SMEM = GPUMemorySpace("smem")
REGS = GPUMemorySpace.REGS = GPUMemorySpace("regs")
VMEM = MemorySpace.VMEM = MemorySpace("vmem")
HBM = MemorySpace.HBM = MemorySpace("hbm")
SCALAR = MemorySpace.SMEM = MemorySpace.KEY = MemorySpace("scalar")
ACC = MemorySpace("acc")  # accumulators of the tensor cores
BARRIER = MemorySpace("barrier")
SEMAPHORE = MemorySpace.SEMAPHORE = MemorySpace("semaphore")
DMA_SEMAPHORE = MemorySpace("dma_semaphore")
VMEM_SHARED = MemorySpace.VMEM_SHARED = MemorySpace("vmem_shared")
CMEM = MemorySpace.CMEM = MemorySpace("cmem")

MEMORY_SPACES: dict[str, MemorySpace] = {
    space.name: space
    for space in (
        *(ANY, HOST, GMEM, SMEM, REGS, VMEM, HBM, SCALAR),
        *(ACC, BARRIER, SEMAPHORE, DMA_SEMAPHORE, VMEM_SHARED, CMEM),
    )
}


def _space(kind: type[MemorySpace], name: str) -> MemorySpace:
    """The memory space of a name. Spaces are compared by identity, so unpickling one must return the same object."""
    return MEMORY_SPACES.get(name) or kind(name)


COUNTING = frozenset({SEMAPHORE, DMA_SEMAPHORE})
SYNCHRONISING = frozenset({BARRIER, *COUNTING})
"""Spaces whose references hold no data: only synchronising operations reach them."""


@dataclass(frozen=True)
class MemoryRef(Ownable):
    """A description of a buffer to allocate: shape, dtype and memory space."""

    shape: Shape
    dtype: DType
    memory_space: MemorySpace = ANY
    attributes: tuple[Attribute, ...] = ()

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to such a buffer."""
        return RefType(self.shape, self.dtype, self.memory_space, self.attributes)

    @property
    def inner_aval(self) -> ShapeDtypeStruct:
        """The shape and the dtype of its elements, by JAX's name."""
        return ShapeDtypeStruct(self.shape, self.dtype)


@dataclass(frozen=True)
class RefType(_Shaped):
    """The type of a reference to a buffer of `dtype[shape]` in a memory space."""

    shape: Shape
    dtype: DType
    space: MemorySpace = ANY
    attributes: tuple[Attribute, ...] = ()

    def __str__(self) -> str:
        return f"ref<{', '.join(map(str, (self.space, self.array, *self.attributes)))}>"

    @property
    def initial(self) -> Any:
        """The initial value of each element of such a buffer."""
        known = self.space is ACC or self.space in SYNCHRONISING
        return np.zeros((), self.dtype)[()] if known else dtypes.uninitialized(self.dtype)

    def attribute(self, kind: type[Kind]) -> Kind | None:
        """The attribute of a kind, if the type has one."""
        return next((each for each in self.attributes if isinstance(each, kind)), None)

    @property
    def array(self) -> ArrayType:
        """The type of the value that the whole reference holds."""
        return ArrayType(self.shape, self.dtype)


Type = ArrayType | RefType


@dataclass(frozen=True)
class ShapeDtypeStruct(_Shaped):
    """A description of an array: `shape` and `dtype`. What `out_shape` takes."""

    shape: Shape
    dtype: DType

    def __init__(self, shape: Any, dtype: Any, **_: Any) -> None:
        with at_call():
            object.__setattr__(self, "shape", described_shape(shape))
            object.__setattr__(self, "dtype", dtypes.canonical(dtype))

    @classmethod
    def like(cls, array: Any) -> ShapeDtypeStruct:
        """The description of an array, a reference or another description.

        Raises:
            PalladioTypeError: for a value without a shape or a dtype, or with a dtype that is not supported.
        """
        with at_call():
            shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
            if shape is None or dtype is None:
                raise PalladioTypeError(
                    "only what has a shape and a dtype can be described", argument="array", got=f"{array!r:.60}"
                )
            return cls(shape, str(dtype).removeprefix("torch."))

    def __str__(self) -> str:
        return str(ArrayType(self.shape, self.dtype))
