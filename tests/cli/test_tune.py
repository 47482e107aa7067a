"""`palladio tune` measures a product, keeps the fastest tiles, and says what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from palladio import library
from palladio.cli import main
from palladio.library.tilings import TUNED


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    monkeypatch.setattr(TUNED, "_found", {})
    return tmp_path


def test_tiles_are_measured_and_kept(capsys: pytest.CaptureFixture[str], nothing_kept: Path) -> None:
    assert main(["tune", "gmm", "40", "32", "64", "--sizes", "0,40", "--dtype", "bfloat16", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert "gmm 64 × 32 × 64" in out and "the model's" in out and "kept" in out
    assert TUNED.find(("gmm", "bfloat16", "bfloat16", 2, 0, 64, 32, 64)) is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gmm", "40", "32", "64", "--sizes", "1,x"], "invalid literal"),
        (["gmm", "40", "32", "64", "--sizes", "41"], "more than the number of rows"),
        (["matmul", "40", "32", "64", "--dtype", "int9"], "not a dtype"),
        (
            ["matmul", "40", "32", "64", "--dtype", "int8"],
            "lhs: floats are needed\n  expected: a float dtype\n  got:      int8\n",
        ),
        (["matmul", "40", "32", "64", "--groups", "2"], "--groups and --sizes are for gmm, tgmm, moe_mlp"),
        (["attention", "40", "32", "64", "--executor", "hopper", "--heads", "2,x"], "1 or more, got 'x'"),
        (["matmul", "40", "32", "64", "--transpose-rhs"], "for matmul and moe_mlp with --executor hopper"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 2
    found = capsys.readouterr().err
    assert message in found and ".py" not in found


@pytest.mark.parametrize("arguments", [["softmax", "1", "1", "1"], ["gmm", "0", "1", "1"]])
def test_what_is_not_understood_is_said_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", *arguments])
    assert end.value.code == 2
    assert "usage: palladio tune" in capsys.readouterr().err


def test_an_interrupt_ends_it_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nothing_kept: Path
) -> None:
    def interrupted(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "tune", interrupted)
    assert main(["tune", "gmm", "40", "32", "64"]) == 130
    assert capsys.readouterr().err.strip() == "palladio: stopped before the end"
    assert not [*nothing_kept.iterdir()]
