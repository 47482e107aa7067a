"""`palladio check FILE.py::FUNCTION`: check the kernels that a function calls, under many schedules."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import cache
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from palladio.base.errors import PalladioValueError
from palladio.call.ahead import forget_calls
from palladio.cli.target import declare, function
from palladio.cli.timeline import WRITERS, picture_path
from palladio.driver.capture import prepared_programs
from palladio.driver.checks import check as driver
from palladio.driver.checks.workers import Workers
from palladio.driver.repairs.search import SECONDS
from palladio.ir.core import Eqn, walk
from palladio.machine.check.findings import Finding, checked_codes
from palladio.machine.run.policies import named
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch

STYLES = {
    "code": "bold red",
    "participant": "bold",
    "place": "cyan",
    "source": "",
    "caret": "yellow",
    "detail": "",
    "order": "magenta",
    "missing": "magenta",
    "try": "green",
    "repair": "bold green",
    "see": "dim",
    "replay": "dim",
}
"""The style of each kind of line of a finding on a terminal."""


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "check",
        help="look for races, deadlocks and misuse in the kernels that a function calls",
        description="Runs a function on the simulator under many schedules and reports the hazards of the kernels that "
        "it launches. The exit status is 1 if there is an error.",
    )
    declare(parser)
    parser.add_argument(
        "--schedules",
        metavar="N",
        type=_count,
        help=f"how many schedules to run (default: {driver.SAMPLED}; with --exhaustive at most {driver.EXPLORED:,})",
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="where random schedules begin (default: 0)")
    parser.add_argument(
        "--ignore",
        metavar="CODE",
        type=_code,
        action="append",
        default=[],
        help="findings of this code do not count; may be given several times",
    )
    parser.add_argument("--strict", action="store_true", help="warnings and hints count like errors")
    parser.add_argument(
        "--repair",
        action="store_true",
        help=f"look for the cheapest single change that removes each error, for up to {SECONDS:g} seconds",
    )
    parser.add_argument(
        "--picture",
        metavar="PATH",
        type=picture_path,
        help="draw the schedule that met the first finding: .svg, .html or .json, as `palladio timeline` does",
    )
    parser.add_argument("--jobs", metavar="N", type=_count, default=1, help="processes that share the schedules")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--exhaustive", action="store_true", help="run every schedule that can differ from all others")
    which.add_argument("--schedule", metavar="NAME", type=_schedule, help="run this one only, as a finding names it")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return count


def _code(text: str) -> str:
    try:
        checked_codes(text, "--ignore")
    except PalladioValueError as error:
        raise ArgumentTypeError(f"no finding has the code {text!r}; {error.hint}") from None
    return text


def _schedule(name: str) -> str:
    try:
        named(name)
    except (KeyError, ValueError, IndexError):
        raise ArgumentTypeError(
            f"no schedule is called {name!r}; a finding names them: round_robin, latest, random:latest:7, pct:3"
        ) from None
    return name


def run(options: Namespace) -> int:
    """Check the function; returns the exit status."""
    target = _Target(options.target, options.as_jax)
    target.load()
    forget_calls()
    with prepared_programs() as programs, _progress() as progress, _workers(options.jobs) as executor:
        report = driver.check(
            target,
            schedules=options.schedules,
            seed=options.seed,
            exhaustive=options.exhaustive,
            schedule=options.schedule,
            progress=progress,
            ignore=options.ignore,
            strict=options.strict,
            repairs=options.repair,
            executor=executor,
        )
    if not any(_is_checked(eqn) for program in programs for eqn in walk(program)):
        name = options.target.partition("::")[2]
        print(
            f"palladio: {name} ran, but its kernels launch no threads and start no copies; there is nothing to check\n"
            "  hint:     interpret=pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2) checks the "
            "parallel axes of a grid",
            file=sys.stderr,
        )
        return 1
    console = Console(soft_wrap=True, highlight=False)
    for finding in report.ordered:
        _print(console, finding, options.target, options.as_jax)
    console.print(Text(report.summary, style="bold green" if report.ok else "bold red"))
    if options.picture is not None and report.findings:
        WRITERS[options.picture.suffix](report.picture(), options.picture)
        console.print(f"{options.picture}: the schedule {report.ordered[0].schedule}")
    return 0 if report.ok else 1


def _is_checked(eqn: Eqn) -> bool:
    """True for a kernel call that the simulator runs in steps: a launch, or a grid kernel that waits."""
    return eqn.op is launch or (eqn.op is grid_call and eqn.kernel.synchronises)


def _print(console: Console, finding: Finding, target: str, as_jax: bool) -> None:
    replay = f"palladio check {shlex.quote(target)}{' --as-jax' * as_jax} --schedule {shlex.quote(finding.schedule)}"
    for kind, line in finding.lines(replay):
        console.print(Text(line, style=STYLES[kind]))
    console.print()


class _Target:
    """The function to check, which each process loads for itself."""

    def __init__(self, text: str, as_jax: bool) -> None:
        self.text = text
        self.as_jax = as_jax
        self.function: Any = None

    def __reduce__(self) -> Any:
        return _target, (self.text, self.as_jax)

    def load(self) -> Any:
        """The function."""
        if self.function is None:
            self.function = function(self.text, self.as_jax)
        return self.function

    def __call__(self) -> Any:
        return self.load()()


@cache
def _target(text: str, as_jax: bool) -> _Target:
    """That of a worker, the same for all its schedules: the file runs once."""
    return _Target(text, as_jax)


@contextmanager
def _workers(jobs: int) -> Iterator[Executor | None]:
    """A pool of processes, this one among them; None for one job."""
    if jobs == 1:
        yield None
        return
    with Workers(jobs) as executor:
        yield executor


@contextmanager
def _progress() -> Iterator[driver.Progress]:
    """A bar on a terminal, beside the output; nothing elsewhere."""
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("schedules", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
