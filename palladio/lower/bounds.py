"""Proofs that an access stays inside its array, from the ranges of its indices."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.ir.core import Atom, Eqn
from palladio.lower.ranges import Range, Ranges, grid_ranges, range_of, result_range
from palladio.ops.grid import BlockMap, Grid
from palladio.types.transforms import Index, IndexEntry, Operand, SliceEntry, transformed
from palladio.types.types import ArrayType, RefType


def moving(entry: IndexEntry) -> Operand | None:
    """The operand that an entry of an index starts at, if its extent is known only at the call."""
    start = entry.start if isinstance(entry, SliceEntry) else entry
    return start if isinstance(start, Operand) and not (isinstance(entry, SliceEntry) and not entry.size) else None


def stays_inside(entry: IndexEntry, extent: int, indices: Sequence[Atom], known: Ranges) -> bool:
    """True if a moving entry of an index cannot leave an axis of this extent."""
    start = moving(entry)
    found = None if start is None else range_of(indices[start.position], known)
    reach = (entry.size - 1) * entry.stride if isinstance(entry, SliceEntry) else 0
    return found is not None and found.within(Range(0, extent - 1 - reach))


def indexed(eqn: Eqn) -> list[tuple[Index, ArrayType]]:
    """The indices of an access, each with the type of the indexed array, input by input and outermost first."""
    types: list[ArrayType] = [atom.type for atom in eqn.indices]
    found = []
    for position, stack in enumerate(eqn.op.stacks(eqn.transforms)):
        root = eqn.inputs[position].type
        array = root.array if isinstance(root, RefType) else root
        for transform in stack:
            if isinstance(transform, Index):
                found.append((transform, array))
            array = transformed(array, [transform], types)
    return found


def blocks_of(eqn: Eqn, grid: Grid) -> list[tuple[BlockMap, ArrayType]]:
    """The block maps of a grid, inputs before outputs, each with the type of its array."""
    arrays = [*eqn.input_types[grid.dynamic + grid.scalars :], *grid.output_types]
    return list(zip((*grid.inputs, *grid.outputs), arrays, strict=True))


def axes_inside(grid: Grid, block: BlockMap, array: ArrayType) -> tuple[bool, ...]:
    """For each axis of an array, whether all its blocks lie inside; () if blocks are not contiguous."""
    if not block.contiguous:
        return ()
    known = grid_ranges(grid, block.index_map.inputs)
    for eqn in block.index_map.eqns:
        found = result_range(eqn, known) if len(eqn.outputs) == 1 else None
        if found is not None:
            known[eqn.outputs[0]] = found
    indices = [range_of(atom, known) for atom in block.index_map.outputs]
    axes = zip(indices, block.steps, array.shape, strict=True)
    return tuple(
        index is not None and index.low * step >= before and index.high * step - before + size <= extent
        for index, (step, before, size, _), extent in axes
    )
