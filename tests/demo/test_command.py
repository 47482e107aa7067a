"""`python -m palladio.demo`: arguments, exit status, and what is missing."""

import os
import re
import subprocess
import sys

import pytest

from palladio.demo.__main__ import main
from palladio.demo.train import Config
from tests.architecture.source import ROOT

TINY = ["--epochs", "1", "--width", "16", "--hidden", "16", "--batch", "512"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "argument --epochs: expected 1 or more, got 0"),
        (["--epochs", "many"], "argument --epochs: expected a whole number, got 'many'"),
        (["--seed", "-1"], "argument --seed: expected 0 or more, got -1"),
        (["--experts", "1"], "argument --experts: expected 2 or more, got 1"),
        (["--batch", "5000"], "argument --batch: 5000 images, but there are only 1200 to learn from"),
        (["--plot", "no/such/folder/plot.png"], "argument --plot: the folder no/such/folder does not exist"),
    ],
)
def test_a_bad_argument_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert f"python -m palladio.demo: error: {message}\n" in capsys.readouterr().err


def test_a_goal_missed_is_exit_status_one(capsys):
    assert main([*TINY, "--no-plot", "--quiet"]) == 1
    assert "the goal of 96% is missed" in capsys.readouterr().out


def test_a_goal_reached_is_exit_status_zero(capsys, monkeypatch):
    monkeypatch.setattr("palladio.demo.__main__.GOAL", 0.0)
    monkeypatch.setattr("palladio.demo.report.GOAL", 0.0)
    assert main([*TINY, "--no-plot", "--quiet"]) == 0
    assert "the goal of 0% is reached" in capsys.readouterr().out


def test_a_plot_that_cannot_be_written_is_said_and_the_result_stands(capsys, tmp_path):
    assert main([*TINY, "--plot", str(tmp_path / "plot.nonsense")]) == 1
    out = capsys.readouterr().out
    assert "No picture: " in out and "could not be written" in out and "Held-out accuracy" in out


def test_without_matplotlib_one_line_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main([*TINY, "--plot", str(tmp_path / "plot.png")])
    assert "No picture: matplotlib is not installed (pip install 'palladio[plot]').\n" in capsys.readouterr().out


def test_without_scikit_learn_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "the demo learns the handwritten digits that come with scikit-learn, which is not installed\n"
        "  hint:     pip install 'palladio[demo]'\n"
    )


def test_the_default_is_eight_experts_of_width_128():
    assert Config() == Config(epochs=60, seed=0, batch=200, width=128, hidden=128, experts=8)


def test_under_torchrun_the_experts_are_on_its_processes():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    demo = ["-m", "palladio.demo.distributed", "--epochs", "2"]
    environment = {**os.environ, "PALLADIO_NUM_THREADS": "1"}  # as many as torchrun lets PyTorch have
    done = subprocess.run(
        [*torchrun, *demo], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "2 processes" in done.stdout, done.stderr
    first, second = done.stdout.splitlines()
    losses = first.removeprefix("2 processes, 8 experts; loss from epoch to epoch: ").split(", ")
    assert float(losses[-1]) < float(losses[0]) / 2
    accuracy = re.fullmatch(r"held-out accuracy ([\d.]+)%, the goal is 96%", second)
    assert accuracy is not None and float(accuracy[1]) > 80
    assert (done.returncode == 0) == (float(accuracy[1]) >= 96)
