"""The record of one run, as the induction compares it with those of other sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

Event = tuple[Any, ...]

GLOBAL = "access of global memory"
"""The kind of these events; the name of the buffer follows."""


@dataclass(frozen=True)
class Step:
    """One step of the machine.

    Fields:
        events: what happened in it, each with its kind and the thread that did it.
        state: a digest of the state after it; empty where it is not recorded.
    """

    events: tuple[Event, ...]
    state: bytes = b""


@dataclass
class Trace:
    """The record of one run.

    Fields:
        steps: in the order in which they ran.
        allocated: the allocations of blocks, by name and type.
        shared: the buffers of global memory that are touched more than once anywhere.
        settled: whether every schedule has the same order.
        launches: how many there were.
    """

    steps: list[Step] = field(default_factory=list)
    allocated: set[tuple[str, str]] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    settled: bool = True
    launches: int = 0

    def within(self, shared: Collection[str]) -> Trace:
        """The record with the accesses of no other buffers of global memory than these."""
        steps = [
            Step(tuple(each for each in step.events if each[0] != GLOBAL or each[1] in shared), step.state)
            for step in self.steps
        ]
        return replace(self, steps=steps)


__all__ = ["GLOBAL", "Event", "Step", "Trace"]
