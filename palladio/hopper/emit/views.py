"""The part of a buffer that an access selects: a view (`palladio.types.views`) with its positions as C expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.layouts.integers import Index, added, bracketed, times
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.types.dtypes import DType
from palladio.types.transforms import Operand, Peer, Transform
from palladio.types.types import ArrayType, Shape
from palladio.types.views import Coordinate, Guard, View

INFINITE = 1 << 30

CAST_VALUES = "load it, and cast the values: lax.bitcast_convert_type(ref[...], dtype)"
"""The alternative to a bitcast of a reference."""

Scalars = Callable[[Operand], Scalar | None]
"""The index operand of an equation at a position; None for an array of indices."""


@dataclass(frozen=True)
class Start:
    """The start of a box along an axis, and a known divisor of it."""

    at: Index
    factor: int

    @staticmethod
    def of(number: int) -> Start:
        """A constant."""
        return Start(number, abs(number) or INFINITE)

    @property
    def constant(self) -> int | None:
        """The number, if it is a constant."""
        return self.at if isinstance(self.at, int) else None

    def plus(self, other: Start) -> Start:
        """The sum."""
        return Start(added(self.at, other.at), math.gcd(self.factor, other.factor))

    def times(self, factor: int) -> Start:
        """A multiple."""
        return Start(times(self.at, factor), min(self.factor * factor, INFINITE))


class _Starts:
    """The arithmetic of starts."""

    add = staticmethod(Start.plus)
    mul = staticmethod(Start.times)


STARTS = _Starts()


@dataclass(frozen=True)
class Along:
    """One axis of a selection: the axis of the buffer, the stride along it, and the size.

    `axis` is None for an axis of one element without an axis of the buffer.
    """

    axis: int | None
    stride: int
    size: int


@dataclass(frozen=True)
class Part:
    """A box in a buffer.

    Fields:
        shape: of the buffer.
        starts: the start of the box along each axis of the buffer.
        axes: the axes of the selection.
        peer: the blocks of the cluster that own the buffer: cluster axis and index.
        listed: axes of the buffer with positions from an array, each with the address of this i32 array in shared
            memory as a C expression; starts and strides along them are positions in that array.
    """

    shape: Shape
    starts: tuple[Start, ...]
    axes: tuple[Along, ...]
    peer: tuple[tuple[str, Start], ...] = ()
    listed: tuple[tuple[int, str], ...] = ()

    @property
    def sizes(self) -> Shape:
        """The shape of the selection."""
        return tuple(axis.size for axis in self.axes)

    def place(self, indices: Sequence[Index]) -> list[Index]:
        """The indices in the buffer of an element of the selection."""
        found = [start.at for start in self.starts]
        for index, along in zip(indices, self.axes, strict=True):
            if along.axis is not None:
                found[along.axis] = added(found[along.axis], times(index, along.stride))
        for axis, address in self.listed:
            found[axis] = f"pal::load_shared<int>({added(address, times(f'({found[axis]})', 4))})"
        return found

    def box(self) -> tuple[int, ...] | None:
        """Its sizes along the axes of the buffer, if it is dense and in the buffer's order; None if not."""
        sizes, last = [1] * len(self.shape), -1
        if self.listed:
            return None
        for along in self.axes:
            if along.axis is None:
                continue
            if along.stride != 1 or along.axis <= last:
                return None
            sizes[along.axis], last = along.size, along.axis
        return tuple(sizes)

    def within(self, axis: int) -> bool:
        """True if the box is known to be inside the buffer along an axis."""
        first = None if axis in dict(self.listed) else self.starts[axis].constant
        reach = sum((along.size - 1) * along.stride for along in self.axes if along.axis == axis)
        return first is not None and first >= 0 and first + reach < self.shape[axis]

    def through(self, dtype: DType, stack: Sequence[Transform], operands: Sequence[Shape], scalar: Scalars) -> Part:
        """The part that a stack of transforms selects from this one, with elements of a dtype.

        Args:
            operands: the shapes of the index operands.

        Raises:
            Refused: the selection is not a box.
        """
        array = ArrayType(self.sizes, dtype)
        found = views(array, stack, operands)
        if any(view.gathered for view in found):
            raise Refused("an array of indices into a reference is not compiled for Hopper yet")
        if any(view.base.dtype != dtype for view in found):
            raise Refused("a buffer whose bits are seen as another dtype is not compiled for Hopper", hint=CAST_VALUES)
        if not is_box(array, found):
            raise Refused("a reference reshaped so that its axes are joined is not compiled for Hopper yet")
        peers = [block for transform in stack if isinstance(transform, Peer) for block in transform.blocks]
        peer = (*self.peer, *((name, start_of(block, scalar)) for name, block in peers))
        return replace(self.selected(*found, scalar) if found else self, peer=peer)

    def selected(self, view: View, scalar: Scalars) -> Part:
        """The part that one view of this part selects."""
        starts = list(self.starts)
        axes = [Along(None, 1, size) for size in view.sizes]
        for row, along in zip(view.coordinates, self.axes, strict=True):
            first = first_of(row, scalar)
            if along.axis is not None:
                starts[along.axis] = starts[along.axis].plus(first.times(along.stride))
            for axis, stride in enumerate(row.strides):
                if stride:
                    axes[axis] = Along(along.axis, along.stride * stride, view.sizes[axis])
        return replace(self, starts=tuple(starts), axes=tuple(axes))


@dataclass(frozen=True)
class Limit:
    """A guard of a view: a position must be at least 0 and less than an extent, a number or a C expression.

    Fields:
        first: the position of the first element of the selection.
        strides: the stride of the position along each axis of the selection.
    """

    first: Start
    strides: Shape
    extent: Index

    def test(self, indices: Sequence[Index]) -> str:
        """True if an element is inside, as a C expression of its indices in the selection."""
        at = added(self.first.at, *(times(index, stride) for index, stride in zip(indices, self.strides)))
        return f"(u32)({at}) < {self.extent}"

    def reach(self, sizes: Sequence[int]) -> int:
        """The distance from the first element of a selection to the last."""
        return sum((size - 1) * stride for size, stride in zip(sizes, self.strides, strict=True))

    def test_all(self, sizes: Sequence[int]) -> str:
        """True if all elements of a selection are inside, as a C expression; the strides are not negative."""
        if isinstance(self.extent, str):
            return f"{self.first.at} >= 0 && {self.first.at} + {self.reach(sizes)} < {self.extent}"
        room = self.extent - self.reach(sizes)
        return f"(u32)({self.first.at}) < {room}" if room > 0 else "false"

    def vector(self, width: int) -> int:
        """The widest vector along the last axis, at most `width`, that is inside or outside as a whole."""
        last = self.strides[-1] if self.strides else 0
        if last == 0:
            return width
        known = last == 1 and isinstance(self.extent, int)
        return math.gcd(width, self.extent, self.first.factor) if known else 1  # type: ignore[arg-type]


def limits(guards: Sequence[Guard], first: Callable[[Coordinate], Start]) -> tuple[Limit, ...]:
    """The guards of a view as C expressions; `first` gives the first position of a coordinate."""
    return tuple(Limit(first(each.coordinate), each.coordinate.strides, each.extent) for each in guards)


def is_box(array: ArrayType, found: Sequence[View]) -> bool:
    """True if views of an array select a box, axis by axis."""
    return not found or (len(found) == 1 and found[0].base == array and not found[0].gathered)


def first_of(row: Coordinate, scalar: Scalars) -> Start:
    """The position of the first element along one axis."""
    return row.first(STARTS, Start.of(row.start), lambda position: start_of(Operand(position), scalar))


def whole(shape: Shape) -> Part:
    """All of a buffer."""
    return Part(shape, (Start.of(0),) * len(shape), tuple(Along(axis, 1, size) for axis, size in enumerate(shape)))


def start_of(entry: int | Operand, scalar: Scalars) -> Start:
    """The start of a box, from a number or an index operand."""
    if not isinstance(entry, Operand):
        return Start.of(entry)
    value = scalar(entry)
    if value is None:
        raise Refused("an array of indices into a reference is not compiled for Hopper yet")
    return start_of_scalar(value)


def start_of_scalar(value: Scalar) -> Start:
    """The start of a box at a number."""
    return Start(bracketed(value.text) if value.constant is None else value.constant, value.factor)
