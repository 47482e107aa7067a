"""Work estimates of programs, and the clock by which loops poll for interrupts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from palladio.cpu.emit.emitter import Emitter, V, i64
from palladio.cpu.emit.llvm_types import I32, I64
from palladio.ir.core import Eqn, Literal, Program, Work, subprograms
from palladio.ops.arrays.dot import dot_accumulate, dot_general, factors
from palladio.ops.arrays.keep import keep, tee
from palladio.ops.arrays.zeros import zero_outside
from palladio.ops.control import loop
from palladio.ops.grid import grid_call
from palladio.types.types import ArrayType

CLOCK = os.name == "posix"
"""True if there is a clock that takes only nanoseconds to read."""

BETWEEN = 1 << 20
"""Elements that are computed between two polls of the clock."""

STEPS = 64
"""Steps of loops between two polls, at most. A poll costs as much as several small steps."""

LONG = 16 * BETWEEN
"""Elements whose computation takes long enough to poll the clock meanwhile."""

PRODUCTS = 16
"""Multiply-adds of a matrix product that take the time of one element."""


def work_estimate(program: Program) -> int:
    """An estimate of the elements that a program computes. A loop counts as one step if its count is not constant."""
    return sum(map(_estimate_of, program.eqns))


def transcendentals(program: Program) -> int:
    """An estimate of the transcendental functions that a program evaluates, one for each element."""
    own = (eqn for eqn in program.eqns if eqn.op.work is Work.TRANSCENDENTAL)
    return sum(_inside(eqn, transcendentals) for eqn in program.eqns) + sum(map(_size, own))


def _inside(eqn: Eqn, estimate: Callable[[Program], int]) -> int:
    """An estimate for the sub-programs of an equation, by how often they run."""
    steps = 1
    if eqn.op is loop:
        steps = max(1, steps_of(eqn.inputs, eqn.step) or 1)
    elif eqn.op is grid_call:
        steps = math.prod(size or 1 for size in eqn.grid.sizes)
    return steps * sum(map(estimate, subprograms(eqn)))


def _size(eqn: Eqn) -> int:
    return sum(var.type.size for var in eqn.outputs if isinstance(var.type, ArrayType))


def _estimate_of(eqn: Eqn) -> int:
    inner = _inside(eqn, work_estimate)
    if eqn.op in (loop, grid_call):
        return inner
    if eqn.op in (keep, tee, zero_outside):
        return 0
    size = _size(eqn)
    if eqn.op in (dot_general, dot_accumulate):
        depth = math.prod(eqn.lhs.type.shape[axis] for axis in eqn.contracting[0])
        return len(factors(eqn)) * size * (1 + depth // PRODUCTS) + (size if eqn.op is dot_accumulate else 0)
    read = max((atom.type.size for atom in eqn.inputs if isinstance(atom.type, ArrayType)), default=0)
    return inner + max(size, read)


def steps_of(bounds: tuple[object, ...], step: int) -> int | None:
    """The steps of a loop, if its bounds are literals."""
    lower, upper = bounds[:2]
    if isinstance(lower, Literal) and isinstance(upper, Literal):
        return max(0, -(-(int(upper.value) - int(lower.value)) // step))
    return None


def quarter_seconds(e: Emitter, room: V) -> V:
    """Quarters of a second since a fixed time. `room` is the address of 16 bytes."""
    e.declared["gettimeofday"] = "declare i32 @gettimeofday(ptr, ptr)"
    e.value(I32, f"call i32 @gettimeofday({room}, ptr null)")
    seconds = e.binary("shl", e.load(I64, room, 8), i64(2))
    more = e.convert("zext", e.load(I32, e.pointer(room, 1, 8), 4), I64)
    return e.binary("add", seconds, e.binary("udiv", more, i64(250000)))
