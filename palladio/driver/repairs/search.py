"""Verified repairs: the cheapest single change of a kernel that removes a finding, checked like the kernel itself.

Changes are tried on the traced program (`palladio.machine.repair`), tier by tier. One counts as a repair if no schedule
of the check finds the mistake or a new one, and all of them have the evaluator's results: those of the original kernel,
unless the mistake makes its results indefinite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any

from palladio.base.collector import infrequent_collections
from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, PalladioError
from palladio.driver.executors import REFERENCE, SIMULATOR
from palladio.driver.repairs.calls import Call, Results, agree, recorded
from palladio.driver.repairs.run_record import Meeting, RunRecord
from palladio.driver.simulation import Session, session
from palladio.ir.core import Program, Var
from palladio.ir.evaluate import Runner
from palladio.ir.verify import verify
from palladio.machine.check.accesses import Places
from palladio.machine.check.findings import CheckError, Finding
from palladio.machine.repair.candidates import Candidate, Candidates
from palladio.machine.repair.edit import Path
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Policy, named
from palladio.machine.timeline.records import duration_text
from palladio.machine.timeline.timing import Earliest, Timer

SECONDS = 60.0
"""The default time for the repairs of one report."""

STEPS = 20_000
"""A changed kernel counts as endless after this many synchronising steps plus ten times those of the original."""

AT_LEAST = 4
"""The number of partial repairs that are verified even after the time is over."""

DEFINITE = 4
"""The number of schedules that decide whether a kernel has definite results."""


@dataclass(frozen=True)
class Repair:
    """A single change that removes a finding.

    Fields:
        text: the change, as a line to paste.
        program: the changed program.
        duration: its modelled time in nanoseconds.
        schedules: the number of schedules in which it is clean.
        results: "same" if equal to the original kernel's on the evaluator; "definite" if the original has no definite
            ones; or "other".
        left: the keys of the remaining findings.
    """

    text: str
    program: Program = field(repr=False)
    duration: float
    schedules: int
    results: str = "same"
    left: frozenset[Any] = field(default=frozenset(), repr=False)

    @property
    def sentence(self) -> str:
        """The change with its evidence, as a sentence."""
        ran = f"clean in {self.schedules} schedule{'s' if self.schedules > 1 else ''}"
        return f"{self.text} ({ran}; {_RESULTS[self.results]}; {duration_text(self.duration)} of modelled time)"


_RESULTS = {
    "same": "same results",
    "definite": "the same results in all, where the kernel as it stands has none",
    "other": "the same results in all, but not those of the kernel as it stands",
}


class Budget:
    """A time budget, by default of the wall clock, and the candidates tried in it.

    Fields:
        tried: the number of changes.
        failed: the keys of the finding that ended the run of a change, by its program and key.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.tried = 0
        self.failed: dict[Any, frozenset[Any]] = {}

    @property
    def spent(self) -> bool:
        """True when the time is over."""
        return self._clock() > self._end


def keys(findings: Iterable[Finding]) -> frozenset[Any]:
    """The keys of findings, and of all operands of each."""
    return frozenset(operand.key for each in findings for operand in each.operands)


def repair_all(
    findings: Sequence[Finding], runs: Sequence[Callable[[], Any]], policies: Sequence[Policy], seconds: float
) -> list[Finding]:
    """The findings, each error with the repair that was found for it.

    Args:
        runs: the calls of the check, one for each combination of sizes.
        policies: the schedules under which a repair is checked.
        seconds: the time after which the search ends.
    """
    calls = [call for run in runs for call in recorded(run)]
    names = [policy.name for policy in policies]
    known = keys(findings)
    budget = Budget(seconds)
    texts: dict[Any, str] = {}
    for finding in findings:
        if finding.level != "error" or finding.key in texts:
            continue
        tried = budget.tried
        repair = repaired(calls, finding, names, known, budget)
        if repair is None:
            end = f" in {seconds:g} seconds" if budget.spent else ""
            texts[finding.key] = f"none found among {budget.tried - tried} single changes{end}"
            continue
        for other in findings:  # one mistake may have several findings
            if other.level == "error" and keys([other]).isdisjoint(repair.left):
                texts[other.key] = repair.sentence
    return [replace(each, repair=texts.get(each.key, "")) for each in findings]


def repaired(
    calls: Sequence[Call], finding: Finding, names: Sequence[str], known: Collection[Any], budget: Budget
) -> Repair | None:
    """The cheapest single change that removes a finding, None if none does or the time is over.

    Args:
        calls: the calls that may contain it.
        names: the schedules of the check.
        known: the keys of all findings of the check.
    """
    for call in calls:
        search = Search(call, finding, names, frozenset(known) - keys([finding]), budget)
        candidates = Candidates(call.program, finding, search.hopeless)
        if candidates.guilty:
            with infrequent_collections():
                found = search.first(candidates.rounds())
            if found is not None or budget.spent:
                return found
    return None


@dataclass(frozen=True, eq=False)
class _Clean:
    """A candidate that is clean in the timed run: its runner, results, modelled time, and remaining findings.

    `elsewhere` is as in `Candidate`.
    """

    text: str
    program: Program
    run: Runner
    results: Results
    duration: float
    changes: bool
    elsewhere: bool
    left: frozenset[Any]


_ALWAYS = frozenset((object(),))
"""A key that is never allowed."""


class _Unclean(BaseException):
    """A run has a finding that a repair may not have. Not an `Exception`, so error handlers in the run ignore it."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


class Search:
    """The search for one finding of one call."""

    def __init__(
        self, call: Call, finding: Finding, names: Sequence[str], known: frozenset[Any], budget: Budget
    ) -> None:
        self.call = call
        self.code = finding.code
        self.keys = keys([finding])
        self.known = known
        self.budget = budget
        self.names = sorted(names, key=lambda name: name != finding.schedule)
        self.places = Places()
        self.failed: frozenset[Any] | None = None

    @cached_property
    def given(self) -> tuple[RunRecord, int]:
        """The run of the original kernel in the schedule of the finding, and its number of synchronising steps."""
        machines: list[Machine] = []
        record = RunRecord(self.call.program)

        def recorded(machine: Machine) -> None:
            machine.timer = record
            machines.append(machine)

        findings = Meeting(self.keys, record)
        with session(Session(partial(named, self.names[0]), findings, prepare=recorded, places=self.places)):
            with suppress(CheckError):
                SIMULATOR.load(self.call.program)(self.call.values)
                record.ended = all(each.code != "deadlock" for each in findings)
        return record, sum(machine.worked for machine in machines)

    def hopeless(self, path: Path, index: int, awaited: Var | None = None) -> bool:
        """True if a change at a point of the program cannot remove the finding.

        Args:
            awaited: the barrier of an inserted wait.
        """
        record, _ = self.given
        return not record.reaches(path, index) or (awaited is not None and record.starves(path, index, awaited))

    @cached_property
    def most_steps(self) -> int:
        """The number of synchronising steps after which a changed kernel counts as endless."""
        return STEPS + 10 * self.given[1]

    @cached_property
    def definite(self) -> bool:
        """True if the original kernel has the evaluator's results in every schedule.

        If two accesses are unordered, the evaluator's order is one of two.
        """
        if self.code in ("data-race", "global-race"):
            return False
        run, names = SIMULATOR.load(self.call.program), self.names[:DEFINITE]
        return all(agree(self._run(run, partial(named, name), None)[1], self.call.definition) for name in names)

    def first(self, rounds: Iterable[Iterable[Iterator[Candidate]]]) -> Repair | None:
        """The best change of the first round with one that leaves no finding; else the change with the fewest left."""
        found: list[Repair] = []
        for tiers in rounds:
            best = self.best(tiers)
            if best is not None:
                found.append(best)
            if self.budget.spent or (best is not None and not best.left):
                break
        return min(found, key=lambda each: len(each.left), default=None)

    def best(self, tiers: Iterable[Iterator[Candidate]]) -> Repair | None:
        """The cheapest change, from the first tier with any, that is clean and preserves the results.

        Otherwise the best partial repair of all tiers. A kernel without definite results gets definite ones. A change
        may leave other findings of the check, which another mistake may cause. A change that accesses other memory may
        change the results, since an index was wrong; of these the nearest to the finding comes first.
        """
        rest: list[_Clean] = []
        for tier in tiers:
            clean = list(self._clean(tier))
            whole = [each for each in clean if not each.left and (not each.changes or self.call.definition is None)]
            for each in sorted(whole, key=lambda each: each.duration):
                if self._holds(each):
                    return self._repair(each)
            rest += [each for each in clean if each not in whole]
            if self.budget.spent:
                break
        rest.sort(key=lambda each: (len(each.left), each.elsewhere, 0 if each.elsewhere else each.duration))
        tested = (each for n, each in enumerate(rest) if n < AT_LEAST or not self.budget.spent)
        return next((self._repair(each) for each in tested if self._holds(each)), None)

    def _clean(self, tier: Iterator[Candidate]) -> Iterator[_Clean]:
        """The candidates of a tier that are clean in the schedule of the finding and in the timed run."""
        for candidate in tier:
            if self.budget.spent:
                return
            key = self.call.program, candidate.key
            if not self.budget.failed.get(key, self.known) <= self.known:
                continue  # tried before, perhaps for another finding
            self.budget.tried += 1
            found = self._tried(candidate)
            if candidate.key is not None and self.failed is not None:
                self.budget.failed[key] = self.failed
            if found is not None and (candidate.elsewhere or not found.changes or not self.definite):
                yield found

    def _repair(self, each: _Clean) -> Repair:
        results = "same" if not each.changes else "other" if self.definite else "definite"
        return Repair(each.text, each.program, each.duration, len(self.names), results, each.left)

    def _tried(self, candidate: Candidate) -> _Clean | None:
        """A candidate after its timed run; None if it is not clean there or in the schedule of the finding.

        Most candidates do not remove the finding; an untimed run of its own schedule shows that at less cost.
        """
        timer = Timer()

        def timed(machine: Machine) -> None:
            machine.timer = timer

        try:
            run = SIMULATOR.load(candidate.program)
            self.failed = None
            found, _ = self._run(run, partial(named, self.names[0]), self.known)
            findings, results = self._run(run, Earliest, self.known, timed)
        except _Unclean as error:
            self.failed = keys([error.finding])
            return None
        except (PalladioError, InternalError):  # not a program, or one that cannot run
            self.failed = _ALWAYS
            return None
        changes = not agree(results, self.call.definition)
        duration = timer.timeline("").duration
        left = keys(each for each in (*found, *findings) if each.level != "hint")
        return _Clean(
            candidate.text, candidate.program, run, results or (), duration, changes, candidate.elsewhere, left
        )

    def _holds(self, clean: _Clean) -> bool:
        """True if a candidate is clean and has the evaluator's results in all schedules."""
        try:
            verify(clean.program, "a repair")
            wanted = REFERENCE.load(clean.program)(self.call.values)
            return agree(clean.results, wanted) and all(
                agree(self._run(clean.run, partial(named, name), self.known)[1], wanted) for name in self.names
            )
        except (PalladioError, InternalError, _Unclean):
            return False

    def _run(
        self,
        run: Runner,
        policy: Callable[[], Policy],
        allowed: frozenset[Any] | None,
        prepare: Callable[[Machine], None] | None = None,
    ) -> tuple[list[Finding], Results | None]:
        """The findings and results of a program under a schedule.

        Raises:
            _Unclean: at the first finding that is not a hint and not allowed; None allows all.
        """
        findings = [] if allowed is None else _Allowed(allowed)
        results = None

        def prepared(machine: Machine) -> None:
            machine.expect_deadlock()
            machine.explains = False
            machine.most_worked = self.most_steps
            if prepare is not None:
                prepare(machine)

        with session(Session(policy, findings, prepare=prepared, places=self.places)) as current:
            try:
                results = run(self.call.values)
            except CheckError as error:
                if error.finding not in current.findings:
                    current.findings.append(error.finding)
        return current.findings, results


class _Allowed(list[Finding]):
    """Findings of a run; the first one that is not allowed ends the run."""

    def __init__(self, allowed: frozenset[Any]) -> None:
        super().__init__()
        self.allowed = allowed

    def append(self, finding: Finding) -> None:
        """Keep a finding, or end the run."""
        if finding.level != "hint" and not keys([finding]) <= self.allowed:
            raise _Unclean(finding)
        super().append(finding)
