"""Schedule points: where a thread lets others go first."""

from __future__ import annotations

from typing import Any

SPINS = ("test", "read", "turn")
"""Points at which a thread looks whether something has happened, perhaps again and again."""

LOOKS = (*SPINS, "atomic")
"""Points at which that may be all that a thread does."""


class Point:
    """A request that a thread yields before it touches a shared thing, where others may go first.

    Fields:
        kind: of a barrier, arrive, wait or test; of a semaphore, signal, take (wait, then take off), wait or read; of
            memory, atomic, or tally for one whose result is unused (such as "tally add"), and share of its buffer for
            one of a few elements; of a scope that threads share, meet; of a while loop, turn, or work if it stores. A
            copy touches nothing yet; pass comes after an arrival of a thread that resumes with the completion.
        amount: by how much it raises a semaphore, or what it waits for; in how many parts an arrival comes.
        more: what the same step touches besides.
    """

    __slots__ = ("amount", "kind", "more", "thing")

    def __init__(self, kind: str, thing: Any, amount: int = 1, more: tuple[Point, ...] = ()) -> None:
        self.kind = kind
        self.thing = thing
        self.amount = amount
        self.more = more
