"""Scheduling points, at which other threads may run first."""

from __future__ import annotations

from typing import Any

SPINS = ("test", "read", "turn")
"""Points at which a thread polls."""

POLLS = (*SPINS, "atomic")
"""Points that may be polls."""


class Point:
    """A scheduling point: a request that a thread yields before it touches a shared object.

    Fields:
        kind: for a barrier, arrive, wait or test; for a semaphore, signal, take (wait, then decrement), wait or read;
            for memory, atomic, or tally if its result is unused (e.g. "tally add"), and share for the buffer of an
            atomic on a few elements; for a scope that threads share, meet; for a while loop, turn, or work if it
            stores. A copy touches nothing yet; pass follows the arrival of a thread that resumes at the completion.
        amount: the increment of a semaphore, or the awaited count; the number of parts of an arrival.
        more: the other points of the same step.
    """

    __slots__ = ("amount", "kind", "more", "thing")

    def __init__(self, kind: str, thing: Any, amount: int = 1, more: tuple[Point, ...] = ()) -> None:
        self.kind = kind
        self.thing = thing
        self.amount = amount
        self.more = more
