"""Repairs of mutants: is the kernel itself found again, or one equal to it? `python -m tools.mutants --repairs`.

A repair is equal to the kernel if it has no finding in any schedule of the matrix and the kernel's own results in each.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from palladio.base.errors import PalladioError
from palladio.driver.checks.check import check
from palladio.driver.checks.report import Report
from palladio.driver.executors import REFERENCE, SIMULATOR
from palladio.driver.repairs.calls import Call, agree
from palladio.driver.repairs.search import Budget, Repair, keys, repaired
from palladio.ir.core import Program
from palladio.machine.check.findings import Finding
from palladio.machine.run.policies import schedules

SECONDS = 120.0
"""Seconds of processor time for the search of one mutant."""

SCHEDULES = 4
"""The number of schedules that check a mutant and verify its repair; the matrix's schedules judge the repair."""


@dataclass(frozen=True)
class Outcome:
    """The outcome for a mutant: "equal", "other" or "none", the repair's text, and the processor time in seconds."""

    kernel: str
    mutation: str
    place: str
    found: str
    text: str
    seconds: float


class Log:
    """The outcomes in a file, one for each line, so that a run that was cut goes on where it stopped.

    Each line has the `key` of the mutant's program and of the schedules: those of others are passed over.

    Args:
        path: the file; None to keep nothing. It is for one state of the repairs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.known: dict[str, Outcome | None] = {}
        for line in path.read_text("utf-8").splitlines() if path is not None and path.exists() else ():
            each = json.loads(line)
            if "key" in each:
                self.known[each["key"]] = Outcome(**each["outcome"]) if each["outcome"] else None

    def add(self, key: str, found: Outcome | None) -> None:
        """Add the outcome for a mutant, by its key; None if it has no error."""
        self.known[key] = found
        if self._path is not None:
            line = {"key": key, "outcome": found and asdict(found)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def key(kernel: str, number: int, program: Program, count: int) -> str:
    """The key of a mutant's outcome: its kernel, its number, and a digest of its text and the number of schedules."""
    digest = blake2b(f"{count} {program}".encode(), digest_size=16).hexdigest()
    return f"{kernel} {number} {digest}"


def broken(program: Program, values: Sequence[Any], count: int = SCHEDULES) -> tuple[Report, Call]:
    """The report of a mutant, and the call in which it is repaired."""
    run = SIMULATOR.load(program)
    report = check(lambda: run(values), schedules=count)
    try:
        definition: Any = REFERENCE.load(program)(values)
    except PalladioError:  # a deadlock
        definition = None
    return report, Call(program, values, definition)


def restores(program: Program, values: Sequence[Any], wanted: Sequence[Any], count: int = SCHEDULES) -> bool:
    """True if a program has no error in any schedule, and these results in all of them."""
    run = SIMULATOR.load(program)
    results: list[bool] = []
    report = check(lambda: results.append(agree(run(values), wanted)), schedules=count)
    return report.ok and len(results) == count and all(results)


def outcome(
    kernel: str, mutation: str, place: str, program: Program, values: Sequence[Any], wanted: Sequence[Any], count: int
) -> Outcome | None:
    """Search for the repair of a mutant; None if a check finds no error in it."""
    report, call = broken(program, values)
    start, budget = time.process_time(), Budget(SECONDS, time.process_time)
    names = [policy.name for policy in schedules(SCHEDULES, 0)]
    known = keys(report.findings)
    errors = report.of_level("error")
    if not errors:
        return None
    repair = _best(errors, call, names, known, budget)
    found = "none" if repair is None else "other"
    if repair is not None and restores(repair.program, values, wanted, count):
        found = "equal"
    text = "" if repair is None else repair.text
    return Outcome(kernel, mutation, place, found, text, time.process_time() - start)


def _best(
    errors: Sequence[Finding], call: Call, names: Sequence[str], known: Collection[Any], budget: Budget
) -> Repair | None:
    """The first repair of an error that leaves no finding and keeps the results; else the one with the fewest left."""
    found: list[Repair] = []
    for error in errors:
        repair = repaired([call], error, names, known, budget)
        if repair is not None:
            found.append(repair)
            if not repair.left and repair.results != "other":
                return repair
    return next(iter(sorted(found, key=lambda each: len(each.left))), None)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The outcomes by class of mutation, as Markdown, and the share that is equal to the kernel."""
    by_class: dict[str, Counter[str]] = defaultdict(Counter)
    for each in outcomes:
        by_class[each.mutation][each.found] += 1
    lines = ["| mutation | mutants | the kernel or an equal one | another | none |", "| --- | --- | --- | --- | --- |"]
    for name, count in by_class.items():
        lines.append(f"| {name} | {count.total()} | {count['equal']} | {count['other']} | {count['none']} |")
    equal = sum(each.found == "equal" for each in outcomes)
    seconds = sorted(each.seconds for each in outcomes)
    if outcomes:
        lines += [
            "",
            f"{equal} of {len(outcomes)} ({equal / len(outcomes):.0%}); of the processor's time a median of "
            f"{seconds[len(seconds) // 2]:.1f} s and {sum(seconds) / 60:.0f} minutes in all",
        ]
    return "\n".join(lines)
