"""Runs of a check: one or several schedules of a function, in this process or in a worker of an executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from palladio.base.collector import infrequent_collections
from palladio.base.errors import PalladioValueError
from palladio.driver.executors import SIMULATOR, use
from palladio.driver.simulation import Session, session
from palladio.machine.check.accesses import Places
from palladio.machine.check.findings import CheckError, Finding
from palladio.machine.run.explore import Branch, Changed, Cut, Outcome, Schedule
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Policy, named
from palladio.trace.functions import function_name


def run_once(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: Callable[[], Policy],
    prepare: Any = None,
    places: Places | None = None,
) -> Session:
    """Run a function once on the simulator, collecting findings."""
    made = Session(policy, prepare=prepare, places=Places() if places is None else places)
    with use(SIMULATOR), session(made) as current, infrequent_collections():
        try:
            fn(*args)
        except CheckError as error:  # a run that cannot continue
            if error.finding not in current.findings:
                current.findings.append(error.finding)
    return current


def run_named(fn: Callable[..., Any], args: tuple[Any, ...], names: Sequence[str]) -> list[Finding]:
    """Run the schedules of these names, one after the other; the task of an executor's worker."""
    places, found = places_of(fn), []
    for name in names:
        prepare = Machine.expect_deadlock if any(each.code == "deadlock" for each in found) else None
        found += run_once(fn, args, partial(named, name), prepare, places=places).findings
    return found


def places_of(fn: Callable[..., Any]) -> Places:
    """A worker's cached `Places` for a function, as long as the function lives; OS threads have separate caches."""
    kept = _workers.__dict__.setdefault("places", WeakKeyDictionary())
    try:
        return kept.setdefault(fn, Places())  # type: ignore[no-any-return]
    except TypeError:  # it has no hash, or cannot be referred to weakly
        return Places()


_workers = threading.local()


def run_branches(
    fn: Callable[..., Any], args: tuple[Any, ...], branches: Sequence[Branch]
) -> list[tuple[Outcome, list[Finding]]]:
    """Run the schedules of these branches, one after the other; the task of an executor's worker."""
    places = places_of(fn)
    return [run_branch(fn, args, branch, places) for branch in branches]


def run_branch(
    fn: Callable[..., Any], args: tuple[Any, ...], branch: Branch, places: Places
) -> tuple[Outcome, list[Finding]]:
    """Run the schedule of a branch of an exploration; returns its outcome and the findings."""
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
