"""Mathematical functions with NumPy's names. Integers and bools become float32 unless it is said otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable

from palladio.array.convert import Array, ArrayLike, apply, array_type, call, cast, constant, mark_weak, together
from palladio.base.errors import PalladioNotImplementedError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic, compare
from palladio.ops.arrays import math as ops
from palladio.ops.arrays.elementwise import is_small_float
from palladio.types import dtypes

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "around",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "rad2deg",
    "radians",
    "rint",
    "round",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]


def _unary(op: Op) -> Callable[[ArrayLike], Array]:
    """The function of floats that an operation computes."""

    def function(x: ArrayLike) -> Array:
        return apply(op, x, floating=True)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{op.doc.rstrip('.')}, in floats: integers become float32."
    return function


exp = _unary(ops.exp)
exp2 = _unary(ops.exp2)
expm1 = _unary(ops.expm1)
log = _unary(ops.log)
log1p = _unary(ops.log1p)
sqrt = _unary(ops.sqrt)
cbrt = _unary(ops.cbrt)
sin = _unary(ops.sin)
cos = _unary(ops.cos)
tan = _unary(ops.tan)
asin = arcsin = _unary(ops.asin)
acos = arccos = _unary(ops.acos)
atan = arctan = _unary(ops.atan)
sinh = _unary(ops.sinh)
cosh = _unary(ops.cosh)
tanh = _unary(ops.tanh)
asinh = arcsinh = _unary(ops.asinh)
acosh = arccosh = _unary(ops.acosh)
atanh = arctanh = _unary(ops.atanh)


def arctan2(y: ArrayLike, x: ArrayLike) -> Array:
    """The angle of the point `(x, y)` in [-pi, pi], in floats."""
    return apply(ops.atan2, y, x, floating=True)


atan2 = arctan2


def _scaled(x: ArrayLike, factor: float) -> Array:
    """`x * factor` in floats, with the factor not rounded to a dtype narrower than float32."""
    (x,), weak = together(x, floating=True)
    dtype = array_type(x).dtype
    wide = cast(x, dtypes.FLOAT32) if is_small_float(dtype) else x
    return mark_weak(cast(call(arithmetic.mul, wide, constant(factor, wide)), dtype), weak)


def _logarithm(x: ArrayLike, base: float) -> Array:
    (x,), weak = together(x, floating=True)
    dtype = array_type(x).dtype
    logarithm = call(ops.log, cast(x, dtypes.FLOAT32) if is_small_float(dtype) else x)
    # A division: powers of the base come out whole.
    return mark_weak(cast(call(arithmetic.div, logarithm, constant(math.log(base), logarithm)), dtype), weak)


def log2(x: ArrayLike) -> Array:
    """The logarithm of base 2, in floats."""
    return _logarithm(x, 2)


def log10(x: ArrayLike) -> Array:
    """The logarithm of base 10, in floats."""
    return _logarithm(x, 10)


def degrees(x: ArrayLike) -> Array:
    """Radians to degrees, in floats."""
    return _scaled(x, 180 / math.pi)


def radians(x: ArrayLike) -> Array:
    """Degrees to radians, in floats."""
    return _scaled(x, math.pi / 180)


rad2deg = degrees
deg2rad = radians


def _is_float(x: ArrayLike) -> bool:
    return dtypes.is_float(array_type(x).dtype)


def _whole(x: ArrayLike) -> Array:
    """An integer or bool, which is whole already, as an array."""
    (value,), weak = together(x)
    return mark_weak(value, weak)


def floor(x: ArrayLike) -> Array:
    """Rounded down; integers stay integers."""
    return apply(ops.floor, x) if _is_float(x) else _whole(x)


def ceil(x: ArrayLike) -> Array:
    """Rounded up; integers stay integers."""
    return apply(ops.ceil, x) if _is_float(x) else _whole(x)


def trunc(x: ArrayLike) -> Array:
    """Rounded towards zero; integers stay integers."""
    if not _is_float(x):
        return _whole(x)
    (x,), weak = together(x)
    below = call(compare.lt, x, constant(0, x))
    return mark_weak(call(compare.select, below, call(ops.ceil, x), call(ops.floor, x)), weak)


fix = trunc


def rint(x: ArrayLike) -> Array:
    """Rounded to the nearest whole number, a half to the even one, in floats."""
    (x,), weak = together(x, floating=True)
    return mark_weak(call(ops.round, x, half="even"), weak)


def round(a: ArrayLike, decimals: int = 0) -> Array:
    """Rounded to `decimals` decimals, a half to the even one; integers stay integers.

    Raises:
        PalladioNotImplementedError: for integers and negative `decimals`.
    """
    if not _is_float(a):
        if decimals < 0:
            raise PalladioNotImplementedError("integers are not rounded to tens", argument="decimals", got=decimals)
        return _whole(a)
    if decimals == 0:
        return rint(a)
    (a,), weak = together(a)
    dtype = array_type(a).dtype
    wide = cast(a, dtypes.FLOAT32) if is_small_float(dtype) else a
    factor = constant(10.0**decimals, wide)
    rounded = call(ops.round, call(arithmetic.mul, wide, factor), half="even")
    return mark_weak(cast(call(arithmetic.div, rounded, factor), dtype), weak)


around = round
