"""Indexing of values: `x[...]`, `x.at[...]`, `take`. Values are never changed.

An integer array that reaches outside is clamped or filled when reading, and dropped when writing, as JAX does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_shapes, broadcast_to, call, cast
from palladio.array.functions import arithmetic, compare
from palladio.array.functions.creation import full_like
from palladio.array.functions.shape import flip, ravel, reshape, transpose
from palladio.array.positions import as_positions, clamped, from_start, inside, static_position, wrapped
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.ops.arrays import shape as shape_ops
from palladio.ops.references import memory
from palladio.types import dtypes
from palladio.types.transforms import Index, IndexEntry, Operand, SliceEntry, transformed
from palladio.types.types import Shape

__all__ = ["take", "take_along_axis"]


@dataclass
class _IndexPlan:
    """A resolved key: an index of the array, and the steps that follow on the selection.

    Fields:
        limits: for each operand, the extent of its axis and how many elements it reaches over.
        backwards: the axes of the selection that the key takes in reverse order.
        order: for each axis of the result, the axis of the selection that it is, or None for a new one.
    """

    entries: list[IndexEntry] = field(default_factory=list)
    operands: list[Array] = field(default_factory=list)
    limits: list[tuple[int, int]] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    order: list[int | None] = field(default_factory=list)

    @property
    def index(self) -> Index:
        """The index transform."""
        return Index(tuple(self.entries))

    def operand(self, value: Array, extent: int, reach: int) -> Operand:
        """An entry for a position that is known only when the program runs."""
        self.operands.append(value)
        self.limits.append((extent, reach))
        return Operand(len(self.operands) - 1)

    def clamped(self) -> list[Array]:
        """The operands, clamped so that their selection lies inside the array."""
        return [
            clamped(value, max(extent - reach, 0))
            for value, (extent, reach) in zip(self.operands, self.limits, strict=True)
        ]

    def selected(self, array: ArrayLike) -> Shape:
        """The shape of the selection."""
        return transformed(array_type(array), (self.index,), [array_type(value) for value in self.operands]).shape

    def read(self, array: ArrayLike, operands: Sequence[Array]) -> Array:
        """The elements that the key selects of an array."""
        whole = zip(self.entries, array_type(array).shape, strict=True)
        if not all(isinstance(entry, SliceEntry) and entry.is_whole(extent) for entry, extent in whole):
            array = call(memory.extract, array, *operands, transforms=(self.index,))
        if self.backwards:
            array = flip(array, self.backwards)
        shape = array_type(array).shape
        array = transpose(array, [axis for axis in self.order if axis is not None])
        return reshape(array, tuple(1 if axis is None else shape[axis] for axis in self.order))

    def fitted(self, value: ArrayLike, array: ArrayLike) -> Array:
        """A value for the key's selection, with its axes in the order of the index's own selection."""
        shape = self.selected(array)
        value = broadcast_to(value, tuple(1 if axis is None else shape[axis] for axis in self.order))
        kept = [axis for axis in self.order if axis is not None]
        value = reshape(value, tuple(shape[axis] for axis in kept))
        value = transpose(value, [kept.index(axis) for axis in range(len(shape))])
        return flip(value, self.backwards) if self.backwards else value


def _plan(key: Any, shape: Shape) -> _IndexPlan:
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
    plan = _IndexPlan()
    kinds: list[str] = []
    reversed_entries: list[int] = []
    for part in keys:
        if part is None:
            kinds.append("new")
            continue
        axis = len(plan.entries)
        entry, is_reversed = _entry(part, shape[axis], axis, plan)
        plan.entries.append(entry)
        kinds.append("slice" if isinstance(entry, SliceEntry) else "point")
        reversed_entries += [axis] * is_reversed
    _arrange(plan, kinds, reversed_entries)
    return plan


def _arrange(plan: _IndexPlan, kinds: Sequence[str], reversed_entries: Sequence[int]) -> None:
    """Find the axes of the selection and NumPy's order of them: new axes part integer arrays as slices do."""
    shapes = [array_type(plan.operands[e.position]).shape for e in plan.entries if isinstance(e, Operand)]
    gathered = len(broadcast_shapes(*shapes)) if shapes else 0
    sliced = [axis for axis, entry in enumerate(plan.entries) if isinstance(entry, SliceEntry)]
    before = _slices_before(["slice" if axis in sliced else "point" for axis in range(len(plan.entries))])
    axis_of = {axis: n if n < before else n + gathered for n, axis in enumerate(sliced)}
    plan.backwards = [axis_of[axis] for axis in reversed_entries]
    axes = iter(sliced)
    plan.order = [None if kind == "new" else axis_of[next(axes)] for kind in kinds if kind != "point"]
    place = _slices_before(kinds)
    plan.order[place:place] = range(before, before + gathered)


def _slices_before(kinds: Sequence[str]) -> int:
    """The number of axes before those of the integer arrays, by NumPy's rule."""
    points = [n for n, kind in enumerate(kinds) if kind == "point"]
    adjacent = points == list(range(points[0], points[0] + len(points))) if points else False
    return points[0] if adjacent else 0


def _entry(part: Any, extent: int, axis: int, plan: _IndexPlan) -> tuple[IndexEntry, bool]:
    """The entry of an index for one part of a key, and whether the elements are taken in reverse order."""
    if isinstance(part, slice):
        return _slice(part, extent, axis)
    if hasattr(part, "start") and hasattr(part, "size") and hasattr(part, "stride"):
        return _sized_slice(part, extent, axis, plan), False
    static = static_position(part)
    if static is not None:
        if not -extent <= static < extent:
            raise PalladioIndexError(
                f"the index is outside axis {axis}", expected=f"-{extent} <= index < {extent}", got=static
            )
        return static % extent, False
    return plan.operand(from_start(_index_array(part), extent), extent, 1), False


def _index_array(indices: ArrayLike) -> Array:
    """Integers of at least 32 bits, a list of them as an array."""
    if isinstance(indices, (list, tuple)):
        indices = np.asarray(indices) if indices else np.zeros(0, np.int32)
        indices = indices.astype(np.int32) if indices.dtype == np.int64 else indices
    found = array_type(indices)
    if found.dtype == dtypes.BOOL:
        raise PalladioTypeError(
            "a bool array cannot index a value: the size would not be static",
            got=str(found),
            hint="use where(mask, x, other)",
        )
    return as_positions(indices)


def _slice(part: slice, extent: int, axis: int) -> tuple[SliceEntry, bool]:
    bounds = [_bound(bound, axis) for bound in (part.start, part.stop, part.step)]
    if bounds[2] == 0:
        raise PalladioValueError(f"the step of a slice of axis {axis} is not zero")
    chosen = range(*slice(*bounds).indices(extent))
    if not chosen:
        return SliceEntry(0, 0), False
    if chosen.step > 0:
        return SliceEntry(chosen.start, len(chosen), chosen.step), False
    return SliceEntry(chosen[-1], len(chosen), -chosen.step), True


def _bound(bound: Any, axis: int) -> int | None:
    if bound is None:
        return None
    found = static_position(bound)
    if found is None:
        raise PalladioTypeError(
            f"a slice of axis {axis} has bounds that are not static", hint="use ds(start, size) or lax.dynamic_slice"
        )
    return found


def _sized_slice(part: Any, extent: int, axis: int, plan: _IndexPlan) -> SliceEntry:
    size = static_position(part.size)
    if size is None:
        raise PalladioTypeError(f"the size of a slice of axis {axis} is a static integer", got=repr(part.size))
    start = static_position(part.start)
    if start is not None:
        return SliceEntry(start, size, part.stride)
    return SliceEntry(plan.operand(as_positions(part.start), extent, (size - 1) * part.stride + 1), size, part.stride)


def getitem(x: ArrayLike, key: Any) -> Array:
    """`x[key]`: integers, slices, None, an ellipsis, integer arrays. Indices that are not static are moved inside.

    Raises:
        PalladioIndexError: a static index outside its axis.
        PalladioTypeError: a bool mask, or another kind of index.
    """
    plan = _plan(key, array_type(x).shape)
    return plan.read(x, plan.clamped())


class At:
    """The first half of `x.at[index].set(value)`."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> Update:
        return Update(self.array, key)


_AT_MODES = ("promise_in_bounds", "clip", "drop", "fill")


class Update:
    """`x.at[index]`: its methods return a new array with elements replaced or combined.

    With `mode` "clip" indices are moved inside. Otherwise what falls outside is dropped. `indices_are_sorted` and
    `unique_indices` have no meaning.
    """

    __slots__ = ("array", "key")

    def __init__(self, array: Array, key: Any) -> None:
        self.array = array
        self.key = key

    def _combined(self, kind: str, values: ArrayLike, mode: str | None, array: Array | None = None) -> Array:
        array = self.array if array is None else array
        plan = _plan(self.key, array_type(array).shape)
        value = plan.fitted(cast(values, array_type(array).dtype), array)
        operands = plan.clamped() if _checked(mode) == "clip" else plan.operands
        return call(memory.insert, array, value, *operands, transforms=(plan.index,), kind=kind)

    def set(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with these elements replaced; the last value for one that is selected twice."""
        return self._combined("set", values, mode)

    def add(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with values added to these elements; one that is selected twice receives both."""
        return self._combined("add", values, mode)

    def subtract(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with values subtracted from these elements."""
        return self._combined("add", arithmetic.negative(values), mode)

    def multiply(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with these elements multiplied."""
        return self._combined("mul", values, mode)

    mul = multiply

    def divide(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array divided by the values at these elements."""
        return arithmetic.divide(self.array, self._combined("mul", values, mode, full_like(self.array, 1)))

    def power(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with these elements raised to the values."""
        return arithmetic.power(self.array, self._combined("mul", values, mode, full_like(self.array, 1)))

    def max(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with the greater of each of these elements and its value."""
        return self._combined("max", values, mode)

    def min(self, values: ArrayLike, *, mode: str | None = None, **_: Any) -> Array:
        """The array with the lesser of each of these elements and its value."""
        return self._combined("min", values, mode)

    def apply(self, func: Callable[[Array], ArrayLike], *, mode: str | None = None, **_: Any) -> Array:
        """The array with a function applied to these elements, once also where one is selected twice."""
        return self.set(func(self.get()), mode=mode)

    def get(self, *, mode: str | None = None, fill_value: ArrayLike | None = None, **_: Any) -> Array:
        """The elements. Indices outside are moved inside; with `mode` "fill" or "drop" they give `fill_value`.

        Args:
            fill_value: without it NaN, the least integer of a signed dtype, the greatest of an unsigned one, or True.
        """
        plan = _plan(self.key, array_type(self.array).shape)
        if _checked(mode) not in ("fill", "drop"):
            return plan.read(self.array, plan.clamped())
        found = plan.read(self.array, plan.operands)
        ones = full_like(self.array, 1, dtypes.INT32)
        return _filled(found, lambda: compare.equal(plan.read(ones, plan.operands), 1), fill_value)


def _checked(mode: str | None) -> str:
    if mode is not None and mode not in _AT_MODES:
        raise PalladioValueError("no such mode", argument="mode", expected=", ".join(_AT_MODES), got=repr(mode))
    return mode or "promise_in_bounds"


def _filled(found: Array, known: Callable[[], Array], fill_value: ArrayLike | None) -> Array:
    """The found value where it is known, and the fill value elsewhere."""
    dtype = array_type(found).dtype
    if fill_value is not None:
        return compare.where(known(), found, cast(fill_value, dtype))
    if dtypes.is_bool(dtype) or dtypes.is_unsigned(dtype):
        return compare.where(known(), found, np.asarray(dtypes.greatest(dtype)))
    return found  # reads outside are already NaN or the least integer


_TAKE_MODES = ("fill", "clip", "wrap", "promise_in_bounds")


def _placed(indices: Array, extent: int, mode: str | None) -> Array:
    """Positions counted from the start of an axis, by the rule of a mode of `take` for those outside."""
    mode = "fill" if mode is None else mode
    if mode not in _TAKE_MODES:
        raise PalladioValueError("no such mode", argument="mode", expected=", ".join(_TAKE_MODES), got=repr(mode))
    if mode == "wrap":
        return wrapped(indices, extent)
    return clamped(indices, max(extent - 1, 0)) if mode == "clip" else indices


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Elements along an axis, or of the flattened array.

    Args:
        indices: `i32[...]`; its shape replaces the axis.
        mode: for indices outside: "fill", "clip" or "wrap"; "fill" by default, and for "promise_in_bounds". With
            "fill" negative ones count from the end, with "clip" they are 0.
        fill_value: without it NaN, the least integer of a signed dtype, the greatest of an unsigned one, or True.
        out, unique_indices, indices_are_sorted: have no meaning.

    Raises:
        PalladioTypeError: if the indices are not integers.
        PalladioIndexError: for an axis that is out of range.
    """
    if axis is None:
        a, axis = ravel(a), 0
    shape = array_type(a).shape
    axis = normalize_axis(axis, len(shape))
    indices = np.asarray(indices, np.int32) if static_position(indices) is not None else _index_array(indices)
    placed = _placed(indices if mode == "clip" else from_start(indices, shape[axis]), shape[axis], mode)
    entries = tuple(Operand(0) if n == axis else SliceEntry(0, extent) for n, extent in enumerate(shape))
    found = call(memory.extract, a, placed, transforms=(Index(entries),))
    own = array_type(placed).shape
    after = (1,) * (len(shape) - axis - 1)
    return _filled(found, lambda: reshape(inside(placed, shape[axis], own), own + after), fill_value)


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The elements along an axis that `indices: i32[...]`, of the rank of `arr`, names for each place of the others.

    Args:
        axis: None for the elements as a vector.
        mode, fill_value: as for `take`, but negative indices always count from the end.

    Raises:
        PalladioTypeError: if the indices are not integers.
        PalladioValueError: if the ranks differ.
    """
    indices = _index_array(indices)
    if axis is None:
        arr, axis = ravel(arr), 0
    shape, given = array_type(arr).shape, array_type(indices).shape
    axis = normalize_axis(axis, len(shape))
    if len(given) != len(shape):
        raise PalladioValueError(
            "the indices have another rank than the array", argument="indices", expected=len(shape), got=len(given)
        )
    others = broadcast_shapes(*((*each[:axis], *each[axis + 1 :]) for each in (shape, given)))
    common = (*others[:axis], given[axis], *others[axis:])
    placed = broadcast_to(_placed(from_start(indices, shape[axis]), shape[axis], mode), common)
    operands = [placed if n == axis else _counted(common, n, extent) for n, extent in enumerate(shape)]
    index = Index(tuple(Operand(n) for n in range(len(shape))))
    found = call(memory.extract, arr, *operands, transforms=(index,))
    return _filled(found, lambda: inside(placed, shape[axis], common), fill_value)


def _counted(shape: Shape, axis: int, extent: int) -> Array:
    """The position along an axis for each element; 0 where the axis is broadcast."""
    if extent == 1:
        return full_like(np.zeros((), np.int32), 0, shape=shape)
    return call(shape_ops.iota, shape=shape, dtype=dtypes.INT32, axis=axis)
