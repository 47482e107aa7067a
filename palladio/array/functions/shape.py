"""Rearranging arrays, with NumPy's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from palladio.array.axes import normalize_axes, normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, broadcast_shapes, broadcast_to, call, cast
from palladio.array.functions.creation import concatenate
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ops.arrays import shape as ops
from palladio.ops.references import memory
from palladio.types.transforms import Index, SliceEntry
from palladio.types.types import ArrayType, Shape

__all__ = [
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "moveaxis",
    "ndim",
    "pad",
    "permute_dims",
    "ravel",
    "reshape",
    "rot90",
    "shape",
    "size",
    "split",
    "squeeze",
    "swapaxes",
    "tile",
    "transpose",
]


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The shape."""
    return array_type(a).shape


def ndim(a: ArrayLike) -> int:
    """The number of axes."""
    return array_type(a).ndim


def size(a: ArrayLike) -> int:
    """The number of elements."""
    return array_type(a).size


def reshape(a: ArrayLike, shape: Any, order: str = "C") -> Array:
    """The same elements, in row-major order, in another shape; one size may be -1.

    Raises:
        PalladioValueError: if the number of elements differs.
    """
    if order != "C":
        raise PalladioValueError("elements are in row-major order", argument="order", expected="'C'", got=repr(order))
    wanted = filled_shape(array_type(a), shape)
    return a if wanted == array_type(a).shape else call(ops.reshape, a, shape=wanted)


def filled_shape(array: ArrayType, shape: Any) -> Shape:
    """The static shape that an array is to be given, with its one -1 replaced."""
    sizes = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    try:
        found = [operator.index(extent) for extent in sizes]
    except TypeError:
        raise PalladioTypeError("a shape is static integers", argument="shape", got=repr(shape)) from None
    if found.count(-1) > 1 or any(extent < -1 for extent in found):
        raise PalladioValueError("at most one size is -1, the others are at least 0", argument="shape", got=shape)
    if -1 in found:
        known = -math.prod(found)
        if known == 0 or array.size % known:
            raise PalladioValueError(
                "the elements do not fill the shape", argument="shape", expected=f"{array.size} elements", got=shape
            )
        found[found.index(-1)] = array.size // known
    return tuple(found)


def ravel(a: ArrayLike) -> Array:
    """The elements, in row-major order, as a vector."""
    return reshape(a, (-1,)) if array_type(a).size else reshape(a, (0,))


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The axes in another order, reversed by default."""
    count = array_type(a).ndim
    order = tuple(reversed(range(count))) if axes is None else tuple(normalize_axis(axis, count) for axis in axes)
    return a if order == tuple(range(count)) else call(ops.transpose, a, permutation=order)


permute_dims = transpose


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged."""
    count = array_type(a).ndim
    order = list(range(count))
    first, second = normalize_axis(axis1, count), normalize_axis(axis2, count)
    order[first], order[second] = second, first
    return transpose(a, order)


def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes moved to other places, the others kept in order."""
    count = array_type(a).ndim
    sources = [normalize_axis(axis, count) for axis in ([source] if isinstance(source, int) else source)]
    places = [normalize_axis(axis, count) for axis in ([destination] if isinstance(destination, int) else destination)]
    if len(sources) != len(places):
        raise PalladioValueError("one destination for each source", argument="destination", got=destination)
    order = [axis for axis in range(count) if axis not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return transpose(a, order)


def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Array:
    """New axes of size 1 at these places of the result."""
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    old = list(array_type(a).shape)
    places = normalize_axes(given, len(old) + len(given))
    sizes = iter(old)
    return reshape(a, tuple(1 if place in places else next(sizes) for place in range(len(old) + len(places))))


def squeeze(a: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Axes of size 1 left out, all of them by default."""
    extents = array_type(a).shape
    axes = (
        [n for n, extent in enumerate(extents) if extent == 1] if axis is None else normalize_axes(axis, len(extents))
    )
    if any(extents[n] != 1 for n in axes):
        raise PalladioValueError("only axes of size 1 can be left out", argument="axis", got=f"{axis} of {extents}")
    return reshape(a, tuple(extent for n, extent in enumerate(extents) if n not in axes))


def atleast_1d(a: ArrayLike) -> Array:
    """A scalar as a vector of one; other arrays as they are."""
    return reshape(a, (1,)) if ndim(a) == 0 else a


def atleast_2d(a: ArrayLike) -> Array:
    """A scalar or vector as a matrix of one row; other arrays as they are."""
    return reshape(a, (1, -1)) if ndim(a) < 2 else a


def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays, broadcast to their common shape."""
    common = broadcast_shapes(*(array_type(a).shape for a in args))
    return [broadcast_to(a, common) for a in args]


def flip(m: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """The elements in reverse order along axes, all of them by default."""
    axes = normalize_axes(axis, array_type(m).ndim)
    return call(ops.reverse, m, axes=axes) if axes else m


def fliplr(m: ArrayLike) -> Array:
    """`flip(m, 1)`."""
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """`flip(m, 0)`."""
    return flip(m, 0)


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """The array turned by k quarter turns, from the first axis towards the second."""
    turns = k % 4
    if turns == 0:
        return m
    if turns == 2:
        return flip(m, axes)
    if turns == 1:
        return swapaxes(flip(m, axes[1]), *axes)
    return flip(swapaxes(m, *axes), axes[1])


def part(a: ArrayLike, axis: int, start: int, extent: int) -> Array:
    """`extent` elements from `start` along an axis."""
    entries = tuple(
        SliceEntry(start, extent) if n == axis else SliceEntry(0, s) for n, s in enumerate(array_type(a).shape)
    )
    return call(memory.extract, a, transforms=(Index(entries),))


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """The array cut into equal parts, or before each of several places, along an axis.

    Raises:
        PalladioValueError: if equal parts do not come out.
    """
    extent = array_type(ary).shape[normalize_axis(axis, array_type(ary).ndim)]
    if isinstance(indices_or_sections, int) and (indices_or_sections < 1 or extent % indices_or_sections):
        raise PalladioValueError(
            "the parts are not equal",
            argument="indices_or_sections",
            expected=f"a divisor of {extent}",
            got=indices_or_sections,
        )
    return array_split(ary, indices_or_sections, axis)


def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """As `split`, but parts may differ by one."""
    place = normalize_axis(axis, array_type(ary).ndim)
    extent = array_type(ary).shape[place]
    if isinstance(indices_or_sections, int):
        least, longer = divmod(extent, indices_or_sections)
        sizes = [least + 1] * longer + [least] * (indices_or_sections - longer)
        cuts = list(np.cumsum(sizes))[:-1]
    else:
        cuts = [min(max(cut + extent if cut < 0 else cut, 0), extent) for cut in indices_or_sections]
    bounds = [0, *map(int, cuts), extent]
    return [part(ary, place, a, max(0, b - a)) for a, b in pairwise(bounds)]


def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """The array repeated `reps` times along each axis."""
    counts = (reps,) if isinstance(reps, int) else tuple(reps)
    extents = array_type(A).shape
    rank = max(len(counts), len(extents))
    counts = (1,) * (rank - len(counts)) + counts
    extents = (1,) * (rank - len(extents)) + extents
    spread = tuple(n for pair in zip(counts, extents, strict=True) for n in pair)
    widened = reshape(A, tuple(n for extent in extents for n in (1, extent)))
    return reshape(broadcast_to(widened, spread), tuple(c * e for c, e in zip(counts, extents, strict=True)))


_PAD_MODES = ("constant", "edge", "empty", "reflect", "wrap")


def pad(array: ArrayLike, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """The array with elements added at its ends.

    Args:
        pad_width: a number, (before, after), or one such pair for each axis.
        mode: "constant", "edge", "reflect" or "wrap"; "empty" adds zeros, since nothing is left uninitialised.
        constant_values: the value that is added in mode "constant".
    """
    if mode not in _PAD_MODES:
        raise PalladioValueError("no such way to pad", argument="mode", expected=", ".join(_PAD_MODES), got=repr(mode))
    found = array_type(array)
    try:
        widths = np.broadcast_to(np.asarray(pad_width, int), (found.ndim, 2)).tolist()
    except ValueError:
        raise PalladioValueError(
            "a number, (before, after), or one such pair for each axis",
            argument="pad_width",
            expected=f"{found.ndim} pairs",
            got=pad_width,
        ) from None
    if any(width < 0 for pair in widths for width in pair):
        raise PalladioValueError("a width is at least 0", argument="pad_width", got=pad_width)
    if mode in ("constant", "empty"):
        value = cast(constant_values if mode == "constant" else 0, found.dtype)
        return call(ops.pad, array, value, padding=tuple((before, after, 0) for before, after in widths))
    for axis, (before, after) in enumerate(widths):
        array = _pad_axis(array, axis, before, after, mode)
    return array


def _pad_axis(array: Array, axis: int, before: int, after: int, mode: str) -> Array:
    extent = array_type(array).shape[axis]
    positions = np.pad(np.arange(extent), (before, after), mode=mode)  # type: ignore[call-overload]
    pieces, start = [], 0
    # Runs of neighbouring positions, forwards or backwards, are slices.
    while start < len(positions):
        stop = start + 1
        step = int(positions[stop] - positions[start]) if stop < len(positions) else 1
        while step in (-1, 1) and stop < len(positions) and positions[stop] - positions[stop - 1] == step:
            stop += 1
        low = int(positions[start:stop].min())
        piece = part(array, axis, low, stop - start)
        pieces.append(flip(piece, axis) if step == -1 and stop - start > 1 else piece)
        start = stop
    return concatenate(pieces, axis)
