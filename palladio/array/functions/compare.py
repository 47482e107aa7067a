"""Comparison, logic, tests of floats, and choice, with NumPy's names.

Comparison is in the promoted dtype and gives bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.array.convert import (
    Array,
    ArrayLike,
    apply,
    array_type,
    broadcast_shapes,
    broadcast_to,
    call,
    cast,
    constant,
    is_weak,
    mark_weak,
    together,
)
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic, bits, casts
from palladio.ops.arrays import compare as ops
from palladio.ops.arrays import math as functions
from palladio.types import dtypes

__all__ = [
    "astype",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "nan_to_num",
    "not_equal",
    "select",
    "where",
]


def astype(x: ArrayLike, dtype: dtypes.DTypeLike) -> Array:
    """The values in another dtype. Float to integer rounds towards zero, saturates, and turns NaN to 0."""
    dtype = dtypes.canonical(dtype)
    if is_weak(x) and dtypes.of_scalar(x) is None:  # also to its own dtype: an explicit dtype is not weak
        return call(casts.convert, x, dtype=dtype)
    return cast(x, dtype)


def _comparison(op: Op) -> Callable[[ArrayLike, ArrayLike], Array]:
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return call(op, *together(x, y)[0])

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{op.doc}."
    return function


equal = _comparison(ops.eq)
not_equal = _comparison(ops.ne)
less = _comparison(ops.lt)
less_equal = _comparison(ops.le)
greater = _comparison(ops.gt)
greater_equal = _comparison(ops.ge)


def truth(x: ArrayLike) -> Array:
    """`x != 0` as bool."""
    return cast(x, dtypes.BOOL)


def logical_and(x: ArrayLike, y: ArrayLike) -> Array:
    """True if both are not 0, as bool."""
    return apply(bits.bitwise_and, truth(x), truth(y))


def logical_or(x: ArrayLike, y: ArrayLike) -> Array:
    """True if one is not 0, as bool."""
    return apply(bits.bitwise_or, truth(x), truth(y))


def logical_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """True if exactly one is not 0, as bool."""
    return apply(bits.bitwise_xor, truth(x), truth(y))


def logical_not(x: ArrayLike) -> Array:
    """True if it is 0, as bool."""
    return call(bits.bitwise_not, truth(x))


def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None) -> Array:
    """`x` where the condition is not 0, `y` elsewhere; promoted and broadcast with each other.

    Raises:
        PalladioNotImplementedError: for a condition alone, whose result would have a shape that depends on values.
    """
    if x is None or y is None:
        raise PalladioNotImplementedError(
            "where takes a condition and two cases: the shape of where(condition) depends on values"
        )
    (x, y), weak = together(x, y)
    shape = broadcast_shapes(array_type(condition).shape, array_type(x).shape, array_type(y).shape)
    parts = [truth(condition), x, y]
    parts = [part if array_type(part).shape == () else broadcast_to(part, shape) for part in parts]
    return mark_weak(call(ops.select, *parts), weak)


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """The choice of the first condition that is true, else `default`; promoted and broadcast.

    Raises:
        PalladioValueError: if there is not one choice for each condition.
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise PalladioValueError(
            "select takes one choice for each condition, and at least one",
            expected=f"{len(condlist)} choices",
            got=len(choicelist),
        )
    *choices, default = _promoted(*choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        default = where(condition, choice, default)
    return default


def _promoted(*values: ArrayLike) -> list[Array]:
    brought, weak = together(*values)
    return [mark_weak(value, weak) for value in brought]


def _test(x: ArrayLike, test: Callable[[Array], Array], otherwise: bool) -> Array:
    """A test of floats; for integers and bools the result is the constant `otherwise`."""
    (x,), _ = together(x)
    if dtypes.is_float(array_type(x).dtype):
        return test(x)
    return broadcast_to(constant(otherwise, True), array_type(x).shape)


def isnan(x: ArrayLike) -> Array:
    """True if it is NaN, as bool."""
    return _test(x, lambda value: call(ops.ne, value, value), False)


def isfinite(x: ArrayLike) -> Array:
    """True if it is neither infinite nor NaN, as bool."""
    return _test(x, lambda value: call(functions.is_finite, value), True)


def isinf(x: ArrayLike) -> Array:
    """True if it is inf or -inf, as bool."""
    return _test(x, lambda value: _infinite(call(arithmetic.abs, value), math.inf), False)


def isposinf(x: ArrayLike) -> Array:
    """True if it is inf, as bool."""
    return _test(x, lambda value: _infinite(value, math.inf), False)


def isneginf(x: ArrayLike) -> Array:
    """True if it is -inf, as bool."""
    return _test(x, lambda value: _infinite(value, -math.inf), False)


def _infinite(value: Array, infinity: float) -> Array:
    # float8_e4m3fn has no infinity (its nearest constant is NaN), and nothing equals NaN.
    return call(ops.eq, value, constant(infinity, value))


def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """NaN replaced by `nan`, inf by `posinf` (the greatest finite float), -inf by `neginf` (the least).

    `copy` has no meaning.
    """
    (x,), weak = together(x)
    dtype = array_type(x).dtype
    if not dtypes.is_float(dtype):
        return mark_weak(x, weak)
    limits = dtypes.finfo(dtype)
    x = where(isnan(x), cast(nan, dtype), x)
    x = where(isposinf(x), cast(limits.max if posinf is None else posinf, dtype), x)
    return mark_weak(where(isneginf(x), cast(limits.min if neginf is None else neginf, dtype), x), weak)


def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """True if `abs(a - b) <= atol + rtol * abs(b)`, or both are one infinity, or with `equal_nan` both NaN; as bool."""
    (a, b), _ = together(a, b, floating=True)
    dtype = array_type(a).dtype
    bound = call(arithmetic.abs, b)
    bound = apply(arithmetic.add, cast(atol, dtype), apply(arithmetic.mul, cast(rtol, dtype), bound))
    near = less_equal(call(arithmetic.abs, call(arithmetic.sub, a, b)), bound)
    near = logical_and(near, logical_and(isfinite(a), isfinite(b)))
    near = logical_or(near, call(ops.eq, a, b))
    return logical_or(near, logical_and(isnan(a), isnan(b))) if equal_nan else near
