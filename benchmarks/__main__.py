"""`python -m benchmarks`: measure, print, and with --write keep the tables in docs/measured.

`--beside OTHER` times the rows of this checkout in turns with those of another one instead.

Exit status: 0; 1 if a floor is missed, a row over 3 % slower than in the other checkout, or a result wrong; 2 for bad
arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

PAGES = Path(__file__).resolve().parents[1] / "docs" / "measured"
COLD = "cold"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported

    import palladio as pl
    from benchmarks import beside, cold, report, routed, rows
    from benchmarks.cases import CASES

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Palladio beside its peers, in one run.")
    parser.add_argument("--only", action="append", choices=[*CASES, COLD], help="measure this only; may be repeated")
    parser.add_argument(
        "--write", action="store_true", help="write the page of this kind of processor in docs/measured"
    )
    parser.add_argument("--beside", type=Path, metavar="OTHER", help="the root of another checkout to be compared with")
    options = parser.parse_args(arguments)
    if options.write and options.beside:
        parser.error("--write keeps what is measured beside the peers: leave out --beside")
    if options.beside and not (options.beside / "benchmarks" / "cases.py").is_file():
        parser.error(f"--beside: {options.beside} is not the root of a checkout")
    if options.beside and COLD in (options.only or ()):
        parser.error(f"--beside: fresh processes are not timed in turns, leave out --only {COLD}")
    chosen = options.only or [*CASES, COLD]
    console = Console()
    if not console.is_terminal:
        console.width = 160
    if options.beside:
        with console.status("") as status:
            pairs = beside.measure(options.beside, options.only or (), say=status.update)
        beside.show(console, pairs)
        return _status(console, [row.failure for row in pairs if row.failure])
    # A process that starts cold is measured first, while nothing of this one is running.
    first = None
    with console.status("") as status:
        if COLD in chosen:
            status.update("fresh processes")
            first = cold.measure()
        outcomes, ended = rows.measured([name for name in CASES if name in chosen], status.update)
    report.show(console, outcomes, first)
    shortfalls = [each.shortfall for each in outcomes if each.shortfall] + routed.short_means(outcomes)
    if first is not None:
        shortfalls += report.cold_shortfalls(first)
    if options.write:
        page = PAGES / f"{pl.processor().name}.md"
        page.write_text(report.page(outcomes, first, shortfalls), "utf-8")
        console.print(f"written to {page.relative_to(PAGES.parents[1])}")
    for shortfall in shortfalls:
        console.print(shortfall, style="yellow", highlight=False)
    failures = [line for outcome in outcomes for line in outcome.failures] + (first.failures if first else [])
    return _status(console, ended + failures)


def _status(console: Console, failures: Sequence[str]) -> int:
    """Print failures; the exit status."""
    for line in failures:
        console.print(line, style="bold red", highlight=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
