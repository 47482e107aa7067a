"""Sorts that are used only for the few greatest elements of each line, as by `top_k`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palladio.ir.core import Eqn, Program, Var
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.arrays.shape import reverse
from palladio.ops.arrays.sort import sort
from palladio.ops.references.memory import extract
from palladio.types.types import Shape
from palladio.types.views import Coordinate, View

FEW = 64
"""The most elements of a line that are found one by one: each is moved for every greater one."""


def wanted(program: Program, eqn: Eqn) -> int | None:
    """The number of elements at the end of each sorted line that are used, if they are few and reversed."""
    shape = eqn.outputs[0].type.shape
    axis = len(shape) - 1
    if eqn.num_keys != 1 or eqn.axis != axis or not {*program.outputs}.isdisjoint(eqn.outputs):
        return None
    counts: list[int | None] = []
    for user in _users(program, eqn.outputs):
        if user.op is not reverse or user.axes != (axis,) or not {*program.outputs}.isdisjoint(user.outputs):
            return None
        counts += [_first(last, shape) for last in _users(program, user.outputs)]
    known = [count for count in counts if count is not None]
    most = max(known, default=0)
    return most if len(known) == len(counts) and 0 < most <= FEW and 2 * most <= shape[axis] else None


def _users(program: Program, outputs: Sequence[Var]) -> Iterator[Eqn]:
    return (eqn for eqn in program.eqns if not {*outputs}.isdisjoint(eqn.inputs))


def _first(eqn: Eqn, shape: Shape) -> int | None:
    """The number of elements that an equation takes from the start of each line; None for another equation."""
    stack = eqn.transforms if eqn.op is extract else ()
    view = stack[0] if len(stack) == 1 else None
    if not isinstance(view, View) or view.guards or view.base.shape != shape or view.sizes[:-1] != shape[:-1]:
        return None
    rows = range(len(shape))
    same = tuple(Coordinate(0, (), tuple(int(row == axis) for axis in rows)) for row in rows)
    return view.sizes[-1] if view.coordinates == same else None


def shorten_in(program: Program) -> Program:
    """The program with partial sorts, which have the number of used elements of each line."""
    return with_body(program, (_shortened(program, eqn) for eqn in program.eqns), program.outputs)


def shortens(program: Program, eqn: Eqn) -> bool:
    """True if a sort can be made partial and is not yet."""
    return eqn.op is sort and eqn.params.get("last") is None and wanted(program, eqn) is not None


def _shortened(program: Program, eqn: Eqn) -> Eqn:
    if shortens(program, eqn):
        return with_parts(eqn, eqn.inputs, {**eqn.params, "last": wanted(program, eqn)})
    return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, shorten_in))
