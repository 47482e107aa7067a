"""Dependence analysis of grid axes.

An axis that the author declares parallel is, unless steps along it read from one block and write to it: a kernel may
keep running values in an output whose block stays, of which each core of a TPU has its own. Steps that only write to
one block, e.g. each to other rows under a mask, are what the author says.

Without such a declaration, steps along an axis are independent if each has separate blocks of every output, and none
reads from scratch values of another. Both are proved from the structure alone: the axis follows from the indices of the
outputs' blocks, and the first step of a task stores all of the scratch before it does anything else with it. If later
steps of a task continue with values in scratch, steps of other tasks must not run between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Eqn, Literal, Program, Var, walk
from palladio.lower.block_indices import determined_axes
from palladio.lower.fusion.masked_stores import mask_in
from palladio.lower.initialization import stores_all
from palladio.lower.views import views
from palladio.ops.control import cond
from palladio.ops.grid import BlockMap, Grid
from palladio.types.effects import EffectKind

Known = dict[Any, Any]
"""The values of atoms in the first step of a task."""


def parallel_axes(grid: Grid, kernel: Program) -> tuple[bool, ...]:
    """For each axis of a grid, whether its steps may run concurrently."""
    if any(map(_changes_pieces, walk(kernel))):
        return (False,) * len(grid.sizes)
    if kernel.synchronises:  # a step may wait for an operation that another one starts
        return axes_of_cores(grid, kernel)
    return independent_axes(grid, kernel)


def axes_of_cores(grid: Grid, kernel: Program) -> tuple[bool, ...]:
    """The axes that cores share: a task is a core with its own scratch, semaphores and scalars."""
    apart = grid.cores and not _running_axes(grid, kernel).intersection(np.flatnonzero(grid.parallel))
    return grid.parallel if apart else (False,) * len(grid.sizes)


def _changes_pieces(eqn: Eqn) -> bool:
    """True if an atomic operation changes parts of elements, or several elements: that is not one atomic step."""
    if not eqn.op.atomic:
        return False
    width = eqn.ref.type.dtype.itemsize
    shapes = [atom.type.shape for atom in eqn.indices]
    return any(each.base.dtype.itemsize != width for each in views(eqn.ref.type.array, eqn.transforms, shapes))


def independent_axes(grid: Grid, kernel: Program) -> tuple[bool, ...]:
    """The axes declared parallel; if there are none, those whose steps are proved independent."""
    if any(grid.parallel):
        shared = _shared_axes(grid, kernel)
        return tuple(declared and axis not in shared for axis, declared in enumerate(grid.parallel))
    if not grid.outputs or not _is_plain(grid, kernel):
        return grid.parallel
    axes = range(len(grid.sizes))
    own = [all(has_own_blocks(grid, block, axis) for block in grid.outputs) for axis in axes]
    scratch = grid.split(kernel.inputs).scratch
    first = {kernel.inputs[axis]: np.int32(0) for axis in axes if not own[axis]}
    if not all(_begins_with_store(kernel, ref, first) for ref in scratch):
        return grid.parallel
    if not all(_begins_with_store(kernel, ref, {}) for ref in scratch):
        own = _outermost(grid, own)
    return tuple(own)


def _shared_axes(grid: Grid, kernel: Program) -> set[int]:
    """The axes along which steps depend on each other: those of `_running_axes`, and all if a step changes the scalars.

    A kernel with atomic operations orders its tasks itself, and one that gets a whole array in main memory may store to
    another part of it in each task.
    """
    if any(eqn.op.atomic for eqn in walk(kernel)):
        return set()
    if not kernel.written.isdisjoint(grid.positions.operands[: grid.scalars]):
        return {axis for axis, size in enumerate(grid.sizes) if size != 1}
    return _running_axes(grid, kernel)


def _running_axes(grid: Grid, kernel: Program) -> set[int]:
    """The axes along which a block stays that the kernel reads from and writes to, or adds to."""
    axes = {axis for axis, size in enumerate(grid.sizes) if size != 1}
    positions = grid.positions
    blocks = zip(positions.arrays[grid.scalars :], (*grid.inputs, *grid.outputs), strict=True)
    used = {effect.position for effect in mask_in(kernel).effects if effect.kind is not EffectKind.WRITE}
    running = [block for n, block in blocks if n in kernel.written and n in used and not block.stays]
    return {axis for axis in axes if any(axis not in block.axes for block in running)}


def _outermost(grid: Grid, own: Sequence[bool]) -> list[bool]:
    """The leading ones of these axes: the steps of one task then run in the order of the grid."""
    stays = [mine or size == 1 for mine, size in zip(own, grid.sizes, strict=True)]
    return [mine and all(stays[:axis]) for axis, mine in enumerate(own)]


def _is_plain(grid: Grid, kernel: Program) -> bool:
    """True if a kernel only reads, and writes only to its outputs and scratch."""
    positions = grid.positions
    own = {*positions.outputs, *positions.scratch}
    return all(
        effect.position is not None and (effect.kind is EffectKind.READ or effect.position in own)
        for effect in kernel.effects
    )


def has_own_blocks(grid: Grid, block: BlockMap, axis: int) -> bool:
    """True if different indices along a grid axis give disjoint blocks."""
    return axis in determined_axes(grid, block)


def _begins_with_store(program: Program, ref: Var, known: Known) -> bool:
    """True if a reference is accessed, and first by a store to all of it."""
    known = dict(known)
    for eqn in program.eqns:
        if any(atom is ref for atom in eqn.inputs):
            branch = _branch(eqn, known)
            if branch is None:
                return stores_all(eqn, ref)
            inner = dict(zip(branch.inputs, eqn.operands, strict=True))
            mine = [var for var, atom in inner.items() if atom is ref]
            values = {var: _value(atom, known) for var, atom in inner.items() if _value(atom, known) is not None}
            if _touches(branch, mine):
                return len(mine) == 1 and _begins_with_store(branch, mine[0], values)
        else:
            _note(eqn, known)
    return False


def _branch(eqn: Eqn, known: Known) -> Program | None:
    """The branch that a `cond` takes, if it is known."""
    index = _value(eqn.index, known) if eqn.op is cond else None
    if index is None:
        return None
    branches: tuple[Program, ...] = eqn.branches
    return branches[min(max(int(index), 0), len(branches) - 1)]


def _touches(program: Program, refs: list[Var]) -> bool:
    return any(atom is ref for eqn in program.eqns for atom in eqn.inputs for ref in refs)


def _value(atom: Any, known: Known) -> Any:
    return atom.value if isinstance(atom, Literal) else known.get(atom)


def _note(eqn: Eqn, known: Known) -> None:
    """Compute a scalar from known ones."""
    values = [_value(atom, known) for atom in eqn.inputs]
    scalars = all(getattr(atom.type, "shape", None) == () for atom in (*eqn.inputs, *eqn.outputs))
    if scalars and values and not eqn.op.control and not eqn.effects and all(value is not None for value in values):
        known.update(zip(eqn.outputs, eqn.op.eval(*values, **eqn.params), strict=True))
