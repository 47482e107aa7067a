"""The values of a program's variables while its text is written: arrays in registers, and references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.hopper.emit.scalars import Scalar, rounded
from palladio.hopper.emit.views import Part
from palladio.hopper.layouts.integers import Index, bracketed
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import SharedLayout
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import RefType

WORD = 32
"""Bits of a word of phases."""

EXCHANGE = "the exchange"
"""The identity of the exchange buffer, for the ordering of accesses."""


@dataclass(frozen=True)
class Splat:
    """An array with all elements equal; `constant` is their value, if it is a known integer."""

    text: str
    shape: tuple[int, ...]
    dtype: DType
    constant: int | None = None


def splat_of(x: Scalar | Splat, shape: tuple[int, ...], dtype: DType) -> Scalar | Splat:
    """The array of a shape with all elements equal to a number; for the shape `()`, the number."""
    if not shape:
        return Scalar(x.text, dtype, constant=x.constant)
    return Splat(x.text, shape, dtype, x.constant)


@dataclass(frozen=True)
class Registers:
    """An array in registers.

    Fields:
        name: of the C array of registers.
        exact: False if elements of a narrow dtype are not rounded to it yet; then `at` rounds them.
    """

    name: str
    layout: Layout
    dtype: DType
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.layout.shape

    def at(self, register: str) -> str:
        """An element."""
        text = f"{self.name}[{register}]"
        return text if self.exact else rounded(text, self.dtype)


@dataclass(frozen=True)
class Packed:
    """A left operand of the tensor cores that a loop carries in 32-bit registers, as products take it."""

    name: str
    layout: Layout
    dtype: DType

    @property
    def each(self) -> int:
        """Elements in a register."""
        return 4 // self.dtype.itemsize


@dataclass(frozen=True)
class Computed:
    """An array whose elements are a function of their indices: `at(layout, register, thread)` in any layout."""

    at: Callable[[Layout, str, str], str]
    shape: tuple[int, ...]
    dtype: DType


Array = Splat | Registers | Computed


@dataclass(frozen=True)
class Accumulator:
    """An accumulator of the tensor cores: a C array with the registers of `rows / 64` tiles."""

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
        """Registers of a tile of 64 rows."""
        return self.type.shape[1] // 2 // self.each


@dataclass(frozen=True)
class Shared:
    """A buffer in shared memory.

    Fields:
        base: its address, as a C expression.
        layout: its layout there.
        root: its identity, for the ordering of accesses.
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
        number: its number among the arrays of the launch.
        constant: True if the kernel does not write it.
        root: its identity, for the ordering of accesses.
        window: the part that the reference selects, if it is a block.
        sizes: axes of the window that may end early, each with the number of its elements.
    """

    number: int
    name: str
    type: RefType
    constant: bool
    root: Any
    window: Part | None = None
    sizes: tuple[tuple[int, Index], ...] = ()


@dataclass(frozen=True)
class Barriers:
    """An array of barriers.

    Fields:
        base: the address of the first one, as a C expression; each takes 8 bytes.
        unit: hardware arrivals of one arrival: 4, one for each warp of a thread, or 1, where only copies arrive.
        phases: the C variable whose bit n is the phase parity of the next wait at barrier n; an array of several words
            for more than 32 barriers.
        ahead: the C variable with the phases of each barrier that a single warp has observed and its warpgroup has not;
            None where not both of them wait.
        root: their identity, for the ordering of waits and arriving copies.
        cluster_axes: the axes along which an arrival counts in other blocks too, each as a tuple of those that are one.
        clustered: True if threads of other blocks arrive.
        of_rows: True if row gathers arrive, which are ordinary writes by threads.
    """

    base: str
    type: RefType
    unit: int
    phases: str
    root: Any
    cluster_axes: tuple[tuple[str, ...], ...] = ()
    clustered: bool = False
    of_rows: bool = False
    ahead: str | None = None

    @property
    def words(self) -> int:
        """The 32-bit words of `phases`."""
        return max(1, -(-self.type.size // WORD))

    def phase(self, number: Index) -> tuple[str, Index]:
        """The word of `phases` with the bit of a barrier, as a C expression, and the number of the bit."""
        if self.words == 1:
            return self.phases, number
        if isinstance(number, int):
            return f"{self.phases}[{number // WORD}]", number % WORD
        return f"{self.phases}[{bracketed(number)} / {WORD}]", f"({bracketed(number)} % {WORD})"


@dataclass(frozen=True)
class NamedBarriers:
    """Named hardware barriers, numbered from `first`, and the number of threads that arrive at each."""

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
    """The buffers with reads and writes since the last synchronisation of the warpgroup."""

    read: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)
