"""Mathematical functions of floats, element by element.

Floats narrower than float32 are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.ir.core import Op, Work
from palladio.ops.arrays.elementwise import elementwise, in_float32, require_alike
from palladio.types import dtypes
from palladio.types.types import Type


def _unary(name: str, doc: str, function: Callable[..., Any]) -> Op:
    return elementwise(name, doc, function, 1, dtypes.is_float, work=Work.TRANSCENDENTAL)


def _rounded(name: str, doc: str, function: Callable[..., Any]) -> Op:
    return elementwise(name, doc, function, 1, dtypes.is_float)


def _special(name: str) -> Callable[..., Any]:
    """A function of `scipy.special`, imported when first called: that takes longer than importing all of Palladio."""

    def call(x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


exp = _unary("exp", "e to the power x", np.exp)
exp2 = _unary("exp2", "2 to the power x", np.exp2)
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0", np.expm1)
log = _unary("log", "The natural logarithm; -inf of 0, NaN below", np.log)
log1p = _unary("log1p", "log(1 + x), accurate near 0", np.log1p)
sqrt = _unary("sqrt", "The square root; NaN below 0", np.sqrt)
rsqrt = _unary("rsqrt", "1 / sqrt(x)", lambda x: np.reciprocal(np.sqrt(x)))
cbrt = _unary("cbrt", "The real cube root", np.cbrt)
sin = _unary("sin", "The sine of x radians", np.sin)
cos = _unary("cos", "The cosine of x radians", np.cos)
tan = _unary("tan", "The tangent of x radians", np.tan)
asin = _unary("asin", "The angle in [-pi/2, pi/2] whose sine is x", np.arcsin)
acos = _unary("acos", "The angle in [0, pi] whose cosine is x", np.arccos)
atan = _unary("atan", "The angle in [-pi/2, pi/2] whose tangent is x", np.arctan)
sinh = _unary("sinh", "The hyperbolic sine", np.sinh)
cosh = _unary("cosh", "The hyperbolic cosine", np.cosh)
tanh = _unary("tanh", "The hyperbolic tangent", np.tanh)
asinh = _unary("asinh", "The inverse of sinh", np.arcsinh)
acosh = _unary("acosh", "The inverse of cosh; NaN below 1", np.arccosh)
atanh = _unary("atanh", "The inverse of tanh", np.arctanh)
erf = _unary("erf", "The error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x", _special("erf"))
erfc = _unary("erfc", "1 - erf(x), accurate where erf(x) is near 1", _special("erfc"))
erf_inv = _unary("erf_inv", "The inverse of erf; -inf and inf at -1 and 1, NaN outside", _special("erfinv"))
logistic = _unary("logistic", "1 / (1 + exp(-x))", _special("expit"))
floor = _rounded("floor", "The greatest whole number that is not greater", np.floor)
ceil = _rounded("ceil", "The least whole number that is not less", np.ceil)
atan2 = elementwise(
    "atan2",
    "The angle of the point (x, y) in [-pi, pi]",
    np.arctan2,
    2,
    dtypes.is_float,
    operands=("y", "x"),
    work=Work.TRANSCENDENTAL,
)
is_finite = elementwise(
    "is_finite", "Whether a float is neither infinite nor NaN", np.isfinite, 1, dtypes.is_float, result=dtypes.BOOL
)


def _round_away(x: Any) -> Any:
    whole = np.trunc(x)
    # Not floor(x + 0.5): that sum rounds, and the float below 0.5 would become 1.
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


_ROUNDINGS: dict[str, Callable[..., Any]] = {"even": in_float32(np.rint), "away": in_float32(_round_away)}


def _round_type(x: Type, *, half: str) -> Sequence[Type]:
    if half not in _ROUNDINGS:
        raise PalladioValueError("no such way to round a half", expected=" or ".join(_ROUNDINGS), got=repr(half))
    return (require_alike("round", dtypes.is_float, (x,)),)


def _round_eval(x: Any, *, half: str) -> Sequence[Any]:
    return (_ROUNDINGS[half](x),)


round = Op(
    "round",
    "The nearest whole number; from the middle to the even one (`half` even) or away from zero (away).",
    _round_type,
    _round_eval,
    dtypes="float",
    elementwise=True,
)
