"""The collection of findings: each mistake once, raised or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from palladio.base.locations import Location
from palladio.machine.check.findings import CODES, CheckError, Finding, Participant


class Found:
    """The findings of one run.

    Args:
        stop: raise the first error; else findings are collected, each mistake once.
        schedule: the schedule that replays the run, for reports.
        ignore: codes of findings that are not reported.
        strict: codes whose hints are errors.
    """

    def __init__(self, stop: bool, schedule: str, ignore: frozenset[str], strict: frozenset[str] = frozenset()) -> None:
        self.stop = stop
        self.schedule = schedule
        self.ignore = ignore
        self.strict = strict
        self.place: Location | None = None
        """The line of the current launch: it distinguishes mistakes of two launches with barriers of the same name."""
        self.findings: list[Finding] = []
        self._known: set[Any] = set()
        self._raced: set[Any] = set()

    def report(
        self,
        code: str,
        message: str,
        participants: Iterable[Participant],
        missing: str = "",
        *,
        fix: str = "",
        details: Any = (),
        about: str = "",
        level: str = "",
        operand: str = "",
        order: Callable[[], tuple[str, Any]] | None = None,
        jax: str = "",
    ) -> None:
        """Raise a finding, or keep it if this mistake is new. Only errors are raised.

        Args:
            operand: the buffer of a race.
            order: finds the chain of synchronisation of a race, and the key of the missing edge.
        """
        level = level or CODES[code].level
        about = about and f"{about} in {self.place}"
        parties = tuple(participants)
        finding = Finding(code, message, parties, missing, fix, tuple(details), self.schedule, about, level, jax=jax)
        key = finding.key, level, operand
        if key in self._known:
            return
        self._known.add(key)
        if code in self.ignore:
            return
        if order is not None:
            text, mistake = order()
            finding = replace(finding, operand=operand, order=text, mistake=mistake)
            same = [n for n, each in enumerate(self.findings) if each.level == level and each.covers(finding)]
            if same:
                self.findings[same[0]] = self.findings[same[0]].joined(finding)
                return
        self.findings.append(finding)
        if self.stop and level == "error":
            raise CheckError(finding)

    def raced(self, read: Any) -> None:
        """A read races with a write: reading uninitialised memory in some schedules is not a separate mistake."""
        place = read.site.location
        self._raced.add(place)
        if place is not None:
            unwritten = ("uninitialized-read", (place,))
            self.findings[:] = [each for each in self.findings if (each.code, each.locations[:1]) != unwritten]

    def has_raced(self, read: Any) -> bool:
        """True if a read at this place has been found to race."""
        return read.site.location in self._raced

    def exited(self, participant: Participant, what: str) -> None:
        """A block is accessed after all its threads may have ended."""
        self.report(
            "peer-exited", f"{what} is reached by another block, and its own block may have ended", [participant]
        )
