"""Views of buffers: the box that a stack of transforms selects, as indices along its axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palladio.hopper.emit.scalars import Refused, Scalar
from palladio.hopper.layouts.shared import added, times
from palladio.types.transforms import Bitcast, Index, Operand, Peer, Reshape, Slice, Transform, Transpose
from palladio.types.types import Shape

INFINITE = 1 << 30


@dataclass(frozen=True)
class Start:
    """The start of a box along an axis: a C expression, and a number that is known to divide it."""

    text: str
    factor: int

    @property
    def constant(self) -> int | None:
        """The number, where it is one."""
        return int(self.text) if self.text.isdecimal() else None

    def plus(self, other: Start) -> Start:
        """The sum."""
        return Start(added(self.text, other.text), math.gcd(self.factor, other.factor))

    def times(self, factor: int) -> Start:
        """A multiple."""
        return Start(times(self.text, factor), min(self.factor * factor, INFINITE))


ZERO = Start("0", INFINITE)


@dataclass(frozen=True)
class Along:
    """One axis of what is selected: which axis of the buffer it runs along, and how far each step goes.

    `axis` is None for an axis of one element that belongs to none.
    """

    axis: int | None
    stride: int
    size: int


@dataclass(frozen=True)
class View:
    """A box of a buffer.

    Fields:
        shape: of the buffer.
        starts: where the box begins along each axis of the buffer.
        axes: those of what is selected.
        peer: the blocks of the cluster whose buffer it is: cluster axis and index.
    """

    shape: Shape
    starts: tuple[Start, ...]
    axes: tuple[Along, ...]
    peer: tuple[tuple[str, Start], ...] = ()

    @property
    def sizes(self) -> Shape:
        """The shape of what is selected."""
        return tuple(axis.size for axis in self.axes)

    def place(self, indices: Sequence[str]) -> list[str]:
        """The indices in the buffer of an element of what is selected, as C expressions."""
        found = [start.text for start in self.starts]
        for index, along in zip(indices, self.axes, strict=True):
            if along.axis is not None and index != "0":
                found[along.axis] = added(found[along.axis], times(index, along.stride))
        return found

    def box(self) -> tuple[int, ...] | None:
        """Its sizes along the axes of the buffer, if it is dense and in the buffer's order; None if not."""
        sizes, last = [1] * len(self.shape), -1
        for along in self.axes:
            if along.axis is None:
                continue
            if along.stride != 1 or along.axis <= last:
                return None
            sizes[along.axis], last = along.size, along.axis
        return tuple(sizes)

    def inside(self) -> bool:
        """True if it is known to lie inside of the buffer."""
        for axis, extent in enumerate(self.shape):
            first = self.starts[axis].constant
            reach = 1 + sum((along.size - 1) * along.stride for along in self.axes if along.axis == axis)
            if first is None or first + reach > extent:
                return False
        return True


def whole(shape: Shape) -> View:
    """All of a buffer."""
    return View(shape, (ZERO,) * len(shape), tuple(Along(axis, 1, size) for axis, size in enumerate(shape)))


def view(found: View, stack: Sequence[Transform], scalar: Callable[[Operand], Scalar | None]) -> View:
    """The part of a buffer, or of part of it, that a stack selects.

    Args:
        scalar: the index operand of the equation at a position; None for an array of indices.

    Raises:
        Refused: what is not a box.
    """
    for transform in stack:
        match transform:
            case Index(entries):
                found = _indexed(found, entries, scalar)
            case Transpose(permutation):
                found = replace(found, axes=tuple(found.axes[axis] for axis in permutation))
            case Reshape(sizes):
                found = _reshaped(found, sizes)
            case Peer(blocks):
                peers = tuple((name, _start(block, scalar)) for name, block in blocks)
                found = replace(found, peer=(*found.peer, *peers))
            case Bitcast():
                raise Refused("a buffer whose bits are seen as another dtype is not compiled for Hopper yet")
    return found


def _start(entry: int | Operand, scalar: Callable[[Operand], Scalar | None]) -> Start:
    if isinstance(entry, Operand):
        value = scalar(entry)
        if value is None:
            raise Refused("an array of indices into a reference is not compiled for Hopper yet")
        text = value.text
        return Start(
            text if text.isidentifier() or text.isdecimal() or text.endswith(")") else f"({text})", value.factor
        )
    return Start(str(entry), abs(entry) or INFINITE)


def _indexed(found: View, entries: Sequence[Any], scalar: Callable[[Operand], Scalar | None]) -> View:
    starts, axes = list(found.starts), []
    for entry, along in zip(entries, found.axes, strict=True):
        first = _start(entry.start if isinstance(entry, Slice) else entry, scalar)
        if along.axis is not None:
            starts[along.axis] = starts[along.axis].plus(first.times(along.stride))
        if isinstance(entry, Slice):
            axes.append(Along(along.axis, along.stride * entry.stride, entry.size))
    return replace(found, starts=tuple(starts), axes=tuple(axes))


def _reshaped(found: View, sizes: Shape) -> View:
    """Axes of size 1 come and go; others may be cut or joined where the elements stay evenly apart."""
    left = [along for along in found.axes if along.size != 1]
    axes: list[Along] = []
    for size in sizes:
        if size == 1:
            axes.append(Along(None, 1, 1))
            continue
        if not left or left[0].size % size:
            raise Refused("a reference reshaped so that its axes are joined is not compiled for Hopper yet")
        along = left.pop(0)
        inner = along.size // size
        axes.append(Along(along.axis, along.stride * inner, size))
        if inner > 1:
            left.insert(0, Along(along.axis, along.stride, inner))
    if left:
        raise Refused("a reference reshaped so that its axes are joined is not compiled for Hopper yet")
    return replace(found, axes=tuple(axes))
