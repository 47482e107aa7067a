"""Bringing values to a common dtype and shape before an operation is applied."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array.protocol import Array
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind, type_of
from palladio.ir.core import Op
from palladio.ops.arrays import casts, shape
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, described_shape

ArrayLike = Any


def array_type(value: ArrayLike) -> ArrayType:
    """The type of an array-like. A reference is refused with the hint to read it first."""
    found = type_of(value)
    if not isinstance(found, ArrayType):
        raise PalladioTypeError("a reference is not a value", got=str(found), hint="read it first: ref[...]")
    return found


def is_weak(value: ArrayLike) -> bool:
    """True if the value's dtype yields to that of the value it is combined with."""
    kind = dtypes.of_scalar(value)
    return kind[1] if kind is not None else bool(getattr(value, "palladio_weak", False))


def mark_weak(value: Array, weak: bool) -> Array:
    """A freshly computed value, made weak if `weak` and if it is traced."""
    if weak and hasattr(value, "palladio_weak"):
        value.palladio_weak = True
    return value


def is_nonnegative(value: ArrayLike) -> bool:
    """True if the value is known, while tracing, to be an integer or bool array without negative elements.

    Arithmetic that wraps around is not considered: an index that large is wrong anyway.
    """
    if isinstance(value, (int, np.integer, np.bool_)):
        return bool(value >= 0)
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iub" and value.item() >= 0
    kind = getattr(value, "palladio_type", None)
    if isinstance(kind, ArrayType) and (kind.dtype == dtypes.BOOL or kind.dtype.kind == "u"):
        return True
    return bool(getattr(value, "palladio_nonnegative", False))


def mark_nonnegative(*values: ArrayLike) -> None:
    """Note of traced integers that they cannot be negative, such as a grid index."""
    for value in values:
        if hasattr(value, "palladio_nonnegative"):
            value.palladio_nonnegative = True


def result_type(*values: ArrayLike) -> tuple[DType, bool]:
    """The (dtype, weak) kind in which the values meet."""
    return dtypes.promote(*((array_type(value).dtype, is_weak(value)) for value in values))


def cast(value: ArrayLike, dtype: DType) -> Array:
    """The value in this dtype; a scalar is converted on the spot.

    Raises:
        PalladioValueError: for a Python integer that the dtype cannot hold.
    """
    if dtypes.of_scalar(value) is not None:
        if isinstance(value, int) and dtypes.is_integer(dtype) and not _fits(value, dtype):
            raise PalladioValueError(f"the integer does not fit into {dtype}", got=value)
        with np.errstate(all="ignore"):
            if isinstance(value, (float, np.floating)) and not dtypes.is_float(dtype):
                return casts.convert.eval(np.asarray(value), dtype=dtype)[0]
            return np.asarray(value).astype(dtype)  # no NumPy scalar: those of 64 bits are weak
    if array_type(value).dtype == dtype:
        return value
    return bind(casts.convert, value, dtype=dtype)[0]


def _fits(value: int, dtype: DType) -> bool:
    limits = dtypes.iinfo(dtype)
    return int(limits.min) <= value <= int(limits.max)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which these shapes meet, by NumPy's rule."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise PalladioValueError("the shapes do not broadcast together", got=", ".join(map(str, shapes))) from None


def broadcast_to(value: ArrayLike, shape_: tuple[int, ...]) -> Array:
    """The value repeated along new leading axes and axes of size 1."""
    old = array_type(value).shape
    if type(shape_) is not tuple:
        shape_ = described_shape(shape_)
    if old == shape_:
        return value
    if broadcast_shapes(old, shape_) != shape_:
        raise PalladioValueError("the array does not broadcast to the shape", expected=shape_, got=old)
    axes = tuple(range(len(shape_) - len(old), len(shape_)))
    return bind(shape.broadcast, value, shape=shape_, axes=axes)[0]


def together(*values: ArrayLike, floating: bool = False) -> tuple[list[Array], bool]:
    """The values in one dtype and one shape (scalars stay scalars), and whether results computed from them are weak.

    Args:
        floating: bring integers and bools to float32, as mathematical functions do.
    """
    dtype, weak = result_type(*values)
    if floating and not dtypes.is_float(dtype):
        dtype = dtypes.FLOAT32
    common = broadcast_shapes(*(array_type(value).shape for value in values))
    cast_values = [cast(value, dtype) for value in values]
    return [value if array_type(value).shape == () else broadcast_to(value, common) for value in cast_values], weak


def call(op: Op, *values: Array, **params: Any) -> Array:
    """The output of an operation that has one, on values that already have the dtypes and shapes it wants."""
    return bind(op, *values, **params)[0]


def constant(value: Any, like: ArrayLike) -> Array:
    """A scalar constant of the dtype of another value."""
    return np.asarray(value).astype(array_type(like).dtype)


def apply(op: Op, *values: ArrayLike, floating: bool = False) -> Array:
    """An element-by-element operation on values brought together."""
    brought, weak = together(*values, floating=floating)
    return mark_weak(bind(op, *brought)[0], weak)
