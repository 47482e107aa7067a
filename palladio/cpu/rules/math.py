"""Mathematical functions on the CPU.

`exp` of float32 is a polynomial on whole vectors; the others are LLVM's intrinsics, which call the C library's
functions lane by lane where the machine has no instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.emit import Emitter, V, element_of, vector, width_of
from palladio.cpu.rules.elementwise import elementwise
from palladio.cpu.scope import Rule, Scope
from palladio.cpu.tiles import Tile
from palladio.ops import arithmetic as arithmetic_ops
from palladio.ops import math as ops
from palladio.types import dtypes
from palladio.types.dtypes import DType

Unary = Callable[[Emitter, V], V]


def intrinsic(name: str) -> Rule:
    """One LLVM intrinsic."""
    return elementwise(lambda e, dtype, values: e.intrinsic(name, values[0].type, *values))


def library(name: str) -> Rule:
    """A function of the C library, called for each lane: `name` for double, `namef` for float."""

    def compute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        element = element_of(values[0].type)
        full = name if element == "double" else f"{name}f"
        e.declared[full] = f"declare {element} @{full}({', '.join([element] * len(values))})"
        lanes = [
            e.value(element, f"call {element} @{full}({', '.join(str(e.lane(value, n)) for value in values)})")
            for n in range(width_of(values[0].type))
        ]
        return e.gathered(lanes)

    return elementwise(compute)


# Cephes' expf (Moshier): exp(r) for |r| <= ln(2)/2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exponential(e: Emitter, x: V) -> V:
    """e to the power x, of float32 vectors: 2**n times a polynomial of what is left.

    Within 2 units in the last place.
    """
    if element_of(x.type) != "float":
        return e.intrinsic("exp", x.type, x)

    def number(value: float) -> V:
        return e.constant(value, x.type)

    def fma(a: V, b: V, c: V) -> V:
        return e.intrinsic("fma", x.type, a, b, c)

    bounded = e.intrinsic("maxnum", x.type, e.intrinsic("minnum", x.type, x, number(89.0)), number(-104.0))
    whole = e.intrinsic("rint", x.type, e.binary("fmul", bounded, number(1.44269504088896341)))
    left = fma(whole, number(-0.693359375), bounded)
    left = fma(whole, number(2.12194440e-4), left)
    series = number(_EXP[0])
    for coefficient in _EXP[1:]:
        series = fma(series, left, number(coefficient))
    series = e.binary("fadd", fma(series, e.binary("fmul", left, left), left), number(1.0))
    # 2**n in two factors: n itself can be below what an exponent holds.
    exponent = e.convert("fptosi", whole, "i32")
    half = e.binary("ashr", exponent, e.constant(1, exponent.type))
    rest = e.binary("sub", exponent, half)
    for power in (half, rest):
        bits = e.binary("shl", e.binary("add", power, e.constant(127, power.type)), e.constant(23, power.type))
        series = e.binary("fmul", series, e.convert("bitcast", bits, "float"))
    return e.select(e.compare("fcmp uno", x, x), x, series)


def _through(function: Unary) -> Rule:
    return elementwise(lambda e, dtype, values: function(e, values[0]))


def _rsqrt(e: Emitter, x: V) -> V:
    return e.binary("fdiv", e.constant(1, x.type), e.intrinsic("sqrt", x.type, x))


def _logistic(e: Emitter, x: V) -> V:
    one = e.constant(1, x.type)
    return e.binary("fdiv", one, e.binary("fadd", one, exponential(e, e.value(x.type, f"fneg {x}"))))


def _is_finite(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    if not dtypes.is_float(dtype):
        return e.constant(1, vector("i1", width_of(x.type)))
    size = e.intrinsic("fabs", x.type, x)
    return e.compare("fcmp olt", size, e.constant(float("inf"), x.type))


def _round(scope: Scope, x: Tile, *, half: str) -> Sequence[Tile]:
    name = "round" if half == "away" else "roundeven"
    return intrinsic(name)(scope, x)


RULES: dict[str, Rule] = {
    ops.exp.name: _through(exponential),
    ops.rsqrt.name: _through(_rsqrt),
    ops.logistic.name: _through(_logistic),
    ops.round.name: _round,
    ops.is_finite.name: elementwise(_is_finite, dtypes.BOOL),
    **{name: intrinsic(name) for name in ("exp2", "log", "sqrt", "sin", "cos", "tan", "floor", "ceil")},
    **{name: intrinsic(name) for name in ("asin", "acos", "atan", "sinh", "cosh", "tanh")},
    **{name: library(name) for name in ("expm1", "log1p", "cbrt", "asinh", "acosh", "atanh", "erf", "erfc", "atan2")},
    arithmetic_ops.nextafter.name: library("nextafter"),
}
