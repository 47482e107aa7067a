"""Semaphores: counters that threads signal and wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.run.buffers import Counter, Semaphores
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Point, Thread, Wait


def signal(machine: Machine, counter: Counter, amount: int, by: Any) -> None:
    """Increment a counter and wake the waiting threads."""
    counter.count += amount
    if machine.timer is not None:
        machine.timer.raised(counter)
    counter.signals = [by]
    machine.wake(counter.waiting)


def wait_for(thread: Thread, eqn: Eqn, counter: Counter, amount: int, decrement: bool) -> Coroutine:
    """Wait until a counter is high enough; decrement it by the amount if `decrement`."""
    if thread.points:
        yield Point("take" if decrement else "wait", counter, amount)
    thread.eqn = eqn
    while counter.count < amount:
        yield Wait("semaphore", counter, eqn, amount)
    if decrement:
        counter.count -= amount
    if thread.machine.timer is not None:
        thread.machine.timer.acquired(thread, counter, eqn)
    if thread.checker is not None:
        thread.checker.semaphores.acquires(thread, counter, amount, decrement)
    return ()


@RULES.in_steps("semaphore_signal")
def semaphore_signal(eqn: Eqn) -> Callable[..., Coroutine]:
    """Signal a semaphore."""
    stack = eqn.transforms

    def steps(thread: Thread, semaphore: Semaphores, amount: Any, *indices: Any) -> Coroutine:
        counter = semaphore.counter(stack, indices)
        if thread.points:
            yield Point("signal", counter, int(amount))
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.semaphores.signals(thread, eqn, counter, int(amount))
        signal(thread.machine, counter, int(amount), (thread, eqn))
        return ()

    return steps


@RULES.in_steps("semaphore_wait")
def semaphore_wait(eqn: Eqn) -> Callable[..., Coroutine]:
    """Wait for a semaphore."""
    stack, decrement = eqn.transforms, eqn.decrement

    def steps(thread: Thread, semaphore: Semaphores, amount: Any, *indices: Any) -> Coroutine:
        return (yield from wait_for(thread, eqn, semaphore.counter(stack, indices), int(amount), decrement))

    return steps


@RULES.in_steps("semaphore_read")
def semaphore_read(eqn: Eqn) -> Callable[..., Coroutine]:
    """The current count."""
    stack = eqn.transforms

    def steps(thread: Thread, semaphore: Semaphores, *indices: Any) -> Coroutine:
        counter = semaphore.counter(stack, indices)
        yield Point("read", counter)
        thread.eqn = eqn
        return (np.int32(counter.count),)

    return steps
