"""The state of a run that determines the rest of it, without the numbers of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.run.buffers import Accumulator, Barrier, BarrierSlot, Buffer, Counter, Semaphores
from palladio.machine.run.clocks import Component
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Block, Cluster, Group, Thread

FARTHEST = 64
"""The maximum number of groups that a wait leaves in flight."""

Arrivals = list[tuple[Component, int]]


class Watched:
    """The reachable threads and stores of a run.

    Args:
        shared: the buffers of global memory whose accesses count.

    Fields:
        stores: barriers, buffers and accumulators.
        takes: for each semaphore, the last wait that decremented it.
        last, phase: the arrivals of each barrier, in the previous and in the current phase.
    """

    def __init__(self, machine: Machine, shared: Collection[str]) -> None:
        self.machine = machine
        self.shared = shared
        self.stores: list[Any] = []
        self.threads: list[Thread] = []
        self.last: dict[BarrierSlot, Arrivals] = {}
        self.phase: dict[BarrierSlot, Arrivals] = {}
        self.takes: dict[Counter, tuple[Component, int]] = {}

    def counters(self) -> Iterator[tuple[str, Counter]]:
        """The semaphores, each with its block."""
        for each in self.stores:
            if isinstance(each, Semaphores):
                yield from ((_label(each)[1], counter) for counter in each.counters)

    def ends(self, stores: Sequence[Any]) -> None:
        """The scope of some stores has ended."""
        self.stores = [each for each in self.stores if not any(each is store for store in stores)]

    def joins(self, group: Group) -> None:
        """The threads that a thread has launched have ended."""
        self.threads = [each for each in self.threads if each.group is not group]

    def leaves(self, cluster: Cluster) -> None:
        """The threads of a cluster have ended."""
        self.threads = [each for each in self.threads if each.block.cluster is not cluster]
        self.stores = [each for each in self.stores if each.home is None or each.home.cluster is not cluster]

    def marked(self) -> Thread | None:
        """A thread with values that depend on uninitialised memory, or None: which ones is not part of a state."""
        return next((thread for thread in self.threads if thread.uninitialised), None)

    def digest(self) -> bytes:
        """A digest that distinguishes states in which no thread is marked."""
        known = _Known()
        parts = [self._of_threads(known), *(self._of_buffer(known, each) for each in self._buffers())]
        slots = [slot for each in self.stores if isinstance(each, Barrier) for slot in each.slots]
        parts += [self._of_slot(known, slot) for slot in slots]
        parts += [self._of_counter(known, *each) for each in self.counters()]
        blocks = {thread.block.key: thread.block for thread in self.threads}.values()
        parts += [_of_block(block) for block in blocks]
        parts += [_of_cluster(cluster) for cluster in {id(each.cluster): each.cluster for each in blocks}.values()]
        clocks = [clock for thread in self.threads for clock in (thread.generic, thread.asynchronous)]
        clocks += [clock for block in blocks for meeting in block.scopes.values() for clock in meeting.known]
        clocks += [clock for _, counter in self.counters() if counter.order for clock in counter.order.clocks()]
        for slot in slots:
            if slot.checks is not None:
                released = [each for phase in self._awaited(slot) for each in slot.checks.phases[phase]]
                clocks += [slot.checks.generic, slot.checks.asynchronous, *released]
        fences = self.machine.checker.accesses.fences
        covers = [[clock.covers(*each) for each in known.events] for clock in clocks]
        fenced = [[fences.cover(clock, *each) for each in known.events] for clock in clocks] if fences.any else []
        return blake2b(repr((parts, covers, fenced)).encode(), digest_size=16).digest()

    def _buffers(self) -> Iterator[Buffer]:
        for each in self.stores:
            followed = not is_global(each) or each.name in self.shared
            if isinstance(each, Buffer) and each.shadow is not None and followed:
                yield each

    def _of_threads(self, known: _Known) -> Any:
        found = []
        for thread in self.threads:
            wait, point = thread.waiting, thread.point
            found.append(
                (
                    thread.done,
                    None if wait is None else (wait.kind, _label(wait.thing)),
                    None if point is None else (point.kind, _label(point.thing), point.amount),
                    len(thread.products),
                    [len(group) for group in thread.stores],
                    len(thread.open),
                    thread.registers,
                    [known.number(*each) for each in _counters(thread)],
                    [(place, *_of_warp(known, warp)) for place, warp in thread.warps.items()],
                )
            )
        accumulators = [
            (_label(each), _in_flight(known, each.owner, each.group), _mask(each.uninitialised))
            for each in self.stores
            if isinstance(each, Accumulator)
        ]
        return found, [str(thread) for thread in self.machine.runnable], accumulators, len(self.stores)

    def _of_buffer(self, known: _Known, store: Buffer) -> Any:
        owners = {thread.product_component: thread for thread in self.threads}
        owners |= {each: thread for thread in self.threads for each in (thread.read_component, thread.write_component)}

        def access(each: Any) -> Any:
            if each is None:
                return None
            owner = owners.get(each.component)
            age = known.recent(owner, each.component, each.epoch) if owner else known.number(each.component, each.epoch)
            return each.component, age, each.write, each.atomic, each.asynchronous, line_of(each.site), each.thread

        cuts, states = store.shadow.layout()
        kinds = {
            state: (access(state.write), [*map(access, state.reads)], [*map(access, state.beside)], state.initialised)
            for state in dict.fromkeys(states)
        }
        return _label(store), store.address, cuts, [kinds[state] for state in states]

    def _awaited(self, slot: BarrierSlot) -> list[int]:
        """The phases whose clocks a wait may still acquire: those that a waiting thread has not observed.

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
        waits = waiters = remote_arrivals = phases = None
        if checks is not None:
            waits = [(each, known.number(each, epoch)) for each, epoch in checks.waits.items()]
            waiters = [(each, slot.completed - phase) for each, (phase, *_) in checks.waiters.items()]
            phases = [slot.completed - phase for phase in self._awaited(slot)]
            remote_arrivals = (
                checks.overrun,
                [known.number(each, epoch) for each, (epoch, *_) in checks.remote_arrivals.items()],
            )
        arrivals = [[known.number(*each) for each in part.get(slot, ())] for part in (self.last, self.phase)]
        ahead = slot.completed > 0, slot.completed - slot.seen, slot.foreign > slot.seen
        landed = [(line_of(eqn), count) for eqn, count in slot.parts.items()]
        return slot_of(slot), slot.arrived, landed, ahead, late, waits, waiters, phases, remote_arrivals, arrivals

    def _of_counter(self, known: _Known, block: str, counter: Counter) -> Any:
        signals = counter.order.open() if counter.order is not None else ()
        waiting = [str(thread) for thread in counter.waiting]
        opened = [(known.number(component, epoch), amount) for component, epoch, amount in signals]
        take = self.takes.get(counter)
        copies = [(line_of(copy.eqn), amount) for copy, amount in counter.copies.items()]
        return block, counter.name, counter.count, copies, waiting, opened, take and known.number(*take)


class _Known:
    """The events that clocks may be compared with, each with a number in the order in which a state names them."""

    def __init__(self) -> None:
        self.events: dict[tuple[Component, int], int] = {}

    def number(self, component: Component, epoch: int) -> int:
        """The number of an event."""
        return self.events.setdefault((component, epoch), len(self.events))

    def recent(self, thread: Thread, component: Component, epoch: int) -> tuple[int, int]:
        """The number of a thread's group, and that of groups issued since: waits leave that many in flight."""
        latest = thread.issued if component == thread.product_component else thread.groups
        return self.number(component, epoch), min(latest - epoch, FARTHEST + 1)


def _counters(thread: Thread) -> list[tuple[Component, int]]:
    """The last product and the last group of stores of a thread."""
    groups = ((component, thread.groups) for component in (thread.read_component, thread.write_component))
    return [(thread.product_component, thread.issued), *groups]


def _mask(mask: Any) -> bytes:
    """A digest of a mask; empty for None."""
    return b"" if mask is None else blake2b(mask.tobytes(), digest_size=16).digest()


def _in_flight(known: _Known, thread: Thread, group: int) -> tuple[int, int] | None:
    """The product of an accumulator's thread that may still change it."""
    if group <= thread.generic.epoch(thread.product_component):
        return None
    return known.recent(thread, thread.product_component, group)


def _of_warp(known: _Known, warp: Thread) -> Any:
    """The state that a warp leaves to the one that is launched in its place."""
    ahead = sorted((slot_of(slot), count) for slot, count in warp.ahead.items())
    return [len(group) for group in warp.stores], [known.number(*each) for each in _counters(warp)], ahead


def _of_block(block: Block) -> Any:
    """The progress of its threads, with their shared scopes and its registers."""
    scopes = [([*map(str, each.come)], each.left, each.stores is not None) for each in block.scopes.values()]
    return block.label, block.running, block.ended, scopes, block.registers and block.registers.count


def _of_cluster(cluster: Cluster) -> Any:
    """The collective copies that not all blocks have reached, as the number by which each block is ahead.

    Includes the scopes that not all blocks have left.
    """
    turns: dict[Any, dict[Any, int]] = defaultdict(dict)
    parts: dict[Any, list[Any]] = defaultdict(list)
    for (key, place), value in cluster.copies.items():
        if isinstance(value, int):
            turns[key][place] = value
        else:
            (stores, reached, slot, thread), left = value
            parts[key].append((place, stores, [each.bands for each in reached], slot, str(thread), left))
    found: list[Any] = [list(cluster.left.values()), len(cluster.shared)]
    for (eqn, *key), ahead in turns.items():
        last = max(ahead.values())
        waiting = [(last - turn, *rest) for turn, *rest in parts.get((eqn, *key), ())]
        found.append((line_of(eqn), key, [(place, last - turn) for place, turn in ahead.items()], waiting))
    return found


def _label(thing: Any) -> tuple[str, str]:
    """The names of a store, barrier or shared scope, and of its block."""
    return getattr(thing, "name", ""), getattr(getattr(thing, "home", None), "label", "")


def is_global(store: Any) -> bool:
    """True if a store is global memory."""
    return store.home is None or getattr(store, "visible", False)


def slot_of(slot: BarrierSlot) -> tuple[str, str]:
    """The name of a barrier and of its block."""
    return slot.name, slot.home.label


def line_of(eqn: Any) -> str:
    """The name and the line of an equation."""
    return f"{eqn.op.name} {eqn.location}" if eqn is not None else ""


def place_of(eqn: Eqn) -> str:
    """An equation in a reason: its name and line."""
    place = eqn.location
    return f"`{eqn.op.name}`" + (f" ({place.file.rpartition('/')[2]}:{place.line})" if place is not None else "")


__all__ = ["FARTHEST", "Watched", "is_global", "line_of", "place_of", "slot_of"]
