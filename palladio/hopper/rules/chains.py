"""Accesses through transforms that do not select a box: reshaped references, other dtypes, arrays of indices.

The indices of an element are mapped back through the views one by one, as C expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from palladio.base.dataclass import dataclass
from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import register_type
from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.views import CAST_VALUES, STARTS, Along, Part, Start, limits
from palladio.hopper.layouts.integers import Index, added, bracketed, times
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom
from palladio.lower.refused import Refused
from palladio.types.dtypes import DType
from palladio.types.transforms import Peer, Transform
from palladio.types.types import ArrayType, Shape
from palladio.types.views import Coordinate, View, row_major

Place = Callable[[Sequence[Index]], list[Index]]
"""A map of indices in a selection to indices in its base."""

Tests = Callable[[Sequence[Index]], list[str]]
"""Conditions on the indices in a selection, as C expressions."""

Gather = Callable[[Atom, Sequence[int], Place], str]
"""`(array of indices, its axes in a selection, map to that selection) -> the index for an element, a C expression`."""


@dataclass(frozen=True)
class Chain:
    """The part of a buffer that a stack of transforms selects, with the interface of a `Part`.

    Fields:
        shape: the shape of the buffer.
        sizes: the shape of the selection.
        dtype: the dtype of the selection.
        back: maps indices in the selection to indices in the buffer.
        tests: the conditions that an element is inside each base on the way, as C expressions.
    """

    shape: Shape
    sizes: Shape
    dtype: DType
    back: Place
    tests: Tests = lambda index: []
    axes: tuple[Along, ...] = ()
    starts: tuple[Start, ...] = ()
    peer: tuple[tuple[str, Start], ...] = field(default=())

    def place(self, indices: Sequence[Index]) -> list[Index]:
        """The indices in the buffer of an element of the selection."""
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
        found: the views of the stack.
        gather: gives the index for an element from an array of indices.

    Raises:
        Refused: the stack changes the width of elements, or selects the memory of another block.
    """
    if any(view.base.dtype.itemsize != whole.dtype.itemsize for view in found):
        raise Refused("a buffer seen as a dtype of another width is not compiled for Hopper", hint=CAST_VALUES)
    if any(isinstance(transform, Peer) for transform in stack):
        raise Refused("the shared memory of another block is not compiled for Hopper yet")
    back: Place = list
    tests: list[Tests] = []
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


def in_window(part: Chain, window: Part, sizes: Sequence[tuple[int, Index]]) -> Chain:
    """The part of an array, from a part of one of its blocks.

    Args:
        sizes: axes of the block that may end early, each with the number of its elements.
    """

    def tests(index: Sequence[Index]) -> list[str]:
        place = part.back(index)
        left = [f"(u32)({place[axis]}) < {extent}" for axis, extent in sizes]
        outer = enumerate(zip(window.place(place), window.shape, strict=True))
        return [
            *part.tests(index),
            *left,
            *(f"(u32)({at}) < {extent}" for axis, (at, extent) in outer if not window.within(axis)),
        ]

    return replace(part, shape=window.shape, back=lambda index: window.place(part.back(index)), tests=tests)


def _step(
    scope: Scope,
    view: View,
    before: Shape,
    indices: Sequence[Atom],
    gather: Gather,
    selected: Place,
) -> tuple[Place, Tests]:
    """The map from indices in the last view's selection to indices in this view's base; and the guards of this view.

    Args:
        before: the shape of the selection to which the view applies.
        selected: the map from the last view's selection to this view's.
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

    def back(index: Sequence[Index]) -> list[Index]:
        own: list[Index] = selected(index)
        found: list[Index] = []
        for row in view.coordinates:
            at = added(first(row).at, *map(times, own, row.strides))
            found.append(at if isinstance(at, int) else bracketed(at))
        return found if view.base.shape == before else _unflattened(_flat(found, view.base.shape), before)

    def tests(index: Sequence[Index]) -> list[str]:
        own = selected(index)
        return [limit.test(own) for limit in limits(view.guards, first)]

    return back, tests


def _flat(index: Sequence[Index], shape: Shape) -> str:
    return f"({added(*map(times, index, row_major(shape)))})"


def _unflattened(flat: str, shape: Shape) -> list[Index]:
    strides = row_major(shape)
    return [f"({flat} / {stride} % {extent})" for stride, extent in zip(strides, shape, strict=True)]


def in_layout(scope: Scope, layout: Layout | None) -> Gather:
    """Gathers in the layout of their result, where an index is in the register of its element; None for a number."""

    def gather(atom: Atom, axes: Sequence[int], selected: Place) -> str:
        x, own = held(scope, atom)
        if layout is None:
            base, name = exchange.put(scope, x, own), scope.w.fresh("place")
            flat = added(*map(times, own_place(selected(()), axes, own.shape), row_major(own.shape)))
            scope.w.line(f"const {register_type(x.dtype)} {name} = {exchange.get(scope, base, flat, x.dtype)};")
            return name

        def origin(index: Sequence[Index]) -> list[Index]:
            return own_place(selected(index), axes, own.shape)

        names = [f"i{axis}" for axis in range(len(layout.shape))]
        if own.same(layout) and origin(names) == names:
            return f"({scope.element(x, 'r', layout)})"

        return f"{exchange.moved(scope, x, own, layout, origin, 'gathered').name}[r]"

    return gather


def own_place(place: Sequence[Index], axes: Sequence[int], shape: Shape) -> list[Index]:
    """The position in an array of indices, which is along some axes of a selection, for an element of the selection."""
    return [0 if extent == 1 else place[axis] for axis, extent in zip(axes, shape, strict=True)]
