"""The stack of transforms between a reference and the elements that a load or store touches.

A transform is static data. Where an index is known only when the kernel runs, the transform holds an `Operand(n)`:
the n-th
*index operand* of the equation, a scalar integer or (for gathering) an integer array. The same stack serves types
(`transformed`), the NumPy definition (`palladio.ops.references.access`), printing and parsing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape
from palladio.types.views import View


@dataclass(frozen=True)
class Operand:
    """The n-th index operand of the equation.

    With `inside`, the index, and all of the slice that starts there, is proven to be inside the axis.
    """

    position: int
    inside: bool = False


@dataclass(frozen=True)
class SliceEntry:
    """`size` elements from `start`, `stride` apart. The size and the stride are static, the start may be an operand."""

    start: int | Operand
    size: int
    stride: int = 1

    def is_whole(self, extent: int) -> bool:
        """True if it takes a whole axis of this extent."""
        return self.start == 0 and self.size == extent and self.stride == 1


IndexEntry = int | Operand | SliceEntry


@dataclass(frozen=True)
class Index:
    """One entry per axis, with NumPy's meaning: an integer drops the axis, arrays broadcast together and gather."""

    entries: tuple[IndexEntry, ...]


@dataclass(frozen=True)
class Reshape:
    """The same elements in row-major order, in another shape."""

    shape: Shape


@dataclass(frozen=True)
class Bitcast:
    """The same bits as another dtype.

    If the width changes, the last but one axis (the only one of a vector) changes with it.
    """

    dtype: DType


@dataclass(frozen=True)
class Transpose:
    """Axes in another order."""

    permutation: tuple[int, ...]


@dataclass(frozen=True)
class Peer:
    """The same buffer of another block of the cluster: along each named cluster axis, the block's index.

    It stands first in its stack. The shape stays.
    """

    blocks: tuple[tuple[str, int | Operand], ...]


Transform = Index | Reshape | Bitcast | Transpose | Peer | View


def bitcast_axis(ndim: int) -> int:
    """The axis that grows or shrinks when a bitcast changes the width: the last but one, or the only one."""
    return max(0, ndim - 2)


def _bitcast_shape(array: ArrayType, dtype: DType) -> Shape:
    dtypes.require_whole_bytes(array.dtype, dtype)
    old, new = array.dtype.itemsize, dtype.itemsize
    if dtypes.BOOL in (array.dtype, dtype) and array.dtype != dtype:
        raise PalladioTypeError("the bits of bool have no other meaning", got=f"{array} to {dtype}")
    if old == new:
        return array.shape
    if array.ndim == 0:
        raise PalladioValueError("a scalar can only be bitcast to a dtype of its own width", got=f"{array} to {dtype}")
    axis = bitcast_axis(array.ndim)
    bytes_along = array.shape[axis] * old
    if bytes_along % new:
        raise PalladioValueError(
            f"the bytes along axis {axis} are not a whole number of elements of the new dtype",
            expected=f"a multiple of {new} bytes",
            got=f"{array.shape[axis]} x {old} bytes",
        )
    return (*array.shape[:axis], bytes_along // new, *array.shape[axis + 1 :])


def _out_of_bounds(entry: SliceEntry, extent: int) -> str:
    """JAX's words for a static slice that reaches outside its axis."""
    if entry.start >= extent:  # type: ignore[operator]
        return f"Out of bound slice: start={entry.start}, dim={extent}."
    return f"Out of bound slice: start={entry.start}, size={entry.size}, stride={entry.stride}, dim={extent}."


def _check_static(entry: IndexEntry, extent: int, axis: int) -> None:
    if isinstance(entry, int) and not 0 <= entry < extent:
        raise PalladioIndexError(f"the index is outside axis {axis}", expected=f"0 <= index < {extent}", got=entry)
    if isinstance(entry, SliceEntry):
        if entry.size < 0 or entry.stride < 1:
            raise PalladioValueError(
                f"a slice of axis {axis} needs a size of at least 0 and a stride of at least 1",
                got=f"size {entry.size}, stride {entry.stride}",
            )
        if isinstance(entry.start, int) and entry.size > 0:
            last = entry.start + (entry.size - 1) * entry.stride
            if entry.start < 0 or last >= extent:
                raise PalladioIndexError(
                    f"the slice reaches outside axis {axis}",
                    expected=f"elements 0 to {extent - 1}",
                    got=f"elements {entry.start} to {last}",
                    jax=_out_of_bounds(entry, extent),
                )


def gathers(index: Index, operands: Sequence[ArrayType]) -> bool:
    """True if the index has an integer-array entry."""
    return any(isinstance(e, Operand) and operands[e.position].ndim > 0 for e in index.entries)


def is_static_path(transforms: Sequence[Transform]) -> bool:
    """True if no index of a stack of transforms is an operand, known only when the program runs."""
    for transform in transforms:
        entries: Sequence[object] = ()
        if isinstance(transform, Index):
            entries = [entry.start if isinstance(entry, SliceEntry) else entry for entry in transform.entries]
        elif isinstance(transform, Peer):
            entries = [block for _, block in transform.blocks]
        elif isinstance(transform, View):
            entries = [Operand(position) for position in transform.operands]
        if any(isinstance(entry, Operand) for entry in entries):
            return False
    return True


def gathered_axis(index: Index) -> int:
    """The first axis of index arrays in what an index selects, by NumPy's rule: where they stand, or 0 if a slice
    separates them, or integers among them."""
    pointed = [axis for axis, entry in enumerate(index.entries) if not isinstance(entry, SliceEntry)]
    adjacent = bool(pointed) and pointed == list(range(pointed[0], pointed[0] + len(pointed)))
    return pointed[0] if adjacent else 0


def index_shape(index: Index, shape: Shape, operands: Sequence[ArrayType]) -> Shape:
    """The shape that an index selects from `shape`, with NumPy's rule for where gathered axes go."""
    if len(index.entries) != len(shape):
        raise PalladioIndexError(
            "an index needs one entry per axis", expected=f"{len(shape)} entries", got=len(index.entries)
        )
    for axis, (entry, extent) in enumerate(zip(index.entries, shape, strict=True)):
        _check_static(entry, extent, axis)
    slices = [entry.size for entry in index.entries if isinstance(entry, SliceEntry)]
    if not gathers(index, operands):
        return tuple(slices)
    arrays = [operands[e.position].shape for e in index.entries if isinstance(e, Operand)]
    try:
        gathered = np.broadcast_shapes(*arrays)
    except ValueError:
        raise PalladioIndexError("index arrays must broadcast together", got=", ".join(map(str, arrays))) from None
    before = gathered_axis(index)
    return (*slices[:before], *gathered, *slices[before:])


def _transformed_once(array: ArrayType, transform: Transform, operands: Sequence[ArrayType]) -> ArrayType:
    match transform:
        case Index():
            return ArrayType(index_shape(transform, array.shape, operands), array.dtype)
        case Reshape(shape):
            if math.prod(shape) != array.size:
                raise PalladioValueError(
                    "a reshape keeps the number of elements", expected=f"{array.size} elements", got=str(shape)
                )
            return ArrayType(shape, array.dtype)
        case Bitcast(dtype):
            return ArrayType(_bitcast_shape(array, dtype), dtype)
        case Transpose(permutation):
            if sorted(permutation) != list(range(array.ndim)):
                raise PalladioValueError(
                    "a transpose names every axis once",
                    expected=f"a permutation of 0..{array.ndim - 1}",
                    got=permutation,
                )
            return ArrayType(tuple(array.shape[axis] for axis in permutation), array.dtype)
        case View():
            _check_view(transform, array, len(operands))
            return transform.type
        case Peer():
            return array


def _check_view(view: View, array: ArrayType, operands: int) -> None:
    base = view.base
    if base.size * base.dtype.itemsize != array.size * array.dtype.itemsize:
        raise PalladioValueError(
            "the base of a view has the bytes of what it is taken of", expected=str(array), got=str(base)
        )
    if len(view.coordinates) != base.ndim:
        raise PalladioValueError(
            "a view has a coordinate for each axis of its base", expected=f"{base.ndim}", got=len(view.coordinates)
        )
    for axis, limit in enumerate(view.limits if 0 not in view.sizes else ()):
        row = limit.coordinate
        if not (row.operands or limit in view.guards or limit.always_holds(view.sizes)):
            last = row.start + row.reach(view.sizes)
            raise PalladioIndexError(
                f"a view without a guard reaches outside axis {axis}",
                expected=f"elements 0 to {limit.extent - 1}",
                got=f"elements {row.start} to {last}",
            )


def transformed(array: ArrayType, transforms: Sequence[Transform], operands: Sequence[ArrayType] = ()) -> ArrayType:
    """The type of the selection that a stack of transforms makes from an array of this type.

    Raises:
        PalladioIndexError: a static index or slice outside its axis.
        PalladioValueError: a reshape, bitcast or transpose that does not fit.
        PalladioTypeError: an index operand that is not an integer.
    """
    for operand in operands:
        if not dtypes.is_integer(operand.dtype):
            raise PalladioTypeError("an index must be an integer or an integer array", got=str(operand))
    for transform in transforms:
        array = _transformed_once(array, transform, operands)
    return array
