"""Accesses through transforms that select no box: reshaped references, other dtypes, arrays of indices.

The place of an element is followed back through the transforms one by one, as C expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from palladio.hopper.emit.scalars import Refused
from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.views import Along, Start
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import added, times
from palladio.hopper.rules import exchange
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom
from palladio.types.dtypes import DType
from palladio.types.transforms import Bitcast, Index, Operand, Peer, Reshape, Slice, Transform, Transpose, transformed
from palladio.types.types import ArrayType, Shape


@dataclass(frozen=True)
class Chain:
    """The part of a buffer that a stack of transforms selects. It answers as a `View` does.

    Fields:
        shape: of the buffer.
        sizes: of what is selected.
        dtype: of an element of what is selected.
        back: the indices in the buffer of an element.
    """

    shape: Shape
    sizes: Shape
    dtype: DType
    back: Callable[[Sequence[str]], list[str]]
    axes: tuple[Along, ...] = ()
    starts: tuple[Start, ...] = ()
    peer: tuple[tuple[str, Start], ...] = field(default=())

    def place(self, indices: Sequence[str]) -> list[str]:
        """The indices in the buffer of an element of what is selected, as C expressions."""
        return self.back(indices)

    def inside(self) -> bool:
        """Nothing is known of that."""
        return False


def is_box(stack: Sequence[Transform], indices: Sequence[Atom]) -> bool:
    """True if a stack selects a box, axis by axis."""
    plain = not any(atom.type.shape for atom in indices)
    joins = any(isinstance(transform, (Reshape, Bitcast)) for transform in stack)
    return plain and not joins


def chain(
    scope: Scope, whole: ArrayType, stack: Sequence[Transform], indices: Sequence[Atom], layout: Layout | None
) -> Chain:
    """The part of a buffer or array that a stack selects, of elements that are wanted in a layout.

    Raises:
        Refused: a bitcast that changes the width, the memory of another block, a gather of one number.
    """
    type = whole
    operands = [atom.type for atom in indices]
    steps: list[Callable[[Sequence[str]], list[str]]] = []
    for transform in stack:
        after = transformed(type, [transform], operands)  # type: ignore[arg-type]
        steps.append(_step(scope, transform, type, after, indices, layout))
        type = after

    def back(index: Sequence[str]) -> list[str]:
        found = list(index)
        for step in reversed(steps):
            found = step(found)
        return found

    return Chain(whole.shape, type.shape, type.dtype, back)


def _step(
    scope: Scope,
    transform: Transform,
    before: ArrayType,
    after: ArrayType,
    indices: Sequence[Atom],
    layout: Layout | None,
) -> Callable[[Sequence[str]], list[str]]:
    match transform:
        case Reshape():
            return lambda index: _unflattened(_flat(index, after.shape), before.shape)
        case Transpose(permutation):
            return lambda index: [index[permutation.index(axis)] for axis in range(len(permutation))]
        case Bitcast(dtype):
            if dtype.itemsize != before.dtype.itemsize:
                raise Refused("a buffer seen as a dtype of another width is not compiled for Hopper yet")
            return list
        case Peer():
            raise Refused("the shared memory of another block is not compiled for Hopper yet")
        case Index(entries):
            return _indexed(scope, entries, indices, layout)


def _flat(index: Sequence[str], shape: Shape) -> str:
    return f"({added(*map(times, index, exchange.row_major(shape)))})"


def _unflattened(flat: str, shape: Shape) -> list[str]:
    strides = exchange.row_major(shape)
    return [f"({flat} / {stride} % {extent})" for stride, extent in zip(strides, shape, strict=True)]


def _indexed(
    scope: Scope, entries: Sequence[object], indices: Sequence[Atom], layout: Layout | None
) -> Callable[[Sequence[str]], list[str]]:
    """NumPy's rule: arrays broadcast together; their axes stand where the first one does, or first."""
    arrays = [entry.position for entry in entries if isinstance(entry, Operand) and indices[entry.position].type.shape]
    gathered = np.broadcast_shapes(*(indices[n].type.shape for n in arrays)) if arrays else ()
    pointed = [axis for axis, entry in enumerate(entries) if not isinstance(entry, Slice)]
    adjacent = bool(pointed) and pointed == list(range(pointed[0], pointed[0] + len(pointed)))
    first = pointed[0] if adjacent else 0
    names = {n: _spread(scope, indices[n], gathered, first, layout) for n in arrays}

    def back(index: Sequence[str]) -> list[str]:
        rest = [*index[:first], *index[first + len(gathered) :]] if arrays else list(index)
        found, slices = [], iter(rest)
        for entry in entries:
            if isinstance(entry, Slice):
                start = entry.start
                text = f"({scope.text(indices[start.position])})" if isinstance(start, Operand) else str(start)
                found.append(added(text, times(next(slices), entry.stride)))
            elif isinstance(entry, Operand):
                found.append(names.get(entry.position) or f"({scope.text(indices[entry.position])})")
            else:
                found.append(str(entry))
        return [text if text.isdecimal() or text.isidentifier() else f"({text})" for text in found]

    return back


def _spread(scope: Scope, atom: Atom, gathered: Shape, first: int, layout: Layout | None) -> str:
    """An array of indices in the layout of what is gathered by it, as a C expression of its register."""
    if layout is None:
        raise Refused("an array of indices into a reference is compiled for Hopper in loads only")
    x, own = held(scope, atom)
    shape = own.shape
    offset = len(gathered) - len(shape)

    def origin(index: Sequence[str]) -> list[str]:
        mine = index[first + offset : first + len(gathered)]
        return ["0" if extent == 1 else part for part, extent in zip(mine, shape, strict=True)]

    return f"{exchange.moved(scope, x, own, layout, origin, 'gathered').name}[r]"
