"""Arrays that are kept in memory: all others are computed where they are used, in the loop of the user.

An array is kept where computing it at each use would cost more than writing and reading it, and before memory changes
that it is still to be read from. The walk that finds these places is both the pass and the check of the form: it finds
none in a fused program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from palladio.ir.core import Atom, Eqn, Op, Program, Var, Work
from palladio.ir.rewrite import Builder, substituted, with_body, with_parts
from palladio.lower.fusion.calls import form_of_calls, in_calls
from palladio.lower.fusion.join_products import JOINED
from palladio.lower.fusion.values import (
    KEPT,
    SCALAR,
    Availability,
    Known,
    Residence,
    Storage,
    known,
    regroups_rows,
    results,
    takes_rows,
)
from palladio.lower.place import reached_at_peers
from palladio.ops.arrays.keep import keep, tee
from palladio.ops.control import cond, loop, repeat, scope
from palladio.ops.grid import Squeezed, grid_call
from palladio.ops.references.initialization import store_rows
from palladio.ops.references.masked import store_masked
from palladio.ops.references.memory import store
from palladio.ops.threads.launch import collective_scope, launch
from palladio.ops.threads.owners import OF_THREADS
from palladio.passes.pipeline import Pass
from palladio.types.types import SYNCHRONISING, RefType

DEEPEST = 64
"""The most operations in one loop: the compiler of each calls the compiler of the one before."""

STORES = (store, store_masked, store_rows)

USED_AGAIN = "an array with several uses is computed at each of them"
TOO_DEEP = f"more than {DEEPEST} operations in a row are one loop"
STALE = "an array is computed from memory that has changed since"
OUT_OF_ORDER = "a product or a sort, written in an order of its own, reaches an operation that takes all of it"
IN_EACH_STEP = "an operand of a loop is computed in each of its steps"
NOT_PASSED = "an array is kept while a reduction of its rows goes through it, and the next operation is another"
ENDS = "an array is kept in memory of its own, though what is computed from it is stored to a block that fits"
LEAVES = "a result of a scope is computed from memory that ends with it"


class Keeping:
    """Keeps arrays of programs.

    Fields:
        found: the equations where an array had to be kept, each with the reason.
        of_threads: whether the programs are those of threads, which yield to others while they wait.
    """

    def __init__(self, of_threads: bool = False) -> None:
        self.found: list[tuple[Eqn, str]] = []
        self.of_threads = of_threads

    def program(
        self, program: Program, inputs: Sequence[Known], leaving: Sequence[Storage] = ()
    ) -> tuple[Program, list[Availability]]:
        """The program with arrays kept, and its outputs.

        Args:
            inputs: the facts about its inputs.
            leaving: the memory that is freed at its end.
        """
        walk = _ProgramKeeping(self, program, inputs)
        for eqn in program.eqns:
            walk.equation(eqn)
        return walk.end(leaving)


def given(vars: Iterable[Var]) -> list[Known]:
    """The initial facts about inputs: arrays are in memory, references do not alias."""
    return [Storage() if isinstance(var.type, RefType) else KEPT if var.type.shape else SCALAR for var in vars]


class _ProgramKeeping:
    """The state of keeping arrays of one program."""

    def __init__(self, keeping: Keeping, program: Program, inputs: Sequence[Known]) -> None:
        self.keeping = keeping
        self.source = program
        self.values: dict[Atom, Known] = {}
        # The arrays still used that are computed from memory; all others would make the walk quadratic.
        self.reading: dict[Atom, Availability] = {}
        self.uses = Counter(atom for each in (*(eqn.inputs for eqn in program.eqns), program.outputs) for atom in each)
        self.first_use: dict[Atom, Eqn] = {}
        self.elsewhere = {*program.outputs}  # operands that an equation does not traverse element by element
        for eqn in program.eqns:
            for atom in eqn.inputs:
                self.first_use.setdefault(atom, eqn)
            if not eqn.op.elementwise and eqn.op.work is not Work.REDUCTION and eqn.op not in (keep, *STORES):
                self.elsewhere.update(eqn.inputs)
        self.now: dict[Atom, Atom] = {}
        self.passing: Eqn | None = None
        self.builder = Builder()
        for var, value in zip(program.inputs, inputs, strict=True):
            self.learn(var, value)

    def learn(self, var: Atom, value: Known) -> None:
        """Record the facts about a variable."""
        self.values[var] = value
        if isinstance(value, Availability) and value.reads and self.uses[var] > 0:
            self.reading[var] = value
        else:
            self.reading.pop(var, None)

    def equation(self, eqn: Eqn) -> None:
        """Keep the arrays that must be in memory before an equation, and those of its results."""
        self.builder.location = eqn.location
        before, self.passing = self.passing, eqn if eqn.op is tee else None
        if before is not None and not self.passes(eqn, before.outputs[0]):
            self.keeping.found.append((eqn, NOT_PASSED))
        for var in self.stale(eqn):
            self.keep(var, eqn, STALE)
        self.uses.subtract(eqn.inputs)
        for atom in eqn.inputs:
            if not self.uses[atom]:
                self.reading.pop(atom, None)
        for var, reason in [*self.unready(eqn)]:
            self.keep(var, eqn, reason)
        passed: dict[Atom, Atom] = {}
        for var in eqn.inputs:
            if self.uses[var] and reduces_rows(eqn, var) and not self.ready(var, self.value(var)):
                passed[var] = self.tee(var, eqn)
        if before is not None and not before.into and self.could_end(before, eqn):
            self.keeping.found.append((before, ENDS))
        params, found = self.run(eqn)
        self.builder.eqns.append(substituted(with_parts(eqn, eqn.inputs, params), {**self.now, **passed}))
        for var, value in zip(eqn.outputs, found, strict=True):
            self.learn(var, value)
            self.result(eqn, var, value)

    def value(self, atom: Atom) -> Availability:
        """The facts about an array; nothing needs to be kept of a reference."""
        found = known(atom, self.values)
        return found if isinstance(found, Availability) else KEPT

    def ready(self, var: Var, value: Availability) -> bool:
        """True if an array is available for all of its uses: keeping it saves nothing."""
        return value.is_kept or (value.residence is Residence.CHEAP and var not in self.elsewhere)

    def passes(self, eqn: Eqn, passed: Atom) -> bool:
        """True if an equation reads an array row by row, and no other uses it."""
        return reduces_rows(eqn, passed) and self.uses[passed] == 1

    def keep(self, var: Var, eqn: Eqn, reason: str) -> None:
        """Keep an array, before an equation or after the one that computes it."""
        self.keeping.found.append((eqn, reason))
        (self.now[var],) = self.builder.emit(keep, self.now.get(var, var))
        self.learn(var, KEPT)

    def tee(self, var: Var, eqn: Eqn) -> Atom:
        """Keep an array while an equation reads it; returns the operand of that equation."""
        self.keeping.found.append((eqn, USED_AGAIN))
        into = self.destination(var, eqn)
        place = () if into is None else (into,)
        passed, self.now[var] = self.builder.emit(tee, self.now.get(var, var), *place)
        self.learn(var, KEPT)
        return passed

    def could_end(self, tee: Eqn, eqn: Eqn) -> bool:
        """True if the array that is kept while an equation reads it could be kept where it is stored to."""
        into = self.destination(tee.outputs[1], eqn)
        return into is not None and self.values[into] not in self.value(tee.array).reads

    def destination(self, var: Var, eqn: Eqn) -> Atom | None:
        """The reference that an array is stored to, each element after operations on it alone, if it can be kept there
        from an equation on: no other access to it and no synchronisation comes before the store.
        """
        between: list[Eqn] = []
        eqns = iter(self.source.eqns)
        next(each for each in eqns if each is eqn)
        for later in eqns:
            if var in later.inputs:
                if self.uses[var] != 1:
                    return None
                if later.op is store and later.value is var and not later.transforms:
                    return later.ref if self.is_untouched(later.ref, var, between) else None
                if not later.op.elementwise or [out.type for out in later.outputs] != [var.type]:
                    return None
                (var,) = later.outputs
            between.append(later)
        return None

    def is_untouched(self, ref: Atom, var: Var, between: Sequence[Eqn]) -> bool:
        """True if an array fits into the memory of a reference, which nothing reads until the array is stored there."""
        memory = self.values[ref]
        fits = ref.type.array == var.type and isinstance(memory, Storage) and memory.has_rows
        reads = any(memory in value.reads for value in self.reading.values())
        touches = any(self.values.get(atom) is memory for eqn in between for atom in eqn.inputs)
        synchronises = any(eqn.synchronises for eqn in between)
        return fits and not (reads or touches or synchronises)

    def stale(self, eqn: Eqn) -> list[Var]:
        """The arrays that are still used and that read memory which an equation or another thread changes meanwhile."""
        written = [self.values[var] for var in eqn.written]
        changed = self.shared() if self.keeping.of_threads and may_yield(eqn) else set()
        if not written and not changed:
            return []
        apart = None
        if not eqn.op.control and len(written) == 1 and len(eqn.inputs) > 1 and self.uses[eqn.inputs[1]] == 1:
            apart = eqn.inputs[1]
        found = []
        for var, value in self.reading.items():
            hit = any(memory in value.reads for memory in written)
            own = var is apart and (eqn.op not in STORES or self.replaces(eqn, value))
            if (hit and not own) or not changed.isdisjoint(value.reads):
                found.append(var)
        return found

    def replaces(self, eqn: Eqn, value: Availability) -> bool:
        """True if a store writes each element after all elements that it is computed from have been read."""
        return (eqn.op is store_rows or not eqn.transforms) and value.reads.get(self.values[eqn.ref], True)

    def shared(self) -> set[Storage]:
        """The memory that other threads change too."""
        return {each for each in self.memories() if each.shared}

    def memories(self) -> Iterable[Storage]:
        for value in self.values.values():
            if isinstance(value, Storage):
                yield value
            else:
                yield from value.reads

    def unready(self, eqn: Eqn) -> Iterable[tuple[Var, str]]:
        """The operands that an equation needs in memory, each with the reason."""
        inputs = [known(atom, self.values) for atom in eqn.inputs]
        rows = eqn.op is keep or stores_whole(eqn) or takes_rows(eqn, inputs) or regroups_rows(eqn)
        whole = eqn.op is keep or eqn.op is store
        for var in dict.fromkeys(eqn.inputs):
            value = self.value(var)
            if (value.residence is Residence.ROWS and not rows) or (value.residence is Residence.WHOLE and not whole):
                yield var, OUT_OF_ORDER
            elif eqn.op in (loop, repeat) and not value.is_kept:
                yield var, IN_EACH_STEP

    def result(self, eqn: Eqn, var: Var, value: Availability) -> None:
        """Keep a result that several equations use, unless the first of them reads it once in any case."""
        first = self.first_use.get(var)
        if first is None or first.op in (keep, tee):
            return
        again = self.uses[var] > 1 and not self.ready(var, value)
        passing = value.residence not in (Residence.ROWS, Residence.WHOLE) and reduces_rows(first, var)
        if again and not passing:
            self.keep(var, eqn, USED_AGAIN)
        elif value.depth > DEEPEST:
            self.keep(var, eqn, TOO_DEEP)

    def run(self, eqn: Eqn) -> tuple[dict[str, Any], list[Availability]]:
        """An equation's parameters with arrays kept in its programs, and its results."""
        inputs = [known(atom, self.values) for atom in eqn.inputs]
        rule = _CONTROL.get(eqn.op)
        if rule is not None:
            return rule(self.keeping, eqn, inputs)
        return eqn.params, results(eqn, inputs)

    def end(self, leaving: Sequence[Storage]) -> tuple[Program, list[Availability]]:
        """The program and its outputs."""
        if self.passing is not None:
            self.keeping.found.append((self.source.eqns[-1], NOT_PASSED))
        for atom in dict.fromkeys(self.source.outputs):
            if isinstance(atom, Var) and not {*leaving}.isdisjoint(self.value(atom).reads):
                self.keep(atom, self.source.eqns[-1], LEAVES)
        outputs = [self.value(atom) for atom in self.source.outputs]
        program = with_body(self.source, self.builder.eqns, [self.now.get(atom, atom) for atom in self.source.outputs])
        return program, outputs


def stores_whole(eqn: Eqn) -> bool:
    """True if an equation stores a product a few rows at a time, as they are computed."""
    if eqn.op is store_masked:
        return not eqn.transforms and len(eqn.value.type.shape) == 2
    return eqn.op in (store, store_rows)


def reduces_rows(eqn: Eqn, atom: Atom) -> bool:
    """True if an equation reads the elements of an array row by row, each once."""
    if eqn.op.work is not Work.REDUCTION or eqn.inputs != (atom,):
        return False
    return len(atom.type.shape) - 1 in eqn.params.get("axes", ())


def may_yield(eqn: Eqn) -> bool:
    """True if other threads may run, and change memory, while an equation does."""
    if eqn.op is launch:
        return True
    if eqn.op is scope and any(n >= len(eqn.inputs) for n in reached_at_peers(eqn.body)):
        return True  # a core waits for the memory of its peers
    if eqn.op is repeat:  # it may wait for a write of another thread
        return any(isinstance(type, RefType) for type in eqn.input_types)
    return eqn.synchronises and (eqn.op.control or (eqn.op.sync is not None and eqn.op.sync.yields))


# Operations that run programs.

_Run = tuple[dict[str, Any], list[Availability]]


def _with(eqn: Eqn, **programs: Any) -> dict[str, Any]:
    """The parameters with other programs; the same dictionary if they are the same."""
    return eqn.params if all(eqn.params[name] == new for name, new in programs.items()) else {**eqn.params, **programs}


def _left(eqn: Eqn) -> list[Availability]:
    """Results in separate memory, where branches and steps store them."""
    return [KEPT if var.type.shape else SCALAR for var in eqn.outputs]


def _cond(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    branches = tuple(keeping.program(branch, inputs[1:])[0] for branch in eqn.branches)
    return _with(eqn, branches=branches), _left(eqn)


def _loop(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    constants = inputs[2 : 2 + eqn.constants]
    carried = given(eqn.body.inputs[1 + eqn.constants :])
    return _with(eqn, body=keeping.program(eqn.body, [SCALAR, *constants, *carried])[0]), _left(eqn)


def _repeat(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    known = [*inputs[: eqn.constants], *given(eqn.body.inputs[eqn.constants :])]
    condition, body = (keeping.program(each, known)[0] for each in (eqn.condition, eqn.body))
    return _with(eqn, condition=condition, body=body), _left(eqn)


def _scope(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    """Cores also write to the allocations of their peers."""
    reached = reached_at_peers(eqn.body)
    allocated = [Storage(len(inputs) + n in reached) for n in range(len(eqn.allocations))]
    body, outputs = keeping.program(eqn.body, [*inputs, *allocated], allocated)
    return _with(eqn, body=body), outputs


def _collective_scope(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    """Other threads continue when this one leaves the scope, so it keeps values computed from shared memory."""
    allocated = [Storage(type.space not in SYNCHRONISING) for type in eqn.allocations]
    shared = [each for each in inputs if isinstance(each, Storage) and each.shared]
    body, outputs = keeping.program(eqn.body, [*inputs, *allocated], [*shared, *allocated])
    return _with(eqn, body=body), outputs


def _grid_call(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    known = given(eqn.kernel.inputs)
    blocks = (*eqn.grid.inputs, *eqn.grid.outputs)
    for position, block in zip(eqn.grid.positions.arrays[eqn.grid.scalars :], blocks, strict=True):
        known[position] = Storage(has_rows=not isinstance(block.dims[-1], Squeezed) if block.dims else True)
    return _with(eqn, kernel=keeping.program(eqn.kernel, known)[0]), _left(eqn)


def _launch(keeping: Keeping, eqn: Eqn, inputs: Sequence[Known]) -> _Run:
    """The programs of threads. Memory that none of them writes does not change while they yield."""
    changed = eqn.launch.written(eqn.programs)
    threads = Keeping(of_threads=True)
    programs = []
    for number, program in enumerate(eqn.programs):
        positions = eqn.launch.split(number, range(len(program.inputs)))
        known = given(program.inputs)
        for n, position in enumerate((*positions.arrays, *positions.scratch)):
            type = program.inputs[position].type
            if isinstance(type, RefType) and type.space not in (*SYNCHRONISING, *OF_THREADS):
                known[position] = Storage(shared=n in changed)
        for source, target in eqn.launch.aliases:
            known[positions.outputs[target]] = known[positions.operands[source]]
        programs.append(threads.program(program, known)[0])
    keeping.found += threads.found
    return _with(eqn, programs=tuple(programs)), _left(eqn)


_CONTROL: dict[Op, Callable[[Keeping, Eqn, Sequence[Known]], _Run]] = {
    cond: _cond,
    loop: _loop,
    repeat: _repeat,
    scope: _scope,
    collective_scope: _collective_scope,
    grid_call: _grid_call,
    launch: _launch,
}


def kept(call: Eqn, keeping: Keeping | None = None) -> Eqn:
    """A kernel call with arrays kept in its programs."""
    params, _ = _CONTROL[call.op](keeping or Keeping(), call, [])
    return with_parts(call, call.inputs, params)


def _found(call: Eqn) -> Iterator[tuple[Eqn, str]]:
    keeping = Keeping()
    kept(call, keeping)
    yield from keeping.found


ARRAYS_KEPT = form_of_calls("kept", _found)

keep_arrays = Pass(
    name="keep_arrays",
    consumes=JOINED,
    produces=ARRAYS_KEPT,
    run=in_calls(kept),
    doc="Every array of a kernel is computed where it is used, in the loop of what uses it, but for those that `keep` "
    "and `tee` write to memory. Wants `fuse` before it, after which there are fewer arrays.",
)
