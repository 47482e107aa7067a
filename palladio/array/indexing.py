"""Indexing of values: `x[...]`, `x.at[...]`, `take`. Values are never changed.

Reading outside an axis is clamped or filled, as JAX does.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array import arithmetic, compare
from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_shapes, broadcast_to, call, cast, is_weak
from palladio.array.shape import expand_dims, flip, ravel, reshape
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.ops import memory
from palladio.ops import shape as shape_ops
from palladio.types import dtypes
from palladio.types.transforms import Index, IndexEntry, Operand, Slice, transformed

__all__ = ["take", "take_along_axis"]


class _Plan:
    """What an indexing key comes to: an index transform, its operands, and what is done to the result afterwards."""

    def __init__(self) -> None:
        self.entries: list[IndexEntry] = []
        self.operands: list[Array] = []
        self.reversed_axes: list[int] = []
        self.new_axes: list[int] = []
        self.limits: list[tuple[int, int]] = []


def _plan(key: Any, shape: tuple[int, ...]) -> _Plan:
    """Read a key against a shape.

    Raises:
        PalladioIndexError: too many indices, or a static one outside its axis.
        PalladioTypeError: an index of another kind.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    ellipses = [n for n, part in enumerate(keys) if part is ...]
    if len(ellipses) > 1:
        raise PalladioIndexError("an index has at most one ellipsis", got=len(ellipses))
    consumed = len([part for part in keys if part is not None and part is not ...])
    if consumed > len(shape):
        raise PalladioIndexError("too many indices for the array", expected=f"at most {len(shape)}", got=consumed)
    place = ellipses[0] if ellipses else len(keys)
    keys[place : place + len(ellipses)] = [slice(None)] * (len(shape) - consumed)
    plan = _Plan()
    axis = 0
    for part in keys:
        if part is None:
            plan.new_axes.append(len(plan.entries) + len(plan.new_axes))
        else:
            plan.entries.append(_entry(part, shape[axis], axis, plan))
            axis += 1
    return plan


def _entry(part: Any, extent: int, axis: int, plan: _Plan) -> IndexEntry:
    if isinstance(part, slice):
        return _slice(part, extent, axis, plan)
    if hasattr(part, "start") and hasattr(part, "size") and hasattr(part, "stride"):
        return _sized_slice(part, extent, axis, plan)
    static = _static(part)
    if static is not None:
        if not -extent <= static < extent:
            raise PalladioIndexError(
                f"the index is outside axis {axis}", expected=f"-{extent} <= index < {extent}", got=static
            )
        return static % extent
    if isinstance(part, (list, tuple)):
        part = np.asarray(part)
        part = part.astype(np.int32) if part.dtype == np.int64 else part
    array = array_type(part)
    if array.dtype == dtypes.BOOL:
        raise PalladioTypeError(
            "a bool array cannot index a value: the size would not be static",
            got=str(array),
            hint="use where(mask, x, other)",
        )
    if not dtypes.is_integer(array.dtype):
        raise PalladioTypeError("an index is an integer or an integer array", got=str(array))
    return _operand(plan, _wrapped(part, extent), extent, 1)


def _operand(plan: _Plan, value: Array, extent: int, size: int) -> Operand:
    plan.operands.append(value)
    plan.limits.append((extent, size))
    return Operand(len(plan.operands) - 1)


def _wrapped(index: Array, extent: int) -> Array:
    """Negative indices counted from the end."""
    if dtypes.is_unsigned(array_type(index).dtype):
        return index
    return compare.where(compare.less(index, 0), arithmetic.add(index, extent), index)


def _static(part: Any) -> int | None:
    if isinstance(part, (bool, np.bool_)) or getattr(part, "palladio_type", None) is not None:
        return None
    try:
        return operator.index(part)
    except TypeError:
        return None


def _slice(part: slice, extent: int, axis: int, plan: _Plan) -> Slice:
    bounds = [None if bound is None else _static(bound) for bound in (part.start, part.stop, part.step)]
    given = (part.start, part.stop, part.step)
    if any(found is None and bound is not None for found, bound in zip(bounds, given, strict=True)):
        raise PalladioTypeError(
            f"a slice of axis {axis} has bounds that are not static", hint="use ds(start, size) or lax.dynamic_slice"
        )
    if bounds[2] == 0:
        raise PalladioValueError("the step of a slice is not zero")
    chosen = range(*slice(*bounds).indices(extent))
    if chosen.step > 0 or not chosen:
        return Slice(chosen.start if chosen else 0, len(chosen), max(chosen.step, 1))
    plan.reversed_axes.append(len([entry for entry in plan.entries if isinstance(entry, Slice)]))
    return Slice(chosen[-1], len(chosen), -chosen.step)


def _sized_slice(part: Any, extent: int, axis: int, plan: _Plan) -> Slice:
    size = _static(part.size)
    if size is None:
        raise PalladioTypeError(f"the size of a slice of axis {axis} is a static integer", got=repr(part.size))
    start = _static(part.start)
    if start is not None:
        return Slice(start, size, part.stride)
    reach = (size - 1) * part.stride + 1
    return Slice(_operand(plan, part.start, extent, reach), size, part.stride)


def _clamped(plan: _Plan) -> list[Array]:
    """Operands within bounds: the last place where `size` elements fit."""
    return [
        arithmetic.clip(operand, 0, max(extent - size, 0))
        for operand, (extent, size) in zip(plan.operands, plan.limits, strict=True)
    ]


def getitem(x: ArrayLike, key: Any) -> Array:
    """`x[key]`: integers, slices, None, an ellipsis, integer arrays. Traced indices are clamped into range.

    Raises:
        PalladioIndexError: a static index outside its axis. PalladioTypeError: a bool mask, or another kind of index.
    """
    plan = _plan(key, array_type(x).shape)
    return _finish(_read(x, plan, _clamped(plan)), plan)


def _read(x: ArrayLike, plan: _Plan, operands: Sequence[Array]) -> Array:
    entries = tuple(plan.entries)
    shape = array_type(x).shape
    whole = all(isinstance(e, Slice) and e.is_whole(n) for e, n in zip(entries, shape, strict=True))
    return x if whole else call(memory.extract, x, *operands, transforms=(Index(entries),))


def _finish(result: Array, plan: _Plan) -> Array:
    if plan.reversed_axes:
        if any(isinstance(e, Operand) for e in plan.entries):
            raise PalladioIndexError("a negative step does not go together with an index array", hint="use flip")
        result = flip(result, plan.reversed_axes)
    if plan.new_axes:
        if any(not isinstance(e, Slice) for e in plan.entries):
            dropped = [n for n, e in enumerate(plan.entries) if not isinstance(e, Slice)]
            if any(
                isinstance(plan.entries[n], Operand) and array_type(plan.operands[plan.entries[n].position]).ndim
                for n in dropped
            ):  # type: ignore[union-attr]
                raise PalladioIndexError("None does not go together with an index array", hint="use expand_dims")
            places = [place - len([n for n in dropped if n + _before(plan, n) < place]) for place in plan.new_axes]
            return expand_dims(result, places)
        return expand_dims(result, plan.new_axes)
    return result


def _before(plan: _Plan, entry: int) -> int:
    """How many new axes stand in the key before an entry."""
    count = 0
    for place in plan.new_axes:
        if place <= entry + count:
            count += 1
    return count


class At:
    """The first half of `x.at[index].set(value)`."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> Update:
        return Update(self.array, key)


class Update:
    """`x.at[index]`: its methods return a new array with elements replaced or combined.

    What falls outside is dropped.
    """

    __slots__ = ("array", "key")

    def __init__(self, array: Array, key: Any) -> None:
        self.array = array
        self.key = key

    def _combined(self, kind: str, values: ArrayLike) -> Array:
        plan = _plan(self.key, array_type(self.array).shape)
        types = [array_type(operand) for operand in plan.operands]
        transforms = (Index(tuple(plan.entries)),)
        from_type = array_type(self.array)
        wanted = transformed(from_type, transforms, types).shape
        value = cast(values, from_type.dtype)
        if plan.new_axes or plan.reversed_axes:
            seen = array_type(_finish(_zeros(wanted, from_type.dtype), plan)).shape
            value = broadcast_to(value, seen)
            value = reshape(value, wanted)
            value = flip(value, plan.reversed_axes) if plan.reversed_axes else value
        value = broadcast_to(value, wanted)
        return call(memory.insert, self.array, value, *plan.operands, transforms=transforms, kind=kind)

    def set(self, values: ArrayLike, **_: Any) -> Array:
        """The array with these elements replaced."""
        return self._combined("set", values)

    def add(self, values: ArrayLike, **_: Any) -> Array:
        """The array with values added to these elements; one that is selected twice receives both."""
        return self._combined("add", values)

    def multiply(self, values: ArrayLike, **_: Any) -> Array:
        """The array with these elements multiplied."""
        return self._combined("mul", values)

    mul = multiply

    def max(self, values: ArrayLike, **_: Any) -> Array:
        """The array with the greater of each of these elements and its value."""
        return self._combined("max", values)

    def min(self, values: ArrayLike, **_: Any) -> Array:
        """The array with the lesser of each of these elements and its value."""
        return self._combined("min", values)

    def get(self, *, mode: str = "clip", fill_value: ArrayLike | None = None) -> Array:
        """The elements; outside they are clamped (mode "clip") or `fill_value` (mode "fill")."""
        plan = _plan(self.key, array_type(self.array).shape)
        if mode != "fill":
            return _finish(_read(self.array, plan, _clamped(plan)), plan)
        found = _read(self.array, plan, plan.operands)
        if fill_value is not None:
            known = _read(_zeros(array_type(self.array).shape, dtypes.INT32), plan, plan.operands)
            found = compare.where(compare.equal(known, 0), found, cast(fill_value, array_type(self.array).dtype))
        return _finish(found, plan)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    return broadcast_to(cast(0, dtype), shape)


_MODES = ("fill", "clip", "wrap")


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Elements along an axis, or of the flattened array.

    Args:
        indices: `i32[...]`; its shape replaces the axis. Negative ones count from the end.
        mode: for indices outside: "fill" (NaN, the least integer, or `fill_value`), "clip" or "wrap"; "fill" by
            default.
    """
    mode = "fill" if mode is None else mode
    if mode not in _MODES:
        raise PalladioValueError("no such mode", argument="mode", expected=", ".join(_MODES), got=repr(mode))
    if axis is None:
        a, axis = ravel(a), 0
    shape = array_type(a).shape
    place = normalize_axis(axis, len(shape))
    index = _index_array(indices)
    extent = shape[place]
    index = (
        arithmetic.remainder(index, extent) if mode == "wrap" else _wrapped(index, extent) if mode == "fill" else index
    )
    if mode == "clip":
        index = arithmetic.clip(index, 0, extent - 1)
    key = (slice(None),) * place
    plan = _plan(key, shape)
    plan.entries[place] = _operand(plan, index, extent, 1)
    found = _read(a, plan, plan.operands)
    if mode == "fill" and fill_value is not None:
        inside = compare.logical_and(compare.greater_equal(index, 0), compare.less(index, extent))
        inside = reshape(inside, (1,) * place + array_type(index).shape + (1,) * (len(shape) - place - 1))
        found = compare.where(inside, found, cast(fill_value, array_type(a).dtype))
    elif mode == "fill" and dtypes.is_unsigned(array_type(a).dtype):
        inside = compare.logical_and(compare.greater_equal(index, 0), compare.less(index, extent))
        inside = reshape(inside, (1,) * place + array_type(index).shape + (1,) * (len(shape) - place - 1))
        found = compare.where(inside, found, dtypes.greatest(array_type(a).dtype))
    return found


def _index_array(indices: Any) -> Array:
    if isinstance(indices, (list, tuple)):
        indices = np.asarray(indices, np.int32)
    found = array_type(indices)
    if not dtypes.is_integer(found.dtype):
        raise PalladioTypeError("indices are integers", argument="indices", got=str(found))
    return cast(indices, found.dtype) if not is_weak(indices) else cast(indices, dtypes.INT32)


def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = None, mode: str | None = None) -> Array:
    """Elements along an axis at places that `indices: i32[...]`, of the rank of `arr`, gives for each of the others."""
    if axis is None:
        arr, indices, axis = ravel(arr), ravel(indices), 0
    shape, given = array_type(arr).shape, array_type(indices).shape
    place = normalize_axis(axis, len(shape))
    if len(given) != len(shape):
        raise PalladioValueError(
            "the indices have another rank than the array", argument="indices", expected=len(shape), got=len(given)
        )
    common = list(broadcast_shapes((*shape[:place], 1, *shape[place + 1 :]), (*given[:place], 1, *given[place + 1 :])))
    common[place] = given[place]
    index = broadcast_to(_wrapped(_index_array(indices), shape[place]), tuple(common))
    if mode == "clip":
        index = arithmetic.clip(index, 0, shape[place] - 1)
    plan = _Plan()
    for n, extent in enumerate(shape):
        along = index if n == place else _counted(tuple(common), n, extent)
        plan.entries.append(_operand(plan, along, extent, 1))
    return _read(arr, plan, plan.operands)


def _counted(shape: tuple[int, ...], axis: int, extent: int) -> Array:
    """The position along an axis for each element; 0 where the axis is broadcast."""
    if extent == 1:
        return _zeros(shape, dtypes.INT32)
    return call(shape_ops.iota, shape=shape, dtype=dtypes.INT32, axis=axis)
