"""A record of the run with a finding, to exclude changes of the program that cannot affect it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any

from palladio.ir.core import Eqn, Program, Var
from palladio.machine.check.findings import Finding
from palladio.machine.repair.edit import Path, part_at
from palladio.machine.run.buffers import BarrierSlot
from palladio.machine.run.threads import Thread
from palladio.machine.timeline.timing import Timer
from palladio.ops.threads.launch import launch


class RunRecord(Timer):
    """Counts the executed equations and the waits of each thread in the run of a program.

    Fields:
        ended: whether every thread ended.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.ended = False
        self._ran: dict[Thread, Counter[Eqn]] = defaultdict(Counter)
        self._before: set[Eqn] | None = None
        self._waits: Counter[tuple[Thread, str]] = Counter()
        self._completions: Counter[tuple[Any, str]] = Counter()

    def charge(self, thread: Thread, eqn: Eqn) -> None:
        """A thread has executed an equation."""
        self._ran[thread][eqn] += 1
        super().charge(thread, eqn)

    def completed(self, thing: Any, number: int) -> None:
        """A barrier completes a phase."""
        if isinstance(thing, BarrierSlot):
            self._completions[thing.home, thing.barrier] += 1
        super().completed(thing, number)

    def observed(self, thread: Thread, thing: Any, number: int, label: str, eqn: Eqn) -> None:
        """A thread has waited for a completion of a barrier."""
        if isinstance(thing, BarrierSlot) and thing.home is thread.block:
            self._waits[thread, thing.barrier] += 1
        super().observed(thread, thing, number, label, eqn)

    def reported(self) -> None:
        """The finding has been reported: later equations are not involved."""
        if self._before is None:
            self._before = {eqn for ran in self._ran.values() for eqn in ran}

    def reaches(self, path: Path, index: int) -> bool:
        """False if no thread reached this point of the program before the finding: a change there cannot affect it.

        Control flow is not recorded, so a point before the first other equation counts as reached.
        """
        before = self._before
        for depth in range(len(path), -1, -1) if before is not None else ():
            eqns = part_at(self.program, path[:depth]).eqns[:index]
            if any(eqn not in before for eqn in eqns if not _is_control(eqn)):  # type: ignore[operator]
                return False
            index = path[depth - 1][0] if depth else 0
        return True

    def starves(self, path: Path, index: int, barrier: Var) -> bool:
        """True if, with another wait at this point, a thread would wait for a barrier more often than it completes."""
        if not self.ended:
            return False
        eqns = part_at(self.program, path).eqns
        beside = [eqn for eqn in (*reversed(eqns[:index]), *eqns[index:]) if not _is_control(eqn)]
        for thread, ran in self._ran.items() if beside else ():
            waits = self._waits[thread, barrier.hint] + ran[beside[0]]
            if ran[beside[0]] and waits > self._completions[thread.block, barrier.hint]:
                return True
        return False


def _is_control(eqn: Eqn) -> bool:
    return eqn.op.control or eqn.op is launch


class Meeting(list[Finding]):
    """Findings of a recorded run; notifies the record when one of these mistakes is found."""

    def __init__(self, keys: Collection[Any], record: RunRecord) -> None:
        super().__init__()
        self.keys = keys
        self.record = record

    def append(self, finding: Finding) -> None:
        """Keep a finding."""
        super().append(finding)
        if any(operand.key in self.keys for operand in finding.operands):
            self.record.reported()


__all__ = ["Meeting", "RunRecord"]
