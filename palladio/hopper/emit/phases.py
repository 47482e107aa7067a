"""Barriers of a cluster in scopes that are entered again.

A launch initialises each barrier once, and each waiting thread keeps the phases that it has observed. At a new entry of
a scope, the phases of a barrier of one block are read again, after the block's threads have met. Blocks of a cluster do
not meet there: peers may complete a phase at any time, so nothing can be read. What a thread has kept is right only if
it has observed all phases of the entries before. Where that cannot be seen, the kernel is refused.

It is not seen where no thread at all observes a phase, the finding `unobserved-completion`: at a barrier with a single
waiting thread, which may wait in a loop of the scope as often as there are steps, as pipelines do, and where phases
outnumber waits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from palladio.base.locations import Location
from palladio.hopper.emit.uses import WARPS, Roots, Use, is_clustered, passed
from palladio.ir.core import Eqn, Literal, Program, Var, subprograms
from palladio.lower.refused import Refused
from palladio.lower.roles import Role
from palladio.ops.control import cond, loop, repeat, scope
from palladio.ops.threads.barrier import barrier_test, barrier_wait
from palladio.ops.threads.launch import collective_scope, launch
from palladio.types.types import BARRIER, RefType


@dataclass(frozen=True)
class _Path:
    """The surroundings of an equation in a program.

    Fields:
        runs: how often the equation runs; None if that is not known, or not the same in all threads.
        loops: the number of loops around it.
        warps: the number of threads that run it for each thread of the block.
    """

    runs: int | None = 1
    loops: int = 0
    warps: int = 1

    def into(self, eqn: Eqn, inner: Program) -> _Path:
        """The path to the equations of a sub-program."""
        if eqn.op is loop:
            trips = _trips(eqn)
            runs = None if self.runs is None or trips is None else self.runs * trips
            return _Path(runs, self.loops + (trips != 1), self.warps)
        if eqn.op is repeat:
            return _Path(None, self.loops + 1, self.warps)
        if eqn.op is launch:
            count = math.prod(axis.size or WARPS for axis in eqn.launch.meshes[eqn.programs.index(inner)].axes)
            return _Path(self.runs if count == WARPS else None, self.loops, WARPS)
        return _Path(None, self.loops, self.warps) if eqn.op is cond else self


@dataclass(frozen=True)
class _Wait:
    """A wait at a barrier.

    Fields:
        role: the number of the role.
        threads: how many run it, each with its own phases.
        slot: the selected barrier of the array; None if it is computed.
        path: what is around it in the scope of the barrier.
    """

    role: int
    threads: int
    slot: tuple[str, ...] | None
    path: _Path
    location: Location | None


def check_reentered(roles: Sequence[Role], uses: Mapping[Var, Use]) -> None:
    """Refuse barriers of a cluster whose waiting threads may not observe all phases of an entry of their scope.

    Raises:
        Refused: a scope in a loop allocates such a barrier.
    """
    waits = _Waits(uses)
    for number, role in enumerate(roles):
        waits.visit(number, len(role.threads), role.program, {}, _Path(), {})
    for var, found in waits.found.items():
        if fault := _fault(found):
            reason, wait = fault
            raise Refused(
                "a barrier of the cluster that a scope in a loop allocates is not compiled for Hopper, unless each "
                "thread that waits there observes all phases of each entry",
                argument=var.hint or None,
                expected="in each entry the same number of waits of each of these threads, under no condition",
                got=reason,
                hint="let each of them wait for every phase, or allocate the barrier outside of the loop",
                location=wait.location,
                other=waits.allocated[var],
                other_label="the scope that allocates it",
            )


def _fault(waits: Sequence[_Wait]) -> tuple[str, _Wait] | None:
    """Why some thread may not observe all phases of an entry, and at which wait; None if each one does."""
    threads = sum({wait.role: wait.threads for wait in waits}.values())
    for wait in waits:
        if wait.path.runs is None and not (threads == 1 and wait.path.loops):
            return "a wait under a condition, or in a loop of unknown length", wait
        if wait.slot is None and threads > 1:
            return f"waits of {threads} threads at a computed barrier of several", wait
    counts: dict[int, Counter[tuple[str, ...]]] = {wait.role: Counter() for wait in waits}
    for wait in waits if threads > 1 else ():
        counts[wait.role][wait.slot or ()] += wait.path.runs or 0
    for wait in waits:
        numbers = [each[wait.slot or ()] for each in counts.values() if each[wait.slot or ()]]
        if len(set(numbers)) > 1:
            return f"{' and '.join(map(str, numbers))} waits of different threads", wait
    return None


class _Waits:
    """The waits of all roles at the barriers of a cluster that scopes in loops allocate, and where those are."""

    def __init__(self, uses: Mapping[Var, Use]) -> None:
        self.uses = uses
        self.found: dict[Var, list[_Wait]] = {}
        self.allocated: dict[Var, Location | None] = {}

    def visit(
        self, role: int, threads: int, program: Program, roots: Roots, path: _Path, paths: Mapping[Var, _Path]
    ) -> None:
        """Collect the waits of a program; `path` is around it, and `paths` within the scope of each allocation."""
        for eqn in program.eqns:
            if eqn.op in (barrier_wait, barrier_test):
                self._note(role, threads, eqn, roots, paths)
            for inner in subprograms(eqn):
                inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
                within = {var: each.into(eqn, inner) for var, each in paths.items()}
                if path.loops and eqn.op in (scope, collective_scope):
                    within.update((var, _Path()) for var in self._barriers(eqn))
                self.visit(role, threads, inner, inside, path.into(eqn, inner), within)

    def _barriers(self, eqn: Eqn) -> Iterator[Var]:
        """The barriers of a cluster that a scope allocates."""
        for var in eqn.body.inputs[len(eqn.inputs) :]:
            type = var.type
            if isinstance(type, RefType) and type.space is BARRIER and is_clustered(type, self.uses.get(var) or Use()):
                self.allocated[var] = eqn.location
                yield var

    def _note(self, role: int, threads: int, eqn: Eqn, roots: Roots, paths: Mapping[Var, _Path]) -> None:
        root, *indices = eqn.inputs
        var = roots.get(root, root) if isinstance(root, Var) else None
        if var is None or var not in paths:
            return
        path = paths[var]
        plain = len(eqn.transforms) < 2 and all(isinstance(index, Literal) for index in indices)
        slot = (str(eqn.transforms), *map(str, indices)) if plain else None
        if eqn.op is barrier_test:
            path = replace(path, runs=None)
        self.found.setdefault(var, []).append(_Wait(role, threads * path.warps, slot, path, eqn.location))


def _trips(eqn: Eqn) -> int | None:
    """The number of steps of a loop; None if it is not known."""
    lower, upper = eqn.inputs[:2]
    if isinstance(lower, Literal) and isinstance(upper, Literal):
        return len(range(int(lower.value), int(upper.value), eqn.step))
    return None
