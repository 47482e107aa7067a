"""The values of a program's variables while its text is written: arrays in registers, and references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from palladio.hopper.emit.scalars import Scalar, rounded
from palladio.hopper.emit.views import Part
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import SharedLayout
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import RefType

EXCHANGE = "the exchange"
"""The identity of the memory through which elements change threads, where accesses are kept in order."""


@dataclass(frozen=True)
class Splat:
    """An array whose elements are all one number."""

    text: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Registers:
    """An array in registers.

    Fields:
        name: of the C array of registers.
        exact: whether elements of a narrow dtype have been rounded to it; if not, what takes them does so.
    """

    name: str
    layout: Layout
    dtype: DType
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.layout.shape

    def at(self, register: str) -> str:
        """An element."""
        text = f"{self.name}[{register}]"
        return text if self.exact else rounded(text, self.dtype)


@dataclass(frozen=True)
class Computed:
    """An array whose elements follow from their places: `at(register, thread)` in any layout."""

    at: Callable[[Layout, str, str], str]
    shape: tuple[int, ...]
    dtype: DType


Array = Splat | Registers | Computed


@dataclass(frozen=True)
class Accumulator:
    """An accumulator of the tensor cores: `rows / 64` C arrays of registers in one."""

    name: str
    type: RefType

    @property
    def each(self) -> int:
        """Elements in a register: two of float16."""
        return 2 if self.type.dtype.itemsize == 2 else 1

    @property
    def kind(self) -> str:
        """The C++ type of a register."""
        return "u32" if self.each == 2 else "float" if dtypes.is_float(self.type.dtype) else "int"

    @property
    def tile(self) -> int:
        """Registers that 64 rows take."""
        return self.type.shape[1] // 2 // self.each


@dataclass(frozen=True)
class Shared:
    """A buffer in shared memory.

    Fields:
        base: its address, as a C expression.
        layout: how it lies there.
        root: what it is known by where accesses to one buffer are kept in order.
    """

    base: str
    layout: SharedLayout
    type: RefType
    root: Any
    name: str


@dataclass(frozen=True)
class Global:
    """An array in global memory.

    Fields:
        number: which one, among the arrays of the launch.
        constant: whether it is not written while the kernel runs.
        root: what it is known by where accesses to one buffer are kept in order.
        window: the part of it that the reference is to, where it is a block.
        sizes: axes of the window that may end early, each with the number of its elements as a C expression.
    """

    number: int
    name: str
    type: RefType
    constant: bool
    root: Any
    window: Part | None = None
    sizes: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Barriers:
    """An array of barriers.

    Fields:
        base: the address of the first one, as a C expression; each takes 8 bytes.
        unit: how often the barrier counts one arrival of a thread of the launch: 4, once for each warp, or 1, where
            only copies arrive.
        phases: the C variable whose bit n is the parity of the phase of barrier n that is waited for next.
        root: what they are known by where waits and the copies that arrive are kept in order.
        cluster_axes: those along which an arrival counts in other blocks too.
        clustered: whether threads of other blocks arrive.
        of_rows: whether rows arrive that threads have copied, as ordinary writes.
    """

    base: str
    type: RefType
    unit: int
    phases: str
    root: Any
    cluster_axes: tuple[str, ...] = ()
    clustered: bool = False
    of_rows: bool = False


@dataclass(frozen=True)
class NamedBarriers:
    """Named barriers of the hardware, from a number on, and the threads that come to each."""

    first: int
    threads: int
    type: RefType


@dataclass(frozen=True)
class Semaphores:
    """Counters in global memory: the name of the parameter that is their address."""

    name: str
    type: RefType


Reference = Accumulator | Shared | Global | Barriers | NamedBarriers | Semaphores
Entry = Scalar | Array | Reference


@dataclass
class Sites:
    """Which accesses to a buffer have not been ordered by a barrier of the warpgroup yet."""

    read: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)
