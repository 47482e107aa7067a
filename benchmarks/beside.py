"""`python -m benchmarks --beside OTHER`: this checkout against another one, each row of ours timed in turns.

Each checkout runs in a separate process, with its own benchmarks; rows that both have are compared. Their timings
alternate, and so does the one that begins; a row's ratio is the median of the ratios of neighbouring timings, so that
a temporary slowdown of the machine affects both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import REST_S
from benchmarks.report import duration

HERE = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).with_name("beside_worker.py")

SLOWER = 1.03
"""A row is slower if it takes more than this many times as long."""

PAIRS = 15
"""The timings of each checkout, for each row."""


class Checkout:
    """A process that times one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        path = os.pathsep.join([str(self.root), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names: list[str] = self._answer()["names"]

    def request(self, request: str) -> dict[str, Any]:
        """The answer to a request: the name of a case, or `time`."""
        self.tell(request)
        return self._answer()

    def tell(self, request: str) -> None:
        """Send a request that has no answer."""
        assert self.process.stdin is not None
        print(request, file=self.process.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the benchmarks of {self.root} ended with status {self.process.wait()}")
        return json.loads(line)  # type: ignore[no-any-return]


@contextmanager
def checkout(root: Path) -> Iterator[Checkout]:
    """A checkout whose process ends with the block."""
    made = Checkout(root)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


@dataclass(frozen=True)
class Row:
    """One case in both checkouts.

    Fields:
        name: the computation.
        ours, theirs: seconds a call in each round; none if a result is wrong.
        wrong: the checkouts whose result is wrong.
    """

    name: str
    ours: Sequence[float]
    theirs: Sequence[float]
    wrong: Sequence[Path] = ()

    @property
    def ratio(self) -> float | None:
        """How many times as long ours takes: the median of the ratios of neighbouring timings."""
        if not self.ours:
            return None
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def failure(self) -> str | None:
        """The failure of the row, in words; None without one."""
        if self.wrong:
            return f"{self.name}: the result is wrong in {', '.join(map(str, self.wrong))}"
        if self.ratio is not None and self.ratio > SLOWER:
            return f"{self.name}: takes {self.ratio:.3f} times as long, at most {SLOWER:g} is accepted"
        return None


def measure(
    other: Path,
    chosen: Sequence[str] = (),
    pairs: int = PAIRS,
    say: Callable[[str], None] = lambda text: None,
    here: Path = HERE,
) -> list[Row]:
    """Time the rows that both checkouts have, or those chosen.

    Args:
        here, other: the roots of the checkouts.
        say: called with messages of progress.
    """
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(checkout(root)) for root in (here, other))
        names = [name for name in ours.names if name in theirs.names and (not chosen or name in chosen)]
        return [_row(name, ours, theirs, pairs, say) for name in names]


def _row(name: str, ours: Checkout, theirs: Checkout, pairs: int, say: Callable[[str], None]) -> Row:
    both = (ours, theirs)
    say(f"{name}: checking")
    made = [each.request(name) for each in both]
    wrong = [each.root for each, answer in zip(both, made, strict=True) if answer["wrong"]]
    seconds: dict[Checkout, list[float]] = {ours: [], theirs: []}
    for number in range(0 if wrong else pairs):
        say(f"{name}: {number + 1} of {pairs}")
        for each in both if number % 2 == 0 else both[::-1]:
            time.sleep(REST_S)
            seconds[each].append(each.request("time")["seconds"])
    for each in both:
        each.tell("")
    return Row(made[0]["name"], seconds[ours], seconds[theirs], wrong)


def show(console: Console, rows: Sequence[Row]) -> None:
    """Print a line for each row: both medians and the ratio."""
    table = Table("computed", "here", "there", "here / there")
    for row in rows:
        ratio = row.ratio
        medians = [duration(statistics.median(each)) if each else "wrong" for each in (row.ours, row.theirs)]
        table.add_row(
            row.name, *medians, "" if ratio is None else f"{ratio:.3f}", style="bold red" if row.failure else ""
        )
    console.print(table)
