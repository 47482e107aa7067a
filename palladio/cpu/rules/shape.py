"""Rearranging elements on the CPU: an index of the result becomes an index of the operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palladio.cpu.access.views import renumbered
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, merged, write, written_whole
from palladio.cpu.emit.scope import Rule, Scope
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape
from palladio.types.views import row_major


def rearranged(scope: Scope, array: LazyArray, shape: Shape, source: object, along: bool) -> LazyArray:
    """An array whose element at an index is that of `array` at `source(index)`.

    Args:
        along: whether neighbours along the last axis of the result are neighbours along the last axis of the operand.
    """
    e = scope.e

    def at(index: Sequence[Int], width: int) -> V:
        if width == 1 or along:
            return array.at(source(index), width)  # type: ignore[operator]
        *lead, last = index
        return e.gathered([array.at(source((*lead, e.add(last, lane))), 1) for lane in range(width)])  # type: ignore[operator]

    return LazyArray(ArrayType(shape, array.dtype), at, merged([array], aligned=False), array.cheap)


def _broadcast(scope: Scope, x: LazyArray, *, shape: Shape, axes: tuple[int, ...]) -> Sequence[LazyArray]:
    e = scope.e
    varies = [(axis, n) for n, axis in enumerate(axes) if x.shape[n] != 1]

    def source(index: Sequence[Int]) -> list[Int]:
        found: list[Int] = [0] * len(axes)
        for axis, n in varies:
            found[n] = index[axis]
        return found

    along = bool(varies) and varies[-1][0] == len(shape) - 1

    def at(index: Sequence[Int], width: int) -> V:
        if along and varies[-1][1] == len(axes) - 1:
            return x.at(source(index), width)
        if along and width > 1:
            *lead, last = index
            return e.gathered([x.at(source((*lead, e.add(last, lane))), 1) for lane in range(width)])
        return e.splat(x.at(source(index), 1), width)

    return (
        LazyArray(ArrayType(shape, x.dtype), at, merged([x], aligned=False), x.cheap, zero=x.zero, uniform=x.uniform),
    )


def _transpose(scope: Scope, x: LazyArray, *, permutation: tuple[int, ...]) -> Sequence[LazyArray]:
    shape = tuple(x.shape[axis] for axis in permutation)
    if x.buffer is not None:
        view = x.buffer.__class__(x.buffer.base, tuple(x.buffer.strides[axis] for axis in permutation), shape, x.dtype)
        array = array_in(scope.e, view)
        array.reads = merged([x], aligned=False)
        return (array,)

    def source(index: Sequence[Int]) -> list[Int]:
        found: list[Int] = [0] * len(permutation)
        for place, axis in enumerate(permutation):
            found[axis] = index[place]
        return found

    return (rearranged(scope, x, shape, source, bool(permutation) and permutation[-1] == len(permutation) - 1),)


def _reshape(scope: Scope, x: LazyArray, *, shape: Shape) -> Sequence[LazyArray]:
    """Axes of size 1 are added and removed for free, and rows that are apart in memory are read in place.

    Otherwise the elements must be contiguous. A product is written to memory viewed in the product's own shape.
    """
    if x.fill is not None:
        return (_written_as(scope, x, shape),)
    kept = [axis for axis, extent in enumerate(x.shape) if extent != 1]
    places = [axis for axis, extent in enumerate(shape) if extent != 1]
    if [x.shape[axis] for axis in kept] == [shape[axis] for axis in places]:

        def source(index: Sequence[Int]) -> list[Int]:
            found: list[Int] = [0] * len(x.shape)
            for axis, place in zip(kept, places, strict=True):
                found[axis] = index[place]
            return found

        along = bool(kept) and kept[-1] == len(x.shape) - 1 and places[-1] == len(shape) - 1
        if not x.shape or not shape:
            e = scope.e
            at = lambda index, width: e.splat(x.at(source(index), 1), width)  # noqa: E731
            array = LazyArray(ArrayType(shape, x.dtype), at, merged([x], aligned=False), x.cheap)
            return (array if shape else scope.keep(array),)
        return (rearranged(scope, x, shape, source, along),)
    if x.buffer is not None and not x.buffer.contiguous and x.shape[-1] == shape[-1]:
        in_rows = lambda index: [*renumbered(scope.e, index[:-1], shape[:-1], x.shape[:-1]), index[-1]]  # noqa: E731
        array = rearranged(scope, x, shape, in_rows, True)
        array.rows = x.buffer
        return (array,)
    kept_array = x if x.buffer is not None and x.buffer.contiguous else scope.keep(x)
    buffer = kept_array.buffer
    view = buffer.__class__(buffer.base, row_major(shape), shape, x.dtype)  # type: ignore[union-attr]
    array = array_in(scope.e, view)
    array.reads = merged([kept_array], aligned=False)
    return (array,)


def _written_as(scope: Scope, x: LazyArray, shape: Shape) -> LazyArray:
    """An array that is computed as a whole, in another shape."""

    def put(target: StridedArray) -> None:
        there = target.regrouped(x.shape)
        if there is not None:
            write(scope.e, x, there)
            return
        kept = scope.arena.buffer(scope.e, x.shape, x.dtype)
        write(scope.e, x, kept)
        write(scope.e, array_in(scope.e, StridedArray(kept.base, row_major(shape), shape, x.dtype)), target)

    return written_whole(ArrayType(shape, x.dtype), [x], put)


def _iota(scope: Scope, *, shape: Shape, dtype: DType, axis: int) -> Sequence[LazyArray]:
    e = scope.e
    last = len(shape) - 1

    def at(index: Sequence[Int], width: int) -> V:
        counted = e.splat(e.index(index[axis]), width)
        if axis == last and width > 1:
            counted = e.binary("add", counted, e.lanes(range(width)))
        if dtypes.is_float(dtype):
            return registers.rounded(e, e.convert("sitofp", counted, registers.register(dtype)), dtype)
        return counted if dtype.itemsize == 8 else e.convert("trunc", counted, registers.register(dtype))

    return (LazyArray(ArrayType(shape, dtype), at, {}, True),)


def _reverse(scope: Scope, x: LazyArray, *, axes: tuple[int, ...]) -> Sequence[LazyArray]:
    e = scope.e
    if x.buffer is not None:
        ends = [n - 1 if axis in axes else 0 for axis, n in enumerate(x.shape)]
        strides = tuple(e.mul(stride, -1 if axis in axes else 1) for axis, stride in enumerate(x.buffer.strides))
        array = array_in(e, StridedArray(x.buffer.address(e, ends), strides, x.shape, x.dtype))
        array.reads = merged([x], aligned=False)
        return (array,)

    def source(index: Sequence[Int]) -> list[Int]:
        return [e.sub(n - 1, i) if axis in axes else i for axis, (i, n) in enumerate(zip(index, x.shape, strict=True))]

    return (rearranged(scope, x, x.shape, source, len(x.shape) - 1 not in axes),)


def _concatenate(scope: Scope, *arrays: LazyArray, axis: int) -> Sequence[LazyArray]:
    """Write the parts beside each other."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)

    def put(target: StridedArray) -> None:
        start = 0
        for array in arrays:
            first = [start if n == axis else 0 for n in range(len(shape))]
            write(scope.e, array, target.part(scope.e, first, array.shape))
            start += array.shape[axis]

    return (written_whole(ArrayType(tuple(shape), arrays[0].dtype), arrays, put),)


def _pad(
    scope: Scope, x: LazyArray, value: LazyArray, *, padding: tuple[tuple[int, int, int], ...]
) -> Sequence[LazyArray]:
    """Write the elements that remain to their places, and the value around and between them."""
    e = scope.e
    value = scope.keep(value)
    if not x.shape:
        return (x,)
    sizes, starts, places, counts = [], [], [], []
    for extent, (before, after, between) in zip(x.shape, padding, strict=True):
        step = between + 1
        size = before + extent + max(0, extent - 1) * between + after
        # Element n goes to before + n * step; those that go to 0, …, size - 1 remain.
        first = max(0, -(before // step))
        stop = max(first, min(extent, -((before - size) // step)))
        sizes.append(size)
        starts.append(first)
        places.append(before + first * step if stop > first else 0)
        counts.append(stop - first)
    steps = [axis[2] + 1 for axis in padding]
    # The box between the first and the last of them; outside of it, and in it if they are apart, the value is written.
    box = [max(0, (count - 1) * step + 1) for count, step in zip(counts, steps, strict=True)]
    moved = LazyArray(
        ArrayType(tuple(counts), x.dtype),
        lambda index, width: x.at([e.add(i, first) for i, first in zip(index, starts, strict=True)], width),
    )

    def put(target: StridedArray) -> None:
        inside = target.part(e, places, tuple(box))
        for first, shape in _around(target.shape, places, box):
            _spread(e, value, target.part(e, first, shape))
        if moved.type.size == 0:
            return
        if max(steps) > 1:
            _spread(e, value, inside)
        strides = tuple(e.mul(stride, step) for stride, step in zip(target.strides, steps, strict=True))
        write(e, moved, StridedArray(inside.base, strides, moved.shape, x.dtype))

    return (written_whole(ArrayType(tuple(sizes), x.dtype), [x], put),)


def _around(shape: Shape, places: Sequence[int], box: Sequence[int]) -> Iterator[tuple[list[int], Shape]]:
    """The parts of an array that are outside of a box in it, each as its first index and its shape."""
    for axis, extent in enumerate(shape):
        for first, stop in ((0, places[axis]), (places[axis] + box[axis], extent)):
            part = (*box[:axis], stop - first, *shape[axis + 1 :])
            if 0 not in part:
                yield [*places[:axis], first, *[0] * (len(shape) - axis - 1)], part


def _spread(e: Emitter, value: LazyArray, target: StridedArray) -> None:
    """Write a scalar to all elements."""
    write(e, LazyArray(target.type, lambda index, width: value.at((), width)), target)


RULES: dict[str, Rule] = {
    "pad": _pad,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "iota": _iota,
    "reverse": _reverse,
    "concatenate": _concatenate,
}
