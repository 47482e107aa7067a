"""`make test-gpu` and `make bench-gpu`, on a machine without a card and on the stand-in for its driver."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import results, table
from benchmarks.gpu.children import MARK, Part
from benchmarks.gpu.points import POINTS
from palladio.call.staged import CALLS
from palladio.library.hopper import kept
from tests.architecture.source import ROOT
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.imitated import install


def imitated(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.hopper.driver.imitated", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("name", ["test", "bench"])
def test_without_a_card_it_says_what_to_do(
    card: FakeDriver, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card.begin(devices=0)
    assert command.main([name, "--output", str(tmp_path / "out.json")]) == 2
    said = capsys.readouterr().out
    assert "Nothing was tested: the CUDA driver finds no GPU" in said
    assert "make test runs every kernel on the host twin (docs" in said
    assert not (tmp_path / "out.json").exists()


class InThisProcess:
    """A part of a run that is not a process of its own, which would import everything anew."""

    ended = None

    def __init__(self, arguments: Sequence[str], limit_s: float) -> None:
        self.arguments = list(arguments)

    def records(self) -> list[dict[str, Any]]:
        said = io.StringIO()
        with redirect_stdout(said):
            command.main(self.arguments)
        marked = (line for line in said.getvalue().splitlines() if line.startswith(MARK))
        return [json.loads(line.removeprefix(MARK)) for line in marked]


@pytest.fixture
def here(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    install(card, monkeypatch)
    monkeypatch.setattr(command, "Part", InThisProcess)
    CALLS.clear()
    kept._KEPT.clear()
    return card


def test_the_test_command_from_end_to_end(here: FakeDriver, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    points = ["--only", "copies", "--only", "graphs"]
    assert command.main(["test", *points, "--rows", "2", "--workers", "1", "--output", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [point["right"] for point in found["points"]] == [True, True]
    assert [row["outcome"] for row in found["rows"]] == ["right", "right"]
    assert found["facts"]["card"] == "Imitated H100" and found["facts"]["versions"]["numpy"]


def test_the_bench_command_from_end_to_end(
    here: FakeDriver, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    only = ["matmul bf16 4096", "gmm 256 groups unaligned", "attention 16k, default", "moe_mlp Qwen3", "a new case"]
    arguments = [part for name in only for part in ("--only", name)]

    def missing(torch: object, scale: float) -> None:
        raise NotImplementedError("there is no such function")

    monkeypatch.setitem(table.CASES, "a new case", table.Case("a new case", missing))
    command.main(["bench", *arguments, "--scale", "0.0005", "--output", str(out)])
    *measured, experts, other = json.loads(out.read_text())["cases"]
    for case in measured:
        assert "Palladio" in case["milliseconds"], case
        assert case["ratio"] == 1, "the imitated card takes the same time for all"
    assert "Palladio" in experts["milliseconds"], "its peer counts tokens in a way that PyTorch has on CUDA alone"
    assert "DeepGEMM" in measured[0]["missing"] and other["skipped"] == "there is no such function"
    assert "matmul bf16 4096" in capsys.readouterr().out


def test_a_point_in_a_process_of_its_own() -> None:
    done = imitated("point", "copies")
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stdout + done.stderr


def test_a_part_that_fails_or_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, "-c"])
    failing = Part(["print('@@ {\"a\": 1}'); print('why'); raise SystemExit(3)"], 20)
    assert list(failing.records()) == [{"a": 1}]
    assert failing.ended == "ended with status 3: why"
    hanging = Part(["import time; time.sleep(60)"], 0.2)
    assert list(hanging.records()) == [] and hanging.ended == "ran past its time"


def test_the_points_are_in_the_order_in_which_they_stand_on_each_other() -> None:
    assert list(POINTS)[:6] == [
        *("launch", "copies", "descriptors", "dtypes-of-products", "row-offsets", "left-in-registers")
    ]


@pytest.mark.parametrize("kind", ["uniform", "skewed", "empty", "unaligned"])
def test_group_sizes_have_all_rows(kind: str) -> None:
    sizes = table.sizes_of(kind, 16, 4096)
    assert sum(sizes) == 4096 and min(sizes) >= 0
    assert (0 in sizes) == (kind == "empty")


def test_the_lines_of_the_results() -> None:
    measured = {
        "case": "matmul",
        "milliseconds": {"torch.matmul": 2.0, "Palladio": 1.0},
        "tflops": {"torch.matmul": 350.0, "Palladio": 700.0},
        "ratio": 2.0,
        "aim": 1.0,
        "missing": {"DeepGEMM": "not installed"},
    }
    assert results.case_line(measured).splitlines() == [
        "matmul                           2.00x (aim 1.0): torch.matmul 2.000 ms (350 TFLOP/s), Palladio 1.000 ms (700 "
        "TFLOP/s)",
        "    DeepGEMM: not installed",
    ]
    assert results.case_line({"case": "x", "skipped": "no time"}).endswith("skipped: no time")
    rows = [{"row": "a", "outcome": "right", "text": ""}, {"row": "b", "outcome": "wrong", "text": "output 0"}]
    assert results.row_lines(rows) == ["1 right, 1 wrong", "  b: wrong output 0"]
