"""Index positions: negative ones counted from the end, and those out of bounds moved inside or marked as outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array.convert import Array, ArrayLike, array_type, broadcast_to, call, cast
from palladio.base.errors import PalladioTypeError
from palladio.ops.arrays import arithmetic, bits, compare
from palladio.types import dtypes
from palladio.types.types import Shape


def static_position(value: Any) -> int | None:
    """The integer, if it is known before anything runs."""
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if (
        isinstance(value, np.ndarray)
        and value.ndim == 0
        and dtypes.is_supported(value.dtype)
        and dtypes.is_integer(value.dtype)
    ):
        return int(value)
    return None


def as_positions(value: ArrayLike, what: str = "an index") -> Array:
    """Integers of at least 32 bits, so that every position of an axis can be compared with them.

    Raises:
        PalladioTypeError: if they are not integers.
    """
    found = array_type(value)
    if not dtypes.is_integer(found.dtype):
        raise PalladioTypeError(f"{what} is an integer or an integer array", got=str(found))
    return cast(value, dtypes.INT32) if found.dtype.itemsize < 4 else value


def _constant(number: int, like: Array) -> Array:
    """A scalar of the dtype of some positions, as near to `number` as the dtype allows."""
    dtype = array_type(like).dtype
    limits = dtypes.iinfo(dtype)
    return np.asarray(min(max(number, int(limits.min)), int(limits.max))).astype(dtype)


def from_start(position: Array, extent: int) -> Array:
    """Positions counted from the start of an axis: negative ones get the extent added."""
    static = static_position(position)
    if static is not None:
        return static + extent if static < 0 else static
    if dtypes.is_unsigned(array_type(position).dtype):
        return position
    moved = call(arithmetic.add, position, _constant(extent, position))
    return call(compare.select, call(compare.lt, position, _constant(0, position)), moved, position)


def clamped(position: Array, greatest: int) -> Array:
    """Positions moved into 0..greatest."""
    static = static_position(position)
    if static is not None:
        return min(max(static, 0), greatest)
    raised = call(arithmetic.max, position, _constant(0, position))
    return call(arithmetic.min, raised, _constant(greatest, position))


def wrapped(position: Array, extent: int) -> Array:
    """Positions modulo the extent."""
    static = static_position(position)
    if static is not None:
        return static % extent
    rest = call(arithmetic.rem, position, _constant(extent, position))
    return from_start(rest, extent)


def inside(position: Array, extent: int, shape: Shape) -> Array:
    """True if positions, already counted from the start, lie in an axis of this extent; bool[shape]."""
    if static_position(position) is not None:
        position = np.asarray(position, np.int64)
    above = call(compare.ge, position, _constant(0, position))
    below = call(compare.lt, position, _constant(extent, position))
    return broadcast_to(call(bits.bitwise_and, above, below), shape)
