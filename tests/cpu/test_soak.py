"""The soak: each part for a few rounds, and what it says of faults, hangs and wrong results."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from tools.soak import __main__ as soak
from tools.soak.frame import Soak


@pytest.mark.parametrize("part", sorted(soak.PARTS))
def test_a_part_finds_nothing(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main([part, "--rounds=2"]) == 0
    calls, _, faults, wrong = map(int, capsys.readouterr().out.splitlines()[-1].split()[1:])
    assert calls > 0
    assert (faults, wrong) == (0, 0)


def test_a_result_of_other_bits_is_counted_as_wrong() -> None:
    state = Soak(1, 1, np.random.default_rng(0))
    state.check("sum", np.zeros(3, np.float32), np.zeros(3, np.float32))
    state.check("sum", np.zeros(3, np.float32), -np.zeros(3, np.float32))
    state.check("sum", np.zeros(3, np.float32), np.zeros(3))
    assert (state.counts.calls, state.counts.wrong) == (3, 2)


def test_an_exception_is_counted_as_a_fault() -> None:
    state = Soak(1, 1, np.random.default_rng(0))
    with state.faults("division"):
        raise ZeroDivisionError("by zero")
    assert state.counts.faults == 1
    assert state.notes == ["division: ZeroDivisionError: by zero"]


class Process:
    """A part that ends in some other way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        run = soak.subprocess.run

        def instead(command: list[str], **options: Any) -> Any:
            return run([command[0], "-c", program], **options)

        monkeypatch.setattr(soak.subprocess, "run", instead)
        monkeypatch.setattr(soak, "PATIENCE_S", 0.0)


@pytest.mark.parametrize(
    ("program", "note"),
    [
        (f"import os; os.kill(os.getpid(), {signal.SIGSEGV})", f"ended with status -{signal.SIGSEGV:d}"),
        ("import time; time.sleep(100)", "hung"),
    ],
)
def test_a_crash_and_a_hang_are_faults(
    program: str, note: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Process(monkeypatch, program)
    assert soak.main(["forks", "--seconds=2"]) == 1
    assert note in capsys.readouterr().out


def test_a_part_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["sleep"])
    assert "there is no part sleep; there are interrupts, " in capsys.readouterr().err
