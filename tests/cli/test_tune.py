"""`palladio tune` measures a product, keeps the fastest tiles, and says what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        (["matmul", "40", "32", "64", "--transpose-rhs"], "for matmul and moe_mlp with --executor hopper"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["softmax", "1", "1", "1"], ["gmm", "0", "1", "1"]])
def test_what_is_not_understood_is_said_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", *arguments])
    assert end.value.code == 2
    assert "usage: palladio tune" in capsys.readouterr().err
