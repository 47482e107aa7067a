"""Each row in a process of its own.

So no row depends on the operands, the peers' caches, the memory that libraries keep and the waiting threads of the rows
before it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from benchmarks import measure
from benchmarks.measure import Comparison, Outcome


def measured(
    names: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
    row: Callable[[str], Outcome] | None = None,
) -> tuple[list[Outcome], list[str]]:
    """The outcomes of cases, and the failures of those whose process ended, in words.

    Args:
        say: called with messages of progress.
        row: measures a case in its process; it is pickled by its name.
    """
    outcomes, failures = [], []
    for name in names:
        say(name)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            try:
                outcomes.append(process.submit(row or _of_case, name).result())
            except BrokenProcessPool:
                failures.append(f"{name}: its process has ended before its result")
    return outcomes, failures


def _of_case(name: str) -> Outcome:
    from benchmarks.cases import CASES

    return run(CASES[name]())


def run(comparison: Comparison) -> Outcome:
    """The outcome of a comparison, without the functions and arrays that other processes cannot have."""
    return measure.run(comparison).alone()
