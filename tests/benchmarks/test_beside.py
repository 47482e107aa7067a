"""Two checkouts side by side, here small imitations: which rows are compared, from where, and what fails."""

import textwrap
from pathlib import Path

from benchmarks import beside
from benchmarks.beside import Row

MEASURE = """
OURS = "ours"

def error_norm(result, expected):
    return abs(result - expected)
"""

CASES = """
from types import SimpleNamespace

import palladio
from benchmarks.measure import OURS

def case(name):
    def make():
        contender = SimpleNamespace(name=OURS, run=lambda: palladio.RESULT)
        return SimpleNamespace(name=name, contenders=[contender], expected=1.0, tolerance=0.1)

    return make

CASES = {{name: case(name) for name in {names}}}
print("what is imported may print")
"""


def imitation(root: Path, result: float, *names: str) -> Path:
    files = {
        "palladio/__init__.py": f"RESULT = {result}",
        "benchmarks/__init__.py": "",
        "benchmarks/measure.py": MEASURE,
        "benchmarks/cases.py": CASES.format(names=names),
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(textwrap.dedent(text))
    return root


def test_rows_that_both_checkouts_have_are_timed_as_often_in_each(tmp_path: Path) -> None:
    here, other = imitation(tmp_path / "here", 1.0, "sum", "new"), imitation(tmp_path / "other", 1.01, "old", "sum")
    (row,) = beside.measure(other, pairs=2, here=here)
    assert (row.name, len(row.ours), len(row.theirs), row.wrong) == ("sum", 2, 2, [])
    assert beside.measure(other, ["new"], here=here) == []


def test_a_wrong_result_is_not_timed(tmp_path: Path) -> None:
    here, other = imitation(tmp_path / "here", 1.0, "sum"), imitation(tmp_path / "other", 2.0, "sum")
    (row,) = beside.measure(other, pairs=2, here=here)
    assert (row.ours, row.theirs, row.ratio) == ([], [], None)
    assert row.failure == f"sum: the result is wrong in {other}"


def test_the_ratio_is_that_of_neighbouring_timings() -> None:
    slow_machine_meanwhile = Row("sum", [1.0, 4.0, 1.0], [1.0, 4.0, 0.9])
    assert slow_machine_meanwhile.ratio == 1.0
    assert slow_machine_meanwhile.failure is None
    slower = Row("sum", [1.1, 1.1, 1.1], [1.0, 1.0, 1.0])
    assert slower.failure == "sum: takes 1.100 times as long, at most 1.03 is accepted"
