"""Keys of references, and the index transforms made from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.functions.compare import where
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.types import dtypes
from palladio.types.transforms import Index, IndexEntry, Operand, SliceEntry
from palladio.types.types import RefType, Shape


class Slice:
    """`size` elements from `start`, `stride` apart. The start may be traced.

    So may the size, but only in an index map, and in `ref.at[...]` for a copy.
    """

    __slots__ = ("size", "start", "stride")

    def __init__(self, start: Any, size: Any, stride: int = 1) -> None:
        if not isinstance(stride, (int, np.integer)):
            raise PalladioTypeError("the stride of a slice is a static integer", got=repr(stride))
        if (isinstance(size, (int, np.integer)) and size < 0) or stride < 1:
            raise PalladioValueError(
                "a slice has a size of at least 0 and a stride of at least 1", got=f"{size}, {stride}"
            )
        self.start = start
        self.size = size
        self.stride = int(stride)

    def __repr__(self) -> str:
        return f"ds({self.start}, {self.size}, {self.stride})"


def ds(start: Any, size: Any = None, stride: int | None = None) -> Slice | slice:
    """`size` elements from `start`, `stride` apart; the start may be traced. `ds(n)` is the first n elements.

    Raises:
        PalladioTypeError: a stride that is not a static integer.
        PalladioValueError: a negative size, a stride below 1.
    """
    if size is None:
        return slice(0, start)
    return Slice(start, size, 1 if stride is None else stride)


def index_transform(key: Any, shape: Shape, first_operand: int) -> tuple[Index, list[Any]]:
    """The index transform of `ref[key]` and its index operands, numbered from `first_operand`.

    Raises:
        PalladioIndexError: too many indices, or a static one outside its axis.
        PalladioTypeError: an index of a kind that references do not take.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    ellipses = [position for position, part in enumerate(keys) if part is ...]
    if len(ellipses) > 1:
        raise PalladioIndexError("an index has at most one ellipsis", got=len(ellipses))
    if len(keys) - len(ellipses) > len(shape):
        raise PalladioIndexError(
            "too many indices for the reference",
            expected=f"at most {len(shape)}",
            got=len(keys),
            jax="`indices` must not be longer than `shape`",
        )
    missing = [slice(None)] * (len(shape) - len(keys) + len(ellipses))
    place = ellipses[0] if ellipses else len(keys)
    keys[place : place + len(ellipses)] = missing
    operands: list[Any] = []
    entries = tuple(
        _entry(part, extent, axis, operands, first_operand)
        for axis, (part, extent) in enumerate(zip(keys, shape, strict=True))
    )
    return Index(entries), operands


@dataclass(frozen=True, eq=False)
class Indices:
    """An index vector for a copy: `ref.at[plsc.Indices(indices, ignored_value=-1)]`.

    Args:
        indices: `i32[n]`, or a reference to them.
        ignored_value: a number in place of an index, for which nothing is copied; None if each is an index.
    """

    indices: Any
    ignored_value: int | None = None


def has_dynamic_size(key: Any) -> bool:
    """True if a slice among the indices has a dynamic size."""
    return any(
        isinstance(part, Slice) and _static(part.size) is None for part in (key if type(key) is tuple else (key,))
    )


def without_dynamic_slices(key: Any, rank: int) -> tuple[tuple[Any, ...], dict[int, Slice]]:
    """The indices with whole axes in place of slices of dynamic size, and those slices.

    Args:
        rank: of the indexed reference.

    Returns:
        The indices, and the slices by their axes in the selection of the indices.

    Raises:
        PalladioTypeError: a size that is not a scalar integer; such a slice beside an index array.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    axis, found = 0, {}
    for place, part in enumerate(parts):
        if part is ...:
            axis += rank - len(parts) + 1
        elif isinstance(part, Slice) and _static(part.size) is None:
            size = convert.array_type(part.size)
            if size.shape != () or not dtypes.is_integer(size.dtype):
                raise PalladioTypeError("the size of a slice is a scalar integer", got=str(size))
            found[axis] = part
            parts[place] = slice(None)
            axis += 1
        elif isinstance(part, (slice, Slice)):
            axis += 1
        elif _static(part) is None and convert.array_type(part).shape != ():
            raise PalladioTypeError(
                "beside a slice of a dynamic size stand integers and slices, not index arrays",
                got=str(convert.array_type(part)),
                hint="index twice: ref.at[indices].at[pl.ds(start, size)]",
            )
    return tuple(parts), found


def _entry(part: Any, extent: int, axis: int, operands: list[Any], first: int) -> IndexEntry:
    if isinstance(part, slice):
        part = _from_python(part, extent, axis)
    if isinstance(part, Slice):
        size = _static(part.size)
        if size is None:
            raise PalladioTypeError(
                f"the size of a slice of axis {axis} is a static integer",
                got=repr(part.size),
                hint="copies take dynamic sizes: pltpu.make_async_copy(x.at[pl.ds(start, size)], ...)",
            )
        return SliceEntry(_position(part.start, operands, first), size, part.stride)
    position = _position(part, operands, first)
    if isinstance(position, int):
        if not -extent <= position < extent:
            raise PalladioIndexError(
                f"the index is outside axis {axis}",
                expected=f"-{extent} <= index < {extent}",
                got=position,
                jax=f"Out of bound indexer: idx={position}, dim={extent}." if position >= 0 else None,
            )
        return position % extent
    operands[-1] = _normalised(operands[-1], extent)
    return position


def _normalised(index: Any, extent: int) -> Any:
    """A traced index with its negative elements counted from the end, as those of values and static ones are."""
    if convert.is_nonnegative(index):
        return index
    if convert.array_type(index).dtype.itemsize < dtypes.INT32.itemsize:
        index = convert.cast(index, dtypes.INT32)  # int32 holds every extent
    return where(index < 0, index + extent, index)


def _position(value: Any, operands: list[Any], first: int) -> int | Operand:
    static = _static(value)
    if static is not None:
        return static
    if value is None or isinstance(value, (bool, np.bool_, str, list, float)):
        raise PalladioTypeError(
            "a reference is indexed by integers, slices, ds(start, size), integer arrays and one ellipsis",
            got=f"{type(value).__name__}: {value!r:.40}",
        )
    held = getattr(value, "palladio_type", None)
    if isinstance(held, RefType) and held.ndim and dtypes.is_integer(held.dtype):
        value = value[...]  # the indices that a reference holds
    array = convert.array_type(value)
    if not dtypes.is_integer(array.dtype):
        hint = "use a masked load or np.where" if array.dtype == dtypes.BOOL else None
        raise PalladioTypeError(
            "an index is an integer or an integer array", got=str(array), **({"hint": hint} if hint else {})
        )
    operands.append(value)
    return Operand(first + len(operands) - 1)


def _static(value: Any) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value)
    return None


def _from_python(part: slice, extent: int, axis: int) -> Slice:
    step = 1 if part.step is None else _static(part.step)
    if step is None or step < 1:
        raise PalladioValueError(
            f"the step of a slice of axis {axis} is a static integer of at least 1",
            got=part.step,
            hint="np.flip(value, axis) reverses what was read",
        )
    start = 0 if part.start is None else _static(part.start)
    stop = extent if part.stop is None else _static(part.stop)
    if start is None or stop is None:
        raise PalladioTypeError(
            f"a slice of axis {axis} has bounds that are not static",
            hint="write ds(start, size): the size must be static",
        )
    if start > extent or (start == extent and stop > extent):
        raise PalladioIndexError(
            f"the slice begins outside axis {axis}",
            expected=f"a start within {extent}",
            got=part,
            jax=f"Out of bound slice: start={extent}, dim={extent}.",
        )
    start, stop, step = slice(start, stop, step).indices(extent)  # which ends where the axis does
    return Slice(start, max(0, -(-(stop - start) // step)), step)
