"""`check`: one call under many schedules, and the report of what was found."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.driver.executors import SIMULATOR, use
from palladio.driver.repairs.search import SECONDS, repair_all
from palladio.driver.simulation import Session, session
from palladio.machine.check.accesses import Places
from palladio.machine.check.findings import LEVELS, CheckError, Finding, checked_codes
from palladio.machine.check.induction import FEWEST, InTurn, Recorder, Trace, holds
from palladio.machine.run.explore import Branch, Changed, Cut, Exploration, Outcome, Schedule
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Policy, named
from palladio.machine.run.policies import schedules as sampled
from palladio.machine.timeline.cost import H100, CostModel
from palladio.machine.timeline.timeline import Timeline
from palladio.machine.timeline.timing import Earliest, Timer
from palladio.trace.functions import function_name

SAMPLED = 32
"""The number of schedules of a check by default."""

EXPLORED = 100_000
"""The most schedules of an exhaustive check by default."""

BEHIND = 1_000
"""The number of schedules that an exhaustive check still runs after the last new mistake."""

PART = 4
"""The number of schedules that a worker runs at a time: those of a part share what they find out about the kernel."""

Progress = Callable[[int, int | None], None]
"""Called with the number of schedules that ran and how many there are, None if that is not known."""


@dataclass
class Report:
    """The report of a check.

    Fields:
        findings: each mistake once, in the order in which it was met.
        explored: how many schedules ran.
        complete: whether these were all the schedules that can differ, in this model, with these sizes and inputs.
        ignored: each mistake, once, whose code the check was told to ignore.
        strict: whether warnings and hints count like errors.
        sizes: with how many combinations of sizes the function ran.
        beyond: the sizes for which the verdict follows by induction, such as "k ≥ 3"; empty if for no others.
    """

    findings: list[Finding] = field(default_factory=list)
    explored: int = 0
    complete: bool = False
    ignored: list[Finding] = field(default_factory=list)
    strict: bool = False
    sizes: int = 1
    beyond: str = ""
    ignore: frozenset[str] = field(default=frozenset(), repr=False)
    call: Callable[[], Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the findings; the call, without which there is no timeline, stays in its process."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"call": None}

    @cached_property
    def timeline(self) -> Timeline:
        """The model timeline of the call: `.svg(path)`, `.perfetto(path)`, `.text()`.

        Raises:
            PalladioValueError: if the call launches nothing.
        """
        if self.call is None:
            raise PalladioValueError("a report without its call has no timeline")
        return timeline(self.call)

    def picture(self, finding: Finding | None = None) -> Timeline:
        """The model timeline of the schedule that met a finding: its accesses in red, the missing edge dashed.

        Args:
            finding: one of the report; the first error, or else the first of all, if it is left out.

        Raises:
            PalladioValueError: if nothing was found, or the report has no call.
        """
        found = finding or next(iter(self.ordered), None)
        if found is None or self.call is None:
            raise PalladioValueError(
                "a report without a finding or without its call has no picture", argument="finding"
            )
        return picture(self.call, (), found)

    @property
    def ok(self) -> bool:
        """True if nothing was found that counts: no error, and where the check is strict nothing at all."""
        return not (self.findings if self.strict else self.of_level("error"))

    def of_level(self, level: str) -> list[Finding]:
        """The findings of one level: "error", "warning" or "hint"."""
        return [finding for finding in self.findings if finding.level == level]

    @property
    def summary(self) -> str:
        """The numbers of findings and of schedules, and of ignored findings by code."""
        ran = f"{self.explored} schedule{'' if self.explored == 1 else 's'}"
        sizes = f"{self.sizes} sizes" if self.sizes > 1 else "sizes"
        if self.complete:
            ran = "the only schedule there is" if self.explored == 1 else f"all {ran} that can differ"
            ran += f", in this model, with these {sizes} and inputs"
        elif self.sizes > 1:
            ran += f" of {sizes}"
        if self.beyond:
            ran += f", by induction for all {self.beyond}"
        found = f"{self._count} in {ran}"
        times = Counter(finding.code for finding in self.ignored)
        ignored = ", ".join(f"{code} ({count})" for code, count in sorted(times.items()))
        return f"{found}; ignored: {ignored}" if ignored else found

    @property
    def _count(self) -> str:
        counts = {level: len(self.of_level(level)) for level in LEVELS}
        if not any(counts[level] for level in LEVELS[1:]):
            return _counted(counts["error"], "finding")
        parts = [_counted(counts["error"], "error")]
        return ", ".join([*parts, *(_counted(counts[level], level) for level in LEVELS[1:] if counts[level])])

    @property
    def ordered(self) -> list[Finding]:
        """The findings, errors first, then warnings, then hints."""
        return [finding for level in LEVELS for finding in self.of_level(level)]

    def render(self) -> str:
        """The text that a person reads."""
        return "\n\n".join([*(finding.render() for finding in self.ordered), self.summary])

    def __str__(self) -> str:
        return self.render()


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' if count > 1 else ''}"


@checked_call
def check(
    fn: Callable[..., Any],
    *args: Any,
    schedules: int | None = None,
    seed: int = 0,
    exhaustive: bool = False,
    schedule: str | None = None,
    progress: Progress | None = None,
    ignore: str | Sequence[str] = (),
    strict: bool = False,
    sizes: Mapping[str, Iterable[Any]] | None = None,
    repairs: bool | float = False,
    executor: Executor | None = None,
) -> Report:
    """Run a function on the simulator under many schedules, and report every hazard of the kernels that it calls.

    Args:
        fn: a kernel call, or any function that makes some.
        args: its arguments.
        schedules: how many schedules to run, 32 by default: round robin, latest completions, then random ones.
        seed: where the random ones begin; the same seed gives the same schedules.
        exhaustive: run every schedule whose order of synchronisation differs from all others', each once, up to
            `schedules` of them, 100,000 by default. The report is `complete` if these were all. It is not where more
            remain, where threads poll (`barrier_test`, `semaphore_read`), where a run breaks off, or where 1,000
            schedules in a row have shown nothing new after a finding.
        schedule: run this one only, by the name that a finding gives.
        progress: called after each schedule with the number so far and the number of all, None if not known.
        ignore: codes of findings that do not count, such as ("unobserved-completion",). The report names and counts
            them apart.
        strict: the report is `ok` only if nothing was found at all. Else warnings (probably not meant, such as an
            output that nothing writes) and hints (harmless on the hardware as the kernel stands) do not count.
        sizes: keyword arguments of `fn`, each with its values: the check runs for every combination of them, and each
            finding names the one that it was met with.
        repairs: look for the cheapest single change of the kernel that removes each error. True gives the search a
            minute, a number so many seconds.
        executor: spreads the schedules, all but the first. One of processes asks for a function and arguments that can
            be pickled. The report is the same with any executor, and without one.

    Returns:
        A report: `ok`, `findings`, `explored`, `complete`, `ignored`.

    Raises:
        PalladioTypeError, PalladioValueError: for bad arguments; and whatever the call itself raises.
    """
    with at_call():
        if not callable(fn):
            raise PalladioTypeError("check runs a function", argument="fn", got=repr(fn))
        if schedules is not None and (not isinstance(schedules, int) or schedules < 1):
            raise PalladioValueError("at least one schedule runs", argument="schedules", got=repr(schedules))
        if not isinstance(seed, int):
            raise PalladioTypeError("a seed is an integer", argument="seed", got=repr(seed))
        if progress is not None and not callable(progress):
            raise PalladioTypeError("progress is a function of two numbers", argument="progress", got=repr(progress))
        codes = checked_codes(ignore, "ignore")
        if not isinstance(strict, bool):
            raise PalladioTypeError("strict is a bool", argument="strict", got=repr(strict))
        seconds = _seconds(repairs)
        combinations = _combinations(sizes)
        policies = [_named(schedule)] if schedule is not None else sampled(schedules or SAMPLED, seed)
    report = Report(ignore=codes, strict=strict, call=partial(fn, *args, **combinations[0]), sizes=len(combinations))
    complete = exhaustive and schedule is None
    for sized in combinations:
        part = Report(ignore=codes)
        call = partial(fn, **sized) if sized else fn
        tell = progress and _behind(progress, report.explored, len(policies) * len(combinations))
        if exhaustive and schedule is None:
            _explore(part, call, args, schedules or EXPLORED, tell, executor)
        else:
            _sample(part, call, args, policies, tell, executor)
        details = (f"with {', '.join(f'{name} = {value}' for name, value in sized.items())}",) if sized else ()
        found = (replace(each, details=(*each.details, *details)) for each in (*part.findings, *part.ignored))
        _keep(report, found)
        report.explored += part.explored
        complete = complete and part.complete
    report.complete = complete
    if not report.findings and not report.ignored:
        report.beyond = _beyond(fn, args, combinations)
    if seconds and report.of_level("error"):
        _repair(report, [partial(fn, *args, **sized) for sized in combinations], policies, seconds)
    return report


def _repair(report: Report, runs: Sequence[Callable[[], Any]], policies: Sequence[Policy], seconds: float) -> None:
    """Add repairs to the errors of a report, checked under its schedules; an exhaustive check has too many of them."""
    report.findings = repair_all(report.findings, runs, policies[:SAMPLED], seconds)


def _seconds(repairs: Any) -> float:
    """The time in which repairs are looked for, 0 where none are."""
    if not isinstance(repairs, (bool, int, float)) or repairs < 0:
        raise PalladioValueError("a search takes a number of seconds", argument="repairs", got=repr(repairs))
    return SECONDS if repairs is True else float(repairs)


def _beyond(fn: Callable[..., Any], args: tuple[Any, ...], combinations: Sequence[dict[str, Any]]) -> str:
    """The sizes for which a verdict without findings follows by induction."""
    if len(combinations) < FEWEST or any(len(each) != 1 for each in combinations):
        return ""
    (name,) = combinations[0]
    values = [each[name] for each in combinations]
    if not all(type(value) is int for value in values) or values != list(range(values[0], values[0] + len(values))):
        return ""

    def recorded(value: int, shared: set[str] | None) -> Trace:
        recorder = Recorder(shared)
        run_once(partial(fn, **{name: value}), args, InTurn, recorder.follow)
        return recorder.trace

    shared: set[str] = set()
    for value in values:
        trace = recorded(value, None)
        if not trace.settled or trace.launches != 1:
            return ""
        shared |= trace.shared
    return f"{name} ≥ {values[0]}" if holds({value: recorded(value, shared) for value in values}) else ""


def _combinations(sizes: Mapping[str, Iterable[Any]] | None) -> list[dict[str, Any]]:
    """Every choice of one value for each name."""
    if sizes is None:
        return [{}]
    if not isinstance(sizes, Mapping) or not all(isinstance(name, str) for name in sizes):
        raise PalladioTypeError(
            "sizes are values for keyword arguments of the function",
            argument="sizes",
            expected='such as {"k": range(1, 9)}',
            got=repr(sizes),
        )
    found = [dict(zip(sizes, values, strict=True)) for values in itertools.product(*sizes.values())]
    if not found:
        raise PalladioValueError("each size has at least one value", argument="sizes", got=repr(dict(sizes)))
    return found


def _behind(progress: Progress, before: int, total: int) -> Progress:
    """Progress that counts on from a number of schedules."""
    return lambda done, known: progress(before + done, total if known is not None else None)


def _sample(
    report: Report,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policies: Sequence[Policy],
    progress: Progress | None,
    executor: Executor | None,
) -> None:
    """Run these schedules, spread by an executor if there is one."""
    places = Places()
    here = policies if executor is None else policies[:1]
    for policy in here:
        prepare = _impatient if any(each.code == "deadlock" for each in (*report.findings, *report.ignored)) else None
        run = run_once(fn, args, lambda policy=policy: policy, prepare, places=places)  # type: ignore[misc]
        _keep(report, run.findings)
        report.explored += 1
        if progress is not None:
            progress(report.explored, len(policies))
    if executor is None:
        return
    names = [policy.name for policy in policies[1:]]
    parts = [names[start : start + PART] for start in range(0, len(names), PART)]
    for part, findings in zip(parts, executor.map(partial(run_named, fn, args), parts), strict=True):
        _keep(report, findings)
        report.explored += len(part)
        if progress is not None:
            progress(report.explored, len(policies))


def run_named(fn: Callable[..., Any], args: tuple[Any, ...], names: Sequence[str]) -> list[Finding]:
    """Run the schedules of these names, one after the other: what an executor's worker does."""
    places, found = Places(), []
    for name in names:
        prepare = _impatient if any(each.code == "deadlock" for each in found) else None
        found += run_once(fn, args, partial(named, name), prepare, places=places).findings
    return found


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


def picture(fn: Callable[..., Any], args: tuple[Any, ...], finding: Finding, model: CostModel = H100) -> Timeline:
    """The model timeline of the schedule that found something, with both accesses and the edge that is missing.

    Raises:
        PalladioValueError: if the function launches nothing.
    """
    timers: list[Timer] = []

    def prepare(machine: Machine) -> None:
        machine.timer = Timer(model, follows=True)
        timers.append(machine.timer)
        machine.checker.found.findings = Told(finding, machine.timer)  # type: ignore[union-attr]

    run_once(fn, args, lambda: named(finding.schedule), prepare)
    if not timers:
        raise PalladioValueError("nothing was launched, so there is no timeline", argument="fn")
    shown = next((timer for timer in timers if timer.accuses), timers[-1])
    return shown.timeline(f"{function_name(fn)}: {finding.code}", f"schedule {finding.schedule}")


class Told(list[Finding]):
    """Findings of a run whose timer is told of one of them as it is found."""

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


def _impatient(machine: Machine) -> None:
    """Once a deadlock is known, threads that only poll are given up soon."""
    machine.most_spins //= 100


def _keep(report: Report, findings: Iterable[Finding]) -> bool:
    """Add the mistakes that are new to a report; whether there were any."""
    anything = False
    for finding in findings:
        kept = report.ignored if finding.code in report.ignore else report.findings
        number = next((n for n, each in enumerate(kept) if each.covers(finding)), None)
        if number is None:
            kept.append(finding)
        elif LEVELS.index(finding.level) < LEVELS.index(kept[number].level):  # worse than in other schedules
            del kept[number]
            kept.append(finding)
        else:
            joined = kept[number].joined(finding)
            if joined is kept[number]:
                continue
            kept[number] = joined
        anything = True
    return anything


def _explore(
    report: Report,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    limit: int,
    progress: Progress | None,
    executor: Executor | None,
) -> None:
    """Run every schedule that can differ, spread by an executor if there is one."""
    exploration, quiet, places = Exploration(limit), 0, Places()
    for branches in exploration:
        parts = [branches[start : start + PART] for start in range(0, len(branches), PART)]
        if executor is None:
            ran = (run_branch(fn, args, branch, places) for branch in branches)
        else:
            ran = itertools.chain.from_iterable(executor.map(partial(run_branches, fn, args), parts))
        for outcome, found in ran:
            exploration.add(outcome)
            quiet = 0 if _keep(report, found) else quiet + 1
            report.explored = exploration.explored
            if progress is not None:
                progress(report.explored, None)
            if report.findings and quiet >= BEHIND:
                return
    report.complete = exploration.complete


def run_branches(
    fn: Callable[..., Any], args: tuple[Any, ...], branches: Sequence[Branch]
) -> list[tuple[Outcome, list[Finding]]]:
    """Run the schedules of these branches, one after the other: what an executor's worker does."""
    places = Places()
    return [run_branch(fn, args, branch, places) for branch in branches]


def run_branch(
    fn: Callable[..., Any], args: tuple[Any, ...], branch: Branch, places: Places
) -> tuple[Outcome, list[Finding]]:
    """Run the schedule of a branch of an exploration: what the exploration learns from it, and what was found."""
    schedule = Schedule(branch)
    try:
        found = run_once(fn, args, lambda: schedule, places=places).findings
    except Cut:
        found = []
    except Changed:
        name = function_name(fn)
        raise PalladioValueError(
            "exhaustive exploration runs the function again and again, and it does not do the same each time",
            argument=f"fn ({name})",
            hint="take random numbers, the time and other state of the program out of it, or leave out exhaustive=True",
        ) from None
    return schedule.outcome, [replace(finding, schedule=schedule.name) for finding in found]


def _named(name: str) -> Policy:
    try:
        return named(str(name))
    except (KeyError, ValueError, IndexError):
        raise PalladioValueError(
            "no schedule has this name",
            argument="schedule",
            expected="as a finding gives it: round_robin, latest, random:latest:7, pct:3",
            got=repr(name),
        ) from None


def run_once(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: Callable[[], Policy],
    prepare: Any = None,
    places: Places | None = None,
) -> Session:
    """Run a function once on the simulator, collecting findings."""
    made = Session(policy, prepare=prepare, places=Places() if places is None else places)
    with use(SIMULATOR), session(made) as current:
        try:
            fn(*args)
        except CheckError as error:  # a run that cannot go on: its finding is kept already
            if error.finding not in current.findings:
                current.findings.append(error.finding)
    return current
