"""Arithmetic on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules.elementwise import elementwise
from palladio.ops.arrays import arithmetic as ops
from palladio.types import dtypes
from palladio.types.dtypes import DType

Combine = Callable[[Emitter, DType, Sequence[V]], V]


def simple(floating: str, signed: str, unsigned: str | None = None) -> Rule:
    """One instruction, by the kind of dtype."""

    def compute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        integer = signed if unsigned is None or dtypes.is_signed(dtype) else unsigned
        return e.binary(floating if dtypes.is_float(dtype) else integer, *values)

    return elementwise(compute)


def maximum(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return _extreme(e, dtype, values, "maximum", "smax", "umax")


def minimum(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return _extreme(e, dtype, values, "minimum", "smin", "umin")


def _extreme(e: Emitter, dtype: DType, values: Sequence[V], floating: str, signed: str, unsigned: str) -> V:
    name = floating if dtypes.is_float(dtype) else signed if dtypes.is_signed(dtype) else unsigned
    return e.intrinsic(name, values[0].type, *values)


def _negate(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    if dtypes.is_float(dtype):
        return e.value(x.type, f"fneg {x}")
    return e.binary("sub", e.constant(0, x.type), x)


def absolute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    if dtypes.is_float(dtype):
        return e.intrinsic("fabs", x.type, x)
    return x if dtypes.is_unsigned(dtype) else e.select(less(e, dtype, x, zero(e, x)), _negate(e, dtype, values), x)


def zero(e: Emitter, like: V) -> V:
    return e.constant(0, like.type)


def less(e: Emitter, dtype: DType, x: V, y: V) -> V:
    if dtypes.is_float(dtype):
        return e.compare("fcmp olt", x, y)
    return e.compare("icmp slt" if dtypes.is_signed(dtype) else "icmp ult", x, y)


def _sign(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    one, nothing = e.constant(1, x.type), zero(e, x)
    minus = nothing if dtypes.is_unsigned(dtype) else e.constant(-1, x.type)
    signed = e.select(less(e, dtype, nothing, x), one, e.select(less(e, dtype, x, nothing), minus, x))
    return signed


def _divide(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """Integer division: by zero gives all bits set, and the least by -1 itself; the machine would trap on both."""
    x, y = values
    if dtypes.is_float(dtype):
        return e.binary("fdiv", x, y)
    by_zero = e.compare("icmp eq", y, zero(e, y))
    if dtypes.is_unsigned(dtype):
        safe = e.select(by_zero, e.constant(1, y.type), y)
        return e.select(by_zero, e.constant(-1, x.type), e.binary("udiv", x, safe))
    by_minus = e.compare("icmp eq", y, e.constant(-1, y.type))
    safe = e.select(e.binary("or", by_zero, by_minus), e.constant(1, y.type), y)
    found = e.select(by_minus, e.binary("sub", zero(e, x), x), e.binary("sdiv", x, safe))
    return e.select(by_zero, e.constant(-1, x.type), found)


def _remainder(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    x, y = values
    if dtypes.is_float(dtype):
        parts = [e.binary("frem", e.lane(x, lane), e.lane(y, lane)) for lane in range(x.type.width)]
        return e.gathered(parts)
    by_zero = e.compare("icmp eq", y, zero(e, y))
    one = e.constant(1, y.type)
    if dtypes.is_unsigned(dtype):
        return e.select(by_zero, x, e.binary("urem", x, e.select(by_zero, one, y)))
    by_minus = e.compare("icmp eq", y, e.constant(-1, y.type))
    safe = e.select(e.binary("or", by_zero, by_minus), one, y)
    return e.select(by_zero, x, e.select(by_minus, zero(e, x), e.binary("srem", x, safe)))


def power_of(e: Emitter, dtype: DType, x: V, exponent: int) -> V:
    """`x` to a known integer power, by squaring."""
    op = "fmul" if dtypes.is_float(dtype) else "mul"
    result, square, left = e.constant(1, x.type), x, abs(exponent)
    while left:
        if left & 1:
            result = e.binary(op, result, square)
        left >>= 1
        if left:
            square = e.binary(op, square, square)
    return e.binary("fdiv", e.constant(1, x.type), result) if exponent < 0 else result


def _integer_pow(scope: Scope, x: LazyArray, *, y: int) -> Sequence[LazyArray]:
    if y < 0 and not dtypes.is_float(x.dtype):
        from_zero = elementwise(lambda e, dtype, values: power_of(e, dtype, values[0], 0))
        return from_zero(scope, x)
    return elementwise(lambda e, dtype, values: power_of(e, dtype, values[0], y))(scope, x)


def _clamp(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    low, x, high = values
    return minimum(e, dtype, (maximum(e, dtype, (low, x)), high))


def _power(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """Integers by squaring, once for each bit of the exponent; to a negative power, all but 1 and -1 give 0."""
    x, y = values
    if dtypes.is_float(dtype):
        return e.intrinsic("pow", x.type, x, y)
    one, nothing = e.constant(1, x.type), zero(e, x)
    result, square = one, x
    for bit in range(dtype.itemsize * 8):
        chosen = e.binary("and", e.binary("lshr", y, e.constant(bit, y.type)), one)
        result = e.select(e.compare("icmp ne", chosen, nothing), e.binary("mul", result, square), result)
        square = e.binary("mul", square, square)
    if not dtypes.is_signed(dtype):
        return result
    minus = e.constant(-1, x.type)
    odd = e.compare("icmp ne", e.binary("and", y, one), nothing)
    of_one = e.select(e.compare("icmp eq", x, one), one, nothing)
    of_one = e.select(e.compare("icmp eq", x, minus), e.select(odd, minus, one), of_one)
    return e.select(e.compare("icmp slt", y, nothing), of_one, result)


RULES: dict[str, Rule] = {
    ops.add.name: simple("fadd", "add"),
    ops.sub.name: simple("fsub", "sub"),
    ops.mul.name: simple("fmul", "mul"),
    ops.div.name: elementwise(_divide),
    ops.rem.name: elementwise(_remainder),
    ops.neg.name: elementwise(_negate),
    ops.abs.name: elementwise(absolute),
    ops.sign.name: elementwise(_sign),
    ops.max.name: elementwise(maximum),
    ops.min.name: elementwise(minimum),
    ops.clamp.name: elementwise(_clamp),
    ops.pow.name: elementwise(_power),
    ops.integer_pow.name: _integer_pow,
}
