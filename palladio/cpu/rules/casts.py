"""Changes of dtype on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, merged, write
from palladio.cpu.emit.llvm_types import DOUBLE, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.products.micro_kernel import rounded_pairs
from palladio.cpu.rules.elementwise import mapped
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.views import row_major


def converted(e: Emitter, x: V, source: DType, target: DType) -> V:
    """A value in another dtype: floats to integers towards zero and saturated, NaN to 0; integers wrap around."""
    if source == target:
        return x
    if target == dtypes.BOOL:
        if dtypes.is_float(source):
            return e.compare("fcmp une", x, e.constant(0, x.type))
        return e.compare("icmp ne", x, e.constant(0, x.type))
    if dtypes.is_float(source):
        return _from_float(e, x, target)
    signed = dtypes.is_signed(source)
    if dtypes.is_float(target):
        found = e.convert("sitofp" if signed else "uitofp", x, registers.register(target))
        return registers.rounded(e, found, target)
    old = 1 if source == dtypes.BOOL else source.itemsize * 8
    new = target.itemsize * 8
    if old != new:
        x = e.convert("trunc" if new < old else "sext" if signed else "zext", x, registers.register(target))
    return registers.rounded(e, x, target)


def _from_float(e: Emitter, x: V, target: DType) -> V:
    if dtypes.is_float(target):
        register = registers.register(target)
        wide = e.convert("fpext" if register == DOUBLE else "fptrunc", x, register)
        return registers.rounded(e, wide, target)
    result = vector(registers.register(target), x.type.width)
    signed = dtypes.is_signed(target)
    found = e.intrinsic(
        "fptosi.sat" if signed else "fptoui.sat", result, x, suffix=f"{result.mangled}.{x.type.mangled}"
    )
    if dtypes.bits_of(target) == 8 * target.itemsize:
        return found
    least, largest = (registers.constant(e, each(target), target, result.width) for each in _LIMITS)
    found = e.intrinsic("smax" if signed else "umax", result, found, least)
    return e.intrinsic("smin" if signed else "umin", result, found, largest)


_LIMITS = dtypes.least, dtypes.greatest


def _convert(scope: Scope, x: LazyArray, *, dtype: DType) -> Sequence[LazyArray]:
    if x.normal and dtype == dtypes.BFLOAT16 and host.current().multiplies_pairs:
        return (mapped(scope, dtype, lambda value: _shortened(scope.e, value), x),)
    array = mapped(scope, dtype, lambda value: converted(scope.e, value, x.dtype, dtype), x)
    array.cheap = x.cheap and bool(x.shape)
    return (array,)


def _shortened(e: Emitter, x: V) -> V:
    """Float32 rounded to bfloat16; none may be subnormal, since the instruction flushes those to 0."""
    if x.type.width != 16:
        return converted(e, x, dtypes.FLOAT32, dtypes.BFLOAT16)
    return registers.from_memory(e, rounded_pairs(e, [x]), dtypes.BFLOAT16)


def _bitcast(scope: Scope, x: LazyArray, *, dtype: DType) -> Sequence[LazyArray]:
    if dtype.itemsize != x.dtype.itemsize:
        return (_of_another_width(scope, x, dtype),)
    e = scope.e

    def change(value: V) -> V:
        bits = e.convert("bitcast", registers.to_memory(e, value, x.dtype), registers.word(x.dtype))
        return registers.from_memory(e, e.convert("bitcast", bits, registers.stored(dtype)), dtype)

    return (mapped(scope, dtype, change, x),)


def _of_another_width(scope: Scope, x: LazyArray, dtype: DType) -> LazyArray:
    """The same bytes as elements of another width: a new last axis of narrower ones, or the last axis joined."""
    old, new = x.dtype.itemsize, dtype.itemsize
    shape = (*x.shape, old // new) if new < old else x.shape[:-1]
    buffer = x.buffer
    if buffer is None or not buffer.contiguous:
        buffer = scope.arena.buffer(scope.e, x.shape, x.dtype)
        write(scope.e, x, buffer)
    array = array_in(scope.e, StridedArray(buffer.base, row_major(shape), shape, dtype))
    array.reads = merged([x], aligned=False) if buffer is x.buffer else {}
    return array if shape else scope.keep(array)


RULES: dict[str, Rule] = {"convert": _convert, "bitcast_convert": _bitcast}
