"""A short training learns, is reproducible, and reports what happened."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from palladio.demo.data import load_digits
from palladio.demo.plot import write_plot
from palladio.demo.report import Report
from palladio.demo.train import Config, prepare, train

SHORT = Config(epochs=3, batch=128, width=32, hidden=32)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def trained(digits, report=None):
    run = prepare(SHORT, digits)
    for _ in train(run, digits):
        if report:
            report.step(run)
    return run


@pytest.fixture(scope="module")
def run(digits):
    return trained(digits)


def reported(digits, run, *, quiet=False, encoding="utf-8", terminal=False):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console = Console(file=stream, force_terminal=terminal, width=100, _environ={})
    report = Report(console, quiet)
    report.opening(run, digits)
    with report:
        report.step(run)
    report.closing(run, digits)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def test_the_split_is_1200_to_learn_237_to_validate_360_held_out_and_shares_none(digits):
    parts = (digits.train_pixels, digits.validation_pixels, digits.test_pixels)
    assert [len(part) for part in parts] == [1200, 237, 360]
    # No two of the 1797 images are equal, so as many distinct ones come out.
    assert len(np.unique(np.concatenate(parts), axis=0)) == 1797
    assert digits.train_pixels.shape == (1200, 64)
    assert digits.test_pixels.shape == (360, 64)
    assert digits.test_images.shape == (360, 8, 8)
    assert abs(digits.train_pixels.mean()) < 1e-3
    assert np.bincount(digits.test_labels).min() > 20


def test_the_loss_falls_and_accuracy_rises(run):
    assert run.steps[-1].losses.cross_entropy < 0.7 * run.steps[0].losses.cross_entropy
    assert run.validations[-1].accuracy > max(0.5, run.validations[0].accuracy)


def test_the_held_out_images_are_looked_at_once_at_the_end(digits):
    run = prepare(SHORT, digits)
    steps = train(run, digits)
    for _ in range(run.total_steps - 1):
        next(steps)
        assert run.result is None
    with pytest.raises(RuntimeError, match="when the training is done"):
        run.held_out
    next(steps)
    assert run.held_out.predicted.shape == (360,)


def test_what_is_learned_does_not_depend_on_the_held_out_images(digits, run):
    shuffled = replace(digits, test_pixels=digits.test_pixels[::-1] + 1, test_labels=digits.test_labels[::-1])
    assert np.array_equal(trained(shuffled).parameters.up, run.parameters.up)


def test_the_same_seed_gives_the_same_training(digits, run):
    again = trained(digits)
    assert [step.losses for step in again.steps] == [step.losses for step in run.steps]


def test_another_seed_gives_other_weights(digits, run):
    other = prepare(replace(SHORT, seed=1), digits)
    first = prepare(SHORT, digits)
    assert not np.array_equal(other.parameters.up, first.parameters.up)


def test_every_step_runs_six_grouped_products(run):
    calls = {use: cost.calls for use, cost in run.products.costs.items()}
    steps, evaluations = run.total_steps, run.config.epochs + 1
    assert list(calls.values()) == [2 * steps + 2 * evaluations, 2 * steps, 2 * steps]


def test_the_report_tells_accuracy_load_and_speed(digits, run):
    text = reported(digits, run)
    assert text.startswith("A mixture of 8 experts learns to read handwritten digits")
    assert "GFLOP/s" in text and "tgmm gradient of weights" in text and "share of the held-out digits" in text
    assert text.count(" ms a call, NumPy ") == 3 and "went into the first calls" in text
    assert f"Held-out accuracy {run.held_out.accuracy:.1%}" in text
    assert "█" in text


def test_a_report_to_a_file_has_no_control_characters(digits, run):
    assert not set(map(chr, range(32))) & set(reported(digits, run)) - {"\n"}


def test_a_report_to_a_terminal_has_a_progress_bar(digits, run):
    assert "epoch 3/3" in reported(digits, run, terminal=True)


def test_a_report_in_ascii_can_be_written(digits, run):
    text = reported(digits, run, encoding="ascii")
    assert text.isascii() and "###" in text


def test_a_quiet_report_is_one_line(digits, run):
    text = reported(digits, run, quiet=True)
    assert text.startswith("Held-out accuracy") and text.count("\n") == 1


def test_the_plot_is_written(digits, run, tmp_path):
    path = tmp_path / "plot.png"
    assert write_plot(path, run, digits)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_numpy_computes_what_the_kernels_do(run):
    for kernel, reference in run.products._last.values():
        np.testing.assert_allclose(kernel(), reference(), rtol=1e-4, atol=1e-5)
    assert set(run.products.beside_numpy(rounds=1)) == set(run.products.costs)
