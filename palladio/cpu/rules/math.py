"""Mathematical functions on the CPU.

The common ones are polynomials on whole vectors (`vector_math`); the others are LLVM's intrinsics, which call the C
library's functions lane by lane if the machine has no instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.emit import vector_math
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.llvm_types import DOUBLE, I1, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules.elementwise import elementwise
from palladio.cpu.runtime import host
from palladio.ops.arrays import math as ops
from palladio.types import dtypes
from palladio.types.dtypes import DType

Unary = Callable[[Emitter, V], V]
Several = Callable[..., V]
"""A function of an emitter and some registers."""


def intrinsic(name: str) -> Rule:
    """One LLVM intrinsic."""
    return elementwise(lambda e, dtype, values: e.intrinsic(name, values[0].type, *values))


def library(name: str) -> Rule:
    """A function of the C library, called for each lane: `name` for double, `namef` for float."""

    def compute(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        element = values[0].type.element
        full = name if element == DOUBLE else f"{name}f"
        e.declared[full] = f"declare {element} @{full}({', '.join([str(element)] * len(values))})"
        lanes = [
            e.value(element, f"call {element} @{full}({', '.join(str(e.lane(value, n)) for value in values)})")
            for n in range(values[0].type.width)
        ]
        return e.gathered(lanes)

    return elementwise(compute)


def in_vectors(function: Several) -> Rule:
    """A function of whole vectors."""
    return elementwise(lambda e, dtype, values: function(e, *values))


def in_narrow_vectors(function: Several, wide: Rule) -> Rule:
    """A function of whole vectors for registers of float32, and another rule for float64."""
    vectors = in_vectors(function)

    def rule(scope: Scope, *arrays: LazyArray) -> Sequence[LazyArray]:
        return (wide if arrays[0].dtype == dtypes.FLOAT64 else vectors)(scope, *arrays)

    return rule


def in_fused_vectors(function: Several, name: str) -> Rule:
    """A function of whole vectors, which for float64 needs a host with fused multiply-add."""
    vectors, lanes = in_vectors(function), in_narrow_vectors(function, intrinsic(name))

    def rule(scope: Scope, *arrays: LazyArray) -> Sequence[LazyArray]:
        return (vectors if host.current().fuses else lanes)(scope, *arrays)

    return rule


def _through(function: Unary) -> Rule:
    return elementwise(lambda e, dtype, values: function(e, values[0]))


def _rsqrt(e: Emitter, x: V) -> V:
    return e.binary("fdiv", e.constant(1, x.type), e.intrinsic("sqrt", x.type, x))


def _is_finite(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    (x,) = values
    if not dtypes.is_float(dtype):
        return e.constant(1, vector(I1, x.type.width))
    size = e.intrinsic("fabs", x.type, x)
    return e.compare("fcmp olt", size, e.constant(float("inf"), x.type))


def _round(scope: Scope, x: LazyArray, *, half: str) -> Sequence[LazyArray]:
    name = "round" if half == "away" else "roundeven"
    return intrinsic(name)(scope, x)


RULES: dict[str, Rule] = {
    ops.rsqrt.name: _through(_rsqrt),
    ops.round.name: _round,
    ops.is_finite.name: elementwise(_is_finite, dtypes.BOOL),
    **{name: intrinsic(name) for name in ("sqrt", "floor", "ceil")},
    **{name: library(name) for name in ("asinh", "acosh", "atanh", "erfc")},
    **{
        name: in_vectors(function)
        for name, function in (
            ("exp", vector_math.exp),
            ("exp2", vector_math.exp2),
            ("expm1", vector_math.expm1),
            ("log", vector_math.log),
            ("log1p", vector_math.log1p),
            ("logistic", vector_math.logistic),
            ("asin", vector_math.asin),
            ("acos", vector_math.acos),
            ("atan", vector_math.atan),
            ("atan2", vector_math.atan2),
            ("sinh", vector_math.sinh),
            ("cosh", vector_math.cosh),
            ("tanh", vector_math.tanh),
        )
    },
    **{
        name: in_fused_vectors(function, name)
        for name, function in (("sin", vector_math.sin), ("cos", vector_math.cos), ("tan", vector_math.tan))
    },
    "cbrt": in_narrow_vectors(vector_math.cbrt, library("cbrt")),
    "erf": in_narrow_vectors(vector_math.erf, library("erf")),
}
