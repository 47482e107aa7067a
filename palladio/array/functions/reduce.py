"""Reductions with NumPy's names.

What holds for all: `axis` is None (all axes), an integer or several, negative ones counted from the end; with
`keepdims` the reduced axes stay, of size 1; elements where the bool array `where` is false are left out. Errors are
`PalladioIndexError` for an axis out of range and `PalladioValueError` for one named twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palladio.array.axes import Axes, flat, is_set, normalize_axes, normalize_axis, restore, spread
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
    together,
)
from palladio.array.functions import arithmetic, compare
from palladio.array.functions.math import exp, log, sqrt
from palladio.base.errors import PalladioValueError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic as elements
from palladio.ops.arrays import reduce as ops
from palladio.ops.arrays.elementwise import is_small_float
from palladio.types import dtypes
from palladio.types.dtypes import DType, DTypeLike

__all__ = [
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "array_equal",
    "average",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]


def reduced(op: Op, a: Array, axis: Axes, keepdims: bool, **advice: int) -> Array:
    """An array reduced by an operation with the param `axes`, and advice to compilers."""
    shape = array_type(a).shape
    axes = normalize_axes(axis, len(shape))
    found = call(op, a, axes=axes, **advice)
    return restore(found, shape, axes) if is_set(keepdims, "keepdims") else found


def as_array(a: ArrayLike) -> Array:
    """An array-like as an array, in its own dtype."""
    return together(a)[0][0]


def accumulator(dtype: DType) -> DType:
    """The dtype in which integers add up: bools and integers narrower than 32 bits get 32."""
    if dtypes.is_float(dtype) or dtype.itemsize >= 4:
        return dtype
    return np.dtype(np.uint32) if dtypes.is_unsigned(dtype) else dtypes.INT32


def _accumulated(
    op: Op,
    combine: Op,
    identity: int,
    a: ArrayLike,
    axis: Axes,
    dtype: DTypeLike,
    keepdims: bool,
    initial: Any,
    where: Any,
    **advice: int,
) -> Array:
    wanted = accumulator(array_type(a).dtype) if dtype is None else dtypes.canonical(dtype)
    a = cast(as_array(a), wanted)
    if where is not None:
        a = compare.where(where, a, constant(identity, a))
    found = reduced(op, a, axis, keepdims, **advice)
    return found if initial is None else apply(combine, found, cast(initial, wanted))


def sum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The sum, plus `initial`; 0 of nothing.

    Args:
        dtype: of the result, and converted to before adding. Without it bools and small integers become int32 or
            uint32; floats narrower than float32 are added in float32 and rounded once.
    """
    return _accumulated(ops.reduce_sum, elements.add, 0, a, axis, dtype, keepdims, initial, where)


def prod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The product, times `initial`; 1 of nothing. `dtype` as for `sum`."""
    return _accumulated(ops.reduce_prod, elements.mul, 1, a, axis, dtype, keepdims, initial, where)


def _extremum(
    name: str,
    op: Op,
    combine: Op,
    identity: Any,
    a: Any,
    axis: Axes,
    keepdims: bool,
    initial: Any,
    where: Any,
    **advice: int,
) -> Array:
    a = as_array(a)
    array = array_type(a)
    if where is not None:
        if initial is None:
            rule = f"{name} of no elements has no value, and where= may leave none"
            raise PalladioValueError(rule, argument="where", hint="pass initial=")
        a = compare.where(where, a, constant(identity(array.dtype), a))
    elif initial is None and math.prod(array.shape[each] for each in normalize_axes(axis, array.ndim)) == 0:
        raise PalladioValueError(
            f"{name} of no elements has no value", argument="a", got=str(array), hint="pass initial="
        )
    found = reduced(op, a, axis, keepdims, **advice)
    return found if initial is None else apply(combine, found, cast(initial, array.dtype))


def max(
    a: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The greatest element, or `initial` if that is greater; NaN if one is NaN.

    Raises:
        PalladioValueError: without `initial`, if there are no elements, or there may be none because of `where`.
    """
    return _extremum("max", ops.reduce_max, elements.max, dtypes.least, a, axis, keepdims, initial, where)


def min(
    a: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The least element, or `initial` if that is less; NaN if one is NaN. Errors as for `max`."""
    return _extremum("min", ops.reduce_min, elements.min, dtypes.greatest, a, axis, keepdims, initial, where)


amax = max
amin = min


def in_chains(name: str, a: ArrayLike, axis: Axes, keepdims: bool, chains: int) -> Array:
    """`sum`, `prod`, `max` or `min`, with the number of chains in which a compiler may reduce as advice."""
    if name in ("sum", "prod"):
        op, combine = (ops.reduce_sum, elements.add) if name == "sum" else (ops.reduce_prod, elements.mul)
        return _accumulated(op, combine, 0, a, axis, None, keepdims, None, None, accumulator_ilp=chains)
    op, combine = (ops.reduce_max, elements.max) if name == "max" else (ops.reduce_min, elements.min)
    return _extremum(name, op, combine, None, a, axis, keepdims, None, None, accumulator_ilp=chains)


def _logical(op: Op, identity: bool, a: ArrayLike, axis: Axes, keepdims: bool, where: Any) -> Array:
    a = compare.truth(as_array(a))
    return reduced(op, a if where is None else compare.where(where, a, identity), axis, keepdims)


def all(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """True if every element is not 0, as bool; true of nothing."""
    return _logical(ops.reduce_and, True, a, axis, keepdims, where)


def any(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """True if an element is not 0, as bool; false of nothing."""
    return _logical(ops.reduce_or, False, a, axis, keepdims, where)


def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """True if `isclose` holds everywhere, as bool."""
    return all(compare.isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """True if two arrays have one shape and the same elements, as bool."""
    if array_type(a1).shape != array_type(a2).shape:
        return np.zeros((), dtypes.BOOL)
    same = compare.equal(a1, a2)
    if equal_nan:
        same = compare.logical_or(same, compare.logical_and(compare.isnan(a1), compare.isnan(a2)))
    return all(same)


def count_nonzero(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The number of elements that are not 0, as int32."""
    return sum(compare.truth(as_array(a)), axis, keepdims=keepdims)


def _position(op: Op, a: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    a = as_array(a)
    shape = array_type(a).shape
    if axis is None:
        found = call(op, flat(a), axis=0, dtype=dtypes.INT32)
        return restore(found, shape, tuple(range(len(shape)))) if is_set(keepdims, "keepdims") else found
    axis = normalize_axis(axis, len(shape))
    found = call(op, a, axis=axis, dtype=dtypes.INT32)
    return restore(found, shape, (axis,)) if is_set(keepdims, "keepdims") else found


def argmax(a: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The first index of the greatest element, as int32; in row-major order without `axis`. NaN is greatest.

    Raises:
        PalladioValueError: if there are no elements.
    """
    return _position(ops.argmax, a, axis, keepdims)


def argmin(a: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The first index of the least element, as `argmax`. NaN is least."""
    return _position(ops.argmin, a, axis, keepdims)


def ptp(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The greatest element minus the least one."""
    return arithmetic.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _computation(a: ArrayLike, dtype: DTypeLike | None) -> tuple[Array, DType]:
    """An array in the float dtype in which means are computed, and the dtype of the result."""
    found = array_type(a).dtype if dtype is None else dtypes.canonical(dtype)
    result = found if dtypes.is_float(found) else dtypes.FLOAT32
    return cast(as_array(a), dtypes.FLOAT32 if is_small_float(result) else result), result


def _count(a: Array, axis: Axes, keepdims: bool, where: ArrayLike | None) -> Array:
    """The number of reduced elements, as a float."""
    array = array_type(a)
    if where is None:
        return constant(math.prod(array.shape[each] for each in normalize_axes(axis, array.ndim)), a)
    ones = cast(compare.truth(where), array.dtype)
    return sum(broadcast_to(ones, broadcast_shapes(array_type(ones).shape, array.shape)), axis, keepdims=keepdims)


def mean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The arithmetic mean in floats (integers: float32), computed in float32 at least; NaN of nothing."""
    a, result = _computation(a, dtype)
    total = sum(a, axis, keepdims=keepdims, where=where)
    return cast(arithmetic.divide(total, _count(a, axis, keepdims, where)), result)


def var(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The mean squared distance from the mean, of `count - ddof` elements, computed in float32 at least.

    `correction` is another name of `ddof`. NaN where `count - ddof` is not positive.
    """
    a, result = _computation(a, dtype)
    centered = arithmetic.subtract(a, mean(a, axis, keepdims=True, where=where))
    total = sum(arithmetic.square(centered), axis, keepdims=keepdims, where=where)
    less = ddof if correction is None else correction
    count = arithmetic.subtract(_count(a, axis, keepdims, where), constant(less, a))
    found = arithmetic.divide(total, count)
    return cast(compare.where(compare.greater(count, constant(0, a)), found, constant(math.nan, a)), result)


def std(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The square root of `var`."""
    a, result = _computation(a, dtype)
    return cast(sqrt(var(a, axis, ddof=ddof, keepdims=keepdims, where=where, correction=correction)), result)


def average(a: ArrayLike, axis: Axes = None, weights: ArrayLike | None = None, *, keepdims: bool = False) -> Array:
    """The mean weighted by `weights`, which broadcast to the shape of `a`, or are a vector along the one `axis`.

    Raises:
        PalladioValueError: for weights of another shape.
    """
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    (a,), _ = together(a, floating=True)
    (weights,), _ = together(weights, floating=True)
    shape = array_type(a).shape
    if array_type(weights).ndim == 1 != len(shape):
        axes = normalize_axes(axis, len(shape))
        if len(axes) != 1 or array_type(weights).shape != (shape[axes[0]],):
            raise PalladioValueError(
                "a vector of weights goes along one axis and has its size",
                argument="weights",
                got=f"{array_type(weights)} for axis {axis} of {array_type(a)}",
            )
        weights = spread(weights, shape, tuple(each for each in range(len(shape)) if each != axes[0]))
    (a, weights), _ = together(a, weights)
    total = sum(arithmetic.multiply(a, weights), axis, keepdims=keepdims)
    return arithmetic.divide(total, sum(weights, axis, keepdims=keepdims))


def _numbers_only(a: ArrayLike, where: ArrayLike | None) -> Array:
    found = compare.logical_not(compare.isnan(a))
    return found if where is None else compare.logical_and(found, where)


def nansum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """`sum` of the elements that are not NaN."""
    return sum(a, axis, dtype, keepdims=keepdims, initial=initial, where=_numbers_only(a, where))


def nanprod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """`prod` of the elements that are not NaN."""
    return prod(a, axis, dtype, keepdims=keepdims, initial=initial, where=_numbers_only(a, where))


def nanmean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """`mean` of the elements that are not NaN; NaN where all elements are NaN."""
    return mean(a, axis, dtype, keepdims=keepdims, where=_numbers_only(a, where))


def nanvar(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """`var` of the elements that are not NaN; NaN where all elements are NaN."""
    return var(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=_numbers_only(a, where))


def nanstd(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """`std` of the elements that are not NaN; NaN where all elements are NaN."""
    return std(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=_numbers_only(a, where))


def _nan_extremum(op: Op, identity: Any, a: ArrayLike, axis: Axes, keepdims: bool) -> Array:
    a = as_array(a)
    array = array_type(a)
    if math.prod(array.shape[each] for each in normalize_axes(axis, array.ndim)) == 0:
        raise PalladioValueError(
            "an empty array has neither a greatest nor a least element", argument="a", got=str(array)
        )
    missing = compare.isnan(a)
    found = reduced(op, compare.where(missing, constant(identity(array.dtype), a), a), axis, keepdims)
    if not dtypes.is_float(array.dtype):
        return found
    return compare.where(all(missing, axis, keepdims=keepdims), constant(math.nan, a), found)


def nanmax(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The greatest element that is not NaN; NaN where all are."""
    return _nan_extremum(ops.reduce_max, dtypes.least, a, axis, keepdims)


def nanmin(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The least element that is not NaN; NaN where all are."""
    return _nan_extremum(ops.reduce_min, dtypes.greatest, a, axis, keepdims)


def logsumexp(
    a: ArrayLike,
    axis: Axes = None,
    b: ArrayLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """`log(sum(b * exp(a)))` in floats, without overflow; -inf of nothing."""
    (a,), _ = together(a, floating=True)
    others = [array_type(other).shape for other in (b, where) if other is not None]
    shape = broadcast_shapes(array_type(a).shape, *others)
    a, axes = broadcast_to(a, shape), normalize_axes(axis, len(shape))
    top = max(a, axes, initial=dtypes.least(array_type(a).dtype), where=where)
    top = compare.where(compare.isfinite(top), top, constant(0, a))
    terms = exp(arithmetic.subtract(a, spread(top, shape, axes)))
    terms = terms if b is None else arithmetic.multiply(terms, b)
    found = arithmetic.add(log(sum(terms, axes, where=where)), top)
    return restore(found, shape, axes) if is_set(keepdims, "keepdims") else found
