"""Making arrays: constants, counters, and joining arrays, with NumPy's names. Defaults are float32 and int32."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_to, cast, result_type
from palladio.array.functions import arithmetic, compare
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.arrays import shape as ops
from palladio.types import dtypes

__all__ = [
    "arange",
    "concatenate",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "hstack",
    "identity",
    "indices",
    "linspace",
    "ones",
    "ones_like",
    "stack",
    "tri",
    "tril",
    "triu",
    "vstack",
    "zeros",
    "zeros_like",
]


def static_shape(shape: Any) -> tuple[int, ...]:
    """A shape argument as a tuple of static integers.

    Raises:
        PalladioTypeError: if a size is not static. PalladioValueError: if one is negative.
    """
    sizes = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    try:
        found = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise PalladioTypeError("a shape is static integers", argument="shape", got=repr(shape)) from None
    if any(size < 0 for size in found):
        raise PalladioValueError("a size is at least 0", argument="shape", got=found)
    return found


def full(shape: Any, fill_value: ArrayLike, dtype: Any = None) -> Array:
    """An array of one value.

    Args:
        shape: static integers.
        fill_value: a scalar, or an array that broadcasts to the shape.
        dtype: that of the value by default.
    """
    wanted = result_type(fill_value)[0] if dtype is None else dtypes.canonical(dtype)
    return _filled(fill_value, static_shape(shape), wanted)


def _filled(value: ArrayLike, shape: tuple[int, ...], dtype: Any) -> Array:
    value = cast(value, dtype)
    if array_type(value).shape == ():
        return bind(ops.broadcast, value, shape=shape, axes=())[0]
    return broadcast_to(value, shape)


def zeros(shape: Any, dtype: Any = None) -> Array:
    """An array of zeros, float32 by default."""
    return full(shape, 0, dtypes.FLOAT32 if dtype is None else dtype)


def ones(shape: Any, dtype: Any = None) -> Array:
    """An array of ones, float32 by default."""
    return full(shape, 1, dtypes.FLOAT32 if dtype is None else dtype)


def empty(shape: Any, dtype: Any = None) -> Array:
    """An array of zeros, float32 by default; no element is left uninitialised."""
    return zeros(shape, dtype)


def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """An array of one value in the shape and dtype of `a`, or those given."""
    own = None if shape is not None and dtype is not None else _described(a)
    found = static_shape(shape) if shape is not None else own[0]  # type: ignore[index]
    return _filled(fill_value, found, dtypes.canonical(dtype) if dtype is not None else own[1])  # type: ignore[index]


def _described(a: Any) -> tuple[tuple[int, ...], Any]:
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return tuple(a.shape), dtypes.canonical(a.dtype)
    found = array_type(a)
    return found.shape, found.dtype


def zeros_like(a: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """Zeros in the shape and dtype of `a`, or those given."""
    return full_like(a, 0, dtype, shape)


def ones_like(a: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """Ones in the shape and dtype of `a`, or those given."""
    return full_like(a, 1, dtype, shape)


def empty_like(a: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """As `zeros_like`."""
    return zeros_like(a, dtype, shape)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Array:
    """`start, start + step, …` below `stop`. The bounds are static numbers.

    Int32 for integers, float32 otherwise, by default.
    """
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    try:
        bounds = [number if isinstance(number, float) else operator.index(number) for number in (start, stop, step)]
    except TypeError:
        raise PalladioTypeError(
            "the bounds of arange are static numbers",
            got=f"{start!r}, {stop!r}, {step!r}",
            hint="add to an arange of static size",
        ) from None
    if bounds[2] == 0:
        raise PalladioValueError("the step of arange is not zero", argument="step", got=step)
    count = max(0, int(np.ceil((bounds[1] - bounds[0]) / bounds[2])))
    default = dtypes.FLOAT32 if any(isinstance(number, float) for number in bounds) else dtypes.INT32
    wanted = default if dtype is None else dtypes.canonical(dtype)
    counted = bind(ops.iota, shape=(count,), dtype=wanted, axis=0)[0]
    if bounds[2] != 1:
        counted = arithmetic.multiply(counted, cast(bounds[2], wanted))
    return counted if bounds[0] == 0 else arithmetic.add(counted, cast(bounds[0], wanted))


def linspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, dtype: Any = None) -> Array:
    """`num` numbers from `start` to `stop`, float32 by default."""
    count = num - 1 if endpoint else num
    steps = arange(num, dtype=dtypes.FLOAT32)
    fraction = arithmetic.divide(steps, float(max(count, 1)))
    found = arithmetic.add(start, arithmetic.multiply(fraction, arithmetic.subtract(stop, start)))
    if endpoint and num > 1:
        found = compare.where(compare.equal(steps, float(count)), stop, found)
    return cast(found, dtypes.FLOAT32 if dtype is None else dtypes.canonical(dtype))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """`dtype[N, M]` with ones on the k-th diagonal, zeros elsewhere."""
    return cast(
        _difference((N, N if M is None else M), k, compare.equal),
        dtypes.FLOAT32 if dtype is None else dtypes.canonical(dtype),
    )


def identity(n: int, dtype: Any = None) -> Array:
    """`eye(n)`."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """`dtype[N, M]` with ones on and below the k-th diagonal."""
    shape = (N, N if M is None else M)
    return cast(_difference(shape, k, compare.less_equal), dtypes.FLOAT32 if dtype is None else dtypes.canonical(dtype))


def _difference(shape: Any, k: int, comparison: Any) -> Array:
    """`comparison(column - row, k)` for each element."""
    shape = static_shape(shape)
    row = bind(ops.iota, shape=shape, dtype=dtypes.INT32, axis=0)[0]
    column = bind(ops.iota, shape=shape, dtype=dtypes.INT32, axis=1)[0]
    return comparison(arithmetic.subtract(column, row), k)


def tril(m: ArrayLike, k: int = 0) -> Array:
    """`m: dtype[..., r, c]` with zeros above the k-th diagonal."""
    shape = _matrix(m)
    return compare.where(
        broadcast_to(_difference(shape[-2:], k, compare.less_equal), shape), m, cast(0, array_type(m).dtype)
    )


def triu(m: ArrayLike, k: int = 0) -> Array:
    """`m: dtype[..., r, c]` with zeros below the k-th diagonal."""
    shape = _matrix(m)
    return compare.where(
        broadcast_to(_difference(shape[-2:], k, compare.greater_equal), shape), m, cast(0, array_type(m).dtype)
    )


def _matrix(m: ArrayLike) -> Any:
    found = array_type(m)
    if found.ndim < 2:
        raise PalladioValueError("a matrix is needed", argument="m", expected="at least 2 axes", got=str(found))
    return found.shape


def _require_arrays(arrays: Any) -> None:
    if not isinstance(arrays, (tuple, list)):
        raise PalladioTypeError("a tuple or list of arrays", argument="arrays", got=repr(arrays))
    if not arrays:
        raise PalladioValueError("at least one array is needed", argument="arrays")


def indices(dimensions: Sequence[int], dtype: Any = None) -> Array:
    """The position of each element of an array, along each axis: `i32[len(dimensions), *dimensions]`."""
    shape, wanted = static_shape(tuple(dimensions)), dtypes.INT32 if dtype is None else dtypes.canonical(dtype)
    return stack([bind(ops.iota, shape=shape, dtype=wanted, axis=axis)[0] for axis in range(len(shape))])


def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0, dtype: Any = None) -> Array:
    """The arrays one after the other along an axis; flattened first if the axis is None."""
    _require_arrays(arrays)
    common = result_type(*arrays)[0] if dtype is None else dtypes.canonical(dtype)
    cast_arrays = [cast(array, common) for array in arrays]
    if axis is None:
        cast_arrays = [bind(ops.reshape, a, shape=(array_type(a).size,))[0] for a in cast_arrays]
        axis = 0
    if array_type(cast_arrays[0]).ndim == 0:
        raise PalladioValueError("scalars cannot be concatenated", argument="arrays", hint="use stack")
    if len(cast_arrays) == 1:
        return cast_arrays[0]
    return bind(ops.concatenate, *cast_arrays, axis=normalize_axis(axis, array_type(cast_arrays[0]).ndim))[0]


def stack(arrays: Sequence[ArrayLike], axis: int = 0, dtype: Any = None) -> Array:
    """Arrays of one shape along a new axis."""
    _require_arrays(arrays)
    shape = array_type(arrays[0]).shape
    place = normalize_axis(axis, len(shape) + 1)
    wide = (*shape[:place], 1, *shape[place:])
    for array in arrays:
        if array_type(array).shape != shape:
            raise PalladioValueError("stack takes arrays of one shape", expected=shape, got=array_type(array).shape)
    common = result_type(*arrays)[0] if dtype is None else dtypes.canonical(dtype)
    widened = [bind(ops.reshape, cast(array, common), shape=wide)[0] for array in arrays]
    return concatenate(widened, place)


def _at_least_1d(array: ArrayLike) -> Array:
    return bind(ops.reshape, array, shape=(1,))[0] if array_type(array).ndim == 0 else array


def hstack(tup: Sequence[ArrayLike]) -> Array:
    """Arrays side by side: along axis 1, or 0 for vectors."""
    arrays = [_at_least_1d(array) for array in tup]
    return concatenate(arrays, 0 if array_type(arrays[0]).ndim == 1 else 1)


def vstack(tup: Sequence[ArrayLike]) -> Array:
    """Arrays on top of each other; vectors are rows."""
    rows = [_at_least_1d(array) for array in tup]
    rows = [bind(ops.reshape, r, shape=(1, array_type(r).size))[0] if array_type(r).ndim == 1 else r for r in rows]
    return concatenate(rows, 0)
