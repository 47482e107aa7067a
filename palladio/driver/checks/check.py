"""`check`: one call under many schedules, and the report of its findings."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.driver.checks.larger import larger_sizes
from palladio.driver.checks.report import Report
from palladio.driver.checks.runs import places_of, run_branch, run_branches, run_named, run_once
from palladio.driver.repairs.search import SECONDS, repair_all
from palladio.machine.check.accesses import Places
from palladio.machine.check.findings import Finding, checked_codes
from palladio.machine.run.explore import Exploration
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Policy, named
from palladio.machine.run.policies import schedules as sampled

SAMPLED = 32
"""The number of schedules of a check by default."""

EXPLORED = 100_000
"""The most schedules of an exhaustive check by default."""

SETTLED = 1_000
"""The number of schedules without a new mistake after which an exhaustive check that has found something ends."""

PART = 4
"""The most schedules that a worker runs at a time."""

SHARE = 4
"""The least number of parts of the remaining schedules, so that no worker waits long for others at the end."""

Progress = Callable[[int, int | None], None]
"""Called with the number of completed schedules and the total, None if that is not known."""


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
        fn: a kernel call, or any function that makes kernel calls.
        args: its arguments.
        schedules: the number of schedules to run, 32 by default: round robin, latest completions, then random ones.
        seed: the first seed of the random ones; the same seed gives the same schedules.
        exhaustive: run every schedule whose order of synchronisation differs from all others', each once, up to
            `schedules` of them, 100,000 by default. The report is `complete` if these were all. It is not if more
            remain, if threads poll (`barrier_test`, `semaphore_read`), if a run breaks off, or if 1,000
            consecutive schedules have shown nothing new after a finding.
        schedule: run only this one, by its name in a finding.
        progress: called after each schedule with the number so far and the number of all, None if not known.
        ignore: codes of findings that do not count, e.g. ("unobserved-completion",). The report names and counts
            them separately.
        strict: the report is `ok` only if nothing was found at all. Otherwise warnings (probably unintended, e.g. an
            output that nothing writes) and hints (harmless on the hardware in the present kernel) do not count.
        sizes: keyword arguments of `fn`, each with its values: the check runs for every combination of them, and each
            finding names its combination.
        repairs: search for the cheapest single change of the kernel that removes each error. True gives the search a
            minute, a number is a time in seconds.
        executor: runs the schedules after the first in parallel. An executor of processes needs a function and
            arguments that can be pickled. The report is the same with any executor, and without one.

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
        policies = [_named(schedule)] if schedule is not None else sampled(_made(schedules, exhaustive), seed)
    report = Report(ignore=codes, strict=strict, call=partial(fn, *args, **combinations[0]), sizes=len(combinations))
    complete = exhaustive and schedule is None
    for sized in combinations:
        part = Report(ignore=codes)
        call = partial(fn, **sized) if sized else fn
        tell = progress and _continued(progress, report.explored, len(policies) * len(combinations))
        with _sent(fn, args, executor):
            if exhaustive and schedule is None:
                _explore(part, call, args, schedules or EXPLORED, tell, executor)
            else:
                _sample(part, call, args, policies, tell, executor)
        details = (f"with {', '.join(f'{name} = {value}' for name, value in sized.items())}",) if sized else ()
        report.add(replace(each, details=(*each.details, *details)) for each in (*part.findings, *part.ignored))
        report.explored += part.explored
        complete = complete and part.complete
    report.complete = complete
    if not report.findings and not report.ignored:
        report.beyond, report.limit = larger_sizes(fn, args, combinations)
    if seconds and report.of_level("error"):
        _repair(report, [partial(fn, *args, **sized) for sized in combinations], policies, seconds)
    return report


@contextmanager
def _sent(fn: Callable[..., Any], args: tuple[Any, ...], executor: Executor | None) -> Iterator[None]:
    """Report a function or arguments that do not get to the processes of an executor.

    Some executors pickle more than `pickle` does, so that nothing is refused before one has tried.

    Raises:
        PalladioTypeError: no executor, or a function or arguments that cannot be pickled.
    """
    if executor is not None and not callable(getattr(executor, "submit", None)):
        rule, expected = "schedules are spread over an executor", "one of concurrent.futures, or its like"
        with at_call():
            raise PalladioTypeError(rule, argument="executor", expected=expected, got=repr(executor))
    try:
        yield
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        if executor is None or isinstance(error, PalladioError) or _is_picklable((fn, args)):
            raise
        with at_call():
            raise PalladioTypeError(
                "the processes of the executor are sent a pickle of the function and its arguments",
                argument="args" if _is_picklable(fn) else "fn",
                got=str(error),
                hint="define functions at the top of a module, and import it in a program that is not interactive",
            ) from error


def _is_picklable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except (AttributeError, TypeError, pickle.PicklingError):
        return False
    return True


def _repair(report: Report, runs: Sequence[Callable[[], Any]], policies: Sequence[Policy], seconds: float) -> None:
    """Add repairs to the errors of a report, checked under its schedules, at most `SAMPLED` of them."""
    report.findings = repair_all(report.findings, runs, policies[:SAMPLED], seconds)


def _made(schedules: int | None, exhaustive: bool) -> int:
    """The number of schedules to make. Those of an exhaustive check are for repairs alone, and each takes 3 KB."""
    return min(schedules or SAMPLED, SAMPLED) if exhaustive else schedules or SAMPLED


def _seconds(repairs: Any) -> float:
    """The time for the search for repairs, 0 for no search."""
    if not isinstance(repairs, (bool, int, float)) or repairs < 0:
        raise PalladioValueError("a search takes a number of seconds", argument="repairs", got=repr(repairs))
    return SECONDS if repairs is True else float(repairs)


def _combinations(sizes: Mapping[str, Iterable[Any]] | None) -> list[dict[str, Any]]:
    """Every combination of one value for each name."""
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


def _continued(progress: Progress, before: int, total: int) -> Progress:
    """Progress that continues counting from a number of schedules."""
    return lambda done, known: progress(before + done, total if known is not None else None)


def _sample(
    report: Report,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policies: Sequence[Policy],
    progress: Progress | None,
    executor: Executor | None,
) -> None:
    """Run these schedules, distributed by an executor if there is one."""
    names = [policy.name for policy in policies[1:]] if executor is not None else []
    parts = [*_parts(names)]
    spread = [executor.submit(run_named, fn, args, part) for part in parts] if executor is not None else []
    try:
        places = Places() if executor is None else places_of(fn)  # it may run parts in this process too
        for policy in policies[: len(policies) - len(names)]:
            deadlock = any(each.code == "deadlock" for each in (*report.findings, *report.ignored))
            prepare = Machine.expect_deadlock if deadlock else None
            run = run_once(fn, args, lambda policy=policy: policy, prepare, places=places)  # type: ignore[misc]
            _count(report, run.findings, 1, progress, len(policies))
        for part, found in zip(parts, spread, strict=True):
            _count(report, found.result(), len(part), progress, len(policies))
    finally:
        for each in spread:
            each.cancel()


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The schedules in parts for workers."""
    start = 0
    while start < len(names):
        size = min(PART, -(-(len(names) - start) // SHARE))
        yield names[start : start + size]
        start += size


def _count(report: Report, findings: Iterable[Finding], explored: int, progress: Progress | None, total: int) -> None:
    """Add the findings of some further schedules."""
    report.add(findings)
    report.explored += explored
    if progress is not None:
        progress(report.explored, total)


def _explore(
    report: Report,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    limit: int,
    progress: Progress | None,
    executor: Executor | None,
) -> None:
    """Run every distinguishable schedule, distributed by an executor if there is one."""
    exploration, quiet, places = Exploration(limit), 0, Places()
    for branches in exploration:
        parts = [branches[start : start + PART] for start in range(0, len(branches), PART)]
        if executor is None:
            ran = (run_branch(fn, args, branch, places) for branch in branches)
        else:
            ran = itertools.chain.from_iterable(executor.map(partial(run_branches, fn, args), parts))
        for outcome, found in ran:
            exploration.add(outcome)
            quiet = 0 if report.add(found) else quiet + 1
            report.explored = exploration.explored
            if progress is not None:
                progress(report.explored, None)
            if report.findings and quiet >= SETTLED:
                return
    report.complete = exploration.complete


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
