"""Making and rearranging arrays, with the names of `jax.lax`. Dtypes stay what they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from palladio.array.axes import normalize_axes, normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_shapes, call, cast, is_weak, result_type
from palladio.array.functions.reduce import as_array
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ops.arrays import shape as ops
from palladio.ops.references import memory
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike
from palladio.types.transforms import Index, SliceEntry
from palladio.types.types import Shape

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_shapes",
    "broadcasted_iota",
    "collapse",
    "concatenate",
    "expand_dims",
    "full",
    "full_like",
    "iota",
    "pad",
    "reshape",
    "rev",
    "split",
    "squeeze",
    "transpose",
]


def static_integers(values: Any, argument: str) -> tuple[int, ...]:
    """Several static integers.

    Raises:
        PalladioTypeError: for anything else.
    """
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise PalladioTypeError("static integers are needed", argument=argument, got=f"{values!r:.60}") from None


def _sizes(values: Any, argument: str) -> Shape:
    found = static_integers(values, argument)
    if any(size < 0 for size in found):
        raise PalladioValueError("a size is at least 0", argument=argument, got=found)
    return found


def reshape(operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Array:
    """The same elements, in row-major order, in another shape; of the transposed array if `dimensions` are given.

    Raises:
        PalladioValueError: if the number of elements differs.
    """
    operand = as_array(operand)
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    sizes = _sizes(new_sizes, "new_sizes")
    return operand if array_type(operand).shape == sizes else call(ops.reshape, operand, shape=sizes)


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Axis n of the result is axis `permutation[n]` of the array.

    Raises:
        PalladioValueError: if `permutation` does not name every axis once.
    """
    operand = as_array(operand)
    order = static_integers(permutation, "permutation")
    return (
        operand if order == tuple(range(array_type(operand).ndim)) else call(ops.transpose, operand, permutation=order)
    )


def broadcast(operand: ArrayLike, sizes: Sequence[int]) -> Array:
    """The array repeated along new leading axes of these sizes."""
    shape = (*_sizes(sizes, "sizes"), *array_type(operand).shape)
    return broadcast_in_dim(operand, shape, range(len(shape) - array_type(operand).ndim, len(shape)))


def broadcast_in_dim(operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Array:
    """The array repeated to a shape; its axis n becomes axis `broadcast_dimensions[n]`, whose size it has, or 1.

    Raises:
        PalladioValueError: if the axes do not ascend, or the sizes differ.
    """
    array, wanted = as_array(operand), _sizes(shape, "shape")
    axes = static_integers(broadcast_dimensions, "broadcast_dimensions")
    if array_type(array).shape == wanted and axes == tuple(range(len(wanted))):
        return array
    return call(ops.broadcast, array, shape=wanted, axes=axes)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """The axes from one to below another, the end by default, as one axis."""
    shape = array_type(operand).shape
    axes = range(len(shape))[start_dimension:stop_dimension]
    if not axes:
        raise PalladioValueError(
            "at least one axis is collapsed", argument="start_dimension", got=(start_dimension, stop_dimension)
        )
    merged = math.prod(shape[axis] for axis in axes)
    return reshape(operand, (*shape[: axes.start], merged, *shape[axes.stop :]))


def iota(dtype: DTypeLike, size: int) -> Array:
    """0, 1, …, size - 1 as `dtype[size]`."""
    return call(ops.iota, shape=_sizes((size,), "size"), dtype=dtypes.canonical(dtype), axis=0)


def broadcasted_iota(dtype: DTypeLike, shape: Sequence[int], dimension: int) -> Array:
    """0, 1, 2, … along one axis of `dtype[shape]`, the same along the others."""
    sizes = _sizes(shape, "shape")
    return call(ops.iota, shape=sizes, dtype=dtypes.canonical(dtype), axis=normalize_axis(dimension, len(sizes)))


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Arrays of one dtype one after the other along an axis.

    Raises:
        PalladioValueError: for none, and for arrays whose dtypes or other sizes differ.
    """
    arrays = [as_array(operand) for operand in operands]
    if not arrays:
        raise PalladioValueError("concatenate takes at least one array", argument="operands")
    return arrays[0] if len(arrays) == 1 else call(ops.concatenate, *arrays, axis=operator.index(dimension))


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """The array with copies of a value before, after and between the elements of each axis.

    Args:
        padding_value: a scalar of the array's dtype; a Python scalar takes it.
        padding_config: (before, after, between) for each axis. Negative counts before and after cut elements off.
    """
    operand = as_array(operand)
    if is_weak(padding_value):
        padding_value = cast(padding_value, array_type(operand).dtype)
    padding = tuple(_triple(each) for each in padding_config)
    return call(ops.pad, operand, padding_value, padding=padding)


def _triple(counts: Any) -> tuple[int, int, int]:
    found = static_integers(counts, "padding_config")
    if len(found) != 3:
        raise PalladioValueError("(before, after, between) for each axis", argument="padding_config", got=counts)
    return found[0], found[1], found[2]


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The elements in reverse order along the axes."""
    operand = as_array(operand)
    axes = normalize_axes(tuple(dimensions), array_type(operand).ndim)
    return call(ops.reverse, operand, axes=axes) if axes else operand


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The array without these axes, each of size 1.

    Raises:
        PalladioValueError: if the size of one is not 1.
    """
    shape = array_type(array).shape
    axes = normalize_axes(tuple(dimensions), len(shape))
    if any(shape[axis] != 1 for axis in axes):
        raise PalladioValueError("only axes of size 1 can be left out", argument="dimensions", got=f"{axes} of {shape}")
    return reshape(array, tuple(extent for axis, extent in enumerate(shape) if axis not in axes))


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The array with new axes of size 1, at these places of the result."""
    shape = list(array_type(array).shape)
    for axis in normalize_axes(tuple(dimensions), len(shape) + len(tuple(dimensions))):
        shape.insert(axis, 1)
    return reshape(array, shape)


def full(shape: Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of one value, of its dtype unless another is given."""
    wanted = result_type(fill_value)[0] if dtype is None else dtypes.canonical(dtype)
    if array_type(fill_value).ndim:
        raise PalladioTypeError("full takes a scalar", argument="fill_value", got=str(array_type(fill_value)))
    return broadcast_in_dim(cast(fill_value, wanted), shape, ())


def full_like(
    x: Any, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: Sequence[int] | None = None
) -> Array:
    """An array of one value in the shape and dtype of `x`, or those given."""
    like = x if hasattr(x, "shape") and hasattr(x, "dtype") else array_type(x)
    return full(like.shape if shape is None else shape, fill_value, like.dtype if dtype is None else dtype)


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """The array cut along an axis into parts of these sizes.

    Raises:
        PalladioValueError: if the sizes do not add up to that of the axis.
    """
    operand, found = as_array(operand), _sizes(sizes, "sizes")
    shape = array_type(operand).shape
    axis = normalize_axis(axis, len(shape))
    if sum(found) != shape[axis]:
        raise PalladioValueError(
            "the parts make up the axis", argument="sizes", expected=f"a sum of {shape[axis]}", got=found
        )
    parts, start = [], 0
    for size in found:
        entries = tuple(
            SliceEntry(start, size) if n == axis else SliceEntry(0, extent) for n, extent in enumerate(shape)
        )
        parts.append(call(memory.extract, operand, transforms=(Index(entries),)))
        start += size
    return parts
