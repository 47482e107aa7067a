"""Each access in its normal form: the views that its stacks of transforms are, with the operands that they have."""

from __future__ import annotations

from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.paths import renumbered
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.forms import VIEWED, has_data
from palladio.lower.views import views
from palladio.passes.pipeline import ANY, Pass
from palladio.types.transforms import Operand, Peer, Transform
from palladio.types.types import RefType


def view_in(program: Program) -> Program:
    """The program with views in the place of other transforms."""
    return with_body(program, map(_viewed, program.eqns), program.outputs)


def _viewed(eqn: Eqn) -> Eqn:
    params = map_subprograms(eqn.params, view_in)
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


def _with_operands(transform: Transform, old: tuple[Atom, ...], new: list[Atom]) -> Transform:
    """The transform with its index operands behind those that are there; a variable in it twice is one operand."""
    first, number = len(new), {}

    def place(operand: Operand) -> Operand:
        atom = old[operand.position]
        key = atom if isinstance(atom, Var) and not isinstance(transform, Peer) else operand.position
        if key not in number:
            number[key] = first + len(number)
            new.append(atom)
        return Operand(number[key])

    return renumbered(transform, place)


view = Pass(
    name="view",
    consumes=ANY,
    produces=VIEWED,
    run=view_in,
    doc="Writes each access as views: start, strides and guards along each axis of its array, or a gather. Wants "
    "`prove_inside` before it, for the guards that are not needed.",
)
