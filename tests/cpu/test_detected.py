"""What LLVM says of the processor, on disk: read where it holds, asked of LLVM where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palladio.cpu.runtime import cpuid, detected
from palladio.cpu.runtime.detected import Detected
from palladio.cpu.runtime.executable import SUPPORTED

if not SUPPORTED:
    pytest.skip("LLVM is asked in each process of this system", allow_module_level=True)

OTHER = Detected("x86_64-unknown-linux-gnu", "znver9", "+avx,-avx512f,+fma", "99.1")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Detected]:
    """What LLVM was asked for: it answers with another processor."""
    answers: list[Detected] = []

    def detect() -> Detected:
        answers.append(OTHER)
        return OTHER

    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(detected, "_detect", detect)
    return answers


def test_llvm_is_asked_once(asked: list[Detected]) -> None:
    assert detected._found() == detected._found() == OTHER
    assert len(asked) == 1


def test_the_features_are_those_that_are_there() -> None:
    assert OTHER.has == {"avx", "fma"}
    assert detected.detected().has


def test_another_processor_or_library_is_another_entry(asked: list[Detected], monkeypatch: pytest.MonkeyPatch) -> None:
    detected._found()
    real = cpuid.described()
    monkeypatch.setattr(cpuid, "described", lambda: (*real[:-1], real[-1] ^ 1))
    detected._found()
    monkeypatch.setattr(detected.llvmlite, "__version__", "0.0.0")
    detected._found()
    assert len(asked) == 3


def test_a_damaged_entry_is_written_again(asked: list[Detected], tmp_path: Path) -> None:
    detected._found()
    (entry,) = (tmp_path / "kept").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert detected._found() == OTHER
    assert detected._found() == OTHER
    assert len(asked) == 2


@pytest.mark.parametrize("refused", ["store", "memory", "library"])
def test_llvm_is_asked_each_time_where_nothing_can_be_kept(
    asked: list[Detected], monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse() -> Any:
        raise OSError

    if refused == "store":
        monkeypatch.setenv("PALLADIO_CACHE", "0")
    elif refused == "memory":
        monkeypatch.setattr(cpuid, "described", refuse)
    else:
        monkeypatch.setattr(detected, "get_library_name", lambda: "none.so")
    assert detected._found() == detected._found() == OTHER
    assert len(asked) == 2


def test_the_processor_is_told_apart_by_numbers_that_are_the_same_each_time() -> None:
    assert cpuid.described() == cpuid.described()
    assert any(cpuid.described())
