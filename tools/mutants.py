"""`python -m tools.mutants`: break each concurrent kernel in every way of the mutation classes; what says the checker?

A mutant is a kernel's program with one thing changed (`tools.mutation`). Each runs under up to `SCHEDULES` schedules
until something is found. A mutant without a finding must have the kernel's own results, bit by bit, in all of them and
in `EXPLORED` more of an exhaustive exploration, and a reason why the change is harmless: one that follows from the
kernel's run, or one listed in `REASONS`. With --write the table in docs/checking.md is updated.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from palladio.base.errors import InternalError, PalladioError
from palladio.driver.checks.check import check
from palladio.driver.executors import Executor, simulator, use
from palladio.driver.simulation import Session, SimulatorOptions, session
from palladio.ir.core import Eqn, Program, walk
from palladio.machine.check.accesses import Places
from palladio.machine.check.findings import CheckError
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import RoundRobin, schedules
from palladio.machine.timeline.timing import Timer
from palladio.ops.threads.launch import launch
from palladio.types.effects import EffectKind
from tools.mutant_kernels import Kernel, kernels
from tools.mutant_repairs import Log, Outcome, key, outcome, summary
from tools.mutation import CLASSES, NO_DELAY, WRONG_INDEX, Mutant, mutants, place

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
SCHEDULES = 64
EXPLORED = 200
TOLERANCE = 5e-3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reason:
    """The reason why a mutant is harmless.

    Fields:
        kernel, what: patterns of the kernel's name and of `Mutant.what`.
        most: the most mutants of one kernel that it explains, if a line occurs several times.
    """

    kernel: str
    mutation: str
    what: str
    text: str
    most: int = 1


_ENDS = "the kernel ends, and before that only the sources are its own: targets are complete for whoever waits for it"
_TURN = "the arrival only passes the turn on; the wait stays in front of what it is for"
_ASKED = "a warpgroup that does not ask keeps the registers that it began with: it is slower on hardware, and not wrong"
_LAST = "only the last step is masked: no copy overwrites its buffers, and the accumulator is read after a wait"

REASONS: tuple[Reason, ...] = (
    Reason("*", "only the sources of stores awaited", "wait_smem_to_gmem: plgpu.wait_smem_to_gmem(0)", _ENDS),
    Reason("emit_pipeline", "only the sources of stores awaited", "wait_smem_to_gmem: plgpu.emit_pipeline(", _ENDS),
    Reason(
        "*",
        "a wait for another barrier",
        "barrier_wait: plgpu.barrier_wait(self.drained.at[[]self.slot(step)[]])",
        "the loop waits for each barrier of the ring once, now in another order",
        most=2,
    ),
    Reason(
        "attention*",
        "an arrival at another barrier",
        "barrier_arrive: plgpu.barrier_arrive(turns.at[[]1 - group[]])",
        "in the last step, each warpgroup gives the turn to itself, and turns order only when warpgroups compute",
    ),
    Reason(
        "attention, causal",
        "an arrival at another barrier",
        "barrier_arrive: plgpu.barrier_arrive(self.drained.at[[]self.slot(step)[]])",
        "the second warpgroup's steps without a mask are a whole ring: it releases each slot once, the one that is "
        "filled next last, after it has read all three; with another number of stages the mutant is found",
    ),
    Reason(
        "attention*",
        "a release before its wait",
        "barrier_wait: plgpu.barrier_wait(queries_filled.at[[]group[]])",
        _TURN,
    ),
    Reason("attention*", "a wgmma wait left out", "wgmma_wait: plgpu.wgmma_wait(0)", _LAST, most=2),
    Reason("attention*", "one group more in flight", "wgmma_wait: plgpu.wgmma_wait(0)", _LAST, most=2),
    Reason("attention*", "a release before its wait", "wgmma_wait: plgpu.wgmma_wait(0)", _LAST, most=2),
    *(
        Reason(
            "emit_pipeline_warp_specialized",
            mutation,
            "wgmma_wait: pipeline(acc)",
            "the pipeline runs once: nothing is copied into its buffers any more, and the accumulator is read after a "
            "wait",
        )
        for mutation in ("a wgmma wait left out", "one group more in flight", "a release before its wait")
    ),
    *(
        Reason(kernel, "registers not given back or asked for", f"set_max_registers: {line}", _ASKED)
        for kernel, line in (
            ("*", 'plgpu.set_max_registers(*, action="increase")'),
            ("emit_pipeline_warp_specialized", "plgpu.emit_pipeline_warp_specialized("),
        )
    ),
    Reason(
        "DSMEM: rows passed round", "a store to another place", "store: out[[]me[]] = total", "all rows are the same"
    ),
    Reason(
        "mpmd_map",
        "another block of the cluster",
        "semaphore_signal: pl.semaphore_signal(*",
        "the mesh has one core: the next one is itself",
    ),
)

UNUSED = "no thread uses this barrier"
REDUNDANT = "whatever it waits for, or should, has been waited for before"


@dataclass
class Recording:
    """A kernel's program on the simulator, its inputs, and a record of one run.

    Fields:
        result: the result of that run.
        ran: the equations that ran and whose predicate held.
        late: the waits for groups that waited for more than earlier ones had.
    """

    program: Program
    values: Sequence[Any]
    result: Sequence[Any] = ()
    ran: set[Eqn] = field(default_factory=set)
    late: set[Eqn] = field(default_factory=set)


def record(run: Callable[[], Any]) -> Recording:
    """Run a kernel once, round robin, and record it."""
    seen: list[Recording] = []

    def load(program: Program) -> Any:
        runner = simulator(SimulatorOptions()).load(program)

        def noted(values: Sequence[Any], out: Any = None) -> Any:
            found = runner(values, out)
            if any(eqn.op is launch for eqn in program.eqns):
                seen.append(Recording(program, values, found))
            return found

        return noted

    notes = _Notes()
    with use(Executor("simulator", "notes what runs", load)), session(Session(RoundRobin, prepare=notes.follow)):
        run()
    (found,) = seen
    found.ran, found.late = notes.ran, notes.late
    return found


class _Notes(Timer):
    """Records the equations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: set[Eqn] = set()
        self.late: set[Eqn] = set()

    def follow(self, machine: Machine) -> None:
        """Watch a machine."""
        machine.timer = self
        checker: Any = machine.checker.async_ops  # type: ignore[union-attr]
        products, stores = checker.products_awaited, checker.stores_awaited

        def products_awaited(thread: Any, eqn: Eqn, upto: int) -> None:
            if thread.generic.epoch(thread.product_component) < upto:
                self.late.add(eqn)
            products(thread, eqn, upto)

        def stores_awaited(thread: Any, eqn: Eqn, n: int, read_only: bool) -> None:
            known = thread.generic.epoch(thread.read_component if read_only else thread.write_component)
            if known < thread.groups - n:
                self.late.add(eqn)
            stores(thread, eqn, n, read_only)

        checker.products_awaited, checker.stores_awaited = products_awaited, stores_awaited

    def charge(self, thread: Any, eqn: Eqn) -> None:
        """An equation has run; one with a false predicate has not become its thread's current equation."""
        if eqn.op.name not in _PREDICATED or thread.eqn is eqn:
            self.ran.add(eqn)
        super().charge(thread, eqn)


_PREDICATED = ("barrier_arrive", "copy_smem_to_gmem")


@dataclass
class Verdict:
    """The verdict on a mutant.

    Fields:
        code: the code of the finding, None if there is none.
        tried: the number of schedules up to it.
        wrong: whether nothing was found and some schedule had a different result from the kernel's.
        otherwise: whether nothing was found, and a wrong index gives every schedule the same different result: the
            mutant synchronises correctly and is another kernel.
        explored, complete: of the exhaustive exploration of a survivor: the number of schedules, and whether all ran.
        late: whether only that exploration had a finding.
        reason: why it is harmless, for at most `most` mutants of the same line, 0 for any number.
    """

    kernel: str
    mutation: str
    place: str
    what: str
    code: str | None = None
    tried: int = 0
    wrong: bool = False
    otherwise: bool = False
    explored: int = 0
    complete: bool = False
    late: bool = False
    reason: str = ""
    most: int = 0


def judge(kernel: Kernel, recording: Recording, mutant: Mutant, count: int = SCHEDULES) -> Verdict:
    """Run a mutant, or the kernel itself, until something is found."""
    verdict = Verdict(kernel.name, mutant.mutation, mutant.place, mutant.what)
    runner = simulator(SimulatorOptions()).load(mutant.program)

    def run() -> None:
        found = runner(recording.values)
        results.append(all(map(_same, found, recording.result)))
        first.extend(() if first else [found])
        alike.append(all(map(_same, found, first[0])))

    results: list[bool] = []
    first: list[Any] = []
    alike: list[bool] = []
    places = Places()
    for policy in schedules(count, 0):
        verdict.tried += 1
        with session(Session(lambda policy=policy: policy, places=places)) as current:  # type: ignore[misc]
            try:
                run()
            except CheckError as error:
                verdict.code = error.finding.code
            except (PalladioError, InternalError) as error:
                verdict.code = type(error).__name__
        if current.findings:
            verdict.code = current.findings[0].code
        if verdict.code is not None:
            return verdict
    if mutant.mutation:
        report = check(run, exhaustive=True, schedules=EXPLORED)
        verdict.explored, verdict.complete = report.explored, report.complete
        if report.findings:
            verdict.code = report.findings[0].code
            verdict.late = True
            return verdict
        verdict.reason, verdict.most = _reason(kernel, recording, mutant)
    verdict.wrong = not all(results)
    if verdict.wrong and mutant.mutation in WRONG_INDEX and all(alike):
        verdict.wrong, verdict.otherwise = False, True
    return verdict


def _same(found: Any, wanted: Any) -> bool:
    return np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


def _reason(kernel: Kernel, recording: Recording, mutant: Mutant) -> tuple[str, int]:
    """The reason why a mutant is harmless, empty if unknown, and the number of mutants of the same line it explains."""
    if not mutant.sites:
        return UNUSED, 0
    if mutant.mutation in _LATER and not recording.late.intersection(mutant.sites):
        return REDUNDANT, 0
    for each in REASONS:
        patterns = (kernel.name, each.kernel), (mutant.what, each.what)
        if each.mutation == mutant.mutation and all(fnmatch.fnmatchcase(*pair) for pair in patterns):
            return each.text, each.most
    return "", 0


_LATER = ("a wgmma wait left out", "a wait for stores left out", "one group more in flight")


@cache
def _prepared(number: int) -> tuple[Kernel, Recording, tuple[Mutant, ...]]:
    """A kernel, its recording, and its mutants whose changed equations run."""
    kernel = kernels()[number]
    recording = record(kernel.run)
    found = [
        mutant for mutant in mutants(recording.program) if not mutant.sites or recording.ran.intersection(mutant.sites)
    ]
    for operand, run in kernel.hasty.items():
        found.append(Mutant(NO_DELAY, f"input {operand}", operand, record(run).program, tuple(recording.ran)))
    return kernel, recording, tuple(found)


def unreached(recording: Recording) -> Iterator[Eqn]:
    """The synchronising equations of a kernel that did not run."""
    for eqn in walk(recording.program):
        if eqn.op.control or eqn.op is launch or eqn in recording.ran:
            continue
        if any(kind is EffectKind.SYNC for kind, _ in eqn.effects):
            yield eqn


@dataclass
class Matrix:
    """All verdicts."""

    verdicts: list[Verdict] = field(default_factory=list)
    originals: list[Verdict] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    @property
    def alarms(self) -> list[Verdict]:
        """Original kernels with a finding or wrong results."""
        return [each for each in self.originals if each.code is not None or each.wrong]

    @property
    def missed(self) -> list[Verdict]:
        """Mutants with wrong results and no finding, or no finding within the schedules of a check."""
        return [each for each in self.verdicts if each.wrong or each.late]

    @property
    def harmless(self) -> list[Verdict]:
        """Mutants without a finding, with right results in every schedule."""
        return [each for each in self.verdicts if each.code is None and not each.wrong and not each.otherwise]

    @property
    def others(self) -> list[Verdict]:
        """Mutants that synchronise correctly and compute something else."""
        return [each for each in self.verdicts if each.otherwise]

    @property
    def unexplained(self) -> list[Verdict]:
        """Harmless mutants without a reason, or more of a line than the reason explains."""
        many = Counter((each.kernel, each.mutation, each.what) for each in self.harmless)
        return [
            each
            for each in self.harmless
            if not each.reason or 0 < each.most < many[each.kernel, each.mutation, each.what]
        ]


@contextmanager
def workers(jobs: int | None) -> Iterator[ProcessPoolExecutor]:
    """Processes, by default one for each core; what has not begun when the block is left is cancelled."""
    pool = ProcessPoolExecutor(jobs or os.cpu_count())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _survey(number: int) -> tuple[int, list[str]]:
    """The number of a kernel's mutants, and its lines that do not run."""
    kernel, recording, found = _prepared(number)
    return len(found), [f"{kernel.name}: {place(eqn)}" for eqn in unreached(recording)]


def _judged(number: int, mutant: int, count: int) -> Verdict:
    """The verdict on a mutant of a kernel; on the kernel itself for -1."""
    kernel, recording, found = _prepared(number)
    if mutant >= 0:
        return judge(kernel, recording, found[mutant], count)
    verdict = judge(kernel, recording, Mutant("", "", "", recording.program, ()), count)
    result = np.asarray(kernel.run(), np.float64)
    error = np.linalg.norm(result - kernel.expected)
    verdict.wrong |= not error <= TOLERANCE * np.linalg.norm(kernel.expected)
    return verdict


def _keys(number: int, count: int) -> list[str]:
    """The keys of a kernel's mutants, in a log of repairs."""
    kernel, _, found = _prepared(number)
    return [key(kernel.name, mutant, each.program, count) for mutant, each in enumerate(found)]


def _repaired(number: int, mutant: int, count: int) -> Outcome | None:
    """The repair of a mutant of a kernel."""
    kernel, recording, found = _prepared(number)
    mutated = found[mutant]
    names = kernel.name, mutated.mutation, mutated.place
    return outcome(*names, mutated.program, recording.values, recording.result, count)


def run_repairs(
    chosen: Sequence[int],
    console: Console,
    every: int,
    count: int = SCHEDULES,
    jobs: int | None = None,
    log: Path | None = None,
) -> list[Outcome]:
    """Repair one of `every` mutants of these kernels, in parallel and in a random order, except those in the log."""
    known = Log(log)
    with workers(jobs) as pool, Progress(console=console, transient=True) as progress:
        keys = zip(chosen, pool.map(_keys, chosen, [count] * len(chosen)), strict=True)
        work = [(name, kernel, mutant) for kernel, every_key in keys for mutant, name in enumerate(every_key)]
        work = work[:: max(1, every)]
        left = [each for each in work if each[0] not in known.known]
        random.Random(0).shuffle(left)
        task = progress.add_task("repairs", total=len(left))
        names = {pool.submit(_repaired, *place, count): name for name, *place in left}
        for done in as_completed(names):
            each = done.result()
            progress.advance(task)
            known.add(names[done], each)
            if each is not None and each.found != "equal":
                line = f"{each.kernel}: {each.mutation} at {each.place}: {each.text or 'no repair'}"
                console.print(line, markup=False, soft_wrap=True)
    every_outcome = (known.known[name] for name, *_ in work)
    return [each for each in every_outcome if each is not None]


def run_matrix(chosen: Sequence[int], console: Console, count: int = SCHEDULES, jobs: int | None = None) -> Matrix:
    """Judge these kernels and all their mutants, in parallel."""
    matrix = Matrix()
    with workers(jobs) as pool, Progress(console=console, transient=True) as progress:
        surveys = list(pool.map(_survey, chosen))
        matrix.unreached = [line for _, lines in surveys for line in lines]
        work = [
            (kernel, mutant) for kernel, (many, _) in zip(chosen, surveys, strict=True) for mutant in range(-1, many)
        ]
        task = progress.add_task("mutants", total=len(work))
        for verdict in pool.map(_judged, *zip(*work, strict=True), [count] * len(work), chunksize=4):
            (matrix.verdicts if verdict.mutation else matrix.originals).append(verdict)
            progress.advance(task)
    return matrix


def table(matrix: Matrix) -> str:
    """The confusion matrix and the survivors, as Markdown."""
    by_class: dict[str, list[Verdict]] = defaultdict(list)
    for each in matrix.verdicts:
        by_class[each.mutation].append(each)
    lines = [
        "| mutation | mutants | caught | harmless | another kernel | missed | found as |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in CLASSES:
        group = by_class[name]
        missed, harmless, others = (
            sum(each in part for each in group) for part in (matrix.missed, matrix.harmless, matrix.others)
        )
        codes = Counter(each.code for each in group if each.code is not None)
        shown = ", ".join(f"{code} {number}" for code, number in codes.most_common())
        caught = len(group) - harmless - others - missed
        lines.append(f"| {name} | {len(group)} | {caught} | {harmless} | {others} | {missed} | {shown} |")
    parts = matrix.verdicts, matrix.harmless, matrix.others, matrix.missed
    many, harmless, others, missed = map(len, parts)
    lines.append(f"| **all** | {many} | {many - harmless - others - missed} | {harmless} | {others} | {missed} | |")
    runs = sum(each.tried for each in matrix.originals)
    kernels = "; ".join(each.kernel for each in matrix.originals)
    early = sum(each.code is not None and each.tried == 1 for each in matrix.verdicts)
    late = max((each.tried for each in matrix.verdicts if each.code is not None), default=0)
    lines += [
        "",
        f"Kernels: {kernels}. False alarms on them as they stand: {len(matrix.alarms) or 'none'}, in {runs} runs.",
        f"The first schedule found {early} of the mutants; the one found last needed {late}.",
    ]
    if matrix.harmless:
        lines += ["", "| harmless | where | kernels | why | schedules |", "| --- | --- | --- | --- | --- |"]
        lines += _survivors(matrix.harmless)
    return "\n".join(lines)


def _survivors(harmless: Sequence[Verdict]) -> Iterator[str]:
    """A line for each class, place and reason, with the number of mutants in each kernel."""
    groups: dict[Any, Counter[str]] = defaultdict(Counter)
    for each in harmless:
        ran = f"all {each.explored}" if each.complete else f"{each.tried + each.explored}"
        reason = each.reason or "**not known**"
        groups[CLASSES.index(each.mutation), each.place, reason, ran][each.kernel] += 1
    for (number, where, reason, ran), count in sorted(groups.items()):
        kernels = "; ".join(f"{kernel} ({number})" for kernel, number in count.items())
        yield f"| {CLASSES[number]} | `{where}` | {kernels} | {reason} | {ran} |"


def written(page: str, text: str) -> str:
    """The page with this text between its marks."""
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix; exit status 1 on a miss, a false alarm, a survivor without a reason or a line that never runs."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").split("\n\n")[0])
    names = [kernel.name for kernel in kernels()]
    parser.add_argument("--only", action="append", choices=names, help="this kernel only; may be repeated")
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--jobs", type=int, help="processes; by default one for each core")
    parser.add_argument("--write", action="store_true", help="write the table into docs/checking.md")
    parser.add_argument(
        "--repairs", type=int, metavar="N", help="instead, look for the repair of one of N mutants; 1 for all of them"
    )
    parser.add_argument("--log", type=Path, help="of --repairs: a file of outcomes; those in it are not sought again")
    options = parser.parse_args(arguments)
    console = Console()
    chosen = [number for number, name in enumerate(names) if not options.only or name in options.only]
    if options.repairs:
        outcomes = run_repairs(chosen, console, options.repairs, options.schedules, options.jobs, options.log)
        console.print(summary(outcomes), markup=False, soft_wrap=True)
        return 0 if 10 * sum(each.found == "equal" for each in outcomes) >= 9 * len(outcomes) else 1
    matrix = run_matrix(chosen, console, options.schedules, options.jobs)
    text = table(matrix)
    console.print(text, markup=False, soft_wrap=True)
    bad = [f"{each.kernel}: {each.mutation} at {each.place}: missed" for each in matrix.missed]
    bad += [f"{each.kernel}: {each.code or 'a wrong result'} without any mutation" for each in matrix.alarms]
    bad += [f"{each.kernel}: {each.mutation} at {each.place}: why not? {each.what}" for each in matrix.unexplained]
    bad += [f"{line}: never runs" for line in matrix.unreached]
    for line in bad:
        console.print(line, style="red", markup=False, soft_wrap=True)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
