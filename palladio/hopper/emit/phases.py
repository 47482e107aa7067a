"""Barriers of a cluster in scopes that are entered again.

A launch initialises each barrier once, and each waiting thread keeps the phases that it has observed. At a new entry of
a scope, the phases of a barrier of one block are read again, after the block's threads have met. Those of a barrier of
the cluster are read after all blocks of the cluster have met, since peers may complete phases at any time.

The blocks can meet only if they enter the scope equally often: no value that may differ among them decides about it.
Otherwise nothing can be read, and what a thread has kept is right only if it has observed all phases of the entries
before. Where that cannot be seen, the kernel is refused. It is not seen where no thread at all observes a phase, the
finding `unobserved-completion`: at a barrier with a single waiting thread, which may wait in a loop of the scope as
often as there are steps, as pipelines do, and where phases outnumber waits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.base.locations import Location
from palladio.hopper.emit.uses import WARPS, Roots, Use, is_clustered, passed
from palladio.hopper.layouts.infer import joined
from palladio.ir.core import Atom, Eqn, Literal, Program, Var, subprograms
from palladio.lower.refused import Refused
from palladio.lower.roles import Role
from palladio.ops.control import cond, loop, repeat, scope
from palladio.ops.threads.barrier import barrier_test, barrier_wait
from palladio.ops.threads.launch import MeshShape, collective_scope, launch
from palladio.types.types import BARRIER, RefType


@dataclass(frozen=True)
class _Path:
    """The surroundings of an equation in a program.

    Fields:
        runs: how often the equation runs; None if that is not known, or not the same in all threads.
        loops: the number of loops around it.
        warps: the number of threads that run it for each thread of the block.
        equal: True if it runs equally often in all blocks of the cluster.
    """

    runs: int | None = 1
    loops: int = 0
    warps: int = 1
    equal: bool = True

    def into(self, eqn: Eqn, inner: Program, varying: Set[Atom]) -> _Path:
        """The path to the equations of a sub-program; `varying` are values that may differ among blocks."""
        equal = self.equal and varying.isdisjoint(_deciding(eqn))
        if eqn.op is loop:
            trips = _trips(eqn)
            runs = None if self.runs is None or trips is None else self.runs * trips
            return _Path(runs, self.loops + (trips != 1), self.warps, equal)
        if eqn.op is repeat:
            return _Path(None, self.loops + 1, self.warps, equal)
        if eqn.op is launch:
            count = math.prod(axis.size or WARPS for axis in eqn.launch.meshes[eqn.programs.index(inner)].axes)
            return _Path(self.runs if count == WARPS else None, self.loops, WARPS, False)
        return _Path(None, self.loops, self.warps, equal) if eqn.op is cond else self


def _deciding(eqn: Eqn) -> Sequence[Atom]:
    """The values that decide how often the programs of an equation run."""
    if eqn.op is loop:
        return eqn.inputs[:2]
    if eqn.op is cond:
        return eqn.inputs[:1]
    return eqn.condition.outputs if eqn.op is repeat else ()


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


def barriers_to_meet_for(mesh: MeshShape, roles: Sequence[Role], uses: Mapping[Var, Use]) -> frozenset[Var]:
    """The barriers of a cluster that scopes in loops allocate, and for which its blocks can meet at each entry.

    Raises:
        Refused: a scope allocates another one, at which a thread may not observe all phases of an entry.
    """
    waits = _Waits(uses)
    for number, role in enumerate(roles):
        inputs = zip(role.program.inputs, mesh.axes, strict=False)
        waits.varying = _varying(role.program, {var for var, axis in inputs if axis.kind == "cluster"}, uses)
        waits.visit(number, len(role.threads), role.program, {}, _Path(), {})
    alone = len(roles) == 1 and len(roles[0].threads) == 1
    met = frozenset(var for var, shared in waits.shared.items() if waits.equal[var] and (shared or alone))
    for var, found in waits.found.items():
        if var not in met and (fault := _fault(found)):
            reason, wait = fault
            raise Refused(
                "a barrier of the cluster that a scope in a loop allocates is not compiled for Hopper where its blocks "
                "may enter the scope differently often, unless each waiting thread observes all phases of each entry",
                argument=var.hint or None,
                expected="in each entry the same number of waits of each of these threads, under no condition",
                got=reason,
                hint="let the loops and conditions around the scope not depend on the block, let each of these threads "
                "wait for every phase, or allocate the barrier outside of the loop",
                location=wait.location,
                other=waits.allocated[var],
                other_label="the scope that allocates it",
            )
    return met


def _varying(program: Program, first: Iterable[Atom], uses: Mapping[Var, Use]) -> Set[Atom]:
    """The values that may differ among the blocks of a cluster, computed from others or from memory that is written.

    Args:
        first: a block's indices in the cluster.
    """
    constant = {var for var in program.inputs if not (uses.get(var) or Use()).written}
    found, before = set(first), -1
    while len(found) > before:
        before = len(found)
        _spread(program, {}, constant, found)
    return found


def _spread(program: Program, roots: Roots, constant: Set[Var], found: set[Atom]) -> None:
    """Add the results of a program that depend on the values found so far."""
    for eqn in program.eqns:
        if not found.isdisjoint((*eqn.inputs, *_deciding(eqn))) or _reads_written(eqn, roots, constant):
            found.update(eqn.outputs)
        for pair in joined(eqn):
            if not found.isdisjoint(pair):
                found.update(atom for atom in pair if isinstance(atom, Var))
        for inner in subprograms(eqn):
            if eqn.op is loop and eqn.inputs[0] in found:
                found.add(inner.inputs[0])
            inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
            _spread(inner, inside, constant, found)


def _reads_written(eqn: Eqn, roots: Roots, constant: Set[Var]) -> bool:
    """True if the results of an operation depend on memory that the kernel writes, or on other threads."""
    if eqn.op.control or not eqn.outputs:
        return False
    accessed = [roots.get(var, var) for _, var in eqn.effects if var is not None]
    return eqn.op.sync is not None or any(var not in constant for var in accessed)


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
        self.varying: Set[Atom] = frozenset()
        self.found: dict[Var, list[_Wait]] = {}
        self.allocated: dict[Var, Location | None] = {}
        self.equal: dict[Var, bool] = {}
        """True if the blocks of the cluster enter the scope equally often."""
        self.shared: dict[Var, bool] = {}
        """True if the threads of a block share the allocation."""

    def visit(
        self, role: int, threads: int, program: Program, roots: Roots, path: _Path, paths: Mapping[Var, _Path]
    ) -> None:
        """Collect the waits of a program; `path` is around it, and `paths` within the scope of each allocation."""
        for eqn in program.eqns:
            if eqn.op in (barrier_wait, barrier_test):
                self._note(role, threads, eqn, roots, paths)
            for inner in subprograms(eqn):
                inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
                within = {var: each.into(eqn, inner, self.varying) for var, each in paths.items()}
                if path.loops and eqn.op in (scope, collective_scope):
                    for var in self._barriers(eqn):
                        within[var] = _Path()
                        self.equal[var] = path.equal and self.equal.get(var, True)
                        self.shared[var] = eqn.op is collective_scope
                self.visit(role, threads, inner, inside, path.into(eqn, inner, self.varying), within)

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
