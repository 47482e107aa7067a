"""How each dtype is kept: in memory, and in registers while computing.

bfloat16 and float16 are `float` in registers, rounded after every operation to what their dtype can hold; bool is one
bit in registers and one byte in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.cpu.emit import Emitter, V, vector, width_of
from palladio.types import dtypes
from palladio.types.dtypes import DType

LANES = 16
"""Elements computed at a time along the last axis. LLVM cuts vectors that are wider than the machine's."""

_INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def is_compiled(dtype: DType) -> bool:
    """Whether there are registers for a dtype."""
    return dtype not in (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)


def register(dtype: DType) -> str:
    """The LLVM type of one element while computing."""
    if dtype == dtypes.FLOAT64:
        return "double"
    if dtypes.is_float(dtype):
        return "float"
    return "i1" if dtype == dtypes.BOOL else _INTEGERS[dtype.itemsize]


def stored(dtype: DType) -> str:
    """The LLVM type of one element in memory."""
    if dtype in (dtypes.FLOAT32, dtypes.FLOAT64):
        return register(dtype)
    return "half" if dtype == dtypes.FLOAT16 else _INTEGERS[dtype.itemsize]


def constant(e: Emitter, value: Any, dtype: DType, width: int = 1) -> V:
    """A constant of a dtype in registers."""
    number = float(np.asarray(value).astype(np.float64)) if dtypes.is_float(dtype) else int(np.asarray(value))
    return e.constant(number, vector(register(dtype), width))


def from_memory(e: Emitter, value: V, dtype: DType) -> V:
    """What was loaded, as it is computed with."""
    width = width_of(value.type)
    if dtype == dtypes.FLOAT16:
        return e.convert("fpext", value, "float")
    if dtype == dtypes.BFLOAT16:
        wide = e.convert("zext", value, "i32")
        return e.convert("bitcast", e.binary("shl", wide, e.constant(16, wide.type)), "float")
    if dtype == dtypes.BOOL:
        return e.compare("icmp ne", value, e.constant(0, vector("i8", width)))
    return value


def to_memory(e: Emitter, value: V, dtype: DType) -> V:
    """What is computed with, as it is stored. A rounded value loses nothing."""
    if dtype == dtypes.FLOAT16:
        return e.convert("fptrunc", value, "half")
    if dtype == dtypes.BFLOAT16:
        bits = e.convert("bitcast", value, "i32")
        return e.convert("trunc", e.binary("lshr", bits, e.constant(16, bits.type)), "i16")
    return e.convert("zext", value, "i8") if dtype == dtypes.BOOL else value


def rounded(e: Emitter, value: V, dtype: DType) -> V:
    """A `float` result rounded to the nearest, even, that the dtype holds; other dtypes as they are."""
    if dtype == dtypes.FLOAT16:
        return e.convert("fpext", e.convert("fptrunc", value, "half"), "float")
    if dtype != dtypes.BFLOAT16:
        return value
    bits = e.convert("bitcast", value, "i32")
    odd = e.binary("and", e.binary("lshr", bits, e.constant(16, bits.type)), e.constant(1, bits.type))
    up = e.binary("add", e.binary("add", bits, e.constant(0x7FFF, bits.type)), odd)
    kept = e.binary("and", up, e.constant(-0x10000, bits.type))
    nan = e.constant(0x7FC00000, bits.type)
    is_number = e.compare("fcmp ord", value, value)
    return e.convert("bitcast", e.select(is_number, kept, nan), "float")


def load(e: Emitter, address: V, dtype: DType, width: int) -> V:
    """Neighbouring elements from memory."""
    return from_memory(e, e.load(vector(stored(dtype), width), address, dtype.itemsize), dtype)


def store(e: Emitter, value: V, address: V, dtype: DType) -> None:
    """Neighbouring elements to memory."""
    e.store(to_memory(e, value, dtype), address, dtype.itemsize)
