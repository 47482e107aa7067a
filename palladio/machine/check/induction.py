"""Induction over the steps of a ring: extends the verdict on a few sizes to every larger one.

One schedule is followed, in which threads take turns. For each thread the sequence of its events (accesses, arrivals,
waits, copies, products) is recorded, and after each step of the machine the state that determines the rest:
phases of barriers relative to their waiting threads, async ops in flight, and the part of each clock about accesses
that a later one can conflict with. Neither contains step numbers.

Let the sequences of size k + p be those of size k with one part repeated once more, and let two states of that run be
equal, between which each thread has executed its repeated part once. Then the run of k + 2p goes through those
states too, and from the second of them on as the run of k + p does from the first: it has the same findings, none; and
so on for every n. That holds of every other schedule as well if each arrival of a phase happens after all those of the
previous phase: then no schedule can count an arrival towards another phase, so all have the same order, and races and
deadlocks are those of the order.

It assumes that larger sizes continue the pattern: see docs/checking.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palladio.ir.core import Eqn, walk
from palladio.machine.run.buffers import Accumulator, Barrier, BarrierSlot, Buffer
from palladio.machine.run.clocks import Component
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import RoundRobin
from palladio.machine.run.threads import AsyncOp, Thread
from palladio.types.attributes import Named
from palladio.types.types import BARRIER

FEWEST = 4
"""The number of sizes in a row from which an induction may begin."""

FARTHEST = 64
"""The maximum number of groups that a wait leaves in flight."""

Event = tuple[Any, ...]


class InTurn(RoundRobin):
    """The schedule that is followed: threads take turns at every operation that synchronises."""

    points = True


@dataclass
class Trace:
    """The record of one run.

    Fields:
        events: of each thread, by its name, in order.
        clusters: which cluster each thread is of.
        states: after each step, the number of events of each thread, and the state.
        allocated: the allocations of blocks, by name and type.
        shared: the buffers of global memory that are touched more than once anywhere.
        settled: whether every schedule has the same order.
    """

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    clusters: dict[str, int] = field(default_factory=dict)
    states: list[tuple[dict[str, int], Any]] = field(default_factory=list)
    allocated: set[tuple[str, str]] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    settled: bool = True
    launches: int = 0


class Recorder:
    """Records the run of a machine. Its checker reports the events.

    Args:
        shared: the buffers of global memory whose accesses count; None to determine them, without recording states.
    """

    def __init__(self, shared: set[str] | None = None) -> None:
        self.trace = Trace()
        self.shared = shared
        self.live: list[Any] = []
        self.last: dict[BarrierSlot, list[tuple[Component, int]]] = {}
        self.phase: dict[BarrierSlot, list[tuple[Component, int]]] = {}
        self.threads: list[Thread] = []

    def follow(self, machine: Machine) -> None:
        """Watch a machine, which has a checker, from before its launch."""
        checker = machine.checker
        self.machine, self.trace.launches = machine, self.trace.launches + 1
        _before(checker, "launch_starts", self._launch)
        _before(checker, "allocated", self._allocated)
        _before(checker, "scope_ends", self._scope_ends)
        _after(checker.threads, "starts", self._starts)
        _before(checker.threads, "fences", lambda thread: self._note(thread, "fence"))
        _before(checker.accesses, "touch", self._touch)
        _before(checker.barriers, "arrives", self._arrives)
        _before(checker.barriers, "observes", lambda thread, slot, _: self._note(thread, "wait", *_slot(slot)))
        _before(checker.barriers, "completes", self._completes)
        orders = checker.async_ops
        _before(orders, "copy_issued", self._copies)
        _after(orders, "lands", self._lands)
        _before(orders, "product_issued", lambda thread, op, acc, *_: self._note(thread, "product", acc.name))
        _before(orders, "products_awaited", self._products)
        _before(orders, "accumulator", lambda thread, eqn, acc: self._note(thread, eqn.op.name, acc.name))
        _before(orders, "store_issued", lambda thread, *_: self._note(thread, "store", len(thread.open)))
        _before(orders, "stores_awaited", self._stores)
        if self.shared is not None:
            _after(machine, "step", lambda _: self.trace.states.append((self._counts(), self._state())))

    def _note(self, thread: Thread, *event: Any) -> None:
        self.trace.events[str(thread)].append(event)

    def _counts(self) -> dict[str, int]:
        return {name: len(events) for name, events in self.trace.events.items()}

    # Events.

    def _launch(self, launching: Any) -> None:
        for program in launching.programs:
            for eqn in walk(program):
                far = max(eqn.params.get("n") or 0, eqn.params.get("wait_n") or 0) > FARTHEST
                if far or eqn.op.atomic or not _ordered(eqn):
                    self.trace.settled = False
        if any(len(each.sizes) != len(each.grid) + len(each.within) for each in launching.meshes):
            self.trace.settled = False  # clusters, whose blocks reach each other
        if launching.on_cores:
            self.trace.settled = False

    def _allocated(self, store: Any, *_: bool) -> None:
        self.live.append(store)
        if store.home is not None:
            self.trace.allocated.add((store.name, str(store.type)))

    def _starts(self, thread: Thread, _: Any) -> None:
        self.threads.append(thread)
        self.trace.clusters[str(thread)] = thread.block.cluster.components.cluster
        self.trace.events[str(thread)] = []

    def _scope_ends(self, thread: Thread, _: Eqn, stores: Sequence[Any], *__: Any) -> None:
        self._note(thread, "scope", tuple(store.name for store in stores))
        self.live = [each for each in self.live if not any(each is store for store in stores)]

    def _touch(self, thread: Thread, store: Buffer, stack: Any, indices: Any, access: Any, *more: Any) -> None:
        if store.shadow is None:
            return
        mask = more[1] if len(more) > 1 else None
        region = store.shadow.regions.resolve(stack, indices, mask)
        if store.home is None:
            if self.shared is None and store.shadow.touched(region):
                self.trace.shared.add(store.name)
            if self.shared is None or store.name not in self.shared:
                return
        chosen = None if region.chosen is None else region.chosen.tobytes()
        what = access.write, access.atomic, access.asynchronous, _line(access.site)
        self._note(thread, "touch", store.name, region.bands, chosen, *what)

    def _arrives(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> None:
        self._note(thread, "arrive", *_slot(slot))
        self._counted(slot, thread.generic, (thread.component, thread.generic.epoch(thread.component)))

    def _lands(self, async_op: AsyncOp, slot: BarrierSlot) -> None:
        clocks = self.machine.checker.barriers.slot_clocks(slot)
        self._counted(slot, async_op.notes[0], (clocks.component, clocks.base + slot.completed + 1))

    def _counted(self, slot: BarrierSlot, clock: Any, arrival: tuple[Component, int]) -> None:
        """An arrival: it must happen after those of the previous phase."""
        if not all(clock.covers(*each) for each in self.last.get(slot, ())):
            self.trace.settled = False
        self.phase.setdefault(slot, []).append(arrival)

    def _completes(self, slot: BarrierSlot, _: Any) -> None:
        self.last[slot] = self.phase.pop(slot, [])

    def _copies(self, thread: Thread, _: AsyncOp, __: Any, ___: Any, slots: Sequence[BarrierSlot], *____: Any) -> None:
        self._note(thread, "copy", *map(_slot, slots))

    def _products(self, thread: Thread, _: Eqn, upto: int) -> None:
        self._note(thread, "products", thread.issued - upto, upto > 0)

    def _stores(self, thread: Thread, _: Eqn, n: int, read_only: bool) -> None:
        self._note(thread, "stores", n, read_only, len(thread.open), thread.groups > n)

    # The state.

    def _state(self) -> Any:
        known = _Known()
        parts = [self._of_threads(known), *(self._of_buffer(known, each) for each in self._buffers())]
        slots = [slot for each in self.live if isinstance(each, Barrier) for slot in each.slots]
        parts += [self._of_slot(known, slot) for slot in slots]
        clocks = [clock for thread in self.threads for clock in (thread.generic, thread.asynchronous)]
        for slot in slots:
            if slot.checks is not None:
                released = [each for phase in self._awaited(slot) for each in slot.checks.phases[phase]]
                clocks += [slot.checks.generic, slot.checks.asynchronous, *released]
        return tuple(parts), tuple(tuple(clock.covers(*each) for each in known.events) for clock in clocks)

    def _buffers(self) -> Iterator[Buffer]:
        for each in self.live:
            followed = each.home is not None or each.name in (self.shared or ())
            if isinstance(each, Buffer) and each.shadow is not None and followed:
                yield each

    def _of_threads(self, known: _Known) -> Any:
        found = []
        for thread in self.threads:
            wait, point = thread.waiting, thread.point
            counters = (
                (thread.product_component, thread.issued),
                (thread.read_component, thread.groups),
                (thread.write_component, thread.groups),
            )
            found.append(
                (
                    thread.done,
                    None if wait is None else (wait.kind, getattr(wait.thing, "name", "")),
                    None if point is None else (point.kind, getattr(point.thing, "name", "")),
                    len(thread.products),
                    [len(group) for group in thread.stores],
                    len(thread.open),
                    thread.registers,
                    bool(thread.lacking),
                    [known.number(*each) for each in counters],
                )
            )
        accumulators = [
            (each.name, [known.recent(thread, thread.product_component, each.group) for thread in self.threads])
            for each in self.live
            if isinstance(each, Accumulator)
        ]
        return repr((found, [str(thread) for thread in self.machine.runnable], accumulators, len(self.live)))

    def _of_buffer(self, known: _Known, store: Buffer) -> Any:
        owners = {thread.product_component: thread for thread in self.threads}
        owners |= {each: thread for thread in self.threads for each in (thread.read_component, thread.write_component)}

        def access(each: Any) -> Any:
            if each is None:
                return None
            owner = owners.get(each.component)
            age = known.recent(owner, each.component, each.epoch) if owner else known.number(each.component, each.epoch)
            return each.component, age, each.write, each.atomic, each.asynchronous, _line(each.site), each.thread

        cuts, states = store.shadow.layout()
        kinds = {
            state: (access(state.write), [*map(access, state.reads)], [*map(access, state.beside)], state.initialised)
            for state in dict.fromkeys(states)
        }
        return store.name, store.address, repr(cuts), repr([kinds[state] for state in states])

    def _awaited(self, slot: BarrierSlot) -> list[int]:
        """The phases whose clocks a wait may still acquire: those that some waiting thread has not observed.

        A thread that begins to wait later, after two completions, is reported.
        """
        seen = [thread.observed[slot] for thread in self.threads if slot in thread.observed]
        least = min(seen, default=0) if slot.completed > 1 else 0
        return sorted(phase for phase in slot.checks.phases if phase > least)

    def _of_slot(self, known: _Known, slot: BarrierSlot) -> Any:
        late = [
            (str(thread), slot.completed - thread.observed[slot]) for thread in self.threads if slot in thread.observed
        ]
        checks = slot.checks
        waits = waiters = strangers = phases = None
        if checks is not None:
            waits = [(each, known.number(each, epoch)) for each, epoch in checks.waits.items()]
            waiters = [(each, slot.completed - phase) for each, (phase, *_) in checks.waiters.items()]
            phases = [slot.completed - phase for phase in self._awaited(slot)]
            strangers = len(checks.strangers), checks.overrun
        arrivals = [[known.number(*each) for each in part.get(slot, ())] for part in (self.last, self.phase)]
        ahead = slot.completed > 0, slot.completed - slot.seen, slot.foreign > slot.seen
        return repr(
            (_slot(slot), slot.arrived, len(slot.parts), ahead, late, waits, waiters, phases, strangers, arrivals)
        )


class _Known:
    """The events that clocks may be asked about, each with a number in the order in which a state names them."""

    def __init__(self) -> None:
        self.events: dict[tuple[Component, int], int] = {}

    def number(self, component: Component, epoch: int) -> int:
        """The number of an event."""
        return self.events.setdefault((component, epoch), len(self.events))

    def recent(self, thread: Thread, component: Component, epoch: int) -> tuple[int, int]:
        """Of a group of a thread, also how many have been started since: waits leave that many in flight."""
        latest = thread.issued if component == thread.product_component else thread.groups
        return self.number(component, epoch), min(latest - epoch, FARTHEST + 1)


def _ordered(eqn: Eqn) -> bool:
    """True if the order of an equation with others does not depend on the schedule.

    It does for tests without waiting, synchronisation of a whole block, semaphores, and named barriers, which use the
    current phase.
    """
    sync = eqn.op.sync
    if sync is None:
        return True
    atoms = [*eqn.arrivals, *([getattr(eqn, sync.waits)] if isinstance(sync.waits, str) else [])]
    barriers = all(atom.type.space is BARRIER and atom.type.attribute(Named) is None for atom in atoms)
    return barriers and sync.polls is None and not sync.meets


def _slot(slot: BarrierSlot) -> tuple[str, str]:
    return slot.name, slot.home.label


def _line(eqn: Any) -> str:
    return f"{eqn.op.name} {eqn.location}" if eqn is not None else ""


def _before(owner: Any, name: str, notify: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    def notified(*args: Any, **options: Any) -> Any:
        notify(*args, *options.values())
        return method(*args, **options)

    setattr(owner, name, notified)


def _after(owner: Any, name: str, notify: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    def notified(*args: Any, **options: Any) -> Any:
        found = method(*args, **options)
        notify(*args, *options.values())
        return found

    setattr(owner, name, notified)


# The proof.


def holds(traces: Mapping[int, Trace]) -> bool:
    """True if runs of these sizes, numbers in a row, which have found nothing show that of every larger one."""
    sizes = sorted(traces)
    if len(sizes) < FEWEST or sizes != list(range(sizes[0], sizes[0] + len(sizes))):
        return False
    if not all(trace.settled and trace.launches == 1 for trace in traces.values()):
        return False
    periods = range(1, len(sizes) // 2 + 1)
    return any(all(_goes_on(traces[k], traces[k + period]) for k in sizes[-2 * period : -period]) for period in periods)


def _goes_on(small: Trace, large: Trace) -> bool:
    """True if the larger run has each thread's repeated part once more, and reaches one state before and after it."""
    if small.clusters != large.clusters or small.allocated != large.allocated:
        return False
    parts = {name: _repeated(small.events[name], events) for name, events in large.events.items()}
    if any(part is None for part in parts.values()) or not any(part and part[0] for part in parts.values()):
        return False
    return all(
        _comes_back({name for name, at in large.clusters.items() if at == cluster}, parts, large)  # type: ignore[arg-type]
        for cluster in set(large.clusters.values())
    )


def _repeated(small: list[Event], large: list[Event]) -> tuple[int, int, int] | None:
    """The part by which the larger of two sequences is longer, if the smaller one has it too and both continue alike.

    Returns:
        Its length, and from where to where it may begin; None for other sequences.
    """
    length = len(large) - len(small)
    if length == 0:
        return (0, 0, len(large)) if small == large else None
    first = next((n for n, each in enumerate(small) if each != large[n]), len(small)) if length > 0 else 0
    ends = zip(reversed(small), reversed(large))
    last = len(small) - next((n for n, (one, other) in enumerate(ends) if one != other), len(small))
    if length < 0 or first - last < length:
        return None
    part = large[last : first + length]
    return None if any(event[0] == "scope" for event in part) else (length, last, first)


def _comes_back(names: set[str], parts: Mapping[str, tuple[int, int, int]], large: Trace) -> bool:
    """True if a run comes to one state twice, and between the two these threads go through their part, no others."""
    if not any(parts[name][0] for name in names):
        return True
    seen: dict[Any, list[dict[str, int]]] = defaultdict(list)
    for counts, state in large.states:
        for before in seen[state]:
            moved = {name: counts[name] - before.get(name, 0) for name in counts}
            wanted = {name: parts[name][0] if name in names else 0 for name in counts}
            if moved == wanted and all(parts[name][1] <= before.get(name, 0) <= parts[name][2] for name in names):
                return True
        seen[state].append(counts)
    return False


__all__ = ["InTurn", "Recorder", "Trace", "holds"]
