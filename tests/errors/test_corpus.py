"""Each program of the corpus raises the error that stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.errors.corpus import FILES, Case, read, update

ALL = [case for path in FILES for case in read(path)]
ON_BOTH_EXECUTORS = ("mpmd", "tpu")
"""Files whose kernels run on the evaluator and compiled."""


def _runs() -> list[tuple[Case, str | None]]:
    both = [(case, each) for case in ALL if case.path.stem in ON_BOTH_EXECUTORS for each in ("reference", "cpu")]
    return [(case, None) for case in ALL if case.path.stem not in ON_BOTH_EXECUTORS] + both


@pytest.mark.parametrize(
    ("case", "executor"), _runs(), ids=lambda each: f"{each.path.stem}: {each.name}" if isinstance(each, Case) else each
)
def test_the_error_of(
    case: Case, executor: str | None, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    if executor is not None:
        monkeypatch.setenv("PALLADIO_EXECUTOR", executor)
    kind, text = case.raised()
    if pytestconfig.getoption("--update-golden"):
        update(case, kind, text)
    else:
        assert f"[{kind}]\n{text}" == f"[{case.kind}]\n{case.text}"


def test_names_of_cases_are_unique_in_their_file() -> None:
    names = [(case.path.stem, case.name) for case in ALL]
    assert len(set(names)) == len(names)


def test_a_new_case_that_runs_on_two_executors_is_written_once(tmp_path: Path) -> None:
    path, after = tmp_path / "some.txt", "[case two]\nsecond()\n[KeyError]\n"
    path.write_text(f"[case one]\nfirst()\n[ValueError]\n\n{after}", encoding="utf-8")
    one, _ = read(path)
    for _ in ("reference", "cpu"):
        update(one, "ValueError", "the text")
    assert path.read_text(encoding="utf-8") == f"[case one]\nfirst()\n[ValueError]\nthe text\n\n{after}"
