"""The record of one run, which the induction compares with those of other sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.ir.core import Eqn

Event = tuple[Any, ...]

GLOBAL = "access of global memory"
"""The kind of these events; the name of the buffer follows."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Numbers that control a thread.

    Fields:
        kind: selects the condition that they must fulfil, see `continuation`.
        key: equal at all sizes and in all rounds: the thread, the line, and more.
        eqn: the equation.
        inputs, outputs: the numbers.
    """

    kind: str
    key: tuple[Any, ...]
    eqn: Eqn
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Step:
    """One step of the machine.

    Fields:
        events: its events, each with its kind and thread.
        state: a digest of the state after it; empty where it is not recorded.
        decisions: the numbers that control it, where they are recorded.
    """

    events: tuple[Event, ...]
    state: bytes = b""
    decisions: tuple[Decision, ...] = ()

    @property
    def decided(self) -> Any:
        """All of its decisions, without the numbers that may grow."""
        return [
            (each.kind, each.key, [x for x in each.inputs if np.asarray(x).dtype == bool]) for each in self.decisions
        ]


@dataclass
class Trace:
    """The record of one run.

    Fields:
        steps: in the order in which they ran.
        allocated: the allocations of blocks, by name and type.
        shared: the buffers of global memory that are touched more than once anywhere.
        obstacle: why other schedules may have another order; empty if they do not.
        incomplete: why states at some steps are equal to no other; empty if all are complete.
        launches: their number.
        programs: their texts.
    """

    steps: list[Step] = field(default_factory=list)
    allocated: set[tuple[str, str]] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    obstacle: str = ""
    incomplete: str = ""
    launches: int = 0
    programs: str = ""

    def within(self, shared: Collection[str]) -> Trace:
        """The record without accesses of global memory outside these buffers."""
        steps = [
            replace(step, events=tuple(each for each in step.events if each[0] != GLOBAL or each[1] in shared))
            for step in self.steps
        ]
        return replace(self, steps=steps)


__all__ = ["GLOBAL", "Decision", "Event", "Step", "Trace"]
