"""Choices that were measured: kept for other processes, apart for each processor, and how they are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import palladio as pl
from palladio.call import choices

KEY = ("product", 3, (4, 5))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    return tmp_path


def test_another_process_finds_what_one_keeps() -> None:
    pl.KeptChoices("tiles").keep(KEY, (128, 64))
    assert pl.KeptChoices("tiles").find(KEY) == (128, 64)
    assert pl.KeptChoices("others").find(KEY) is None
    assert pl.KeptChoices("tiles").find(("product", 3)) is None


def test_the_last_choice_counts() -> None:
    kept = pl.KeptChoices("tiles")
    for choice in ((1,), (2, 3)):
        kept.keep(KEY, choice)
        assert kept.find(KEY) == pl.KeptChoices("tiles").find(KEY) == choice


def test_a_choice_holds_for_one_processor_and_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pl.KeptChoices("tiles")
    kept.keep(KEY, (1,))
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "37")
    assert kept.find(KEY) is None
    monkeypatch.delenv("PALLADIO_NUM_THREADS")
    monkeypatch.setenv("PALLADIO_CPU", "portable")
    assert kept.find(KEY) is None


def test_a_choice_may_hold_for_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    pl.KeptChoices("tiles", of_host=False).keep(KEY, (1,))
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "37")
    assert pl.KeptChoices("tiles", of_host=False).find(KEY) == (1,)
    assert pl.KeptChoices("tiles").find(KEY) is None


def test_without_a_folder_choices_are_kept_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    kept = pl.KeptChoices("tiles")
    kept.keep(KEY, (1,))
    assert kept.find(KEY) == (1,)
    assert pl.KeptChoices("tiles").find(KEY) is None


def test_an_entry_that_was_damaged_is_none(folder: Path) -> None:
    pl.KeptChoices("tiles").keep(KEY, (1,))
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert pl.KeptChoices("tiles").find(KEY) is None


class Clock:
    """A clock that stands still but for calls, which take a given time: longer the first time, as they compile."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self.called = [0] * len(seconds)
        self.calls: list[Callable[[], None]] = [lambda n=n, s=s: self.call(n, s) for n, s in enumerate(seconds)]

    def call(self, number: int, seconds: float) -> None:
        self.called[number] += 1
        self.now += seconds if self.called[number] > 1 else 100.0


def test_calls_are_timed_in_turns_and_slow_ones_have_three(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, heard = Clock(1.0, 1.5, 9.0), []
    monkeypatch.setattr(choices, "perf_counter", lambda: clock.now)
    assert pl.time_in_turns(clock.calls, seconds=50.0, progress=heard.append) == [1.0, 1.5, 9.0]
    assert clock.called[2] == 1 + choices.LEAST_TURNS
    assert clock.called[0] == clock.called[1] > clock.called[2]
    assert heard == sorted(heard) and heard[0] == 0 and heard[-1] == 1


def test_every_call_has_three_turns_however_short_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0, 2.0)
    monkeypatch.setattr(choices, "perf_counter", lambda: clock.now)
    pl.time_in_turns(clock.calls, seconds=0.0)
    assert clock.called == [4, 4]
