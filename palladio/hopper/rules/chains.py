"""Accesses through transforms that select no box: reshaped references, other dtypes, arrays of indices.

The place of an element is followed back through the views one by one, as C expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.views import CAST_VALUES, STARTS, Along, Start, limits
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import added, closes_last, times
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom
from palladio.lower.refused import Refused
from palladio.types.dtypes import DType
from palladio.types.transforms import Peer, Transform
from palladio.types.types import ArrayType, Shape
from palladio.types.views import Coordinate, View, row_major

Place = Callable[[Sequence[str]], list[str]]
"""The place of an element that another place in a selection is, as C expressions."""

Gather = Callable[[Atom, Sequence[int], Place], str]
"""The index that an array of them has for an element: the array, the axes of a selection along which it lies, and the
place of the element in that."""


@dataclass(frozen=True)
class Chain:
    """The part of a buffer that a stack of transforms selects. It answers as a `Part` does.

    Fields:
        shape: of the buffer.
        sizes: of what is selected.
        dtype: of an element of what is selected.
        back: the indices in the buffer of an element.
        tests: whether it is inside of all that it is selected from, as C expressions.
    """

    shape: Shape
    sizes: Shape
    dtype: DType
    back: Place
    tests: Place = lambda index: []
    axes: tuple[Along, ...] = ()
    starts: tuple[Start, ...] = ()
    peer: tuple[tuple[str, Start], ...] = field(default=())

    def place(self, indices: Sequence[str]) -> list[str]:
        """The indices in the buffer of an element of what is selected, as C expressions."""
        return self.back(indices)


def chain(
    scope: Scope,
    whole: ArrayType,
    stack: Sequence[Transform],
    found: Sequence[View],
    indices: Sequence[Atom],
    gather: Gather,
) -> Chain:
    """The part of a buffer or array that a stack selects.

    Args:
        found: the views that the stack is.
        gather: gives the index of an array of them for an element.

    Raises:
        Refused: a bitcast that changes the width, the memory of another block, a gather of one number.
    """
    if any(view.base.dtype.itemsize != whole.dtype.itemsize for view in found):
        raise Refused("a buffer seen as a dtype of another width is not compiled for Hopper", hint=CAST_VALUES)
    if any(isinstance(transform, Peer) for transform in stack):
        raise Refused("the shared memory of another block is not compiled for Hopper yet")
    back: Place = list
    tests: list[Place] = []
    for n, view in reversed(list(enumerate(found))):
        before = found[n - 1].sizes if n else whole.shape
        back, inside = _step(scope, view, before, indices, gather, back)
        tests.append(inside)
    return Chain(
        whole.shape,
        found[-1].sizes,
        found[-1].base.dtype,
        back,
        lambda index: [text for test in tests for text in test(index)],
    )


def _step(
    scope: Scope,
    view: View,
    before: Shape,
    indices: Sequence[Atom],
    gather: Gather,
    selected: Place,
) -> tuple[Place, Place]:
    """The index of an element in the base of a view, from its index in the selection of all views; and its guards.

    Args:
        before: the shape of the base of the view.
        selected: the index in the selection of this view.
    """
    ranks = {operand: len(indices[operand].type.shape) for operand in view.operands}
    operands = {
        operand: gather(indices[operand], view.gathered[len(view.gathered) - rank :], selected)
        if rank
        else f"({scope.text(indices[operand])})"
        for operand, rank in ranks.items()
    }

    def first(row: Coordinate) -> Start:
        return row.first(STARTS, Start.of(row.start), lambda operand: Start(operands[operand], 1))

    def back(index: Sequence[str]) -> list[str]:
        own, found = selected(index), []
        for row in view.coordinates:
            text = added(first(row).text, *map(times, own, row.strides))
            closed = text.isdecimal() or text.isidentifier() or (text.startswith("(") and closes_last(text))
            found.append(text if closed else f"({text})")
        return found if view.base.shape == before else _unflattened(_flat(found, view.base.shape), before)

    def tests(index: Sequence[str]) -> list[str]:
        own = selected(index)
        return [limit.test(own) for limit in limits(view.guards, first)]

    return back, tests


def _flat(index: Sequence[str], shape: Shape) -> str:
    return f"({added(*map(times, index, row_major(shape)))})"


def _unflattened(flat: str, shape: Shape) -> list[str]:
    strides = row_major(shape)
    return [f"({flat} / {stride} % {extent})" for stride, extent in zip(strides, shape, strict=True)]


def in_layout(scope: Scope, layout: Layout | None) -> Gather:
    """Arrays of indices in the layout of what is gathered by them: an index is in the register of its element."""

    def gather(atom: Atom, axes: Sequence[int], selected: Place) -> str:
        if layout is None:
            raise Refused("an array of indices into a reference is not compiled for Hopper here")
        x, own = held(scope, atom)

        def origin(index: Sequence[str]) -> list[str]:
            return own_place(selected(index), axes, own.shape)

        names = [f"i{axis}" for axis in range(len(layout.shape))]
        if own.same(layout) and origin(names) == names:
            return f"({scope.element(x, 'r', layout)})"

        return f"{exchange.moved(scope, x, own, layout, origin, 'gathered').name}[r]"

    return gather


def own_place(place: Sequence[str], axes: Sequence[int], shape: Shape) -> list[str]:
    """The place in an array of indices, which lies along some axes of a selection, of an element of that."""
    return ["0" if extent == 1 else place[axis] for axis, extent in zip(axes, shape, strict=True)]
