"""`python -m benchmarks`: measure, print, and with --write keep the tables in docs/measured.

`--beside OTHER` times the rows of this checkout in turns with those of another one instead. `--cores N` keeps the
process, and all that it starts, on that many of its cores: libraries count threads by them.

Exit status: 0; 1 if a floor is missed, a row over 3 % slower than in the other checkout, or a result wrong; 2 for bad
arguments.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

PAGES = Path(__file__).resolve().parents[1] / "docs" / "measured"
COLD = "cold"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.cores is not None:
        _stay_on(options.cores, parser)  # before NumPy and the others count cores

    import palladio as pl
    from benchmarks import beside, cold, peak, report, routed, rows
    from benchmarks.cases import CASES

    chosen = _chosen(options.only, [*CASES, COLD], parser)
    _require_alone(options, chosen, parser)
    console = Console()
    if not console.is_terminal:
        console.width = 160
    if options.beside:
        with console.status("") as status:
            pairs = beside.measure(options.beside, chosen if options.only else (), say=status.update)
        beside.show(console, pairs)
        return _status(console, [row.failure for row in pairs if row.failure])
    # A process that starts cold is measured first, while nothing of this one is running.
    first = None
    with console.status("") as status:
        if COLD in chosen:
            status.update("fresh processes")
            first = cold.measure()

        def begin(name: str) -> None:
            status.update(name)
            peak.measure()

        outcomes, ended = rows.measured([name for name in CASES if name in chosen], begin)
    report.show(console, outcomes, first)
    shortfalls = report.shortfalls(outcomes) + routed.short_means(outcomes)
    if first is not None:
        shortfalls += report.cold_shortfalls(first)
    if options.write:
        on = f"-{options.cores}-core" if options.cores else ""
        page = PAGES / f"{pl.processor().name}{on}.md"
        command = f"make bench ARGS={shlex.quote(shlex.join(arguments or sys.argv[1:]))}"
        page.write_text(report.page(outcomes, first, shortfalls, command), "utf-8")
        console.print(f"written to {page.relative_to(PAGES.parents[1])}")
    for shortfall in shortfalls:
        console.print(shortfall, style="yellow", highlight=False)
    failures = [line for outcome in outcomes for line in outcome.failures] + (first.failures if first else [])
    return _status(console, ended + failures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Palladio beside its peers, in one run.")
    parser.add_argument(
        "--only", action="append", metavar="CASE", help="measure this only, 'routed-*' for several; may be repeated"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the page of this kind of processor in docs/measured"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="run on N of the cores, which have their own page")
    parser.add_argument("--beside", type=Path, metavar="OTHER", help="the root of another checkout to be compared with")
    return parser


def _stay_on(cores: int, parser: argparse.ArgumentParser) -> None:
    """Keep this process, and those that it starts, on some of the cores that it may run on."""
    if not hasattr(os, "sched_setaffinity"):
        parser.error("--cores: this system does not keep a process on some cores")
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(allowed):
        parser.error(f"--cores: {cores}, where this process may run on 1 to {len(allowed)}")
    os.sched_setaffinity(0, allowed[:cores])


def _chosen(patterns: Sequence[str] | None, names: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The names that are, or match, one of the patterns, in order; all without patterns."""
    for pattern in patterns or ():
        if not fnmatch.filter(names, pattern):
            parser.error(f"--only: no case matches {pattern!r}; the cases are {', '.join(names)}")
    return [name for name in names if patterns is None or any(fnmatch.fnmatchcase(name, each) for each in patterns)]


def _require_alone(options: argparse.Namespace, chosen: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """End the command where options contradict `--beside`."""
    if options.write and options.beside:
        parser.error("--write keeps what is measured beside the peers: leave out --beside")
    if options.beside and not (options.beside / "benchmarks" / "cases.py").is_file():
        parser.error(f"--beside: {options.beside} is not the root of a checkout")
    if options.beside and options.only and COLD in chosen:
        parser.error(f"--beside: fresh processes are not timed in turns, leave out --only {COLD}")


def _status(console: Console, failures: Sequence[str]) -> int:
    """Print failures; the exit status."""
    for line in failures:
        console.print(line, style="bold red", highlight=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
