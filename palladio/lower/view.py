"""Each access in its normal form: views in place of its stacks of transforms, with their operands."""

from __future__ import annotations

from dataclasses import replace

from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.paths import renumbered
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.forms import VIEWED, has_data
from palladio.lower.views import views
from palladio.ops.grid import BlockMap, Grid, grid_call
from palladio.passes.pipeline import ANY, Pass
from palladio.types.transforms import Operand, Peer, Transform
from palladio.types.types import RefType


def view_in(program: Program) -> Program:
    """The program with views instead of other transforms."""
    return with_body(program, map(_viewed, program.eqns), program.outputs)


def _viewed(eqn: Eqn) -> Eqn:
    params = map_subprograms(eqn.params, view_in)
    if eqn.op is grid_call and (grid := _with_maps(eqn.grid)) is not eqn.grid:
        params = {**params, "grid": grid}
    if not eqn.op.index_start:
        return with_parts(eqn, eqn.inputs, params)
    shapes = [atom.type.shape for atom in eqn.indices]
    indices: list[Atom] = []
    stacks = []
    for atom, stack in zip(eqn.inputs, eqn.op.stacks(eqn.transforms), strict=False):
        array = atom.type.array if isinstance(atom.type, RefType) else atom.type
        peers = [transform for transform in stack if isinstance(transform, Peer)]
        found = (*peers, *views(array, stack, shapes)) if has_data(atom) else stack
        stacks.append(tuple(_with_operands(transform, eqn.indices, indices) for transform in found))
    if tuple(stacks) == eqn.op.stacks(eqn.transforms):
        return with_parts(eqn, eqn.inputs, params)
    transforms = tuple(stacks) if eqn.op.ref_count > 1 else stacks[0]
    return with_parts(eqn, (*eqn.inputs[: eqn.op.index_start], *indices), {**params, "transforms": transforms})


def _with_maps(grid: Grid) -> Grid:
    """The grid with views in its index maps, which may read scalars."""

    def viewed(blocks: tuple[BlockMap, ...]) -> tuple[BlockMap, ...]:
        maps = [view_in(block.index_map) for block in blocks]
        return tuple(replace(block, index_map=new) for block, new in zip(blocks, maps, strict=True))

    new = replace(grid, inputs=viewed(grid.inputs), outputs=viewed(grid.outputs))
    return grid if new == grid else new


def _with_operands(transform: Transform, old: tuple[Atom, ...], new: list[Atom]) -> Transform:
    """The transform with its index operands after the existing ones; a variable in it twice is one operand."""
    first, number = len(new), {}

    def place(operand: Operand) -> Operand:
        atom = old[operand.position]
        key = atom if isinstance(atom, Var) and not isinstance(transform, Peer) else operand.position
        if key not in number:
            number[key] = first + len(number)
            new.append(atom)
        return replace(operand, position=number[key])

    return renumbered(transform, place)


view = Pass(
    name="view",
    consumes=ANY,
    produces=VIEWED,
    run=view_in,
    doc="Writes each access as views: start, strides and guards along each axis of its array, or a gather. Wants "
    "`prove_inside` before it, for the guards that are not needed.",
)
