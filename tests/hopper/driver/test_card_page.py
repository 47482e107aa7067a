"""The page of a card, made of files of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import page

FACTS: dict[str, Any] = {
    "card": "NVIDIA H100 80GB HBM3",
    "multiprocessors": 132,
    "driver": "CUDA 13.0",
    "nvrtc": "13.0",
    "clocks": "clocks.sm,...: 1980 MHz, 1980 MHz, 3201 MHz, 129.62 W, 700.00 W, 44",
    "clocks_after": "not known: FileNotFoundError",
    "python": "3.12.3",
    "versions": {"numpy": "2.5.2", "torch": "2.11.0"},
    "begun": "2026-11-27T06:40:04+00:00",
    "seconds": 28.2,
    "ended": "complete",
}
TEST = {
    "facts": FACTS,
    "points": [
        {"point": "launch", "right": True, "text": "relative error 0.0e+00"},
        {"point": "copies", "right": False, "text": "AssertionError: a | b\nmore"},
    ],
    "rows": [
        {"row": "dot.vector-f32", "outcome": "right", "text": ""},
        {"row": "dot.matrix-f32", "outcome": "wrong", "text": "output 0"},
    ],
}
TIMES = {"milliseconds": {"torch.matmul": 2.0, "the default": 1.0, "Palladio": 2.5}, "unjudged": ["the default"]}
BENCH = {
    "facts": FACTS,
    "cases": [
        {"case": "calls", "microseconds": {"gmm": 6.32, "torch.matmul": 11.4}, "most_microseconds": {"gmm": 8.0}},
        {"case": "matmul", **TIMES, "tflops": {"Palladio": 560.0}, "ratio": 0.8, "aim": 1.0, "least_tflops": 700.0},
        {"case": "gmm", "skipped": "CardError: a kernel failed"},
        {"case": "cost models", "configurations": 3, "correlations": {"simulator": 0.958, "analytic model": None}},
    ],
}
AGAIN = {"facts": FACTS | {"begun": "later"}, "points": [{"point": "copies", "right": True, "text": "fine"}]}


def written(folder: Path, *contents: dict[str, Any]) -> list[str]:
    """Files of results."""
    paths = [folder / f"{number}.json" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content))
    return [str(path) for path in paths]


def test_the_page_has_conditions_and_results(tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    assert command.main(["page", *written(tmp_path, TEST, BENCH), "--output", str(out)]) == 0
    said = out.read_text()
    lines = said.splitlines()
    assert lines[0] == "# Measured on NVIDIA H100 80GB HBM3"
    assert "- NVIDIA H100 80GB HBM3, 132 multiprocessors, driver for CUDA 13.0, NVRTC 13.0" in lines
    assert "- Python 3.12.3, numpy 2.5.2, torch 2.11.0" in lines
    before = "1980 MHz (at most 1980 MHz), memory 3201 MHz, 129.62 W of 700.00 W, 44 °C"
    run = f"- run of 2026-11-27T06:40:04+00:00, 28.2 s, complete: before {before}, after clocks unknown"
    assert lines.count(run) == 2
    assert "random normal numbers" in said and "128 MiB are overwritten" in said
    table = lines.index("| case | ms | TFLOP/s | best peer | ms | ratio | aim | of the aim |")
    assert lines[table + 2 : table + 6] == [
        "| gmm | none |  |  |  |  |  | 0.00 |",
        "| matmul | 2.500 | 560 | torch.matmul | 2.000 | 0.80× | 1×, 700 TFLOP/s | 0.80 |",
        "",
        "- gmm: CardError: a kernel failed",
    ]
    assert {"| gmm | 6.3 | 8 |", "| torch.matmul | 11.4 |  |"} <= set(lines)
    assert "rank correlation over 3 configurations: simulator 0.96, analytic model none." in said
    assert "| copies | **wrong** | AssertionError: a \\| b |" in lines
    assert "2 rows: 1 right, 1 wrong." in lines and "- dot.matrix-f32: wrong output 0" in lines


def test_of_a_repeated_record_the_last_is_on_the_page(tmp_path: Path) -> None:
    found = page.merged(map(Path, written(tmp_path, TEST, AGAIN)))
    assert [(each["point"], each["right"]) for each in found["points"]] == [("launch", True), ("copies", True)]
    said = page.page(found)
    assert "run of later" in said and "## Beside other libraries" not in said


@pytest.mark.parametrize(
    ("card", "name"), [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA GH200 480GB", "gh200")]
)
def test_a_page_is_named_after_its_card(tmp_path: Path, card: str, name: str) -> None:
    found = page.merged(map(Path, written(tmp_path, {"facts": FACTS | {"card": card}})))
    assert page.path(found) == page.PAGES / f"{name}.md"


def test_a_page_is_of_one_card(tmp_path: Path) -> None:
    files = written(tmp_path, TEST, {"facts": FACTS | {"card": "NVIDIA H200"}})
    with pytest.raises(
        ValueError, match="a page is of one card, and these files are of NVIDIA H100 80GB HBM3, NVIDIA H"
    ):
        page.merged(map(Path, files))
