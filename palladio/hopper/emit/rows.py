"""Row gathers by an array of indices, which the threads issue in pieces of 16 bytes (cp.async).

Hopper's TMA copies boxes only. Pieces that threads copy are ordinary writes to shared memory: a thread that waits for
them at a barrier issues a proxy fence before the tensor cores read them (PTX ISA, "Async proxy").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.hopper.emit import exchange
from palladio.hopper.emit.plan import WARPGROUP_THREADS
from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.emit.scope import Scope
from palladio.hopper.emit.values import Global, Shared
from palladio.hopper.emit.views import Along, Part, Start, whole
from palladio.hopper.layouts import registers
from palladio.hopper.layouts.integers import added, times
from palladio.hopper.layouts.shared import swizzled_text
from palladio.ir.core import Atom
from palladio.lower.refused import Refused
from palladio.types.transforms import Operand
from palladio.types.views import View

PIECE = 16
"""Bytes of one cp.async."""

FEWEST = registers.THREADS // registers.LANES
"""The fewest pieces of a row: then the lanes of a warp hold the indices of all rows that 128 threads copy together."""


@dataclass(frozen=True)
class Rows:
    """The indices of rows.

    Fields:
        indices: an array of integers.
        axis: the axis of the array that they index.
        along: the axis of the selection that they produce.
        part: the selection with all indices 0.
    """

    indices: Atom
    axis: int
    along: int
    part: Part

    def looked_up(self, scope: Scope) -> Part:
        """The selection with its indices in shared memory, where every thread can read all of them."""
        layout = registers.warp(self.indices.type.shape)
        address = exchange.put(scope, scope.materialised(self.indices, layout, "rows"), layout)
        size = self.part.sizes[self.along]
        axes = _with(self.part.axes, self.along, Along(self.axis, 1, size))
        return replace(self.part, axes=axes, listed=((self.axis, address),))

    def at(self, index: str) -> Part:
        """The selection with all indices replaced by one."""
        return replace(self.part, starts=_with(self.part.starts, self.axis, Start(index, 1)))


def rows_of(scope: Scope, where: Global, found: Sequence[View], indices: Sequence[Atom]) -> Rows:
    """The rows of an array that its views select by an array of indices.

    Raises:
        Refused: there are several arrays of indices, or the indexed array is a part of another.
    """
    view = found[0]
    listed = [position for position in view.operands if indices[position].type.shape]
    axes = [axis for axis, row in enumerate(view.coordinates) if any(each in dict(row.operands) for each in listed)]
    plain = len(found) == 1 and view.base == where.type.array and where.window is None and len(view.gathered) == 1
    if not plain or len(listed) != 1 or len(axes) != 1:
        raise Refused(
            "a copy by indices takes rows of a whole array, by one vector of them",
            expected="ref.at[rows, columns], rows: i32[n]",
            hint="take parts of the array along other axes in the same index",
        )
    row = view.coordinates[axes[0]]
    if row.operands != ((listed[0], 1),) or row.start:
        raise Refused("a copy by indices takes rows of a whole array", hint="add the start to the indices")
    known = scope.index_of(indices)

    def scalar(operand: Operand) -> Scalar | None:
        return Scalar.index(0) if operand.position == listed[0] else known(operand)

    part = whole(view.base.shape).selected(view, scalar)
    return Rows(indices[listed[0]], axes[0], view.gathered[0], part)


def in_pieces(scope: Scope, array: Global, rows: Rows, buffer: Shared, inner: Part) -> list[str] | None:
    """The statements that issue the copies of rows in pieces; None if the rows or the layouts do not allow pieces.

    Neighbouring threads copy neighbouring pieces of a row. The lanes of a warp hold the indices.
    """
    layout, part, itemsize = buffer.layout, rows.part, buffer.layout.itemsize
    each = PIECE // itemsize
    if len(part.axes) != 2 or rows.along != 0 or scope.one_warp or scope.warps or inner.peer:
        return None
    columns, (down, across) = part.axes[1], inner.axes
    last, own = len(part.shape) - 1, len(layout.shape) - 1
    sides = (columns.axis == last and columns.stride == 1, across.axis == own and across.stride == 1)
    places = part.starts[-1].factor, part.shape[-1], inner.starts[-1].factor, layout.span
    count, pieces = part.sizes[0], part.sizes[1] // each
    at_once = WARPGROUP_THREADS // pieces if pieces else 0
    if not all(sides) or part.sizes[1] % each or any(place % each for place in places):
        return None
    if pieces < FEWEST or at_once * pieces != WARPGROUP_THREADS or count % at_once or down.axis != own - 1:
        return None
    name = scope.materialised(rows.indices, registers.warp((count,)), "rows").name
    pointer = scope.kernel.pointer(array.number, array.name)
    column = times(f"(thread % {pieces})", each)
    place = rows.at("row").place([0, column])
    strides = [math.prod(part.shape[n + 1 :]) for n in range(len(place))]
    offset = added(*(times(f"(i64)({at})", stride) for at, stride in zip(place, strides, strict=True)))
    inside = " && ".join(f"(u32)({at}) < {extent}" for at, extent in zip(place, part.shape, strict=True))
    own_row = f"turn * {at_once} + thread / {pieces}"
    byte = added(buffer.base, layout.offset(inner.place([f"({own_row})", column])))
    held = f"{name}[turn * {at_once} / {registers.LANES}]"
    return [
        f"PAL_UNROLL for (int turn = 0; turn < {count // at_once}; ++turn) {{",
        f"  const int row = pal::shuffle({held}, turn * {at_once} % {registers.LANES} + thread / {pieces});",
        f"  const u32 byte = {byte};",
        f"  const bool inside = {inside};",
        f"  pal::copy_async<{PIECE}>({swizzled_text('byte', layout.swizzle)}, "
        f"{pointer} + (inside ? {offset} : 0), inside ? {PIECE} : 0);",
        "}",
    ]


def _with(values: Sequence[object], position: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:position], value, *values[position + 1 :])
