"""What a wait for a semaphore learns: what the signals have told without which it could not have returned.

A wait for n returns once the count is n, whichever signals raised it. So it learns of a signal only if all the others
that do not come behind it are too few, beside what earlier waits have taken. Two threads that signal once each, and a
wait for one: it learns of neither, in every schedule, also where both had come.
"""

from __future__ import annotations

from typing import NamedTuple

from palladio.machine.clocks import Actor, Clock

_MOST_OPEN = 64
"""Signals kept apart; older ones count as known to every wait, which finds less and is never wrong."""

Clocks = tuple[Clock, Clock]


class _Signal(NamedTuple):
    amount: int
    actor: Actor
    epoch: int
    clocks: Clocks

    def is_behind(self, other: _Signal) -> bool:
        """Whether it comes only after the other one, or is that one."""
        return self is other or self.clocks[0].covers(other.actor, other.epoch)


class Signals:
    """The signals of one semaphore."""

    __slots__ = ("_known", "_known_amount", "_open", "_taken")

    def __init__(self) -> None:
        self._known: Clocks = Clock(-1), Clock(-1)
        self._known_amount = 0
        self._open: list[_Signal] = []
        self._taken: dict[Actor, tuple[int, int, int]] = {}

    def add(self, amount: int, actor: Actor, epoch: int, clocks: Clocks) -> None:
        """A signal, which is this epoch of this actor, tells these clocks."""
        self._open.append(_Signal(amount, actor, epoch, clocks))
        if len(self._open) > _MOST_OPEN:
            self._learn(self._open.pop(0))

    def _learn(self, signal: _Signal) -> None:
        self._known_amount += signal.amount
        for mine, told in zip(self._known, signal.clocks, strict=True):
            mine.join(told)

    def heard(self, amount: int, waiting: Clock) -> Clocks:
        """What a wait for this amount learns, by a thread with this clock."""
        needed = amount
        for actor, (epoch, total, last) in self._taken.items():
            needed += total if waiting.covers(actor, epoch) else total - last
        total = self._known_amount + sum(signal.amount for signal in self._open)
        spare = total - needed
        heard, self._open = _divided(self._open, spare)
        for signal in heard:
            self._learn(signal)
        return self._known

    def taken(self, amount: int, actor: Actor, epoch: int) -> None:
        """A wait, at this epoch of this thread, took this amount off the count."""
        _, total, _ = self._taken.get(actor, (0, 0, 0))
        self._taken[actor] = epoch, total + amount, amount


def _divided(signals: list[_Signal], spare: int) -> tuple[list[_Signal], list[_Signal]]:
    """The signals that a wait cannot do without, and the others: it can spare this amount."""
    if spare <= 0:
        return signals, []
    parts: tuple[list[_Signal], list[_Signal]] = [], []
    for signal in signals:
        behind = sum(each.amount for each in signals if each.is_behind(signal))
        parts[behind <= spare].append(signal)
    return parts
