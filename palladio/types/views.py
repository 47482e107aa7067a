"""Views: the normal form of a stack of transforms, an affine map from positions in a selection to those in an array.

Along each axis of its base a view has a coordinate: where it starts, and how far it goes with each step along each axis
of the selection. The start may hold index operands; one that is an array makes the view a gather. A guard is a
coordinate that may leave its axis: what is outside is uninitialised when read, and dropped when written. Nothing here
computes: executors give the operands as numbers, as values of generated code or as text, and the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from palladio.base.dataclass import dataclass
from palladio.types.types import ArrayType, Shape

N = TypeVar("N")


class Arithmetic(Protocol[N]):
    """Sums and products of positions: of numbers, of 64-bit values of generated code, of text."""

    def add(self, x: N, y: N, /) -> N:
        """The sum."""

    def mul(self, x: N, y: int, /) -> N:
        """A multiple."""


@dataclass(frozen=True)
class Coordinate:
    """A position along one axis, as an affine map.

    Fields:
        start: of the first element, without the operands.
        operands: the index operands in it, each with its factor.
        strides: the distance of neighbours along each axis of the selection.
    """

    start: int
    operands: tuple[tuple[int, int], ...]
    strides: Shape

    def of(self, inner: Sequence[Coordinate], rank: int) -> Coordinate:
        """The composition: with a coordinate over this many axes instead of the position along each axis."""
        steps = list(zip(self.strides, inner, strict=True))
        factors: dict[int, int] = dict(self.operands)
        for stride, coordinate in steps:
            for operand, factor in coordinate.operands:
                factors[operand] = factors.get(operand, 0) + stride * factor
        return Coordinate(
            self.start + sum(stride * coordinate.start for stride, coordinate in steps),
            tuple((operand, factor) for operand, factor in factors.items() if factor),
            tuple(sum(stride * coordinate.strides[axis] for stride, coordinate in steps) for axis in range(rank)),
        )

    def first(self, arithmetic: Arithmetic[N], start: N, operand: Callable[[int], N]) -> N:
        """The position of the first element: `start` is the number as the arithmetic has it."""
        for position, factor in self.operands:
            start = arithmetic.add(start, arithmetic.mul(operand(position), factor))
        return start

    def reach(self, sizes: Shape) -> int:
        """The distance from the first element to the last."""
        return sum((size - 1) * stride for size, stride in zip(sizes, self.strides, strict=True))


@dataclass(frozen=True)
class Guard:
    """A coordinate that is to be at least 0 and less than an extent."""

    coordinate: Coordinate
    extent: int

    def always_holds(self, sizes: Shape) -> bool:
        """True if no element is outside, whatever the operands are."""
        start = self.coordinate.start
        return not self.coordinate.operands and 0 <= start <= self.extent - 1 - self.coordinate.reach(sizes)


@dataclass(frozen=True)
class View:
    """A selection of elements of an array.

    Fields:
        base: the array, in row-major order; the bytes of what the view is taken of, maybe in another shape or dtype.
        sizes: the shape of the selection.
        coordinates: along each axis of the base.
        guards: those of coordinates of the base in their order, then others, of selections on the way.
        gathered: the axes of the selection that the index arrays have. Those of lower rank have the last ones.
    """

    base: ArrayType
    sizes: Shape
    coordinates: tuple[Coordinate, ...]
    guards: tuple[Guard, ...] = ()
    gathered: tuple[int, ...] = ()

    @property
    def type(self) -> ArrayType:
        """The type of the selection."""
        return ArrayType(self.sizes, self.base.dtype)

    @property
    def is_whole(self) -> bool:
        """True if it has each element of its base once, in their order."""
        steps = row_major(self.base.shape)
        found = tuple(
            sum(row.strides[axis] * step for row, step in zip(self.coordinates, steps, strict=True))
            for axis in range(len(self.sizes))
        )
        wanted = zip(found, row_major(self.sizes), self.sizes, strict=True)
        return self.rearranges and all(step == own or size == 1 for step, own, size in wanted)

    @property
    def rearranges(self) -> bool:
        """True if it has each element of its base once, in whatever order."""
        return not self.guards and not self.gathered and math.prod(self.sizes) == self.base.size

    @property
    def limits(self) -> tuple[Guard, ...]:
        """Its coordinates with the extents of their axes, which it is guarded against only where it has that guard."""
        return tuple(map(Guard, self.coordinates, self.base.shape))

    @property
    def rows(self) -> tuple[Coordinate, ...]:
        """Its coordinates and those of its guards."""
        return (*self.coordinates, *(guard.coordinate for guard in self.guards))

    @property
    def operands(self) -> tuple[int, ...]:
        """Its index operands, in order of appearance."""
        return tuple(dict.fromkeys(position for row in self.rows for position, _ in row.operands))

    def renumbered(self, number: Callable[[int], int]) -> View:
        """The view with its index operands numbered otherwise."""

        def renamed(row: Coordinate) -> Coordinate:
            factors: dict[int, int] = {}
            for position, factor in row.operands:
                factors[number(position)] = factors.get(number(position), 0) + factor
            return replace(row, operands=tuple(factors.items()))

        guards = [Guard(renamed(guard.coordinate), guard.extent) for guard in self.guards]
        return guarded(replace(self, coordinates=tuple(map(renamed, self.coordinates))), guards)

    def of(self, inner: View) -> View:
        """The view of a view: `inner` selects from what this one selects. A gather has no such composition."""
        places, rank = inner.coordinates, len(inner.sizes)
        coordinates = tuple(coordinate.of(places, rank) for coordinate in self.coordinates)
        guards = [Guard(guard.coordinate.of(places, rank), guard.extent) for guard in self.guards]
        return guarded(replace(inner, base=self.base, coordinates=coordinates), [*guards, *inner.guards])

    def reshaped(self, shape: Shape) -> View | None:
        """The same elements in another shape: axes are cut, or joined where they are contiguous.

        None if the result is not an affine map.
        """
        rows = self.rows
        if self.gathered or 0 in shape:
            return None
        columns = [(size, tuple(row.strides[axis] for row in rows)) for axis, size in enumerate(self.sizes)]
        found = recut(columns, shape, len(rows))
        if found is None:
            return None
        new = [
            Coordinate(row.start, row.operands, tuple(strides[n] for strides in found)) for n, row in enumerate(rows)
        ]
        count = len(self.coordinates)
        guards = tuple(Guard(row, guard.extent) for row, guard in zip(new[count:], self.guards, strict=True))
        return View(self.base, shape, tuple(new[:count]), guards)


def recut(columns: Sequence[tuple[int, Shape]], shape: Shape, rows: int) -> list[Shape] | None:
    """The strides of the axes of another shape, from the size and the strides of each axis."""
    left = [column for column in columns if column[0] != 1]
    found: list[Shape] = []
    for size in shape:
        if size == 1:
            found.append((0,) * rows)
            continue
        extent, strides = left.pop(0)
        while extent % size:
            inner, steps = left.pop(0)
            if strides != tuple(step * inner for step in steps):
                return None
            extent, strides = extent * inner, steps
        rest = extent // size
        found.append(tuple(stride * rest for stride in strides))
        if rest > 1:
            left.insert(0, (rest, strides))
    return found


def guarded(view: View, guards: Sequence[Guard]) -> View:
    """The view with these guards, each once, without those that always hold; those of the base's axes come first."""
    own = view.limits
    needed = () if 0 in view.sizes else [guard for guard in guards if not guard.always_holds(view.sizes)]
    others = dict.fromkeys(guard for guard in needed if guard not in own)
    return replace(view, guards=(*(guard for guard in own if guard in needed), *others))


def row_major(shape: Shape) -> Shape:
    """The distance of neighbours along each axis, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def along(axis: int, rank: int, start: int = 0, stride: int = 1) -> Coordinate:
    """The coordinate that goes along one axis of a selection."""
    return Coordinate(start, (), tuple(stride if other == axis else 0 for other in range(rank)))


def whole(base: ArrayType) -> View:
    """All of an array."""
    return View(base, base.shape, tuple(along(axis, base.ndim) for axis in range(base.ndim)))
