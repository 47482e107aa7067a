"""Functions that are made of the others, with NumPy's names."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_to, cast
from palladio.array.functions.arithmetic import (
    add,
    divide,
    floor_divide,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
)
from palladio.array.functions.compare import equal, isnan, less, logical_or, not_equal, where
from palladio.array.functions.creation import arange, concatenate, full, static_shape, zeros
from palladio.array.functions.indexing import getitem, take
from palladio.array.functions.kinds import array
from palladio.array.functions.math import sin
from palladio.array.functions.order import cumprod, cumsum, sort
from palladio.array.functions.products import einsum
from palladio.array.functions.reduce import any, as_array, max, min, sum
from palladio.array.functions.shape import atleast_2d, expand_dims, moveaxis, part, ravel, reshape, split, swapaxes
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike

__all__ = [
    "column_stack",
    "concat",
    "copy",
    "cumulative_prod",
    "cumulative_sum",
    "diag",
    "diagonal",
    "diff",
    "dsplit",
    "dstack",
    "heaviside",
    "histogram",
    "hsplit",
    "isin",
    "matrix_transpose",
    "matvec",
    "median",
    "meshgrid",
    "nancumprod",
    "nancumsum",
    "polyval",
    "repeat",
    "roll",
    "searchsorted",
    "sinc",
    "trace",
    "unravel_index",
    "unstack",
    "vecdot",
    "vecmat",
    "vsplit",
]

concat = concatenate
copy = array


def matrix_transpose(x: ArrayLike) -> Array:
    """`dtype[..., n, m]` of `dtype[..., m, n]`."""
    return swapaxes(x, -1, -2)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The parts at each index of an axis, without it."""
    x = moveaxis(x, axis, 0)
    return tuple(getitem(x, n) for n in range(array_type(x).shape[0]))


def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """As `split`, along the second axis, of a vector along the only one."""
    return split(ary, indices_or_sections, 0 if array_type(ary).ndim == 1 else 1)


def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """As `split`, along the first axis."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """As `split`, along the third axis."""
    return split(ary, indices_or_sections, 2)


def column_stack(tup: Sequence[ArrayLike]) -> Array:
    """Vectors as the columns of a matrix, beside the columns of matrices."""
    return concatenate([reshape(x, (-1, 1)) if array_type(x).ndim < 2 else x for x in tup], 1)


def dstack(tup: Sequence[ArrayLike]) -> Array:
    """Matrices one after the other along a third axis; a vector is a matrix of one row."""
    matrices = [atleast_2d(x) for x in tup]
    return concatenate([expand_dims(x, 2) if array_type(x).ndim == 2 else x for x in matrices], 2)


def meshgrid(*xi: ArrayLike, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """The coordinates of the points of a grid, each an array over all axes.

    Args:
        xi: the coordinates along each axis, vectors.
        sparse: leave axes along which an array is constant at size 1.
        indexing: "ij" for axes in the order of `xi`, "xy" with the first two exchanged.

    Raises:
        PalladioValueError: for another `indexing`.
    """
    if indexing not in ("xy", "ij"):
        raise PalladioValueError("indexing is 'xy' or 'ij'", argument="indexing", got=indexing)
    count = len(xi)
    order = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    lines = [reshape(x, [-1 if n == order[axis] else 1 for n in range(count)]) for axis, x in enumerate(xi)]
    extents = np.broadcast_shapes(*(array_type(line).shape for line in lines))
    return lines if sparse else [broadcast_to(line, extents) for line in lines]


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements `a[..., i, i + offset]` of two axes, along a new last one.

    Raises:
        PalladioValueError: for fewer than two axes.
    """
    if array_type(a).ndim < 2:
        raise PalladioValueError("a diagonal needs two axes", got=str(array_type(a)))
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = array_type(a).shape[-2:]
    count = builtins.max(0, builtins.min(rows + builtins.min(offset, 0), columns - builtins.max(offset, 0)))
    line = arange(count)
    return getitem(a, (..., add(line, builtins.max(-offset, 0)), add(line, builtins.max(offset, 0))))


def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None) -> Array:
    """The sum of a diagonal."""
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def diag(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with a vector on its diagonal k, zeros elsewhere; or that diagonal of a matrix.

    Raises:
        PalladioValueError: for an array that is neither.
    """
    kind = array_type(v)
    if kind.ndim == 2:
        return diagonal(v, k)
    if kind.ndim != 1:
        raise PalladioValueError("diag takes a vector or a matrix", got=str(kind))
    before, after = zeros(builtins.max(k, 0), kind.dtype), zeros(builtins.max(-k, 0), kind.dtype)
    row, line = concatenate([before, v, after]), arange(kind.shape[0] + abs(k))
    return where(equal(subtract(line, expand_dims(line, 1)), k), row, zeros((), kind.dtype))


def diff(a: ArrayLike, n: int = 1, axis: int = -1) -> Array:
    """The differences of neighbours along an axis, n times; of bools, whether they differ.

    Raises:
        PalladioValueError: for a negative n.
    """
    a = as_array(a)
    axis, count = normalize_axis(axis, array_type(a).ndim), operator.index(n)
    if count < 0:
        raise PalladioValueError("the number of differences is at least 0", argument="n", got=n)
    differ = not_equal if array_type(a).dtype == dtypes.BOOL else subtract
    for _ in range(count):
        extent = builtins.max(array_type(a).shape[axis] - 1, 0)
        a = differ(part(a, axis, 1, extent), part(a, axis, 0, extent)) if extent else part(a, axis, 0, 0)
    return a


def _with_initial(x: ArrayLike, running: Array, axis: int | None, include_initial: bool, initial: int) -> Array:
    if axis is None and array_type(x).ndim != 1:
        raise PalladioValueError("an array of several axes needs an axis", argument="axis", got="None")
    if not include_initial:
        return running
    kind, along = array_type(running), normalize_axis(axis or 0, array_type(running).ndim)
    first = full([1 if n == along else extent for n, extent in enumerate(kind.shape)], initial, kind.dtype)
    return concatenate([first, running], along)


def cumulative_sum(
    x: ArrayLike, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The running sum along an axis, which only a vector may leave out; with `include_initial` it starts with 0."""
    return _with_initial(x, cumsum(x, 0 if axis is None else axis, dtype), axis, include_initial, 0)


def cumulative_prod(
    x: ArrayLike, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The running product along an axis, which only a vector may leave out; with `include_initial` it starts with 1."""
    return _with_initial(x, cumprod(x, 0 if axis is None else axis, dtype), axis, include_initial, 1)


def _without_nan(a: ArrayLike, instead: int) -> Array:
    kind = array_type(a)
    return where(isnan(a), np.asarray(instead).astype(kind.dtype), a) if dtypes.is_float(kind.dtype) else a


def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """`cumsum` that takes NaN for 0."""
    return cumsum(_without_nan(a, 0), axis, dtype)


def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """`cumprod` that takes NaN for 1."""
    return cumprod(_without_nan(a, 1), axis, dtype)


def median(a: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The middle of the sorted elements along an axis, or of all, in floats; NaN where there is one."""
    shape = array_type(a).shape
    line = ravel(a) if axis is None else a
    along = -1 if axis is None else normalize_axis(axis, len(shape))
    ordered = moveaxis(sort(line, along), along, -1)
    if not dtypes.is_float(array_type(ordered).dtype):
        ordered = cast(ordered, dtypes.FLOAT32)  # two integers may have no sum
    extent = array_type(ordered).shape[-1]
    if extent == 0:
        raise PalladioValueError("an empty array has no median", got=str(array_type(a)))
    low, high = getitem(ordered, (..., (extent - 1) // 2)), getitem(ordered, (..., extent // 2))
    middle = low if extent % 2 else divide(add(low, high), 2)
    last = getitem(ordered, (..., -1))  # NaN is sorted after everything
    found = where(isnan(last), last, middle)
    if not keepdims:
        return found
    return reshape(found, [1 if axis is None or n == along else extent for n, extent in enumerate(shape)])


def vecdot(x1: ArrayLike, x2: ArrayLike, *, axis: int = -1) -> Array:
    """The sums of products of vectors along an axis, which broadcast over the others."""
    return einsum("...i,...i->...", moveaxis(x1, axis, -1), moveaxis(x2, axis, -1))


def matvec(x1: ArrayLike, x2: ArrayLike) -> Array:
    """`dtype[..., m]` of `dtype[..., m, n]` times `dtype[..., n]`."""
    return einsum("...ij,...j->...i", x1, x2)


def vecmat(x1: ArrayLike, x2: ArrayLike) -> Array:
    """`dtype[..., n]` of `dtype[..., m]` times `dtype[..., m, n]`."""
    return einsum("...i,...ij->...j", x1, x2)


def heaviside(x1: ArrayLike, x2: ArrayLike) -> Array:
    """0 below 0, 1 above, `x2` at 0, in floats; NaN stays."""
    x = divide(x1, 1)
    one, zero = (np.asarray(value).astype(array_type(x).dtype) for value in (1, 0))
    return where(equal(x, zero), divide(x2, 1), where(isnan(x), x, where(less(x, zero), zero, one)))


def sinc(x: ArrayLike) -> Array:
    """`sin(pi * x) / (pi * x)` in floats; 1 at 0."""
    angle = multiply(divide(x, 1), math.pi)
    one = np.asarray(1).astype(array_type(angle).dtype)
    at_zero = equal(angle, 0)
    return where(at_zero, one, divide(sin(angle), where(at_zero, one, angle)))


def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """The polynomial with the coefficients `p`, that of the highest power first, at `x`."""
    value: Array = multiply(x, 0)
    for coefficient in unstack(p):
        value = add(multiply(value, x), coefficient)
    return value


def searchsorted(a: ArrayLike, v: ArrayLike, side: str = "left") -> Array:
    """The position of each of `v` in the ascending vector `a`, as int32: before its equals, or after them with "right".

    NaN belongs after everything. Every element is compared with every one of `a`.

    Raises:
        PalladioValueError: for another side, or an `a` that is not a vector.
    """
    if side not in ("left", "right"):
        raise PalladioValueError("the side is 'left' or 'right'", argument="side", got=side)
    if array_type(a).ndim != 1:
        raise PalladioValueError("the sorted elements are a vector", argument="a", got=str(array_type(a)))
    wanted = expand_dims(v, array_type(v).ndim)
    floats = dtypes.is_float(array_type(add(a, wanted)).dtype)
    if side == "left":
        before = less(a, wanted)
        before = logical_or(before, isnan(wanted) & ~isnan(a)) if floats else before
    else:
        before = logical_or(less(a, wanted), equal(a, wanted))
        before = logical_or(before, isnan(wanted)) if floats else before
    return sum(before, -1, np.int32)


def isin(element: ArrayLike, test_elements: ArrayLike, *, invert: bool = False) -> Array:
    """True if each element is among others; with `invert`, whether it is not."""
    among = any(equal(expand_dims(element, array_type(element).ndim), ravel(test_elements)), -1)
    return equal(among, np.bool_(False)) if invert else among


def unravel_index(indices: ArrayLike, shape: Any) -> tuple[Array, ...]:
    """The index along each axis of positions in the flattened array; those outside are moved inside.

    Raises:
        PalladioTypeError: for positions that are not integers.
    """
    sizes = static_shape(shape)
    if not dtypes.is_integer(array_type(indices).dtype):
        raise PalladioTypeError("positions are integers", argument="indices", got=str(array_type(indices)))
    total = math.prod(sizes)
    strides = [*accumulate(reversed(sizes[1:]), operator.mul, initial=1)][::-1]
    from_start = where(less(indices, 0), add(indices, total), indices)
    inside = maximum(where(less(from_start, total), from_start, total - 1), 0)
    pairs: builtins.list[tuple[int, int]] = list(zip(strides, sizes, strict=True))
    return tuple(remainder(floor_divide(inside, stride), size) for stride, size in pairs)


def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Array:
    """Each element `repeats` times, along an axis or of the flattened array.

    Args:
        repeats: a static integer for all elements, or with `total_repeat_length` i32[n], one for each along the axis.
        total_repeat_length: the static size of the result along the axis: the surplus is dropped, and the last
            element fills the remainder.

    Raises:
        PalladioTypeError: numbers that are not known while tracing, without `total_repeat_length`.
    """
    if axis is None:
        a, axis = ravel(a), 0
    place = normalize_axis(axis, array_type(a).ndim)
    extents = array_type(a).shape
    if isinstance(repeats, int) and total_repeat_length is None:
        spread = broadcast_to(expand_dims(a, place + 1), (*extents[: place + 1], repeats, *extents[place + 1 :]))
        return reshape(spread, (*extents[:place], extents[place] * repeats, *extents[place + 1 :]))
    if total_repeat_length is None:
        if not isinstance(repeats, np.ndarray) or repeats.ndim > 1 or not np.issubdtype(repeats.dtype, np.integer):
            raise PalladioTypeError(
                "the number of repeats is one static integer",
                argument="repeats",
                got=repr(repeats),
                hint="total_repeat_length= gives the size of the result",
            )
        total_repeat_length = int(np.broadcast_to(repeats, (extents[place],)).sum())
    ends = cumsum(broadcast_to(cast(repeats, dtypes.INT32), (extents[place],)))
    source = minimum(searchsorted(ends, arange(total_repeat_length), side="right"), extents[place] - 1)
    return take(a, source, axis=place)


def roll(a: ArrayLike, shift: Any, axis: int | Sequence[int] | None = None) -> Array:
    """The elements shifted cyclically along axes.

    Args:
        shift: an integer, or one for each axis, static or traced.
        axis: the axes; by default the flattened array is shifted, and gets its shape back.
    """
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), array_type(a).shape)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) or np.ndim(shift) else (shift,)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for amount, each in zip(shifts * len(axes) if len(shifts) == 1 else shifts, axes, strict=True):
        place = normalize_axis(each, array_type(a).ndim)
        extent = array_type(a).shape[place]
        if not isinstance(amount, (int, np.integer)):
            a = take(a, remainder(subtract(arange(extent), amount), extent), axis=place) if extent else a
        elif extent and amount % extent:
            cut = extent - int(amount) % extent
            a = concatenate([part(a, place, cut, extent - cut), part(a, place, 0, cut)], place)
    return a


def histogram(
    a: ArrayLike,
    bins: int | ArrayLike = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """The number of elements in each bin, in floats, and the edges of the bins. The last bin has both of its edges.

    Every element is compared with every edge.

    Args:
        bins: how many of one size there are, or their edges, ascending.
        range: the first and last edge; the least and the greatest element by default.
        weights: what each element counts, 1 by default.
        density: divide by the size of the bin and by the sum of all.
    """
    a = ravel(a)
    a = a if dtypes.is_float(array_type(a).dtype) else cast(a, dtypes.FLOAT32)
    if isinstance(bins, int):
        low, high = (min(a), max(a)) if range is None else range
        same = equal(low, high)
        low, high = where(same, subtract(low, 0.5), low), where(same, add(high, 0.5), high)
        step = divide(cast(arange(bins + 1), array_type(a).dtype), bins)
        edges = add(multiply(low, subtract(1, step)), multiply(high, step))  # which ends at `high` itself
    else:
        edges = cast(bins, array_type(a).dtype)
    count = array_type(edges).shape[0] - 1
    place = searchsorted(edges, a, side="right")
    place = where(equal(a, getitem(edges, -1)), count, place)
    weight = full(array_type(a).shape, 1, array_type(a).dtype) if weights is None else ravel(weights)
    inside = equal(expand_dims(place, 0), expand_dims(arange(1, count + 1), 1))
    counts = sum(where(inside, weight, cast(0, array_type(weight).dtype)), 1)
    if density:
        counts = divide(divide(counts, diff(edges)), sum(counts))
    return counts, edges
