"""Numbers as C++: their types in registers and in memory, constants, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.layouts.integers import Index
from palladio.ir.core import Literal
from palladio.types import dtypes
from palladio.types.dtypes import DType

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
"""Floats that registers hold as float32, and the names of their conversions."""


def register_type(dtype: DType) -> str:
    """The C++ type that holds an element in a register."""
    return REGISTER_TYPES.get(dtypes.short_name(dtype), "float")


def memory_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    name = dtypes.short_name(dtype)
    return MEMORY_TYPES.get(name) or REGISTER_TYPES[name]


def narrow(dtype: DType) -> str | None:
    """The names of the conversions of a float narrower than float32; None for every other dtype."""
    return NARROW.get(dtypes.short_name(dtype))


def from_memory(text: str, dtype: DType) -> str:
    """The form in a register of an element in memory."""
    if name := narrow(dtype):
        return f"pal::float_{name}({text})"
    return f"{text} != 0" if dtypes.is_bool(dtype) else text


def to_memory(text: str, dtype: DType) -> str:
    """The form in memory of an element in a register."""
    if name := narrow(dtype):
        return f"pal::bits_{name}({text})"
    return f"(u8)({text})" if dtypes.is_bool(dtype) else text


def rounded(text: str, dtype: DType) -> str:
    """A float32 rounded to a narrower dtype, as a float32 again."""
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
        factor: a known divisor of the number.
        truth: if the number is a converted condition, that condition as a C expression.
        constant: the number, if it is a known integer, or 1 for a condition that is known to hold.
    """

    text: str
    dtype: DType
    factor: int = 1
    truth: str | None = None
    constant: int | None = None

    @staticmethod
    def of(atom: Literal) -> Scalar:
        """A constant."""
        dtype = atom.type.dtype
        known = int(atom.value) if dtypes.is_integer(dtype) or dtypes.is_bool(dtype) else None
        factor = abs(int(atom.value)) if dtypes.is_integer(dtype) else 1
        return Scalar(literal(atom.value, dtype), dtype, factor or 1 << 30, constant=known)

    @staticmethod
    def index(number: Index) -> Scalar:
        """A 32-bit integer: a constant, or a C expression."""
        if isinstance(number, int):
            return Scalar(str(number), dtypes.INT32, abs(number) or 1 << 30, constant=number)
        return Scalar(number, dtypes.INT32)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a scalar."""
        return ()
