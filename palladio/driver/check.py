"""`check`: one call under many schedules, and the report of what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.driver.executors import SIMULATOR, use
from palladio.driver.simulation import Session, session
from palladio.machine.cost import H100, CostModel
from palladio.machine.findings import CheckError, Finding
from palladio.machine.machine import Machine
from palladio.machine.policies import Policy, named, schedules
from palladio.machine.timeline import Timeline
from palladio.machine.timing import Earliest, Timer
from palladio.trace.functions import function_name

Progress = Callable[[int, int | None], None]
"""Called with the number of schedules that ran and how many there are, None if that is not known."""


@dataclass
class Report:
    """What a check found.

    Fields:
        findings: each mistake once, in the order in which it was met.
        explored: how many schedules ran.
        complete: whether these were all the schedules that can differ.
    """

    findings: list[Finding] = field(default_factory=list)
    explored: int = 0
    complete: bool = False
    call: Callable[[], Any] | None = field(default=None, repr=False)

    @cached_property
    def timeline(self) -> Timeline:
        """The model timeline of the call: `.svg(path)`, `.perfetto(path)`, `.text()`.

        Raises:
            PalladioValueError: if the call launches nothing.
        """
        if self.call is None:
            raise PalladioValueError("a report without its call has no timeline")
        return timeline(self.call)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def render(self) -> str:
        """The text that a person reads."""
        ran = f"{self.explored} schedule{'' if self.explored == 1 else 's'}"
        scope = f"all {ran} that can differ" if self.complete else ran
        if self.ok:
            return f"no finding in {scope}"
        parts = [finding.render() for finding in self.findings]
        count = f"{len(parts)} finding{'' if len(parts) == 1 else 's'} in {scope}"
        return "\n\n".join([*parts, count])

    def __str__(self) -> str:
        return self.render()


def check(
    fn: Callable[..., Any],
    *args: Any,
    schedules: int = 32,
    seed: int = 0,
    exhaustive: bool = False,
    schedule: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a function on the simulator under many schedules, and report every hazard of the kernels that it calls.

    Args:
        fn: a kernel call, or any function that makes some.
        args: its arguments.
        schedules: how many schedules to run: round robin, latest completions, then random ones.
        seed: where the random ones begin; the same seed gives the same schedules.
        exhaustive: run every schedule that can differ, up to `schedules` of them if that is above 32.
        schedule: run this one only, by the name that a finding gives.
        progress: called after each schedule.

    Returns:
        A report: `ok`, `findings`, `explored`, `complete`.

    Raises:
        PalladioTypeError, PalladioValueError: for bad arguments; and whatever the call itself raises.
    """
    with at_call():
        if not callable(fn):
            raise PalladioTypeError("check runs a function", argument="fn", got=repr(fn))
        if not isinstance(schedules, int) or schedules < 1:
            raise PalladioValueError("at least one schedule runs", argument="schedules", got=repr(schedules))
        policies = [_named(schedule)] if schedule is not None else _chosen(schedules, seed)
    report = Report(call=partial(fn, *args))
    if exhaustive:
        raise PalladioValueError("exhaustive exploration comes later", argument="exhaustive")
    known: set[Any] = set()
    for policy in policies:
        for finding in run_once(fn, args, lambda policy=policy: policy).findings:  # type: ignore[misc]
            if finding.key not in known:
                known.add(finding.key)
                report.findings.append(finding)
        report.explored += 1
        if progress is not None:
            progress(report.explored, len(policies))
    return report


def timeline(fn: Callable[..., Any], *args: Any, model: CostModel = H100) -> Timeline:
    """The model timeline of a call: what each thread and unit would do when, after a cost model of an H100.

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


def _chosen(count: int, seed: int) -> list[Policy]:
    return schedules(count, seed)


def _named(name: str) -> Policy:
    try:
        return named(name)
    except (KeyError, ValueError, IndexError):
        raise PalladioValueError(
            "no schedule has this name",
            argument="schedule",
            expected="as a finding gives it: round_robin, latest, random:latest:7, pct:3",
            got=repr(name),
        ) from None


def run_once(
    fn: Callable[..., Any], args: tuple[Any, ...], policy: Callable[[], Policy], prepare: Any = None
) -> Session:
    """Run a function once on the simulator, collecting findings."""
    with use(SIMULATOR), session(Session(policy, prepare=prepare)) as current:
        try:
            fn(*args)
        except CheckError as error:  # a run that cannot go on: its finding is kept already
            if error.finding not in current.findings:
                current.findings.append(error.finding)
    return current
