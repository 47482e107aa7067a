"""Recording of a machine's runs for the induction: the events of each step, and the state after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from palladio.ir.core import Eqn, walk
from palladio.machine.check.induction.decisions import Decisions
from palladio.machine.check.induction.state import FARTHEST, Watched, is_global, line_of, place_of, slot_of
from palladio.machine.check.induction.trace import GLOBAL, Event, Step, Trace
from palladio.machine.run.buffers import BarrierSlot, Buffer, Counter
from palladio.machine.run.clocks import Component
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import RoundRobin
from palladio.machine.run.threads import AsyncOp, Thread
from palladio.ops.grid import grid_call


class InTurn(RoundRobin):
    """The schedule that is followed: threads take turns at every operation that synchronises."""

    points = True


class Recorder:
    """Records the run of a machine. Its checker reports the events.

    Args:
        shared: the buffers of global memory whose accesses a state includes; None in the first run, which finds them.
            Only later runs record the controlling numbers.
        states: the steps after which states are recorded.
    """

    def __init__(self, shared: Collection[str] | None = None, states: Collection[int] = ()) -> None:
        self.trace = Trace()
        self.shared = shared
        self.states = states
        self.events: list[Event] = []
        self.reads: tuple[Thread, Eqn] | None = None
        """The thread and equation of the last access, if it is the read of an atomic one."""

    def follow(self, machine: Machine) -> None:
        """Watch a machine, which has a checker, from before its launch."""
        checker = machine.checker
        self.machine, self.trace.launches = machine, self.trace.launches + 1
        self.watched = Watched(machine, self.shared or ())
        self.decisions = Decisions(machine, self.shared or ())
        if self.shared is not None:
            machine.watch = self.decisions
        _before(checker, "launch_starts", self._launch)
        _before(checker, "allocated", self._allocated)
        _before(checker, "scope_ends", self._scope_ends)
        _after(checker.threads, "starts", self._starts)
        _after(checker.threads, "joins", lambda _, group: self.watched.joins(group))
        _before(checker.threads, "fences", lambda thread: self._note(thread, "fence"))
        _before(checker.accesses.fences, "commits", lambda thread: self._note(thread, "fence of global memory"))
        _before(checker.accesses, "touch", self._touch)
        _before(checker.accesses, "atomic", self._atomic)
        _before(checker.barriers, "arrives", self._arrives)
        _before(checker.barriers, "observes", lambda thread, slot, _: self._note(thread, "wait", *slot_of(slot)))
        _before(checker.barriers, "completes", self._completes)
        orders = checker.async_ops
        _before(orders, "copy_issued", self._copies)
        _after(orders, "lands", self._lands)
        _before(orders, "dma_issued", self._dmas)
        _before(orders, "product_issued", lambda thread, op, acc, *_: self._note(thread, "product", acc.name))
        _before(orders, "products_awaited", self._products)
        _before(orders, "accumulator", lambda thread, eqn, acc: self._note(thread, eqn.op.name, acc.name))
        _before(orders, "store_issued", lambda thread, *_: self._note(thread, "store", len(thread.open)))
        _before(orders, "stores_awaited", self._stores)
        _before(checker.semaphores, "signals", self._signals)
        _before(checker.semaphores, "acquires", self._takes)
        _after(machine, "step", self._steps)
        _before(machine, "leave", self.watched.leaves)

    def _note(self, thread: Thread, *event: Any) -> None:
        kind, *rest = event
        self.events.append((kind, str(thread), *rest))

    def _steps(self, _: Thread) -> None:
        state = self._state() if len(self.trace.steps) in self.states else b""
        self.trace.steps.append(Step(tuple(self.events), state, tuple(self.decisions.found)))
        self.events.clear()
        self.decisions.found.clear()

    def _state(self) -> bytes:
        """A digest of the state; where it would be incomplete, one that is equal to no other."""
        marked = self.watched.marked()
        if marked is None:
            return self.watched.digest()
        self.trace.incomplete = f"which values of {marked} depend on uninitialised memory is not recorded"
        return b"step %d" % len(self.trace.steps)

    def _launch(self, launching: Any) -> None:
        self.decisions.launch(launching)
        self.trace.programs += "".join(map(repr, launching.programs))
        for program in launching.programs:
            for eqn in walk(program):
                self._unsettled(_obstacle(eqn))

    def _allocated(self, store: Any, *_: bool) -> None:
        self.watched.stores.append(store)
        if not is_global(store):
            self.trace.allocated.add((store.name, str(store.type)))

    def _starts(self, thread: Thread, _: Any) -> None:
        self.watched.threads.append(thread)
        self._note(thread, "start")

    def _scope_ends(self, thread: Thread, _: Eqn, stores: Sequence[Any], *__: Any) -> None:
        self._note(thread, "scope", tuple(store.name for store in stores))
        self.watched.ends(stores)

    def _touch(
        self,
        thread: Thread,
        store: Buffer,
        stack: Any,
        indices: Any,
        access: Any,
        clock: Any,
        mask: Any = None,
        strict: bool = True,
    ) -> None:
        if store.shadow is None:
            return
        region = store.shadow.regions.resolve(stack, indices, mask)
        own = (thread, access.site) if access.atomic and not access.write else None
        again = access.atomic and self.reads == (thread, access.site)  # the second half of an atomic access
        if is_global(store) and not again and store.shadow.touched(region):
            self.trace.shared.add(store.name)
        self.reads = own
        chosen = None if region.chosen is None else region.chosen.tobytes()
        what = access.write, access.atomic, access.asynchronous, line_of(access.site)
        if is_global(store):
            self.events.append((GLOBAL, store.name, str(thread), region.bands, chosen, *what))
        else:
            self._note(thread, "access", store.home.label, store.name, region.bands, chosen, *what)

    def _arrives(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> None:
        self._note(thread, "arrive", *slot_of(slot))
        self._counted(slot, thread.generic, (thread.component, thread.generic.epoch(thread.component)))

    def _lands(self, async_op: AsyncOp, slot: BarrierSlot) -> None:
        clocks = self.machine.checker.barriers.slot_clocks(slot)
        self._counted(slot, async_op.notes[0], (clocks.component, clocks.base + slot.completed + 1))

    def _counted(self, slot: BarrierSlot, clock: Any, arrival: tuple[Component, int]) -> None:
        """An arrival: it must happen after those of the previous phase."""
        if not all(clock.covers(*each) for each in self.watched.last.get(slot, ())):
            self._unsettled(f"an arrival at {slot.name} may count towards another of its phases in another schedule")
        self.watched.phase.setdefault(slot, []).append(arrival)

    def _completes(self, slot: BarrierSlot, _: Any) -> None:
        self.watched.last[slot] = self.watched.phase.pop(slot, [])

    def _atomic(self, _: Thread, eqn: Eqn, __: Any, learns: bool = True) -> None:
        """An atomic: if its result is used, its thread acquires what another schedule may give it."""
        if learns:
            self._unsettled(f"the result of {place_of(eqn)} depends on the schedule")

    def _signals(self, thread: Thread, _: Eqn, counter: Counter, amount: int) -> None:
        self._note(thread, "signal", self._block_of(counter), counter.name, amount)
        self._raises(thread, counter)

    def _dmas(
        self, thread: Thread, _: AsyncOp, __: Any, ___: Any, counters: Sequence[Counter], amount: int, ____: Any
    ) -> None:
        for counter in counters:
            self._note(thread, "dma", self._block_of(counter), counter.name, amount)
            self._raises(thread, counter)

    def _raises(self, thread: Thread, counter: Counter) -> None:
        """A signal, or a copy's start: it must happen after the wait that took all earlier ones.

        Then none can replace another. A copy raises the semaphore at any time after its start.
        """
        take = self.watched.takes.get(counter)
        if take is not None and not thread.generic.covers(*take):
            self._unsettled(f"{counter.name} may be raised before the last wait for it in another schedule")

    def _takes(self, thread: Thread, counter: Counter, amount: int, taken: bool) -> None:
        """A wait returns: only one thread may ever wait here, and each wait must take all that there is."""
        self._note(thread, "take", self._block_of(counter), counter.name, amount)
        take = self.watched.takes.get(counter)
        if not taken:
            self._unsettled(f"a wait for {counter.name} leaves its count as it is")
        elif counter.count or counter.copies:
            self._unsettled(f"a wait for {counter.name} takes a part of its count, which one depends on the schedule")
        elif take is not None and take[0] != thread.component:
            self._unsettled(f"which of the threads that wait for {counter.name} is first depends on the schedule")
        self.watched.takes[counter] = thread.component, thread.generic.epoch(thread.component)

    def _unsettled(self, obstacle: str) -> None:
        """Other schedules may have another order; the first reason is kept."""
        self.trace.obstacle = self.trace.obstacle or obstacle

    def _block_of(self, counter: Counter) -> str:
        return next((block for block, each in self.watched.counters() if each is counter), "")

    def _copies(self, thread: Thread, _: AsyncOp, __: Any, ___: Any, slots: Sequence[BarrierSlot], *____: Any) -> None:
        self._note(thread, "copy", *map(slot_of, slots))

    def _products(self, thread: Thread, _: Eqn, upto: int) -> None:
        self._note(thread, "products", thread.issued - upto, upto > 0)

    def _stores(self, thread: Thread, _: Eqn, n: int, read_only: bool) -> None:
        self._note(thread, "stores", n, read_only, len(thread.open), thread.groups > n)


def _obstacle(eqn: Eqn) -> str:
    """Why the order of an equation with others may depend on the schedule; empty if the run decides."""
    if max(eqn.params.get("n") or 0, eqn.params.get("wait_n") or 0) > FARTHEST:
        return f"{place_of(eqn)} leaves more than {FARTHEST} groups in flight"
    if eqn.op.sync is not None and eqn.op.sync.polls is not None:
        return f"what {place_of(eqn)} sees without waiting depends on the schedule"
    if eqn.op is grid_call:
        return f"the steps of the grid inside the launch, {place_of(eqn)}, are not followed"
    return ""


def _before(owner: Any, name: str, notify: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    def notified(*args: Any, **options: Any) -> Any:
        notify(*args, **options)
        return method(*args, **options)

    setattr(owner, name, notified)


def _after(owner: Any, name: str, notify: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    def notified(*args: Any, **options: Any) -> Any:
        found = method(*args, **options)
        notify(*args, **options)
        return found

    setattr(owner, name, notified)


__all__ = ["InTurn", "Recorder"]
