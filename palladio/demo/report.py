"""Output of the training: a progress bar and coloured lines on a terminal, occasional plain lines anywhere else."""

from __future__ import annotations

from types import TracebackType

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from palladio.demo.data import Digits
from palladio.demo.kernels import Array, Cost
from palladio.demo.model import CHOICES
from palladio.demo.train import GOAL, Run

LINES = 10  # periodic lines in one training
BAR_WIDTH = 24


class Report:
    """Shows one training; a context manager around it.

    Args:
        console: where to; a console that is not a terminal gets neither colours nor a progress bar.
        quiet: say the result only.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self.fancy = console.encoding.startswith("utf")
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=18, complete_style="cyan", finished_style="green"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )

    def opening(self, run: Run, digits: Digits) -> None:
        """Announce the run."""
        config = run.config
        self._say(
            f"[bold]A mixture of {config.experts} experts learns to read handwritten digits[/], and every matrix"
            " product of its experts,\nforward and backward, is a grouped matmul written in Palladio (gmm and tgmm)."
        )
        self._say(
            f"  {len(digits.train_labels)} images to learn from, {len(digits.validation_labels)} to watch how it goes"
            f" (validation), {len(digits.test_labels)} held out for the end.\n"
            f"  Each image passes {CHOICES} of the {config.experts} experts; {run.parameters.count:,} numbers are"
            f" learned in {run.total_steps} steps of {config.batch} images,\n"
            f"  {config.batch * CHOICES} rows sorted by expert."
        )
        header = f"{'epoch':>9}    {'loss':>5}   {'learning':>8}   {'validation':>10}"
        self._say(f"[dim]{header}   load of each expert (even: half height)[/]")

    def __enter__(self) -> Report:
        self.progress.start()
        self.task = self.progress.add_task("", total=None, state="preparing the kernels", start=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.progress.stop()

    def step(self, run: Run) -> None:
        """Move the bar; add a line when a tenth of the training is done."""
        step = run.steps[-1]
        self.progress.update(
            self.task,
            total=run.total_steps,
            completed=len(run.steps),
            description=f"epoch {run.epoch}/{run.config.epochs}",
            state=f"loss {step.losses.cross_entropy:.3f}  accuracy {step.accuracy:4.0%}  {self.heights(step.load)}",
        )
        every = -(-run.config.epochs // LINES)
        ends_epoch = len(run.steps) % run.steps_per_epoch == 0
        if ends_epoch and (run.epoch % every == 0 or run.epoch in (1, run.config.epochs)):
            self._say(self.epoch_line(run))

    def epoch_line(self, run: Run) -> str:
        """One line about the epoch that was completed last."""
        steps = run.last_epoch()
        loss = np.mean([step.losses.cross_entropy for step in steps])
        learned = np.mean([step.accuracy for step in steps])
        load = np.mean([step.load for step in steps], axis=0)
        return (
            f"{run.epoch:>5}/{run.config.epochs:<3}    {loss:5.3f}   {learned:8.1%}   "
            f"[bold]{run.validations[-1].accuracy:10.1%}[/]   [cyan]{self.heights(load)}[/]"
        )

    def heights(self, load: Array) -> str:
        """The experts' shares `[e]` as one small bar each; an even share is half the height."""
        if not self.fancy:
            return " ".join(f"{share:3.0%}" for share in load)
        levels = " ▁▂▃▄▅▆▇█"
        eighths = np.clip(np.ceil(load * len(load) * 4), 0, 8).astype(int)
        return "".join(levels[each] for each in eighths)

    def closing(self, run: Run, digits: Digits) -> None:
        """The experts, the kernels, and the result."""
        if not self.quiet:
            for table in (self.expert_table(run, digits), self.kernel_table(run)):
                self.console.print()
                self.console.print(table)
            self.console.print()
            for line in self.kernel_lines(run):
                self._say(line)
            self.console.print()
        accuracy = run.held_out.accuracy
        right = round(accuracy * len(digits.test_labels))
        verdict = (
            f"[green]the goal of {GOAL:.0%} is reached[/]"
            if accuracy >= GOAL
            else f"[red]the goal of {GOAL:.0%} is missed[/]"
        )
        self.console.print(
            f"Held-out accuracy [bold]{accuracy:.1%}[/] ({right} of {len(digits.test_labels)} digits never seen before)"
            f" after {run.seconds:.1f} s: {verdict}.",
            highlight=False,
            soft_wrap=True,
        )

    def expert_table(self, run: Run, digits: Digits) -> Table:
        """The share of each expert on the held-out images, and the digits that it saw most."""
        chosen = run.held_out.chosen
        counts = np.bincount(chosen.reshape(-1), minlength=run.config.experts)
        table = plain_table("expert", "share of the held-out digits", "", "reads mostly", numbers=(0, 2))
        for expert, count in enumerate(counts):
            length = round(BAR_WIDTH * count / max(counts.max(), 1))
            seen = np.bincount(digits.test_labels[(chosen == expert).any(axis=1)], minlength=10)
            favourites = [str(digit) for digit in np.argsort(-seen, kind="stable")[:3] if seen[digit]]
            bar = ("█" if self.fancy else "#") * length
            table.add_row(str(expert), f"[cyan]{bar}[/]", f"{count / counts.sum():.1%}", ", ".join(favourites))
        return table

    def kernel_table(self, run: Run) -> Table:
        """Calls, time and speed of each kernel. Operations are those of real rows: `2 * r * k * n`."""
        table = plain_table("kernel", "calls", "seconds", "of the run", "GFLOP/s", numbers=(1, 2, 3, 4))

        def add(name: str, cost: Cost) -> None:
            share = cost.seconds / max(run.seconds, 1e-9)
            table.add_row(name, f"{cost.calls}", f"{cost.seconds:.2f}", f"{share:.0%}", f"{cost.gflops:.1f}")

        for name, cost in run.products.costs.items():
            add(name, cost)
        add("all kernels", run.products.total)
        return table

    @staticmethod
    def kernel_lines(run: Run) -> list[str]:
        """The last products once more, beside NumPy's, and how much of the kernels' time went into compiling them."""
        lines = [
            f"{use}: {kernel * 1e3:.2f} ms a call, NumPy {numpy * 1e3:.2f} ms, {numpy / kernel:.2f} times its speed."
            for use, (kernel, numpy) in run.products.beside_numpy().items()
        ]
        total, first = run.products.total.seconds, run.products.first_seconds
        return [
            *lines,
            f"Of {total:.2f} s in the kernels, {first:.2f} s went into the first calls, which compile them.",
        ]

    def note(self, text: str) -> None:
        """One more line, unless quiet. Its brackets are brackets, not markup."""
        self._say(escape(text))

    def _say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True)


def plain_table(*columns: str, numbers: tuple[int, ...]) -> Table:
    """A table without lines; the columns in `numbers` stand to the right."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", no_wrap=True)
    return table
