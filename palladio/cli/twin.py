"""`palladio twin FILE.py::FUNCTION`: run the kernels that a function calls on the host twin, and report."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from palladio.base.errors import PalladioNotImplementedError
from palladio.call.ahead import forget_calls
from palladio.cli.target import declare, function
from palladio.driver.executors import HOPPER_TWIN, use
from palladio.hopper.twin import executor as twin_executor
from palladio.hopper.twin.run import SCHEDULES, Result, TwinError
from palladio.hopper.twin.run import run as run_on_twin


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "twin",
        help="run a function's kernels as CUDA on a model of a Hopper GPU, strictly by the PTX ISA",
        description="Runs a function whose kernels are compiled for Hopper on the host twin: under each of four "
        "schedules, in memory that is full of NaN. What the PTX ISA leaves undefined is reported with its line. It "
        "needs g++, and no GPU.",
    )
    declare(parser)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Run the function and report each launch; returns the exit status."""
    target = function(options.target, options.as_jax)
    console = Console(soft_wrap=True, highlight=False)
    launches: list[str] = []
    forget_calls()
    watched = _Watched(console, launches)
    try:
        with use(HOPPER_TWIN), twin_executor.each_launch(watched):
            target()
    except TwinError as error:
        print(f"palladio: {error}", file=sys.stderr)
        return 1
    except PalladioNotImplementedError as reason:
        print(f"palladio: {reason}", file=sys.stderr)
        return 1
    finally:
        forget_calls()
    if not launches:
        print(f"palladio: {options.target.partition('::')[2]} ran, but called no kernel", file=sys.stderr)
        return 1
    return 1 if watched.differ else 0


class _Watched:
    """Runs each launch under every schedule and reports on it."""

    def __init__(self, console: Console, launches: list[str]) -> None:
        self.console = console
        self.launches = launches
        self.differ = False

    def __call__(self, lowered: Any, values: Any) -> Result:
        self.launches.append(lowered.name)
        count = lowered.blocks(values)
        blocks = f"{count} block{'' if count == 1 else 's'} of {lowered.threads} threads"
        cluster = f" in clusters of {lowered.cluster}" if lowered.cluster > 1 else ""
        heading = f"{lowered.name}, {blocks}{cluster}, {lowered.shared_bytes} bytes of shared memory"
        self.console.print(Text(heading, style="bold"))
        results = []
        for schedule in SCHEDULES:
            found = run_on_twin(lowered, values, schedule)
            counts = found.counts
            name = schedule.completion + (f" {schedule.seed}" if schedule.seed else "")
            self.console.print(
                f"  {name:9} {counts.products} products, {counts.copies} copies, {counts.waits} waits: no rule broken"
            )
            results.append(found)
        self._compare(results)
        return results[-1]

    def _compare(self, results: list[Result]) -> None:
        """Schedules that give different results: something is read before it is there, or sums have no order."""
        for number in range(len(results[0].outputs)):
            bits = {found.outputs[number].tobytes() for found in results}
            if len(bits) > 1:
                self.differ = True
                self.console.print(f"  output {number} differs between schedules")
            finite = np.isfinite(np.asarray(results[0].outputs[number], np.float64)).mean()
            if finite < 1:
                self.console.print(f"  output {number}: {finite:.1%} of its elements are finite")
