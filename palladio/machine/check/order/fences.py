"""The fences between ordinary stores to global memory and asynchronous copies that read them.

A store, a fence and a copy must come in this order; the fence of any thread counts. A clock that covers
the epoch of a fence's thread includes the fence, and with it all stores that this thread had acquired.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from palladio.machine.check.order.threads import epoch, released
from palladio.machine.run.clocks import Clock, Component
from palladio.machine.run.threads import Thread

_MOST_KEPT = 256
"""Fences of one thread kept separately; a clock that covers only older ones counts as covering the oldest of these."""


class GlobalFences:
    """The stores that each `commit_gmem` of a run has made visible to asynchronous copies."""

    def __init__(self) -> None:
        self._taken: dict[Component, list[tuple[int, Clock]]] = {}

    @property
    def any(self) -> bool:
        """True if a thread has executed a fence."""
        return bool(self._taken)

    def commits(self, thread: Thread) -> None:
        """A thread executes a fence, at its current epoch."""
        taken = self._taken.setdefault(thread.component, [])
        taken.append((epoch(thread), thread.generic.copy()))
        if len(taken) > _MOST_KEPT:
            oldest, _ = taken.pop(0)
            taken[0] = oldest, taken[0][1]
        released(thread)

    def cover(self, clock: Clock, component: Component, epoch: int) -> bool:
        """True if a fence that a clock covers comes after this epoch of a component."""
        for thread, taken in self._taken.items():
            known = bisect_right(taken, clock.epoch(thread), key=itemgetter(0))
            if known and taken[known - 1][1].covers(component, epoch):
                return True
        return False


__all__ = ["GlobalFences"]
