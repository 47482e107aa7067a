"""Accesses that are proved inside their array: blocks of a grid, and slices at an index known only at the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.ir.core import Atom, Eqn, Program
from palladio.ir.rewrite import with_parts
from palladio.lower.bounds import axes_inside, blocks_of, moving, stays_inside
from palladio.lower.forms import INSIDE
from palladio.lower.ranges import RangeRewriting, Ranges
from palladio.ops.grid import BlockMap, Grid, grid_call
from palladio.passes.pipeline import ANY, Pass
from palladio.types.transforms import Index, IndexEntry, Operand, SliceEntry, Transform, transformed
from palladio.types.types import ArrayType, RefType


class _Marking(RangeRewriting):
    """Marks the axes along which an access cannot leave its array."""

    def parameters(self, eqn: Eqn, params: dict[str, Any]) -> dict[str, Any]:
        if eqn.op is not grid_call:
            return params
        grid: Grid = params["grid"]
        blocks = [_block(grid, *each) for each in blocks_of(eqn, grid)]
        inputs, outputs = tuple(blocks[: len(grid.inputs)]), tuple(blocks[len(grid.inputs) :])
        same = (inputs, outputs) == (grid.inputs, grid.outputs)
        return params if same else {**params, "grid": replace(grid, inputs=inputs, outputs=outputs)}

    def changed(self, eqn: Eqn, known: Ranges) -> Eqn:
        if not eqn.op.index_start:
            return eqn
        stacks = eqn.op.stacks(eqn.transforms)
        marked = tuple(self.stack(eqn, n, stack, known) for n, stack in enumerate(stacks))
        if marked == stacks:
            return eqn
        return with_parts(eqn, eqn.inputs, {**eqn.params, "transforms": marked if eqn.op.ref_count > 1 else marked[0]})

    def stack(self, eqn: Eqn, position: int, stack: Sequence[Transform], known: Ranges) -> tuple[Transform, ...]:
        """A stack of transforms over an input."""
        root = eqn.inputs[position].type
        array = root.array if isinstance(root, RefType) else root
        types: list[ArrayType] = [atom.type for atom in eqn.indices]
        found: list[Transform] = []
        for transform in stack:
            if isinstance(transform, Index):
                entries = zip(transform.entries, array.shape, strict=True)
                found.append(Index(tuple(_marked(entry, extent, eqn.indices, known) for entry, extent in entries)))
            else:
                found.append(transform)
            array = transformed(array, [transform], types)
        return tuple(found)


def _marked(entry: IndexEntry, extent: int, indices: Sequence[Atom], known: Ranges) -> IndexEntry:
    start = moving(entry)
    if start is None or not stays_inside(entry, extent, indices, known):
        return entry
    sure = Operand(start.position, inside=True)
    return replace(entry, start=sure) if isinstance(entry, SliceEntry) else sure


def _block(grid: Grid, block: BlockMap, array: ArrayType) -> BlockMap:
    """A block map of a grid with the axes marked along which all blocks lie inside the array."""
    inside = axes_inside(grid, block, array)
    return replace(block, inside=inside) if any(inside) else block


def _mark(program: Program) -> Program:
    return _Marking().program(program)


prove_inside = Pass(
    name="prove_inside",
    consumes=ANY,
    produces=INSIDE,
    run=_mark,
    doc="Marks the blocks and the indices that cannot leave their array, so that they get no guards. Runs last: passes "
    "that rewrite accesses drop the marks.",
)
