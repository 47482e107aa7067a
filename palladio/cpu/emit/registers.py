"""The form of each dtype in memory, and in registers while computing.

bfloat16, float16, float4 and the float8 kinds are `float` in registers, rounded after every operation to a value of
their dtype; bool is one bit in registers and one byte in memory. Integers of two and four bits are a byte in registers,
wrapped around after every operation, and the low bits of a byte in memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.llvm_types import DOUBLE, FLOAT, HALF, I1, I8, I16, I32, LlvmType, integer, vector
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

LANES = 16
"""Elements computed at a time along the last axis. LLVM splits vectors that are wider than the machine's."""


@dataclass(frozen=True)
class _Narrow:
    """A floating-point format that no instruction converts.

    Fields:
        mantissa: its bits.
        least: the least normal number; subnormal numbers have the same spacing as those just above it.
        largest: the largest number.
        beyond: the result of rounding larger ones.
        nan: the bits of NaN; None if it becomes -0.
        minus_zero: whether -0 is a number; the bits of its sign are NaN otherwise.
    """

    mantissa: int
    least: float
    largest: float
    beyond: float
    nan: int | None = 0x7F
    minus_zero: bool = True

    @property
    def scale(self) -> float:
        """The factor from a float32 with the same bits of exponent and mantissa to the number."""
        return 2.0**126 * self.least


_FLOAT16 = _Narrow(10, 2.0**-14, 65504.0, math.inf)
_FLOAT8 = {
    dtypes.FLOAT8_E4M3FN: _Narrow(3, 2.0**-6, 448.0, math.nan),
    dtypes.FLOAT8_E5M2: _Narrow(2, 2.0**-14, 57344.0, math.inf),
}
_RARE = {
    dtypes.SHORT_NAMES["f4e2m1fn"]: _Narrow(1, 1.0, 6.0, 6.0, None),
    dtypes.SHORT_NAMES["f8e3m4"]: _Narrow(4, 2.0**-2, 15.5, math.inf, 0x78),
    dtypes.SHORT_NAMES["f8e4m3"]: _Narrow(3, 2.0**-6, 240.0, math.inf, 0x7C),
    dtypes.SHORT_NAMES["f8e4m3b11fnuz"]: _Narrow(3, 2.0**-10, 30.0, math.nan, 0x80, minus_zero=False),
    dtypes.SHORT_NAMES["f8e4m3fnuz"]: _Narrow(3, 2.0**-7, 240.0, math.nan, 0x80, minus_zero=False),
    dtypes.SHORT_NAMES["f8e5m2fnuz"]: _Narrow(2, 2.0**-15, 57344.0, math.nan, 0x80, minus_zero=False),
}
"""Formats whose conversions follow from their numbers."""


def register(dtype: DType) -> LlvmType:
    """The LLVM type of one element while computing."""
    if dtype == dtypes.FLOAT64:
        return DOUBLE
    if dtypes.is_float(dtype):
        return FLOAT
    return I1 if dtype == dtypes.BOOL else word(dtype)


def stored(dtype: DType) -> LlvmType:
    """The LLVM type of one element in memory."""
    if dtype in (dtypes.FLOAT32, dtypes.FLOAT64):
        return register(dtype)
    return word(dtype)


def word(dtype: DType) -> LlvmType:
    """The LLVM type of the bits of one element."""
    return integer(8 * dtype.itemsize)


def constant(e: Emitter, value: Any, dtype: DType, width: int = 1) -> V:
    """A constant of a dtype in registers."""
    number = float(np.asarray(value).astype(np.float64)) if dtypes.is_float(dtype) else int(np.asarray(value))
    return e.constant(number, vector(register(dtype), width))


def from_memory(e: Emitter, value: V, dtype: DType) -> V:
    """A loaded value in its register form."""
    width = value.type.width
    if dtype == dtypes.FLOAT16:
        return _from_half(e, value)
    if dtype == dtypes.BFLOAT16:
        wide = e.convert("zext", value, I32)
        return e.convert("bitcast", e.binary("shl", wide, e.constant(16, wide.type)), FLOAT)
    if dtype == dtypes.BOOL:
        return e.compare("icmp ne", value, e.constant(0, vector(I8, width)))
    if dtype == dtypes.FLOAT8_E5M2:  # the first half of a float16
        wide = e.convert("zext", value, I16)
        return _from_half(e, e.binary("shl", wide, e.constant(8, wide.type)))
    if dtype == dtypes.FLOAT8_E4M3FN:
        return _from_e4m3(e, value)
    return _from_rare(e, value, dtype) if dtype in _RARE else _wrapped(e, value, dtype)


def _wrapped(e: Emitter, value: V, dtype: DType) -> V:
    """The low bits of an integer of fewer than eight, extended to a byte; other dtypes unchanged."""
    unused = 8 * dtype.itemsize - dtypes.bits_of(dtype)
    if not unused:
        return value
    high = e.binary("shl", value, e.constant(unused, value.type))
    return e.binary("ashr" if dtypes.is_signed(dtype) else "lshr", high, e.constant(unused, value.type))


def _from_rare(e: Emitter, value: V, dtype: DType) -> V:
    """The number that some bits are."""
    kind, sign = _RARE[dtype], 1 << dtypes.bits_of(dtype) - 1
    bits = e.convert("zext", value, I32)
    size = e.binary("and", bits, e.constant(sign - 1, bits.type))
    moved = e.convert("bitcast", e.binary("shl", size, e.constant(23 - kind.mantissa, bits.type)), FLOAT)
    found = e.binary("fmul", moved, e.constant(kind.scale, moved.type))
    if math.isinf(kind.beyond):  # the largest exponent
        first = (kind.nan or 0) & -(1 << kind.mantissa)
        infinite = e.compare("icmp uge", size, e.constant(first, bits.type))
        is_nan = e.compare("icmp ugt", size, e.constant(first, bits.type))
        found = e.select(infinite, e.constant(math.inf, found.type), found)
        found = e.select(is_nan, e.constant(math.nan, found.type), found)
    signed = e.convert("bitcast", e.binary("shl", bits, e.constant(32 - dtypes.bits_of(dtype), bits.type)), FLOAT)
    found = e.intrinsic("copysign", found.type, found, signed)
    if kind.minus_zero:
        return found
    return e.select(e.compare("icmp eq", bits, e.constant(sign, bits.type)), e.constant(math.nan, found.type), found)


def _to_rare(e: Emitter, value: V, dtype: DType) -> V:
    """The bits of a float32 that is a number of the dtype."""
    kind, width = _RARE[dtype], dtypes.bits_of(dtype)
    size = e.intrinsic("fabs", value.type, value)
    bits = e.convert("bitcast", e.binary("fmul", size, e.constant(1 / kind.scale, value.type)), I32)
    bits = e.binary("lshr", bits, e.constant(23 - kind.mantissa, bits.type))
    if math.isinf(kind.beyond):
        infinite = e.compare("fcmp oeq", size, e.constant(math.inf, size.type))
        bits = e.select(infinite, e.constant((kind.nan or 0) & -(1 << kind.mantissa), bits.type), bits)
    sign = e.binary("lshr", e.convert("bitcast", value, I32), e.constant(32 - width, bits.type))
    bits = e.binary("or", bits, e.binary("and", sign, e.constant(1 << width - 1, bits.type)))
    if kind.nan is not None:
        bits = e.select(e.compare("fcmp uno", value, value), e.constant(kind.nan, bits.type), bits)
    return e.convert("trunc", bits, I8)


def _from_half(e: Emitter, value: V) -> V:
    """The float16 of some bits: by an instruction, or by moving the exponent to its place in float32."""
    if host.current().converts_halves:
        return e.convert("fpext", e.convert("bitcast", value, HALF), FLOAT)
    bits = e.convert("zext", value, I32)
    size = e.binary("and", bits, e.constant(0x7FFF, bits.type))
    moved = e.binary("shl", size, e.constant(13, bits.type))
    special = e.convert("bitcast", e.binary("or", moved, e.constant(0x7F800000, bits.type)), FLOAT)
    scaled = e.binary("fmul", e.convert("bitcast", moved, FLOAT), e.constant(2.0**112, special.type))
    found = e.select(e.compare("icmp uge", size, e.constant(0x7C00, bits.type)), special, scaled)
    signed = e.convert("bitcast", e.binary("shl", bits, e.constant(16, bits.type)), FLOAT)
    return e.intrinsic("copysign", found.type, found, signed)


def _to_half(e: Emitter, value: V) -> V:
    """The bits of a float32 that is a float16."""
    if host.current().converts_halves:
        return e.convert("bitcast", e.convert("fptrunc", value, HALF), I16)
    size = e.intrinsic("fabs", value.type, value)
    infinite = e.constant(math.inf, value.type)
    bits = e.convert("bitcast", e.binary("fmul", size, e.constant(2.0**-112, value.type)), I32)
    bits = e.binary("lshr", bits, e.constant(13, bits.type))
    bits = e.select(e.compare("fcmp oeq", size, infinite), e.constant(0x7C00, bits.type), bits)
    bits = e.select(e.compare("fcmp uno", size, size), e.constant(0x7E00, bits.type), bits)
    sign = e.binary("lshr", e.convert("bitcast", value, I32), e.constant(16, bits.type))
    return e.convert("trunc", e.binary("or", bits, e.binary("and", sign, e.constant(0x8000, bits.type))), I16)


def _from_e4m3(e: Emitter, value: V) -> V:
    """The exponent moved to its place in float32, which is right for subnormal numbers too."""
    bits = e.convert("zext", value, I32)
    size = e.binary("and", bits, e.constant(0x7F, bits.type))
    moved = e.convert("bitcast", e.binary("shl", size, e.constant(20, bits.type)), FLOAT)
    scaled = e.binary("fmul", moved, e.constant(2.0**120, moved.type))
    signed = e.convert("bitcast", e.binary("shl", bits, e.constant(24, bits.type)), FLOAT)
    is_nan = e.compare("icmp eq", size, e.constant(0x7F, bits.type))
    return e.intrinsic("copysign", scaled.type, e.select(is_nan, e.constant(math.nan, scaled.type), scaled), signed)


def _to_e4m3(e: Emitter, value: V) -> V:
    size = e.binary("fmul", e.intrinsic("fabs", value.type, value), e.constant(2.0**-120, value.type))
    bits = e.convert("bitcast", size, I32)
    bits = e.binary("lshr", bits, e.constant(20, bits.type))
    bits = e.select(e.compare("fcmp uno", value, value), e.constant(0x7F, bits.type), bits)
    sign = e.binary("lshr", e.convert("bitcast", value, I32), e.constant(24, bits.type))
    return e.convert("trunc", e.binary("or", bits, e.binary("and", sign, e.constant(0x80, bits.type))), I8)


def to_memory(e: Emitter, value: V, dtype: DType) -> V:
    """A computed value in its form in memory. The conversion of a rounded value is exact."""
    if dtype == dtypes.FLOAT16:
        return _to_half(e, value)
    if dtype == dtypes.BFLOAT16:
        bits = e.convert("bitcast", value, I32)
        return e.convert("trunc", e.binary("lshr", bits, e.constant(16, bits.type)), I16)
    if dtype == dtypes.FLOAT8_E5M2:
        bits = _to_half(e, value)
        return e.convert("trunc", e.binary("lshr", bits, e.constant(8, bits.type)), I8)
    if dtype == dtypes.FLOAT8_E4M3FN:
        return _to_e4m3(e, value)
    if dtype in _RARE:
        return _to_rare(e, value, dtype)
    if dtypes.is_integer(dtype) and dtypes.bits_of(dtype) < 8:
        return e.binary("and", value, e.constant((1 << dtypes.bits_of(dtype)) - 1, value.type))
    return e.convert("zext", value, I8) if dtype == dtypes.BOOL else value


def rounded(e: Emitter, value: V, dtype: DType) -> V:
    """A `float` result rounded to the nearest value of the dtype, ties to even; an integer of few bits wrapped around;
    other dtypes unchanged.
    """
    if dtype == dtypes.FLOAT16:
        if not host.current().converts_halves:
            return _rounded_narrow(e, value, _FLOAT16)
        return e.convert("fpext", e.convert("fptrunc", value, HALF), FLOAT)
    if dtype in _FLOAT8:
        return _rounded_narrow(e, value, _FLOAT8[dtype])
    if dtype in _RARE:
        return _rounded_rare(e, value, _RARE[dtype])
    return _shortened(e, value, 16) if dtype == dtypes.BFLOAT16 else _wrapped(e, value, dtype)


def _rounded_rare(e: Emitter, value: V, kind: _Narrow) -> V:
    found = _rounded_narrow(e, value, kind)
    if kind.nan is None:
        found = e.select(e.compare("fcmp uno", value, value), e.constant(-0.0, found.type), found)
    return found if kind.minus_zero else e.binary("fadd", found, e.constant(0.0, found.type))


def _shortened(e: Emitter, value: V, dropped: int) -> V:
    """The nearest number whose last `dropped` bits are 0, ties to even."""
    bits = e.convert("bitcast", value, I32)
    odd = e.binary("and", e.binary("lshr", bits, e.constant(dropped, bits.type)), e.constant(1, bits.type))
    up = e.binary("add", e.binary("add", bits, e.constant((1 << dropped - 1) - 1, bits.type)), odd)
    kept = e.binary("and", up, e.constant(-(1 << dropped), bits.type))
    nan = e.constant(0x7FC00000, bits.type)
    is_number = e.compare("fcmp ord", value, value)
    return e.convert("bitcast", e.select(is_number, kept, nan), FLOAT)


def _rounded_narrow(e: Emitter, value: V, kind: _Narrow) -> V:
    type = value.type
    normal = _shortened(e, value, 23 - kind.mantissa)
    size = e.intrinsic("fabs", type, normal)
    beyond = e.intrinsic("copysign", type, e.constant(kind.beyond, type), value)
    normal = e.select(e.compare("fcmp ogt", size, e.constant(kind.largest, type)), beyond, normal)
    # Adding a number whose last bit is the spacing of subnormal numbers rounds to that spacing.
    large = e.constant(1.5 * 2.0 ** (23 - kind.mantissa) * kind.least, type)
    whole = e.intrinsic("fabs", type, value)
    small = e.binary("fsub", e.binary("fadd", whole, large), large)
    small = e.intrinsic("copysign", type, small, value)
    return e.select(e.compare("fcmp olt", whole, e.constant(kind.least, type)), small, normal)


def multiply_add(e: Emitter, x: V, y: V, total: V) -> V:
    """`x * y + total` of floats, rounded once if the host has an instruction for it."""
    return e.intrinsic("fma" if host.current().fuses else "fmuladd", total.type, x, y, total)


def load(e: Emitter, address: V, dtype: DType, width: int) -> V:
    """Neighbouring elements from memory."""
    return from_memory(e, e.load(vector(stored(dtype), width), address, dtype.itemsize), dtype)


def store(e: Emitter, value: V, address: V, dtype: DType) -> None:
    """Neighbouring elements to memory."""
    e.store(to_memory(e, value, dtype), address, dtype.itemsize)
