"""Explaining a deadlock: who waits for what, how far it is, and who could have ended the wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from palladio.base.errors import PalladioValueError
from palladio.ir.program import Program, walk
from palladio.machine.agents import Agent, Wait
from palladio.machine.buffers import Counter, Slot
from palladio.machine.findings import Party
from palladio.types.types import RefType

if TYPE_CHECKING:
    from palladio.machine.machine import Machine

_SHOWN = 6


def deadlock(machine: Machine) -> None:
    """Report that nothing can go on: as a finding where the run is checked, else as an error."""
    stuck = [agent for agent in machine.agents if not agent.done and agent.waiting is not None]
    waits = [(agent, agent.waiting) for agent in stuck if agent.waiting is not None]
    details = [line for agent, wait in waits[:_SHOWN] for line in _explained(machine, agent, wait)]
    if len(waits) > _SHOWN:
        details.append(f"and {len(waits) - _SHOWN} more threads wait")
    details += _ended(machine)
    message = f"all {len(waits)} threads that have not ended wait" if len(waits) > 1 else "the last thread waits"
    message += ", and nothing is under way that could wake one"
    first = waits[0][1].eqn.location if waits else None
    if machine.checker is None:
        raise PalladioValueError(f"deadlock: {message}", got="\n            ".join(details), location=first)
    parties = [Party(str(agent), _waiting(agent, wait), wait.eqn.location) for agent, wait in waits[:_SHOWN]]
    machine.checker.deadlocked = True
    machine.checker.report("deadlock", message, parties, details=details, missing=_missing(waits))


def _waiting(agent: Agent, wait: Wait) -> str:
    thing = wait.thing
    if isinstance(thing, Slot):
        return f"waits for completion {wait.wanted} of barrier {thing.name}"
    if isinstance(thing, Counter):
        return f"waits until semaphore {thing.name} is {wait.wanted}"
    if wait.kind == "collective_scope":
        return "waits for the other threads of its block at the beginning of a scope"
    return "waits for the threads that it launched"


def _explained(machine: Machine, agent: Agent, wait: Wait) -> Iterator[str]:
    """What one wait lacks, and who could have given it."""
    thing = wait.thing
    if isinstance(thing, Slot):
        yield (
            f"{agent} needs completion {wait.wanted} of {thing.name}: it has completed {thing.completed}, and "
            f"{thing.arrived} of {thing.needed} arrivals of the next have come"
        )
        if thing.arrivals:
            yield f"  arrived: {', '.join(_by(each) for each in thing.arrivals)}"
        if thing.completed - (wait.wanted or 0) >= 1:
            yield "  it is late: that completion is past, and its parity is that of the phase under way"
    elif isinstance(thing, Counter):
        yield f"{agent} needs {wait.wanted} of {thing.name}, which is at {thing.count}"
    elif wait.kind == "collective_scope":
        come = ", ".join(other.label for other in thing.come)
        yield f"{agent} waits in a scope that {len(thing.come)} of {thing.expected} threads have entered: {come}"
    able = [str(other) for other in machine.agents if not other.done and other is not agent and _could(other, thing)]
    if able:
        yield f"  could still come from {', '.join(able[:_SHOWN])}, which wait{'s' if len(able) == 1 else ''} too"


def _by(arrival: tuple[Any, Any]) -> str:
    who, eqn = arrival
    if isinstance(who, Agent):
        return who.label
    return f"a {eqn.op.name} of {who.agent.label}"


def _could(agent: Agent, thing: Any) -> bool:
    """Whether a thread's program has an operation that could end a wait of this kind for this thing."""
    name = thing.name.split("[")[0] if isinstance(thing, (Slot, Counter)) else None
    if name is None or agent.program is None:
        return False
    if isinstance(thing, Slot) and thing.home.cluster is not agent.block.cluster:
        return False
    return name in _signalled(agent.program)


def _signalled(program: Program) -> frozenset[str]:
    """The names of the barriers and semaphores that a program arrives at or raises, as far as names tell."""
    found = program.__dict__.get("_signalled")
    if found is None:
        signals = ("barrier_arrive", "copy_gmem_to_smem", "async_store_smem", "semaphore_signal", "dma_start")
        names = {
            atom.hint  # type: ignore[union-attr]
            for eqn in walk(program)
            if eqn.op.name in signals
            for atom in eqn.inputs
            if isinstance(atom.type, RefType)
        }
        found = program.__dict__["_signalled"] = frozenset(names)
    return found  # type: ignore[no-any-return]


def _ended(machine: Machine) -> list[str]:
    """Threads of the stuck blocks that have ended already."""
    done = [str(agent) for agent in machine.agents if agent.done]
    if not done:
        return []
    more = f" and {len(done) - _SHOWN} more" if len(done) > _SHOWN else ""
    return [f"ended already: {', '.join(done[:_SHOWN])}{more}"]


def _missing(waits: list[tuple[Agent, Wait]]) -> str:
    for _, wait in waits:
        if isinstance(wait.thing, Slot):
            lacking = wait.thing.needed - wait.thing.arrived
            return f"{lacking} more arrival{'s' if lacking > 1 else ''} at {wait.thing.name}"
        if isinstance(wait.thing, Counter):
            return f"a signal of {wait.thing.name}"
    return ""
