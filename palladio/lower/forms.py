"""The lowered forms: a table each, from operations to the rule that their equations keep in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from palladio.ir.core import Eqn, Op, Program, walk
from palladio.ops.threads.launch import launch
from palladio.passes.pipeline import Form

Law = tuple[Callable[[Eqn], bool], str]
"""A condition on an equation, and the reason that is given where it does not hold."""


def form(name: str, laws: Mapping[Op, Law]) -> Form:
    """The form of program in which every equation of these operations keeps its law."""

    def broken(program: Program) -> tuple[Eqn | None, str] | None:
        for eqn in walk(program):
            holds, reason = laws.get(eqn.op, (None, ""))
            if holds is not None and not holds(eqn):
                return eqn, reason
        return None

    return Form(name, broken)


def _is_placed(eqn: Eqn) -> bool:
    return len(eqn.launch.placements) == len(eqn.launch.scratch)


PLACED = form("placed", {launch: (_is_placed, "it has scratch buffers without a placement")})
