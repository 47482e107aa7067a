"""Cumulative sums and sorting, with NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.array.axes import flat, normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, call, cast
from palladio.array.functions.reduce import as_array
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ir.core import Op
from palladio.ops.arrays import scan, shape
from palladio.ops.arrays import sort as ops
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike

__all__ = ["argsort", "cumprod", "cumsum", "lexsort", "sort"]


def _along(a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    """An array and the axis to go along; with axis None the elements as a vector."""
    a = as_array(a)
    return (flat(a), 0) if axis is None else (a, normalize_axis(axis, array_type(a).ndim))


def _cumulative(op: Op, a: ArrayLike, axis: int | None, dtype: DTypeLike | None) -> Array:
    a, axis = _along(a, axis)
    if dtype is not None:
        a = cast(a, dtypes.canonical(dtype))
    elif array_type(a).dtype == dtypes.BOOL:
        a = cast(a, dtypes.INT32)
    return call(op, a, axis=axis, reverse=False)


def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """The sums so far along `axis`, or without it of the elements in row-major order.

    Args:
        dtype: of the result, and converted to before adding. Without it that of `a`; bools become int32.
    """
    return _cumulative(scan.cumsum, a, axis, dtype)


def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """The products so far, as `cumsum`."""
    return _cumulative(scan.cumprod, a, axis, dtype)


def _numbers(a: Array, axis: int) -> Array:
    """0, 1, 2, … along an axis, int32 of the shape of an array."""
    return call(shape.iota, shape=array_type(a).shape, axis=axis, dtype=dtypes.INT32)


def _flip(a: Array, axis: int) -> Array:
    return call(shape.reverse, a, axes=(axis,))


def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements in ascending order along `axis`, or without it all of them as a vector.

    NaN comes last, and with `descending` first. `kind` and `order` have no meaning.
    """
    _refuse_order(order)
    a, axis = _along(a, axis)
    found = call(ops.sort, a, axis=axis, num_keys=1, stable=stable)
    return _flip(found, axis) if descending else found


def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The int32 indices that sort an array, as `sort`; with `stable` equal elements keep their order, either way."""
    _refuse_order(order)
    a, axis = _along(a, axis)
    return sorted_with_positions(a, axis, stable=stable, descending=descending)[1]


def sorted_with_positions(a: Array, axis: int, *, stable: bool, descending: bool) -> tuple[Array, Array]:
    """The sorted elements along an axis, and the int32 positions they come from."""
    operands = [a, _numbers(a, axis)]
    if descending:  # turned around before and after, so that equal elements end up in their order
        operands = [_flip(each, axis) for each in operands]
    values, positions = bind(ops.sort, *operands, axis=axis, num_keys=1, stable=stable)
    return (_flip(values, axis), _flip(positions, axis)) if descending else (values, positions)


def _refuse_order(order: object) -> None:
    if order is not None:
        raise PalladioTypeError("arrays have no fields to order by", argument="order", got=repr(order))


def lexsort(keys: Sequence[ArrayLike] | ArrayLike, axis: int = -1) -> Array:
    """The int32 indices that sort by the last key, then by the one before it, …; all keys of one shape.

    Raises:
        PalladioValueError: without keys, or for keys of different shapes.
    """
    arrays = [as_array(key) for key in keys]
    if not arrays:
        raise PalladioValueError("lexsort takes one key or more", argument="keys")
    axis = normalize_axis(axis, array_type(arrays[0]).ndim)
    operands = [*reversed(arrays), _numbers(arrays[0], axis)]
    return bind(ops.sort, *operands, axis=axis, num_keys=len(arrays), stable=True)[-1]
