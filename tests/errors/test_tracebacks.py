"""The traceback of a user's error: only frames of the user's, unless the knob shows all."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.base.errors import PalladioError

X = np.zeros((8, 4), np.float32)
OUT = pl.ShapeDtypeStruct((8, 4), np.float32)


def kernel(x: Any, out: Any) -> None:
    out[...] = x[...] + x[:, 0]


def called() -> None:
    pl.pallas_call(kernel, OUT)(X)


def staged() -> None:
    pl.jit(lambda x: pl.pallas_call(kernel, OUT)(x) + 1)(X)


def misused() -> None:
    pl.pallas_call(kernel, OUT, gird=(2,))  # type: ignore[call-overload]


def frames(call: Callable[[], None]) -> list[str]:
    with pytest.raises(PalladioError) as caught:
        call()
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize(
    ("call", "shown"),
    [(called, ["called", "kernel"]), (staged, ["staged", "<lambda>", "kernel"]), (misused, ["misused"])],
)
def test_only_frames_of_the_user_are_shown(call: Callable[[], None], shown: list[str]) -> None:
    assert frames(call) == ["frames", *shown]


def test_the_knob_shows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_TRACEBACK", "1")
    assert len(frames(called)) > 10


def test_an_error_of_the_kernel_itself_keeps_its_frames() -> None:
    def wrong(x: Any, out: Any) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError) as caught:
        pl.pallas_call(wrong, OUT)(X)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "wrong"


class Alarm(Exception):
    """An error of a user's own, as the handler of a time limit raises it."""


class Handler:
    """A handler that is no function."""

    def __call__(self, number: int, frame: Any) -> None:
        raise Alarm


def raise_alarm(number: int, frame: Any) -> None:
    raise Alarm


class Signalled:
    """An output stream in which a signal arrives."""

    def write(self, text: str) -> None:
        signal.raise_signal(signal.SIGUSR1)

    def flush(self) -> None:
        """There is nothing to write."""


@pytest.mark.parametrize("handler", [raise_alarm, Handler(), Handler().__call__], ids=["function", "object", "method"])
@pytest.mark.parametrize("executor", ["reference", "simulator"])
def test_an_error_of_a_signals_handler_stays_itself(
    executor: str, handler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printing(x: Any, out: Any) -> None:
        pl.debug_print("now")
        out[...] = x[...]

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(sys, "stdout", Signalled())
        with pytest.raises(Alarm):
            pl.pallas_call(printing, OUT, interpret=executor)(X)
    finally:
        signal.signal(signal.SIGUSR1, previous)
