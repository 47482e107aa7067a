"""The last synchronising events of each thread, for reports: the edges between two threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from palladio.ir.core import Eqn
from palladio.machine.run.buffers import Token
from palladio.machine.run.clocks import Component
from palladio.machine.run.threads import Thread, Trail

_MOST_KEPT = 64
"""The number of releases, and of acquires, kept for each thread. Reports search for edges among these."""

_MOST_TRIED = 8
"""The number of a thread's releases from which a path is searched."""


class Event(NamedTuple):
    """A release, or an acquire.

    Fields:
        number: counts the events of a run.
        epoch: that of the thread.
        thing: the token of the barrier, semaphore or buffer, which it does not keep alive.
        phase: of a barrier, the phase that the release counts towards, or the last one that the acquire has seen.
    """

    number: int
    epoch: int
    eqn: Eqn
    thing: Token
    phase: int
    trail: Trail


Events = dict[Component, deque[tuple[Any, ...]]]
"""Events as plain tuples of their fields; converted to `Event` only for a report."""


class History:
    """The events of a run; those of a cluster until it ends."""

    def __init__(self) -> None:
        self._count = 0
        self._releases: dict[int, Events] = {}
        self._acquires: dict[int, Events] = {}

    def releases(self, thread: Thread, eqn: Eqn, thing: Token, phase: int = 0) -> None:
        """A thread arrives or signals, or starts an operation that does."""
        events = thread.releases
        if events is None:
            events = thread.releases = _events(self._releases, thread.component)
        self._note(events, thread, eqn, thing, phase)

    def acquires(self, thread: Thread, thing: Token, phase: int = 0) -> None:
        """A wait of a thread returns."""
        events = thread.acquires
        if events is None:
            events = thread.acquires = _events(self._acquires, thread.component)
        self._note(events, thread, thread.eqn, thing, phase)

    def _note(self, events: deque[tuple[Any, ...]], thread: Thread, eqn: Any, thing: Token, phase: int) -> None:
        self._count += 1
        events.append((self._count, thread.generic.own.item(thread.component.local), eqn, thing, phase, thread.trail))

    def forget(self, cluster: int) -> None:
        """A cluster has ended."""
        self._releases.pop(cluster, None)
        self._acquires.pop(cluster, None)

    def released(self, component: Component) -> list[Event]:
        """The last releases of a thread, oldest first."""
        return [*map(Event._make, self._releases.get(component.cluster, {}).get(component, ()))]

    def acquired(self, component: Component) -> list[Event]:
        """The last acquires of a thread, oldest first."""
        return [*map(Event._make, self._acquires.get(component.cluster, {}).get(component, ()))]

    def path(self, source: Component, known: int, target: Component, until: int | None) -> list[Event]:
        """The edges by which the target has acquired its latest known epoch of the source: release, acquire, release, …

        Args:
            known: the latest epoch of the source that the target has acquired.
            until: the target's epoch after which events are ignored.
        """
        tried = [release for release in reversed(self.released(source)) if release.epoch <= known][:_MOST_TRIED]
        for release in tried:
            for way in (self._direct, self._by_another):
                found = way(release, target, until)
                if found:
                    return [release, *found]
        return []

    def _direct(self, release: Event, target: Component, until: int | None) -> list[Event]:
        found = _first_of(release, self.acquired(target))
        return [found] if found is not None and (until is None or found.epoch <= until) else []

    def _by_another(self, release: Event, target: Component, until: int | None) -> list[Event]:
        """The edges through a third thread of the target's cluster."""
        for component, learned in self._learned(release, target):
            for later in self.released(component):
                last = self._direct(later, target, until) if later.number > learned.number else []
                if last:
                    return [learned, later, *last]
        return []

    def _learned(self, release: Event, target: Component) -> Iterator[tuple[Component, Event]]:
        for component in self._acquires.get(target.cluster, {}):
            found = _first_of(release, self.acquired(component))
            if found is not None and component != target:
                yield component, found


def _first_of(release: Event, acquired: list[Event]) -> Event | None:
    """The first acquire that can have synchronised with a release."""
    for each in acquired:
        if each.thing is release.thing and each.number > release.number and each.phase >= release.phase:
            return each
    return None


def _events(kept: dict[int, Events], component: Component) -> deque[tuple[Any, ...]]:
    """The events of a thread, which keeps them too."""
    return kept.setdefault(component.cluster, {}).setdefault(component, deque(maxlen=_MOST_KEPT))


__all__ = ["Event", "History"]
