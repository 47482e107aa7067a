"""The arrivals and signals that a thread may still make, which determine the threads that can end a wait.

A thread's program is evaluated from its beginning with its known values: its indices, and values computed from them and
from constants. Of a branch with a known outcome only the taken side counts; a loop may continue, so its whole body is
ahead of a thread in it. The analysis is conservative: unknown values may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from palladio.ir.core import Atom, Eqn, Literal, Program, subprograms
from palladio.machine.run.buffers import Barrier, BarrierSlot, Counter, Semaphores, Store
from palladio.machine.run.threads import Thread
from palladio.ops.control import cond, loop, repeat
from palladio.types.attributes import Arrivals
from palladio.types.transforms import Operand, Peer

UNKNOWN = object()
"""A value that depends on more than the thread's indices."""

Known = Mapping[Atom, Any]


class Step(NamedTuple):
    """An equation that a thread may reach.

    Fields:
        known: the values of its inputs; `UNKNOWN` for unknown ones.
        loops: the loops around it.
    """

    eqn: Eqn
    known: tuple[Any, ...]
    loops: tuple[int, ...]


class Ahead:
    """The barriers and semaphores at which a thread may still arrive or signal."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.members: set[Any] = set()
        self.names: set[str] = set()
        """The names of allocations in scopes, which are known by name only."""
        for step in _ahead(thread):
            for atom in step.eqn.arrivals:
                store = step.known[step.eqn.inputs.index(atom)]
                if isinstance(store, (Barrier, Semaphores)):
                    self.members.update(_members(store, step, step.eqn.inputs.index(atom)))
                else:
                    self.names.add(atom.hint)  # type: ignore[union-attr]

    def has(self, thing: Any) -> bool:
        """True if the thread may still end a wait for this barrier or semaphore."""
        if thing in self.members:
            return True
        if not isinstance(thing, (BarrierSlot, Counter)) or thing.name.partition("[")[0] not in self.names:
            return False
        home, cluster = getattr(thing, "home", None), self.thread.block.cluster
        return home is None or home.cluster is cluster or cluster.cores


def _ahead(thread: Thread) -> list[Step]:
    """The steps that a thread may still reach: those after its wait, and all of the loops that it waits in."""
    if thread.program is None:
        return []
    known = dict(zip(thread.program.inputs, thread.values, strict=True)) if thread.values else {}
    steps = list(_steps(thread.program, known, ()))
    at = thread.waiting.eqn if thread.waiting is not None else thread.eqn
    places = [place for place, step in enumerate(steps) if step.eqn is at]
    if not places:
        return steps
    loops = {each for place in places for each in steps[place].loops}
    return [step for n, step in enumerate(steps) if n > places[0] or loops.intersection(step.loops)]


def _steps(program: Program, known: Known, loops: tuple[int, ...]) -> Iterator[Step]:
    """The equations of a program and those inside it, in order, without unreachable ones."""
    values = dict(known)
    for eqn in program.eqns:
        inputs = tuple(_value(atom, values) for atom in eqn.inputs)
        yield Step(eqn, inputs, loops)
        if eqn.op is cond:
            yield from _branches(eqn, inputs, loops)
        elif eqn.op is loop:
            yield from _inner(eqn.body, (UNKNOWN, *_carried(inputs[2:], eqn.constants)), (*loops, id(eqn)))
        elif eqn.op is repeat:
            for part in (eqn.condition, eqn.body):
                yield from _inner(part, _carried(inputs, eqn.constants), (*loops, id(eqn)))
        else:
            for part in subprograms(eqn):
                yield from _inner(part, inputs if "allocations" in eqn.params else (), loops)
        if not any(value is UNKNOWN for value in inputs):
            values.update(_computed(eqn, inputs))


def _value(atom: Atom, values: Known) -> Any:
    return atom.value if isinstance(atom, Literal) else values.get(atom, UNKNOWN)


def _carried(inputs: Sequence[Any], constants: int) -> Sequence[Any]:
    return (*inputs[:constants], *(UNKNOWN for _ in inputs[constants:]))


def _branches(eqn: Eqn, inputs: Sequence[Any], loops: tuple[int, ...]) -> Iterator[Step]:
    branches = eqn.branches
    if inputs[0] is not UNKNOWN:
        branches = branches[min(max(int(inputs[0]), 0), len(branches) - 1) :][:1]
    for branch in branches:
        yield from _inner(branch, inputs[1:], loops)


def _inner(program: Program, inputs: Sequence[Any], loops: tuple[int, ...]) -> Iterator[Step]:
    """The steps of a sub-program whose first inputs are these."""
    return _steps(program, dict(zip(program.inputs, inputs)), loops)


def _computed(eqn: Eqn, inputs: Sequence[Any]) -> Mapping[Atom, Any]:
    """The results of an equation that computes numbers from known ones."""
    if eqn.op.control or eqn.synchronises or any(isinstance(value, Store) for value in inputs):
        return {}
    try:
        return dict(zip(eqn.outputs, eqn.op.eval(*inputs, **eqn.params)))
    except Exception:  # an error of the run, if the thread reaches it
        return {}


def _members(store: Any, step: Step, position: int) -> Iterator[Any]:
    """The members of a store, and of its siblings in other blocks, at which a step may arrive."""
    eqn = step.eqn
    stack = eqn.op.stacks(eqn.transforms)[position]
    operands = step.known[eqn.op.index_start :] if eqn.op.index_start else ()
    peer = isinstance(stack[0], Peer) if stack else False
    arrivals = store.type.attribute(Arrivals) if isinstance(store, Barrier) else None
    stores = [store]
    if eqn.params.get("collective") or (arrivals is not None and arrivals.cluster_axes):
        stores = [store, *store.siblings.values()]
    elif peer and any(isinstance(b, Operand) and operands[b.position] is UNKNOWN for _, b in stack[0].blocks):
        stores = list(store.siblings.values())
    elif peer:
        stores = [store.reached(stack, operands)[0]]
    within = stack[1:] if peer else stack
    for each in stores:
        if any(value is UNKNOWN for value in operands):
            yield from each.slots if isinstance(each, Barrier) else each.counters
        else:
            yield each.slot(within, operands) if isinstance(each, Barrier) else each.counter(within, operands)


__all__ = ["Ahead"]
