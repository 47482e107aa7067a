"""The training as one picture: loss, accuracy, the experts' load over time, mistakes, and the digits of each expert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palladio.demo.data import Digits
from palladio.demo.kernels import Array
from palladio.demo.train import GOAL, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, BLUE, ORANGE = "#22303c", "#c9d1d9", "#2166ac", "#e08214"
SAMPLES = 10


def write_plot(path: Path, run: Run, digits: Digits) -> bool:
    """Write the picture in the format that the name's ending says.

    Returns:
        False when matplotlib is not installed, and nothing was written.

    Raises:
        OSError: the file cannot be written.
        ValueError: matplotlib knows no such format.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    style = {
        "font.size": 9,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(14, 8.6), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)  # draws without a display and leaves pyplot's state alone
        draw(figure, run, digits)
        figure.savefig(path)
    return True


def draw(figure: Figure, run: Run, digits: Digits) -> None:
    """Draw the six panels."""
    accuracy = run.held_out.accuracy
    figure.suptitle(
        f"A mixture of {run.config.experts} experts reads handwritten digits: {accuracy:.1%} right on images held out",
        fontsize=14,
        fontweight="bold",
        x=0.012,
        ha="left",
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.05)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(2, 3)
    colours = expert_colours(run.config.experts)
    draw_loss(panels[0, 0], run)
    draw_accuracy(panels[0, 1], run)
    draw_load(panels[0, 2], run, colours)
    draw_mistakes(panels[1, 0], run, digits)
    draw_specialities(panels[1, 1], run, digits)
    draw_samples(panels[1, 2], run, digits, colours)


def expert_colours(experts: int) -> Array:
    """One colour for each expert, `[e, 4]`, different in brightness as well as hue."""
    from matplotlib import colormaps

    return np.asarray(colormaps["viridis"](np.linspace(0.08, 0.95, experts)))


def step_axis(run: Run) -> Array:
    """The position of each step on an axis of epochs, `[steps]`."""
    return (np.arange(len(run.steps)) + 1) / run.steps_per_epoch


def draw_loss(axes: Axes, run: Run) -> None:
    """The loss of every step, and its mean over each epoch."""
    losses = np.array([step.losses.cross_entropy for step in run.steps])
    axes.plot(step_axis(run), losses, color=BLUE, alpha=0.35, linewidth=0.9, label="each step")
    axes.plot(
        np.arange(run.epoch) + 1, losses.reshape(run.epoch, -1).mean(axis=1), color=BLUE, label="mean of an epoch"
    )
    axes.legend(frameon=False)
    axes.set(title="Loss", xlabel="epoch", ylabel="cross entropy (nats)", yscale="log")
    axes.grid(axis="y", color=FAINT, linewidth=0.5)


def draw_accuracy(axes: Axes, run: Run) -> None:
    """Accuracy while learning, with noise on the pixels, on validation images, and at the end on held-out ones.

    The part near one is what matters.
    """
    epochs = np.arange(run.epoch) + 1
    learned = np.array([step.accuracy for step in run.steps]).reshape(run.epoch, -1).mean(axis=1)
    validation = np.array([each.accuracy for each in run.validations])
    axes.axhline(100 * GOAL, color=INK, linewidth=0.8, linestyle=":")
    below = {"textcoords": "offset points", "ha": "right", "va": "top"}
    axes.annotate(f"goal {GOAL:.0%}", (epochs[-1], 100 * GOAL), (0, -3), **below)
    axes.plot(epochs, 100 * learned, color=ORANGE, linewidth=1.4, label="learning, pixels made noisy")
    axes.plot(epochs, 100 * validation, color=BLUE, linewidth=1.8, label="validation")
    axes.plot(
        epochs[-1:],
        [100 * run.held_out.accuracy],
        "o",
        color=INK,
        label=f"held out, at the end: {run.held_out.accuracy:.1%}",
    )
    lowest = 80 if validation.max() > 0.85 else 0
    axes.set(title="Accuracy", xlabel="epoch", ylabel="images right (%)", ylim=(lowest, 100.6))
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.08))


def draw_load(axes: Axes, run: Run, colours: Array) -> None:
    """Each expert's share of the rows over time, as layers of one column."""
    window = max(1, len(run.steps) // 60)
    load = np.stack([step.load for step in run.steps])
    blocks = len(load) // window
    load = load[: blocks * window].reshape(blocks, window, -1).mean(axis=1)
    at = step_axis(run)[: blocks * window].reshape(blocks, window).mean(axis=1)
    axes.stackplot(at, 100 * load.T, colors=[tuple(each) for each in colours], edgecolor="white", linewidth=0.6)
    axes.set(title="Load of each expert", xlabel="epoch", ylabel="share of the rows (%)", ylim=(0, 100))
    if blocks > 1:
        axes.set_xlim(at[0], at[-1])
    middles = 100 * (np.cumsum(load[-1]) - load[-1] / 2)
    for expert, middle in enumerate(middles):
        axes.annotate(str(expert), (1.015, middle), xycoords=("axes fraction", "data"), va="center", color=INK)


def draw_mistakes(axes: Axes, run: Run, digits: Digits) -> None:
    """The confusion matrix: shades for correct answers, numbers for all."""
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (digits.test_labels, run.held_out.predicted), 1)
    wrong = counts * ~np.eye(10, dtype=bool)
    axes.imshow(np.where(wrong > 0, np.nan, counts), cmap="Blues", vmin=0, vmax=1.5 * max(counts.max(), 1))
    for row, column in np.argwhere(counts > 0):
        miss = row != column
        if miss:
            axes.add_patch(square(column, row, ORANGE))
        axes.text(
            column, row, str(counts[row, column]), ha="center", va="center", fontsize=8, color="white" if miss else INK
        )
    axes.set(title=f"Mistakes: {wrong.sum()} of {counts.sum()}", xlabel="read as", ylabel="digit")
    axes.set(xticks=range(10), yticks=range(10))
    bare(axes)


def draw_specialities(axes: Axes, run: Run, digits: Digits) -> None:
    """The share of each digit that goes to each expert, in per cent of that digit's images."""
    chosen = run.held_out.chosen
    experts = run.config.experts
    counts = np.zeros((experts, 10))
    np.add.at(counts, (chosen, digits.test_labels[:, None]), 1)
    share = counts / np.maximum(np.bincount(digits.test_labels, minlength=10), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
    for expert, digit in np.argwhere(share >= 0.005):
        dark = share[expert, digit] > 0.7
        axes.text(
            digit,
            expert,
            f"{100 * share[expert, digit]:.0f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else INK,
        )
    axes.set(title="Who reads what (% of a digit's images)", xlabel="digit", ylabel="expert")
    axes.set(xticks=range(10), yticks=range(experts))
    bare(axes)


def draw_samples(axes: Axes, run: Run, digits: Digits, colours: Array) -> None:
    """Held-out images in the row of their first expert."""
    first = run.held_out.chosen[:, 0]
    experts = run.config.experts
    canvas = np.zeros((experts * 10, SAMPLES * 10))
    for expert in range(experts):
        for place, index in enumerate(np.flatnonzero(first == expert)[:SAMPLES]):
            canvas[expert * 10 + 1 : expert * 10 + 9, place * 10 + 1 : place * 10 + 9] = digits.test_images[index]
    axes.imshow(canvas, cmap="Greys", aspect="auto", interpolation="nearest")
    for expert, colour in enumerate(colours):
        axes.add_patch(square(-3.5, expert * 10 + 4.5, colour, width=2, height=9, clip_on=False))
    axes.set(title="Held-out digits by their first expert", ylabel="expert", xticks=[])
    axes.set_yticks(np.arange(experts) * 10 + 4.5, [str(expert) for expert in range(experts)])
    axes.tick_params(axis="y", pad=12)
    bare(axes)


def square(x: float, y: float, colour: Any, *, width: float = 1, height: float = 1, **options: Any) -> Any:
    """A filled box around a centre."""
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x - width / 2, y - height / 2), width, height, facecolor=colour, edgecolor="white", linewidth=1.5, **options
    )


def bare(axes: Axes) -> None:
    """No frame and no tick marks: the cells are the picture."""
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
