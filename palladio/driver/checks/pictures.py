"""Pictures of a check: the modelled timeline of a call, and of the schedule with a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.base.errors import PalladioValueError
from palladio.driver.checks.runs import run_once
from palladio.machine.check.findings import Finding
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import named
from palladio.machine.timeline.cost import H100, CostModel
from palladio.machine.timeline.timeline import Timeline
from palladio.machine.timeline.timing import Earliest, Timer
from palladio.trace.functions import function_name


def timeline(fn: Callable[..., Any], *args: Any, model: CostModel = H100) -> Timeline:
    """The modelled timeline of a call: the activity of each thread and unit over time, by a cost model of an H100.

    Args:
        fn: a function that launches a kernel; of several launches the first is shown.
        args: its arguments.
        model: the cost model.

    Raises:
        PalladioValueError: if it launches nothing.
    """
    timers: list[Timer] = []

    def prepare(machine: Machine) -> None:
        machine.timer = Timer(model)
        timers.append(machine.timer)

    run_once(fn, args, Earliest, prepare)
    if not timers:
        raise PalladioValueError("nothing was launched, so there is no timeline", argument="fn")
    return timers[0].timeline(function_name(fn))


def picture(fn: Callable[..., Any], args: tuple[Any, ...], finding: Finding, model: CostModel = H100) -> Timeline:
    """The modelled timeline of a finding's schedule, with both accesses and the missing edge.

    Raises:
        PalladioValueError: if the function launches nothing.
    """
    timers: list[Timer] = []

    def prepare(machine: Machine) -> None:
        machine.timer = Timer(model, follows=True)
        timers.append(machine.timer)
        machine.checker.found.findings = Accusing(finding, machine.timer)  # type: ignore[union-attr]

    run_once(fn, args, lambda: named(finding.schedule), prepare)
    if not timers:
        raise PalladioValueError("nothing was launched, so there is no timeline", argument="fn")
    shown = next((timer for timer in timers if timer.accuses), timers[-1])
    return shown.timeline(f"{function_name(fn)}: {finding.code}", f"schedule {finding.schedule}")


class Accusing(list[Finding]):
    """The findings of a run; when the given one is found, the timer marks its accesses."""

    def __init__(self, finding: Finding, timer: Timer) -> None:
        super().__init__()
        self.finding = finding
        self.timer = timer

    def append(self, finding: Finding) -> None:
        """Keep a finding."""
        super().append(finding)
        if self.finding.covers(finding):
            sides = [(each.thread, each.location, each.at) for each in finding.participants]
            self.timer.accuse(sides, finding.missing or finding.code)
