"""The explanation of a deadlock: each wait, its progress, and the threads that could have ended it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from palladio.base.errors import PalladioValueError
from palladio.machine.check.findings import Participant
from palladio.machine.check.report.naming import at_text
from palladio.machine.check.still_ahead import Ahead
from palladio.machine.run.buffers import BarrierSlot, Counter
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Thread, Wait

_SHOWN = 6
_NAMED = 4


def deadlock(machine: Machine) -> None:
    """Report a deadlock: as a finding where the run is checked, else as an error."""
    stuck = [(thread, thread.waiting) for thread in machine.threads if not thread.done and thread.waiting is not None]
    spinning = [thread for thread in machine.threads if not thread.done and thread.waiting is None]
    if not stuck or spinning:
        _livelock(machine, spinning)
        return
    groups: dict[Any, list[tuple[Thread, Wait]]] = {}
    for thread, wait in stuck:
        groups.setdefault((wait.eqn.location, _waited_for(wait)), []).append((thread, wait))
    shown = list(groups.items())[:_SHOWN]
    participants = [
        Participant(_listed(map(str, waiting)), f"wait{'s' if len(waiting) == 1 else ''} {what}", place, _at(waiting))
        for (place, what), group in shown
        for waiting in [[thread for thread, _ in group]]
    ]
    details = []
    if machine.explains:
        ahead = {thread: Ahead(thread) for thread in machine.threads if not thread.done}
        details += [line for _, group in shown for line in _others(ahead, group)]
        details += _cycle(stuck, ahead)
    if len(groups) > _SHOWN:
        details.append(f"and threads wait at {len(groups) - _SHOWN} more places")
    done = [str(thread) for thread in machine.threads if thread.done]
    if done:
        details.append(f"ended already: {_listed(done)}")
    message = f"all {len(stuck)} threads that have not ended wait" if len(stuck) > 1 else "the last thread waits"
    message += ", and nothing is in flight that could wake one"
    if machine.checker is None:
        got = [*(f"{participant.thread} {participant.did}" for participant in participants), *details]
        place = participants[0].location if participants else None
        raise PalladioValueError(f"deadlock: {message}", got="\n            ".join(got), location=place)
    machine.checker.deadlocked = True
    hungry = [each for each in stuck if each[1].kind == "registers"]
    if any(machine.checker.limits.report_registers(thread, wait.eqn) for thread, wait in hungry):
        return
    missing = [each for each in (_missing(group[0][1]) for _, group in shown) if each]
    machine.checker.found.report(
        "deadlock", message, participants, details=details, missing=", or ".join(dict.fromkeys(missing))
    )


def _at(threads: Sequence[Thread]) -> str:
    """The iteration that all these threads are in; nothing if they are in several."""
    found = {at_text(thread.trail) for thread in threads}
    return found.pop() if len(found) == 1 else ""


def _livelock(machine: Machine, spinning: Sequence[Thread]) -> None:
    """Report that threads poll for an event that no remaining thread can cause."""
    participants = [
        Participant(str(thread), "polls repeatedly", thread.eqn.location, at_text(thread.trail))
        for thread in [thread for thread in spinning if thread.eqn is not None][:_SHOWN]
    ]
    waiting = [
        f"{thread} waits {_waited_for(thread.waiting)}" for thread in machine.threads if thread.waiting is not None
    ]
    message = "threads poll for an event that no remaining thread can cause"
    if machine.checker is None:
        got = "; ".join(f"{participant.thread} {participant.did}" for participant in participants)
        place = participants[0].location if participants else None
        raise PalladioValueError(f"deadlock: {message}", got=got, location=place)
    machine.checker.deadlocked = True
    machine.checker.found.report("deadlock", message, participants, details=waiting)


def _listed(names: Iterable[str]) -> str:
    """A shortened list, e.g. `a, b and 3 more`."""
    shown = list(names)
    if len(shown) > _NAMED:
        return f"{', '.join(shown[: _NAMED - 1])} and {len(shown) - _NAMED + 1} more"
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def _waited_for(wait: Wait) -> str:
    """The object that a thread waits for, and its progress."""
    thing = wait.thing
    if isinstance(thing, BarrierSlot):
        return f"for completion {wait.wanted} of barrier {thing.name}: {_arrivals(thing, wait.wanted or 0)}"
    if wait.kind == "registers":
        return f"until {wait.wanted} registers for each lane are free: {thing.count} are"
    if isinstance(thing, Counter):
        return f"until semaphore {thing.name} is {wait.wanted}: it is {thing.count}"
    if wait.kind == "collective_scope":
        come = _listed(sorted(other.label for other in thing.come))
        return f"to enter a scope together: {len(thing.come)} of {thing.expected} threads have come, {come}"
    return "for the threads that it launched"


def _arrivals(slot: BarrierSlot, wanted: int) -> str:
    if slot.completed >= wanted:
        return f"it has completed {slot.completed}, and the current phase has the same parity"
    come = f"{slot.arrived} of {slot.needed} arrivals have come"
    if slot.arrivals:
        come += f", by {_listed(sorted(_by(slot, each) for each in slot.arrivals))}"
    if slot.parts:
        come += ", and a part of a copy that the blocks of the cluster share"
    return come


def _by(slot: BarrierSlot, arrival: tuple[Any, Any]) -> str:
    who, eqn = arrival
    thread = who if isinstance(who, Thread) else who.thread
    name = thread.label if thread.block is slot.home else str(thread)
    return name if thread is who else f"a {eqn.op.name} of {name}"


def _others(ahead: Mapping[Thread, Ahead], group: Sequence[tuple[Thread, Wait]]) -> Iterator[str]:
    """The other threads that could end these waits."""
    waiting, thing = {thread for thread, _ in group}, group[0][1].thing
    able = [str(other) for other, its in ahead.items() if other not in waiting and its.has(thing)]
    if able:
        yield f"{_listed(able)} could end the wait for {thing.name}, and wait{'s' if len(able) == 1 else ''} too"


def _cycle(stuck: Sequence[tuple[Thread, Wait]], ahead: Mapping[Thread, Ahead]) -> Iterator[str]:
    """The shortest cycle of threads, each of which waits for an event that the next one could cause."""
    ends = {
        thread: [other for other, its in stuck if its.thing is not wait.thing and ahead[other].has(wait.thing)]
        for thread, wait in stuck
    }
    paths = (path for thread in ends for path in [_shortest_cycle(thread, ends)] if path)
    shortest = min(paths, key=len, default=())
    if not shortest:
        return
    waits = dict(stuck)
    parts = [
        f"{thread} waits for {waits[thread].thing.name}, which {other} could end"
        for thread, other in itertools.pairwise((*shortest, shortest[0]))
    ]
    yield f"a cycle of waits: {'; '.join(parts)}"


def _shortest_cycle(start: Thread, ends: Mapping[Thread, Sequence[Thread]]) -> tuple[Thread, ...]:
    """The shortest path from a thread back to itself, without its end; empty if there is none."""
    paths, seen = deque([(start,)]), {start}
    while paths:
        path = paths.popleft()
        for other in ends[path[-1]]:
            if other is start:
                return path
            if other not in seen:
                seen.add(other)
                paths.append((*path, other))
    return ()


def _missing(wait: Wait) -> str:
    """The event that would unblock a thread."""
    if isinstance(wait.thing, BarrierSlot):
        missing = wait.thing.needed - wait.thing.arrived
        return f"{missing} more arrival{'s' if missing > 1 else ''} at {wait.thing.name}"
    if wait.kind == "registers":
        return "a warpgroup that gives registers back, by set_max_registers"
    if isinstance(wait.thing, Counter):
        return f"a signal of {wait.thing.name}"
    return ""
