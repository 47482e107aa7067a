"""Functions that neither LLVM nor the C library has for every dtype, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.llvm_types import DOUBLE
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules.elementwise import elementwise
from palladio.cpu.rules.math import library
from palladio.types.dtypes import DType

# Giles, "Approximating the erfinv function" (2012), single precision: the start of the iteration.
_ERF_INV_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503)
_ERF_INV_CENTRE += (-0.00417768164, 0.246640727, 1.50140941)
_ERF_INV_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613)
_ERF_INV_TAIL += (0.00943887047, 1.00167406, 2.83297682)


def _inverse_erf(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    lanes = [_inverse_erf_of(e, e.lane(values[0], lane)) for lane in range(values[0].type.width)]
    return e.gathered(lanes)


def _inverse_erf_of(e: Emitter, given: V) -> V:
    """Giles' approximation, refined by three steps of Halley's method on erfc, which is accurate in the tail."""

    def number(value: float) -> V:
        return e.constant(value, DOUBLE)

    def call(name: str, x: V) -> V:
        e.declared[name] = f"declare double @{name}(double)"
        return e.value(DOUBLE, f"call double @{name}({x})")

    x = e.convert("fpext", given, DOUBLE)
    size = e.intrinsic("fabs", DOUBLE, x)
    rest = e.binary("fsub", number(1), size)
    w = e.value(DOUBLE, f"fneg {call('log', e.binary('fmul', rest, e.binary('fadd', number(1), size)))}")
    central = e.compare("fcmp olt", w, number(5))
    at = e.select(
        central, e.binary("fsub", w, number(2.5)), e.binary("fsub", e.intrinsic("sqrt", DOUBLE, w), number(3))
    )
    guess = e.select(central, number(_ERF_INV_CENTRE[0]), number(_ERF_INV_TAIL[0]))
    for centre, tail in zip(_ERF_INV_CENTRE[1:], _ERF_INV_TAIL[1:], strict=True):
        guess = e.binary("fadd", e.binary("fmul", guess, at), e.select(central, number(centre), number(tail)))
    guess = e.binary("fmul", guess, size)
    small = e.compare("fcmp olt", size, number(0.5))
    for _ in range(3):
        far = e.binary("fsub", rest, call("erfc", guess))
        near = e.binary("fsub", call("erf", guess), size)
        slope = e.binary(
            "fmul",
            number(2 / math.sqrt(math.pi)),
            call("exp", e.value(DOUBLE, f"fneg {e.binary('fmul', guess, guess)}")),
        )
        step = e.binary("fdiv", e.select(small, near, far), slope)
        curved = e.binary("fadd", number(1), e.binary("fmul", guess, step))
        guess = e.binary("fsub", guess, e.binary("fdiv", step, curved))
    edge = e.compare("fcmp oeq", size, number(1))
    found = e.select(edge, number(math.inf), guess)
    found = e.intrinsic("copysign", DOUBLE, found, x)
    return found if given.type == DOUBLE else e.convert("fptrunc", found, given.type)


def _next_after(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """For narrow dtypes: the bits plus or minus one, since they count away from zero."""
    x, y = values
    bits = e.convert("bitcast", registers.to_memory(e, x, dtype), registers.word(dtype))
    one = e.constant(1, bits.type)
    sign = e.constant(-1 << (dtype.itemsize * 8 - 1), bits.type)
    nothing = e.constant(0, x.type)
    is_zero = e.compare("fcmp oeq", x, nothing)
    up = e.compare("fcmp olt", x, y)
    negative = e.compare("icmp slt", bits, e.constant(0, bits.type))
    away = e.binary("xor", up, negative)
    moved = e.select(away, e.binary("add", bits, one), e.binary("sub", bits, one))
    least = e.select(up, one, e.binary("or", sign, one))
    moved = e.select(is_zero, least, moved)
    found = registers.from_memory(e, e.convert("bitcast", moved, registers.stored(dtype)), dtype)
    found = e.select(e.compare("fcmp oeq", x, y), y, found)
    return e.select(e.compare("fcmp uno", x, y), e.binary("fadd", x, y), found)


def _nextafter(scope: Scope, x: LazyArray, y: LazyArray) -> Sequence[LazyArray]:
    rule = elementwise(_next_after) if x.dtype.itemsize < 4 else library("nextafter")
    return rule(scope, x, y)


RULES: dict[str, Rule] = {"erf_inv": elementwise(_inverse_erf), "nextafter": _nextafter}
