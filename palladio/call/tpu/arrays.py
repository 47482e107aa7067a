"""Functions of arrays in Pallas' TPU namespace."""

from __future__ import annotations

from typing import Any

from palladio.array import convert
from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import arithmetic, bits, creation, derived, indexing, shape
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.types import dtypes


def roll(x: ArrayLike, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Array:
    """The elements of an axis rotated towards higher indices.

    Args:
        x: `dtype[...]`.
        shift: a scalar integer, static or traced.
        axis: the axis that is rolled.
        stride: row i along `stride_axis` is rolled by `stride * i` more.
        stride_axis: another axis; given together with `stride`.

    Raises:
        PalladioTypeError: a shift that is not a scalar integer.
        PalladioValueError: one of `stride` and `stride_axis` alone, or both axes the same.
    """
    kind = convert.array_type(x)
    place = normalize_axis(axis, kind.ndim)
    found = convert.array_type(shift)
    if found.shape != () or not dtypes.is_integer(found.dtype):
        raise PalladioTypeError("a shift is a scalar integer", argument="shift", got=str(found))
    if (stride is None) != (stride_axis is None):
        raise PalladioValueError("stride and stride_axis are given together or not at all", argument="stride")
    if stride is None:
        return derived.roll(x, shift, place)
    extent = kind.shape[place]
    ones = [1] * kind.ndim
    steps = shape.reshape(creation.arange(extent), [*ones[:place], extent, *ones[place + 1 :]])
    moved: Any = convert.cast(shift, dtypes.INT32)
    if stride_axis is not None:
        rows = normalize_axis(stride_axis, kind.ndim)
        if rows == place:
            raise PalladioValueError(
                "the axis that is rolled is not the one of the strides", argument="stride_axis", got=stride_axis
            )
        count = kind.shape[rows]
        along = shape.reshape(creation.arange(count), [*ones[:rows], count, *ones[rows + 1 :]])
        moved = moved + stride * along
    source = arithmetic.remainder(steps - moved, extent)
    return indexing.take_along_axis(x, convert.broadcast_to(source, kind.shape), place)


def bitcast(x: Any, ty: Any) -> Any:
    """The same bits as another dtype; where its width differs, the last but one axis grows or shrinks.

    Args:
        x: an array `dtype[..., m, n]` or a reference to one.
        ty: the dtype.

    Raises:
        PalladioTypeError: to or from bool.
        PalladioValueError: if the elements of that axis do not make whole ones of the other dtype.
    """
    if hasattr(x, "memory_space"):
        return x.bitcast(ty)
    kind, wanted = convert.array_type(x), dtypes.canonical(ty)
    if dtypes.bits_of(kind.dtype) == dtypes.bits_of(wanted):
        return bits.view(x, wanted)
    if kind.ndim < 2:
        raise PalladioValueError(
            "a change of width changes the last but one axis, which this array has not", argument="x", got=str(kind)
        )
    return shape.swapaxes(bits.view(shape.swapaxes(x, -1, -2), wanted), -1, -2)


def touch(ref: Any) -> None:
    """Keep a reference alive. This has no effect here, since an unused reference costs nothing."""


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """The array itself: where a value is kept is the compiler's choice."""
    return x
