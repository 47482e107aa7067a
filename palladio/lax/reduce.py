"""Reductions, cumulative functions and sorting, with the names of `jax.lax`. Dtypes stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.array.axes import normalize_axes, normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, call
from palladio.array.functions import indexing
from palladio.array.functions.order import sorted_with_positions
from palladio.array.functions.reduce import as_array
from palladio.base.errors import PalladioValueError
from palladio.ir.bind import bind
from palladio.ir.core import Op
from palladio.ops.arrays import reduce, scan
from palladio.ops.arrays import sort as order
from palladio.types import dtypes

__all__ = [
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_xor",
    "sort",
    "sort_key_val",
    "top_k",
]


def _reduction(op: Op) -> Callable[[ArrayLike, Sequence[int]], Array]:
    def function(operand: ArrayLike, axes: Sequence[int]) -> Array:
        operand = as_array(operand)
        return call(op, operand, axes=normalize_axes(axes, array_type(operand).ndim))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{op.doc}"
    return function


reduce_sum = _reduction(reduce.reduce_sum)
reduce_prod = _reduction(reduce.reduce_prod)
reduce_max = _reduction(reduce.reduce_max)
reduce_min = _reduction(reduce.reduce_min)
reduce_and = _reduction(reduce.reduce_and)
reduce_or = _reduction(reduce.reduce_or)
reduce_xor = _reduction(reduce.reduce_xor)


def _position(op: Op, operand: ArrayLike, axis: int, index_dtype: dtypes.DTypeLike) -> Array:
    operand = as_array(operand)
    axis = normalize_axis(axis, array_type(operand).ndim)
    return call(op, operand, axis=axis, dtype=dtypes.canonical(index_dtype))


def argmax(operand: ArrayLike, axis: int, index_dtype: dtypes.DTypeLike) -> Array:
    """The first index of the greatest element along `axis`, as `index_dtype`; NaN is greatest."""
    return _position(reduce.argmax, operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: dtypes.DTypeLike) -> Array:
    """The first index of the least element along `axis`, as `index_dtype`; NaN is least."""
    return _position(reduce.argmin, operand, axis, index_dtype)


def _scan(op: Op, operand: ArrayLike, axis: int, reverse: bool) -> Array:
    operand = as_array(operand)
    return call(op, operand, axis=normalize_axis(axis, array_type(operand).ndim), reverse=bool(reverse))


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """The sums so far along `axis`, from its end with `reverse`."""
    return _scan(scan.cumsum, operand, axis, reverse)


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """The products so far along `axis`, from its end with `reverse`."""
    return _scan(scan.cumprod, operand, axis, reverse)


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """The greatest elements so far along `axis`, from its end with `reverse`."""
    return _scan(scan.cummax, operand, axis, reverse)


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """The least elements so far along `axis`, from its end with `reverse`."""
    return _scan(scan.cummin, operand, axis, reverse)


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """`log(sum(exp(x)))` so far along `axis`, from its end with `reverse`."""
    return _scan(scan.cumlogsumexp, operand, axis, reverse)


def sort(
    operand: ArrayLike | Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Array | tuple[Array, ...]:
    """One array in ascending order, or several of one shape in the order of the first `num_keys` of them.

    Returns:
        An array for an array, a tuple for a tuple or list.
    """
    several = isinstance(operand, (tuple, list))
    operands = [as_array(each) for each in (operand if several else [operand])]
    axis = normalize_axis(dimension, array_type(operands[0]).ndim) if operands else 0
    found = bind(order.sort, *operands, axis=axis, num_keys=num_keys, stable=bool(is_stable))
    return tuple(found) if several else found[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """`keys` in ascending order, and `values`, of the same shape, in the order of their keys."""
    found = sort((keys, values), dimension, is_stable)
    return found[0], found[1]


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The `k` greatest elements along an axis, greatest first, and their int32 positions; of equal ones the first.

    NaN is greatest.

    Raises:
        PalladioValueError: for a `k` less than 0 or greater than the size of the axis.
    """
    operand = as_array(operand)
    array = array_type(operand)
    axis = normalize_axis(axis, array.ndim)
    if not 0 <= k <= array.shape[axis]:
        raise PalladioValueError("top_k finds no more elements than there are", argument="k", got=f"{k} of {array}")
    part = (*[slice(None)] * axis, slice(0, k))
    values, positions = sorted_with_positions(operand, axis, stable=True, descending=True)
    return indexing.getitem(values, part), indexing.getitem(positions, part)
