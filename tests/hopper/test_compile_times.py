"""The command that holds the times of compiling to their aims, with times that a test makes up."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tools import compile_times


@pytest.mark.parametrize(
    ("cold", "disk", "status"),
    [
        ("700 700 700", "3 7", 0),  # beside the aims, within the margin
        ("100 200 nan", "3 0.4", 0),  # no compiler for the twin
        ("700 900 100", "3 0.4", 1),
        ("100 200 800", "3 0.4", 1),
        ("100 200 100", "3 8", 1),
    ],
)
def test_a_kernel_far_past_its_aim_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cold: str, disk: str, status: int
) -> None:
    said = iter((cold, disk))

    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout=next(said))

    monkeypatch.setattr(compile_times, "KERNELS", {"softmax": compile_times.KERNELS["softmax, 8192 squared"]})
    monkeypatch.setattr(compile_times.subprocess, "run", run)
    assert compile_times.main() == status
    assert ("by more than the margin: softmax" in capsys.readouterr().out) == bool(status)


def test_a_kernel_is_traced_once_and_then_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    small = "softmax", [(64, 128)], {}
    monkeypatch.setattr(compile_times, "KERNELS", {"small": small})
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    counts = []
    for _ in range(2):
        compile_times.one("small")
        counts.append(len(capsys.readouterr().out.split()))
    assert counts == [3, 2]
