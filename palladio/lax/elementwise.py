"""Element-by-element functions with the names of `jax.lax`.

What holds for all: the arguments have one dtype and one shape; there is no promotion and no broadcasting. A scalar goes
with any shape, and a Python scalar takes the dtype of the arrays it stands with, if that can hold its kind. Errors are
`PalladioTypeError` for differing dtypes or one that the function does not have, and `PalladioValueError` for differing
shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from palladio.array.convert import Array, ArrayLike, array_type, call, cast, constant, is_weak, mark_weak, result_type
from palladio.array.functions.compare import astype
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic, bits, casts, compare
from palladio.ops.arrays import math as functions
from palladio.types import dtypes

__all__ = [
    "RoundingMethod",
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitcast_convert_type",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clamp",
    "clz",
    "convert_element_type",
    "cos",
    "cosh",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "integer_pow",
    "is_finite",
    "le",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "optimization_barrier",
    "population_count",
    "pow",
    "reciprocal",
    "rem",
    "round",
    "rsqrt",
    "select",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
]

T = TypeVar("T")


def _in_one_dtype(name: str, *values: ArrayLike) -> tuple[list[Array], bool]:
    """The values in their one dtype, and whether it is weak."""
    dtype, weak = result_type(*values)
    if any(array_type(value).dtype != dtype for value in values if not is_weak(value)):
        raise PalladioTypeError(
            f"lax.{name} takes arguments of one dtype",
            got=", ".join(str(array_type(value)) for value in values),
            hint="convert one with .astype(dtype); the functions of palladio.numpy promote",
        )
    return [cast(value, dtype) for value in values], weak


def _strict(op: Op, *values: ArrayLike) -> Array:
    alike, weak = _in_one_dtype(op.name, *values)
    return mark_weak(call(op, *alike), weak)


def _named(function: Callable[..., Array], op: Op) -> None:
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{op.doc.rstrip('.')}."


def _unary(op: Op) -> Callable[[ArrayLike], Array]:
    def function(x: ArrayLike) -> Array:
        return _strict(op, x)

    _named(function, op)
    return function


def _binary(op: Op) -> Callable[[ArrayLike, ArrayLike], Array]:
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return _strict(op, x, y)

    _named(function, op)
    return function


def _comparison(op: Op) -> Callable[[ArrayLike, ArrayLike], Array]:
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return call(op, *_in_one_dtype(op.name, x, y)[0])

    _named(function, op)
    return function


add = _binary(arithmetic.add)
sub = _binary(arithmetic.sub)
mul = _binary(arithmetic.mul)
div = _binary(arithmetic.div)
rem = _binary(arithmetic.rem)
max = _binary(arithmetic.max)
min = _binary(arithmetic.min)
nextafter = _binary(arithmetic.nextafter)
neg = _unary(arithmetic.neg)
abs = _unary(arithmetic.abs)
sign = _unary(arithmetic.sign)

exp = _unary(functions.exp)
exp2 = _unary(functions.exp2)
expm1 = _unary(functions.expm1)
log = _unary(functions.log)
log1p = _unary(functions.log1p)
sqrt = _unary(functions.sqrt)
rsqrt = _unary(functions.rsqrt)
cbrt = _unary(functions.cbrt)
sin = _unary(functions.sin)
cos = _unary(functions.cos)
tan = _unary(functions.tan)
asin = _unary(functions.asin)
acos = _unary(functions.acos)
atan = _unary(functions.atan)
atan2 = _binary(functions.atan2)
sinh = _unary(functions.sinh)
cosh = _unary(functions.cosh)
tanh = _unary(functions.tanh)
asinh = _unary(functions.asinh)
acosh = _unary(functions.acosh)
atanh = _unary(functions.atanh)
erf = _unary(functions.erf)
erfc = _unary(functions.erfc)
erf_inv = _unary(functions.erf_inv)
logistic = _unary(functions.logistic)
floor = _unary(functions.floor)
ceil = _unary(functions.ceil)

eq = _comparison(compare.eq)
ne = _comparison(compare.ne)
lt = _comparison(compare.lt)
le = _comparison(compare.le)
gt = _comparison(compare.gt)
ge = _comparison(compare.ge)

bitwise_and = _binary(bits.bitwise_and)
bitwise_or = _binary(bits.bitwise_or)
bitwise_xor = _binary(bits.bitwise_xor)
bitwise_not = _unary(bits.bitwise_not)
shift_left = _binary(bits.shift_left)
shift_right_logical = _binary(bits.shift_right_logical)
shift_right_arithmetic = _binary(bits.shift_right_arithmetic)
population_count = _unary(bits.population_count)
clz = _unary(bits.clz)


def is_finite(x: ArrayLike) -> Array:
    """True if a float is neither infinite nor NaN, as bool."""
    return call(functions.is_finite, *_in_one_dtype("is_finite", x)[0])


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` to the power `y`, which has the dtype of `x` or is an integer; integer bases wrap around."""
    base = array_type(x).dtype
    if dtypes.is_float(base) and dtypes.is_integer(array_type(y).dtype):
        y = cast(y, base)
    return _strict(arithmetic.pow, x, y)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """`x` to the power of a static integer, which is not negative for integers `x`."""
    (x,), weak = _in_one_dtype("integer_pow", x)
    return mark_weak(call(arithmetic.integer_pow, x, y=y), weak)


def square(x: ArrayLike) -> Array:
    """`x * x`."""
    return _strict(arithmetic.mul, x, x)


def reciprocal(x: ArrayLike) -> Array:
    """`1 / x` of floats."""
    return integer_pow(x, -1)


class RoundingMethod(Enum):
    """The rule by which `round` rounds values halfway between two whole numbers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest whole number, of floats."""
    method = RoundingMethod(rounding_method)
    (x,), weak = _in_one_dtype("round", x)
    half = "even" if method is RoundingMethod.TO_NEAREST_EVEN else "away"
    return mark_weak(call(functions.round, x, half=half), weak)


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """`x` where it is between the bounds, else the nearer bound. The bounds are scalars or of the shape of `x`."""
    return _strict(arithmetic.clamp, min, x, max)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """`on_true` where the bool `pred` is true, `on_false` elsewhere; `pred` is a scalar or of the cases' shape."""
    cases, weak = _in_one_dtype("select", on_true, on_false)
    return mark_weak(call(compare.select, pred, *cases), weak)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """The case that `which` counts, element by element.

    Args:
        which: a bool that chooses between two cases, False the first one; or an int32, less than 0 the first and too
            great the last one.

    Raises:
        PalladioTypeError: for `which` of another dtype.
        PalladioValueError: for the wrong number of cases.
    """
    if not cases:
        raise PalladioValueError("select_n takes one case or more", argument="cases")
    chosen, weak = _in_one_dtype("select_n", *cases)
    dtype = array_type(which).dtype
    if dtype == dtypes.BOOL:
        if len(cases) > 2:
            raise PalladioValueError("a bool chooses between two cases", argument="cases", got=f"{len(cases)} cases")
        found = call(compare.select, which, chosen[-1], chosen[0])
    elif dtype == dtypes.INT32:
        found = chosen[-1]
        for number, case in reversed(list(enumerate(chosen[:-1]))):
            found = call(compare.select, call(compare.le, which, constant(number, which)), case, found)
    else:
        got = str(array_type(which))
        raise PalladioTypeError("select_n chooses by bool or int32", argument="which", expected="bool or i32", got=got)
    return mark_weak(found, weak)


def convert_element_type(operand: ArrayLike, new_dtype: dtypes.DTypeLike) -> Array:
    """The values in another dtype. Float to integer rounds towards zero, saturates, and turns NaN to 0."""
    return astype(operand, new_dtype)


def bitcast_convert_type(operand: ArrayLike, new_dtype: dtypes.DTypeLike) -> Array:
    """The same bits as another dtype: `f32[n]` to `u32[n]`, to `u8[n, 4]` and back."""
    (operand,), _ = _in_one_dtype("bitcast_convert_type", operand)
    return call(casts.bitcast_convert, operand, dtype=dtypes.canonical(new_dtype))


def stop_gradient(x: T) -> T:
    """`x` itself: there are no gradients here, and kernels may be written for both."""
    return x


def optimization_barrier(operand: T) -> T:
    """`operand`, a pytree, itself: nothing here moves across what it stands for."""
    return operand
