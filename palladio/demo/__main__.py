"""The command `python -m palladio.demo`.

Exit status: 0 when the held-out accuracy reaches the goal, 1 when it does not, 2 when the demo could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from threadpoolctl import threadpool_limits

from palladio.demo.data import Digits, MissingExtraError, load_digits
from palladio.demo.model import CHOICES
from palladio.demo.plot import write_plot
from palladio.demo.report import Report
from palladio.demo.train import GOAL, Config, Run, prepare, train


def whole(least: int) -> type[int]:
    """An argument type: a whole number from `least` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"expected {least} or more, got {value}")
        return value

    return parse  # type: ignore[return-value]  # argparse wants any callable; its stubs are narrower


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    default = Config()
    parser = argparse.ArgumentParser(
        prog="python -m palladio.demo",
        description="Train a mixture of experts on handwritten digits, its expert products through gmm and tgmm.",
        epilog=f"Exit status: 0 when held-out accuracy reaches {GOAL:.0%}, 1 when not, 2 when the demo could not run.",
    )
    parser.add_argument("--epochs", type=whole(1), default=default.epochs, help="passes over the images (%(default)s)")
    parser.add_argument(
        "--seed", type=whole(0), default=default.seed, help="first weights and order of images (%(default)s)"
    )
    parser.add_argument("--batch", type=whole(1), default=default.batch, help="images in one step (%(default)s)")
    parser.add_argument(
        "--width", type=whole(1), default=default.width, help="numbers that describe an image inside (%(default)s)"
    )
    parser.add_argument("--hidden", type=whole(1), default=default.hidden, help="width inside an expert (%(default)s)")
    parser.add_argument(
        "--experts", type=whole(CHOICES), default=default.experts, help="how many experts (%(default)s)"
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("palladio-demo.png"), metavar="PATH", help="picture to write (%(default)s)"
    )
    parser.add_argument("--no-plot", action="store_true", help="write no picture")
    parser.add_argument("--quiet", action="store_true", help="print the result only")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not options.no_plot and not options.plot.absolute().parent.is_dir():
        parser.error(f"argument --plot: the folder {options.plot.parent} does not exist")
    try:
        digits = load_digits()
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 2
    if options.batch > len(digits.train_labels):
        count = len(digits.train_labels)
        parser.error(f"argument --batch: {options.batch} images, but there are only {count} to learn from")
    config = Config(
        epochs=options.epochs,
        seed=options.seed,
        batch=options.batch,
        width=options.width,
        hidden=options.hidden,
        experts=options.experts,
    )
    report = Report(Console(), options.quiet)
    run = run_training(config, digits, report)
    report.closing(run, digits)
    if not options.no_plot:
        report.note(plot_note(options.plot, run, digits))
    return 0 if run.held_out.accuracy >= GOAL else 1


def run_training(config: Config, digits: Digits, report: Report) -> Run:
    """Train from beginning to end, reporting each step."""
    run = prepare(config, digits)
    report.opening(run, digits)
    # NumPy's products are small here: a second NumPy thread gains nothing, and takes the core of one of ours.
    with report, threadpool_limits(1):
        for _ in train(run, digits):
            report.step(run)
    return run


def plot_note(path: Path, run: Run, digits: Digits) -> str:
    """Write the picture, and say where it is or why there is none."""
    try:
        written = write_plot(path, run, digits)
    except (OSError, ValueError) as error:
        return f"No picture: {path} could not be written ({error})."
    return f"Picture: {path}" if written else "No picture: matplotlib is not installed (pip install 'palladio[plot]')."


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped before the end.", file=sys.stderr)
        sys.exit(130)
