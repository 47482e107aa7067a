"""Barriers: arrivals, completions, and threads that wait for each completion in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.order.threads import released
from palladio.machine.run.buffers import Barrier, BarrierSlot
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Point, Thread, Wait


def arrive(machine: Machine, slot: BarrierSlot, by: Any) -> None:
    """One arrival; the last one of a phase completes it and wakes the waiting threads."""
    slot.arrived += 1
    slot.arrivals.append(by)
    if slot.arrived == slot.needed:
        if machine.checker is not None:
            machine.checker.barriers.completes(slot, by)
        if any(not isinstance(who, Thread) or who.block is not slot.home for who, _ in slot.arrivals):
            slot.foreign = slot.completed + 1
        slot.arrived = 0
        slot.arrivals = []
        slot.last = by
        slot.completed += 1
        if machine.timer is not None:
            machine.timer.completed(slot, slot.completed)
        machine.wake(slot.waiting)


def passes(thread: Thread, slot: BarrierSlot) -> bool:
    """True if a wait returns. The hardware compares parities, so a thread two completions late keeps waiting."""
    return bool((slot.completed - thread.observed.get(slot, 0)) % 2)


def returns(thread: Thread, eqn: Eqn, slot: BarrierSlot) -> bool:
    """True if a wait returns. In a checked run, a late thread is reported, and continues."""
    late = thread.checker is not None and thread.checker.barriers.misses(thread, eqn, slot)
    return late or passes(thread, slot)


def observe(thread: Thread, slot: BarrierSlot) -> None:
    """A wait has returned."""
    seen = thread.observed.get(slot, 0) + 1
    if thread.machine.timer is not None:
        thread.machine.timer.observed(thread, slot, seen, slot.name, thread.eqn)
    if thread.checker is not None:
        thread.checker.barriers.observes(thread, slot, seen)
    thread.observed[slot] = seen
    slot.seen = max(slot.seen, seen)


def slots_of(barrier: Barrier, stack: Any, indices: Any) -> list[BarrierSlot]:
    """The barriers that an arrival counts at: one, or with those of the cluster's other blocks."""
    slot = barrier.slot(stack, indices)
    if not barrier.cluster_axes:
        return [slot]
    others = (barrier.siblings[place] for place in barrier.home.neighbours(barrier.cluster_axes))
    return [slot, *(other.slot(stack, indices) for other in others)]


@RULES.in_steps("barrier_arrive")
def barrier_arrive(eqn: Eqn) -> Callable[..., Coroutine]:
    """One arrival, which never waits."""
    stack = eqn.transforms

    def steps(thread: Thread, barrier: Barrier, predicate: Any, *indices: Any) -> Coroutine:
        if not predicate:
            return ()
        slots = slots_of(barrier, stack, indices)
        if thread.points:  # one step, though it counts in several blocks: waiting threads see one arrival
            yield Point("arrive", slots[0], more=tuple(Point("arrive", slot) for slot in slots[1:]))
        thread.eqn = eqn
        for slot in slots:
            if thread.checker is not None:
                thread.checker.barriers.arrives(thread, eqn, slot)
            arrive(thread.machine, slot, (thread, eqn))
        if thread.checker is not None:
            released(thread)
        return ()

    return steps


@RULES.in_steps("barrier_wait")
def barrier_wait(eqn: Eqn) -> Callable[..., Coroutine]:
    """Wait for the next completion."""
    stack = eqn.transforms

    def steps(thread: Thread, barrier: Barrier, *indices: Any) -> Coroutine:
        slot = barrier.slot(stack, indices)
        if thread.points:
            yield Point("wait", slot)
        thread.eqn = eqn
        while not returns(thread, eqn, slot):
            yield Wait("barrier", slot, eqn, thread.observed.get(slot, 0) + 1)
        observe(thread, slot)
        return ()

    return steps


@RULES.in_steps("barrier_sync")
def barrier_sync(eqn: Eqn) -> Callable[..., Coroutine]:
    """Arrive and wait for the current phase; phases without this thread do not count."""
    stack = eqn.transforms

    def steps(thread: Thread, barrier: Barrier, *indices: Any) -> Coroutine:
        slot = barrier.slot(stack, indices)
        if thread.points:
            yield Point("arrive", slot)
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.barriers.arrives(thread, eqn, slot)
        phase = thread.observed[slot] = slot.completed
        arrive(thread.machine, slot, (thread, eqn))
        if thread.checker is not None:
            released(thread)
        if thread.points:
            yield Point("pass", slot)
        while slot.completed == phase:
            yield Wait("barrier", slot, eqn, phase + 1)
        observe(thread, slot)
        return ()

    return steps


@RULES.in_steps("barrier_test")
def barrier_test(eqn: Eqn) -> Callable[..., Coroutine]:
    """Test whether the next completion has happened."""
    stack = eqn.transforms

    def steps(thread: Thread, barrier: Barrier, *indices: Any) -> Coroutine:
        slot = barrier.slot(stack, indices)
        yield Point("test", slot)  # under every policy: a polling thread lets the others run
        thread.eqn = eqn
        if not returns(thread, eqn, slot):
            return (np.bool_(False),)
        observe(thread, slot)
        return (np.bool_(True),)

    return steps
