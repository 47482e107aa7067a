"""The happens-before edges of a semaphore wait: it acquires exactly the signals that it needed to return.

A wait for n returns once the count is n, whichever signals raised it. So it acquires a signal only if the other signals
that are not ordered after it are too few, less the amounts taken by earlier waits. If two threads signal once each, a
wait for one acquires neither, in every schedule, even after both signals.

Amounts that a signal's own thread has taken before it count as taken too: a thread that holds the only token leaves
none for another. So a semaphore of one token orders its holders like a lock.

A copy counts as a signal from its start, since it may land at any time. Its completion gets an epoch among the
semaphore's copies when the first wait acquires it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from palladio.machine.check.shadow import Access
from palladio.machine.run.clocks import Clock, Component

_MOST_OPEN = 4096
"""Signals kept separately; older ones count as acquired by every wait: it misses races, without false alarms."""

_MOST_TAKES = 64
"""Waits of one thread kept separately; older ones count as known."""

Clocks = tuple[Clock, Clock]


class _Signal(NamedTuple):
    amount: int
    clocks: Clocks
    component: Component
    epoch: int
    """The epoch of a thread's signal; 0 for a copy, whose later accesses are ordered by a wait for it."""
    accesses: Sequence[Access] = ()

    def is_after(self, other: _Signal) -> bool:
        """True if it happens after the other one, or is that one."""
        return self is other or (other.epoch > 0 and self.clocks[0].covers(other.component, other.epoch))


class Signals:
    """The signals of one semaphore."""

    __slots__ = ("_copies", "_known", "_known_amount", "_open", "_taken")

    def __init__(self) -> None:
        self._known: Clocks = Clock(-1), Clock(-1)
        self._known_amount = 0
        self._copies = 0
        self._open: list[_Signal] = []
        self._taken: dict[Component, _Takes] = {}

    def add(self, amount: int, clocks: Clocks, component: Component, epoch: int) -> None:
        """A signal, at this epoch of this thread, releases these clocks."""
        self._add(_Signal(amount, clocks, component, epoch))

    def add_copy(self, amount: int, clocks: Clocks, component: Component, accesses: Sequence[Access]) -> None:
        """A copy starts. Its accesses belong to the component of the semaphore's copies, at an epoch not yet known."""
        self._add(_Signal(amount, clocks, component, 0, accesses))

    def _add(self, signal: _Signal) -> None:
        self._open.append(signal)
        if len(self._open) > _MOST_OPEN:
            self._learn(self._open.pop(0))

    def clocks(self) -> Iterator[Clock]:
        """All clocks that a wait may still acquire."""
        yield from self._known
        for signal in self._open:
            yield from signal.clocks

    def open(self) -> list[tuple[Component, int, int]]:
        """The signals that no wait has acquired: the thread, its epoch, and the amount."""
        return [(signal.component, signal.epoch, signal.amount) for signal in self._open]

    def _learn(self, signal: _Signal) -> None:
        self._known_amount += signal.amount
        if signal.accesses:
            self._copies += 1
            for access in signal.accesses:
                access.epoch = self._copies
        for mine, theirs in zip(self._known, signal.clocks, strict=True):
            mine.join(theirs)
            if signal.accesses:
                mine.set(signal.component, self._copies)

    def acquired(self, amount: int, waiting: Clock) -> Clocks:
        """The clocks that a wait for this amount acquires, by a thread with this clock."""
        total = self._known_amount + sum(signal.amount for signal in self._open)

        def spare(signal: _Signal | None = None) -> int:
            clocks = (waiting, signal.clocks[0]) if signal is not None and signal.epoch else (waiting,)
            return total - amount - sum(takes.known(component, clocks) for component, takes in self._taken.items())

        acquired, self._open = _divided(self._open, spare)
        for signal in acquired:
            self._learn(signal)
        return self._known

    def taken(self, amount: int, component: Component, epoch: int) -> None:
        """A wait, at this epoch of this thread, has decremented the count by this amount."""
        self._taken.setdefault(component, _Takes()).add(amount, epoch)


class _Takes:
    """The waits of one thread: the last epochs at which it took an amount, and the total by then."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = 0
        self._last: deque[tuple[int, int]] = deque()

    def add(self, amount: int, epoch: int) -> None:
        """Record that the thread has taken this amount, at this epoch."""
        self._last.append((epoch, amount + (self._last[-1][1] if self._last else self._before)))
        if len(self._last) > _MOST_TAKES:
            self._before = self._last.popleft()[1]

    def known(self, component: Component, clocks: Sequence[Clock]) -> int:
        """The total that it had taken by the latest epoch that one of these clocks covers; old waits count as known."""
        seen = max(clock.epoch(component) for clock in clocks)
        return next((total for epoch, total in reversed(self._last) if epoch <= seen), self._before)


def _divided(signals: list[_Signal], spare: Callable[[_Signal | None], int]) -> tuple[list[_Signal], list[_Signal]]:
    """The signals that a wait needs, and the others; `spare` is the surplus amount, in all or for one signal."""
    if spare(None) <= 0:
        return signals, []
    parts: tuple[list[_Signal], list[_Signal]] = [], []
    threads = _by_thread(signals)
    for signal in signals:
        after = signal.amount if not signal.epoch else sum(each.amount_after(signal) for each in threads)
        parts[after <= spare(signal)].append(signal)
    return parts


class _Line:
    """The signals of one thread, each of which happens after the previous ones; or a single copy.

    Fields:
        left: for each signal, the total amount from it on.
    """

    def __init__(self, signals: list[_Signal]) -> None:
        self.signals = signals
        self.left = [*itertools.accumulate(each.amount for each in reversed(signals))][::-1]

    def amount_after(self, signal: _Signal) -> int:
        """The total amount of these signals that happen after a thread's signal."""
        first = bisect_left(self.signals, True, key=lambda each: each.is_after(signal))
        return self.left[first] if first < len(self.left) else 0


def _by_thread(signals: Sequence[_Signal]) -> list[_Line]:
    lines: dict[object, list[_Signal]] = {}
    for signal in signals:
        lines.setdefault(signal.component if signal.epoch else id(signal), []).append(signal)
    return [_Line(each) for each in lines.values()]
