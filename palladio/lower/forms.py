"""The lowered forms: a table each, from operations to the rule that their equations keep in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from palladio.ir.core import Atom, Eqn, Op, Program, walk
from palladio.ops import ALL_OPS
from palladio.ops.threads.launch import launch
from palladio.passes.pipeline import Form
from palladio.types.transforms import Peer
from palladio.types.types import SYNCHRONISING, RefType
from palladio.types.views import View

ACCESSES = tuple(op for op in ALL_OPS if op.index_start)
"""The operations that reach into arrays and references by stacks of transforms."""

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


def has_data(atom: Atom) -> bool:
    """True if what an atom refers to are elements. Barriers and semaphores have none: an index says which of them."""
    return not isinstance(atom.type, RefType) or atom.type.space not in SYNCHRONISING


def _is_viewed(eqn: Eqn) -> bool:
    stacks = zip(eqn.inputs, eqn.op.stacks(eqn.transforms), strict=False)
    return all(isinstance(each, (Peer, View)) for atom, stack in stacks if has_data(atom) for each in stack)


PLACED = form("placed", {launch: (_is_placed, "it has scratch buffers without a placement")})

VIEWED = form(
    "viewed",
    {op: (_is_viewed, f"{op.name} reaches its elements by transforms that are not views") for op in ACCESSES},
)
