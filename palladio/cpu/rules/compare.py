"""Comparisons, choices and bits on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.emit.emitter import FALSE, Emitter, V
from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules.elementwise import elementwise, mapped
from palladio.ir.core import Atom, Literal
from palladio.ops.arrays.compare import select
from palladio.types import dtypes
from palladio.types.dtypes import DType


def comparison(floating: str, signed: str, unsigned: str) -> Rule:
    """One comparison, by the kind of dtype."""

    def compute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        if dtypes.is_float(dtype):
            return e.compare(f"fcmp {floating}", *values)
        return e.compare(f"icmp {signed if dtypes.is_signed(dtype) else unsigned}", *values)

    return elementwise(compute, dtypes.BOOL)


def _select(scope: Scope, predicate: LazyArray, on_true: LazyArray, on_false: LazyArray) -> Sequence[LazyArray]:
    found = mapped(scope, on_true.dtype, scope.e.select, predicate, on_true, on_false)
    eqn = scope.function.eqn
    if eqn is not None and eqn.op is select and is_zero(eqn.on_false) and predicate.shape == found.shape != ():
        found.near = on_true.buffer
    return (found,)


def is_zero(atom: Atom) -> bool:
    """True for the literal 0."""
    return isinstance(atom, Literal) and bool(atom.value == 0)


def _not(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("xor", values[0], e.constant(1 if dtype == dtypes.BOOL else -1, values[0].type))


def shift(op: str) -> Rule:
    """A shift; by the width of the dtype or more, every bit becomes 0, or the sign."""

    def compute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        x, amount = values
        bits = dtype.itemsize * 8
        inside = e.compare("icmp ult", amount, e.constant(bits, amount.type))
        if op == "ashr":
            return e.binary(op, x, e.select(inside, amount, e.constant(bits - 1, amount.type)))
        shifted = e.binary(op, x, e.select(inside, amount, e.constant(0, amount.type)))
        return e.select(inside, shifted, e.constant(0, x.type))

    return elementwise(compute)


def _leading_zeros(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    return e.intrinsic("ctlz", x.type, x, FALSE)


RULES: dict[str, Rule] = {
    "eq": comparison("oeq", "eq", "eq"),
    "ne": comparison("une", "ne", "ne"),
    "lt": comparison("olt", "slt", "ult"),
    "le": comparison("ole", "sle", "ule"),
    "gt": comparison("ogt", "sgt", "ugt"),
    "ge": comparison("oge", "sge", "uge"),
    "select": _select,
    "bitwise_and": elementwise(lambda e, dtype, values: e.binary("and", *values)),
    "bitwise_or": elementwise(lambda e, dtype, values: e.binary("or", *values)),
    "bitwise_xor": elementwise(lambda e, dtype, values: e.binary("xor", *values)),
    "bitwise_not": elementwise(_not),
    "shift_left": shift("shl"),
    "shift_right_logical": shift("lshr"),
    "shift_right_arithmetic": shift("ashr"),
    "population_count": elementwise(lambda e, dtype, values: e.intrinsic("ctpop", values[0].type, *values)),
    "clz": elementwise(_leading_zeros),
}
