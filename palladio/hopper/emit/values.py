"""What the variables of a program are while its text is written: scalars, arrays in registers, references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palladio.base.errors import PalladioNotImplementedError
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import SharedLayout
from palladio.ir.core import Literal
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import RefType


class Refused(PalladioNotImplementedError):
    """A program that is not compiled for Hopper. The message is the reason, for the user."""


EXCHANGE = "the exchange"
"""What the memory through which elements change threads is known by where accesses are kept in order."""

REGISTER_TYPES = {
    "bool": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "i64",
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
    "f64": "double",
}
MEMORY_TYPES = {"bool": "u8", "f16": "u16", "bf16": "u16", "f8e4m3fn": "u8", "f8e5m2": "u8", "f32": "float"}
NARROW = {"f16": "f16", "bf16": "bf16", "f8e4m3fn": "e4m3", "f8e5m2": "e5m2"}
"""Floats that are held as float32, by the names of their conversions."""


def register_type(dtype: DType) -> str:
    """The C++ type that holds an element in a register."""
    return REGISTER_TYPES.get(dtypes.short_name(dtype), "float")


def memory_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    name = dtypes.short_name(dtype)
    return MEMORY_TYPES.get(name) or REGISTER_TYPES[name]


def narrow(dtype: DType) -> str | None:
    """What the conversions of a float narrower than float32 are called; None for every other dtype."""
    return NARROW.get(dtypes.short_name(dtype))


def from_memory(text: str, dtype: DType) -> str:
    """What an element in memory is in a register."""
    if name := narrow(dtype):
        return f"pal::float_{name}({text})"
    return f"{text} != 0" if dtypes.is_bool(dtype) else text


def to_memory(text: str, dtype: DType) -> str:
    """What an element in a register is in memory."""
    if name := narrow(dtype):
        return f"pal::bits_{name}({text})"
    return f"(u8)({text})" if dtypes.is_bool(dtype) else text


def rounded(text: str, dtype: DType) -> str:
    """A float32 that was computed for a narrower dtype, as that dtype has it."""
    name = narrow(dtype)
    return f"pal::float_{name}(pal::bits_{name}({text}))" if name else text


def literal(value: Any, dtype: DType) -> str:
    """A constant."""
    if dtypes.is_bool(dtype):
        return "true" if value else "false"
    if dtypes.is_float(dtype):
        number = float(value)
        if np.isnan(number):
            return "PAL_NAN"
        if np.isinf(number):
            return "PAL_INFINITY" if number > 0 else "-PAL_INFINITY"
        if dtype == dtypes.FLOAT64:
            return repr(number)
        return repr(number if narrow(dtype) else float(str(np.float32(number)))) + "f"
    name = dtypes.short_name(dtype)
    number = int(value)
    if name == "i64":
        return f"{number}ll" if number > -(2**63) else "(-9223372036854775807ll - 1)"
    if number == -(2**31):
        return "(-2147483647 - 1)"
    return f"{number}{ {'u32': 'u', 'u64': 'ull'}.get(name, '') }"


@dataclass(frozen=True)
class Scalar:
    """One number, the same in all threads of the role or warpgroup.

    Fields:
        text: a C expression without effects, a name or a constant.
        factor: what is known to divide it.
        truth: the condition of which it is the number, as a C expression.
    """

    text: str
    dtype: DType
    factor: int = 1
    truth: str | None = None

    @staticmethod
    def of(atom: Literal) -> Scalar:
        """A constant."""
        dtype = atom.type.dtype
        factor = abs(int(atom.value)) if dtypes.is_integer(dtype) else 1
        return Scalar(literal(atom.value, dtype), dtype, factor or 1 << 30)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a scalar."""
        return ()


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
        exact: whether elements of a narrow dtype have been rounded to it; if not, whoever takes them does so.
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
    def tile(self) -> int:
        """Registers that 64 rows take."""
        return self.type.shape[1] // 2


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
        constant: whether nobody writes to it while the kernel runs.
        root: what it is known by where accesses to one buffer are kept in order.
    """

    number: int
    name: str
    type: RefType
    constant: bool
    root: Any


@dataclass(frozen=True)
class Barriers:
    """An array of barriers.

    Fields:
        base: the address of the first one, as a C expression; each takes 8 bytes.
        unit: how often the barrier counts one arrival of a thread of the launch: 4, once for each warp, or 1, where
            only copies arrive.
        phases: the C variable whose bit n is the parity of the phase of barrier n that is waited for next.
        blocks: of how many blocks the arrivals are, if of a cluster.
    """

    base: str
    type: RefType
    unit: int
    phases: str
    cluster_axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamedBarriers:
    """Named barriers of the hardware, from a number on, and the threads that come to each."""

    first: int
    threads: int
    type: RefType


Reference = Accumulator | Shared | Global | Barriers | NamedBarriers
Entry = Scalar | Array | Reference


@dataclass
class Sites:
    """Which accesses to a buffer have not been ordered by a barrier of the warpgroup yet."""

    read: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)
