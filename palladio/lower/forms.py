"""The lowered forms: a table of rules for each, with the reason to report for a violation.

A form is checked after the pass that makes it. Its rules get the integer ranges at the equation, so
that a mark is proved again instead of trusted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.lower.bounds import axes_inside, blocks_of, indexed, moving, stays_inside
from palladio.lower.initialization import written_whole
from palladio.lower.ranges import Range, RangeRewriting, Ranges
from palladio.lower.roles import chooses, roles_of, thread_input, threads_of
from palladio.ops import ALL_OPS
from palladio.ops.control import cond
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch
from palladio.passes.pipeline import Form
from palladio.types.transforms import Peer
from palladio.types.types import SYNCHRONISING, RefType
from palladio.types.views import View

ACCESSES = tuple(op for op in ALL_OPS if op.index_start)
"""The operations that access arrays and references through stacks of transforms."""


@dataclass
class Facts:
    """The facts that a row may use.

    Fields:
        ranges: of the integers that are visible at the equation.
        single: the scalar results of earlier equations that can only have one value.
    """

    ranges: Ranges
    single: set[Var] = field(default_factory=set)


class Row(NamedTuple):
    """A rule of a form.

    Fields:
        op: the operation that it applies to; None for every operation.
        holds: whether an equation satisfies it.
        reason: the reason to report for a violation.
    """

    op: Op | None
    holds: Callable[[Eqn, Facts], bool]
    reason: str


class _Check(RangeRewriting):
    """Finds the first equation that breaks a row. It rewrites nothing."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.single: set[Var] = set()
        self.found: tuple[Eqn, str] | None = None

    def constant(self, var: Var, found: Range) -> Literal | None:
        if found.value is not None and var.type.shape == ():
            self.single.add(var)
        return None

    def changed(self, eqn: Eqn, known: Ranges) -> Eqn:
        facts = Facts(known, self.single)
        for op, holds, reason in self.rows if self.found is None else ():
            if op in (None, eqn.op) and not holds(eqn, facts):
                self.found = eqn, reason
                break
        return eqn


def form(name: str, rows: Sequence[Row]) -> Form:
    """The form of program in which every equation satisfies these rows."""

    def broken(program: Program) -> tuple[Eqn | None, str] | None:
        check = _Check(rows)
        check.program(program)
        return check.found

    return Form(name, broken)


# ranges


def _is_folded(eqn: Eqn, facts: Facts) -> bool:
    return facts.single.isdisjoint(eqn.inputs)


FOLDED = form(
    "folded",
    [
        Row(cond, _is_folded, "it chooses by a number that can only have one value, and is not a constant"),
        Row(None, _is_folded, "an operand can only have one value, and is not a constant"),
    ],
)


# place


def _is_placed(eqn: Eqn, facts: Facts) -> bool:
    return len(eqn.launch.placements) == len(eqn.launch.scratch)


def _is_aligned(eqn: Eqn, facts: Facts) -> bool:
    return all((each.offset or 0) % each.alignment == 0 for each in eqn.launch.placements)


def _is_apart(eqn: Eqn, facts: Facts) -> bool:
    placed = eqn.launch.placements
    shared = sorted((each.mesh or 0, each.offset, each.bytes) for each in placed if each.offset is not None)
    return all(first[0] != then[0] or first[1] + first[2] <= then[1] for first, then in itertools.pairwise(shared))


PLACED = form(
    "placed",
    [
        Row(launch, _is_placed, "it has scratch buffers without a placement"),
        Row(launch, _is_aligned, "a buffer does not begin at a multiple of its alignment"),
        Row(launch, _is_apart, "two buffers of a block overlap in its shared memory"),
    ],
)


# inside


def _blocks_are_inside(eqn: Eqn, facts: Facts) -> bool:
    for block, array in blocks_of(eqn, eqn.grid):
        proven = axes_inside(eqn.grid, block, array)
        if any(marked and not axis for marked, axis in itertools.zip_longest(block.inside, proven, fillvalue=False)):
            return False
    return True


def _indices_are_inside(eqn: Eqn, facts: Facts) -> bool:
    if not eqn.op.index_start:
        return True
    for index, array in indexed(eqn):
        for entry, extent in zip(index.entries, array.shape, strict=True):
            start = moving(entry)
            if start is not None and start.inside and not stays_inside(entry, extent, eqn.indices, facts.ranges):
                return False
    return True


INSIDE = form(
    "inside",
    [
        Row(grid_call, _blocks_are_inside, "a block is marked as inside its array, and may leave it"),
        Row(None, _indices_are_inside, "an index is marked as inside its array, and may leave it"),
    ],
)


# schedule


def _has_schedule(eqn: Eqn, facts: Facts) -> bool:
    return eqn.grid.schedule is not None


def _loops_are_its_axes(eqn: Eqn, facts: Facts) -> bool:
    schedule = eqn.grid.scheduled
    return sorted((*schedule.tasks, *schedule.steps)) == [*range(len(eqn.grid.sizes))]


def _waits_in_order(eqn: Eqn, facts: Facts) -> bool:
    return not eqn.kernel.synchronises or not eqn.grid.scheduled.tasks


def _views_are_inside(eqn: Eqn, facts: Facts) -> bool:
    views = zip(blocks_of(eqn, eqn.grid), eqn.grid.scheduled.blocks, strict=True)
    return all(
        view.access != "view" or (block.contiguous and all(axes_inside(eqn.grid, block, array)))
        for (block, array), view in views
    )


def _writes_are_kept(eqn: Eqn, facts: Facts) -> bool:
    blocks = eqn.grid.positions.arrays[eqn.grid.scalars :]
    views = zip(blocks, eqn.grid.scheduled.blocks, strict=True)
    return all(view.write_back == (n in eqn.kernel.written) for n, view in views)


def _stored_outputs_are(eqn: Eqn, facts: Facts) -> bool:
    whole = written_whole(eqn.grid, eqn.kernel)
    return all(n in whole for n, start in enumerate(eqn.grid.scheduled.starts) if start.kind == "stored")


SCHEDULED = form(
    "scheduled",
    [
        Row(grid_call, _has_schedule, "it has no schedule"),
        Row(grid_call, _loops_are_its_axes, "its tasks and steps together are not the axes of its grid"),
        Row(grid_call, _waits_in_order, "its kernel waits for what other steps start, and its steps are not in order"),
        Row(grid_call, _views_are_inside, "a block is a view without a guard, and may leave its array"),
        Row(grid_call, _writes_are_kept, "the blocks that are written back are not those that the kernel writes"),
        Row(grid_call, _stored_outputs_are, "an output begins without values, and may be read before it is stored"),
    ],
)


# view


def has_data(atom: Atom) -> bool:
    """True if an atom refers to elements. Barriers and semaphores have none: an index selects one of them."""
    return not isinstance(atom.type, RefType) or atom.type.space not in SYNCHRONISING


def _is_viewed(eqn: Eqn, facts: Facts) -> bool:
    stacks = zip(eqn.inputs, eqn.op.stacks(eqn.transforms), strict=False)
    return all(isinstance(each, (Peer, View)) for atom, stack in stacks if has_data(atom) for each in stack)


VIEWED = form(
    "viewed",
    [Row(op, _is_viewed, f"{op.name} reaches its elements by transforms that are not views") for op in ACCESSES],
)


# roles


def _is_split(eqn: Eqn, facts: Facts) -> bool:
    return len(eqn.launch.roles) == len(eqn.programs)


def _has_a_program_for_each_role(eqn: Eqn, facts: Facts) -> bool:
    for mesh, program, role_of in zip(eqn.launch.meshes, eqn.programs, eqn.launch.roles, strict=True):
        if role_of and len(role_of) != threads_of(mesh):
            return False
        last = program.eqns[-1] if program.eqns else None
        if role_of and max(role_of) and (last is None or last.op is not cond or len(last.branches) <= max(role_of)):
            return False
    return True


def _is_specialised(eqn: Eqn, facts: Facts) -> bool:
    for number, (mesh, program) in enumerate(zip(eqn.launch.meshes, eqn.programs, strict=True)):
        for role in roles_of(eqn.launch, number, program) if eqn.launch.roles[number] else ():
            if chooses(role.program, thread_input(mesh, role.program), role.threads):
                return False
    return True


SPLIT = form(
    "split by role",
    [
        Row(launch, _is_split, "its programs have no roles"),
        Row(launch, _has_a_program_for_each_role, "its threads have more roles than its program has branches"),
        Row(launch, _is_specialised, "warpgroups of one role run different branches inside of it"),
    ],
)
