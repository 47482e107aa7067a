"""How much work a program is, about: what tells how often its loops look whether somebody wants them to stop."""

from __future__ import annotations

import math

from palladio.ir.program import Eqn, Literal, Program, subprograms
from palladio.types.types import ArrayType

BETWEEN = 1 << 20
"""Elements that are computed between two looks at the clock."""

STEPS = 64
"""Steps of loops between two looks, at most. A look costs a few nanoseconds, as much as a small step."""

LONG = 16 * BETWEEN
"""Elements whose computation takes long enough to look at the clock meanwhile."""

_PRODUCTS = 16
"""Products of single numbers in a matrix product that take the time of one element."""


def effort(program: Program) -> int:
    """About how many elements a program computes. Loops whose count is known only at the call count as one step."""
    return sum(map(_effort_of, program.eqns))


def _effort_of(eqn: Eqn) -> int:
    inner = sum(map(effort, subprograms(eqn)))
    if eqn.op.name == "loop":
        return inner * max(1, steps_of(eqn.inputs, eqn.params["step"]) or 1)
    if eqn.op.name == "grid_call":
        return inner * math.prod(size or 1 for size in eqn.params["grid"].sizes)
    size = sum(var.type.size for var in eqn.outputs if isinstance(var.type, ArrayType))
    if eqn.op.name == "dot_general":
        lhs = eqn.inputs[0].type
        depth = math.prod(lhs.shape[axis] for axis in eqn.params["contracting"][0])
        return size * (1 + depth // _PRODUCTS)
    read = max((atom.type.size for atom in eqn.inputs if isinstance(atom.type, ArrayType)), default=0)
    return inner + max(size, read)


def steps_of(bounds: tuple[object, ...], step: int) -> int | None:
    """The steps of a loop, if its bounds are literals."""
    lower, upper = bounds[:2]
    if isinstance(lower, Literal) and isinstance(upper, Literal):
        return max(0, -(-(int(upper.value) - int(lower.value)) // step))
    return None
