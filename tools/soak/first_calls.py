"""Interrupts at random moments of first calls, which trace, lower and compile a kernel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
from tools.soak.frame import Soak
from tools.soak.interrupts import interrupted
from tools.soak.subjects import Subject

LONGEST_S = 0.05
"""The approximate duration of a first call."""

PATIENCE_S = 30.0
"""The time after which a first call in another thread counts as hung."""


def first_calls(soak: Soak) -> None:
    """Interrupt the first call of a kernel, then repeat it, and make the first call of another kernel in a thread."""
    os.environ["PALLADIO_CACHE"] = "0"
    for number in soak.rounds():
        mine, other = _new(2 * number), _new(2 * number + 1)
        with soak.faults(mine.name):
            interrupted(soak, mine, {}, soak.rng.uniform(1e-6, LONGEST_S))
            soak.check(mine.name, mine.call(), mine.expected)
            thread = threading.Thread(target=_checks(soak, other), daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            if thread.is_alive():
                soak.counts.faults += 1
                soak.note("a first call in another thread hangs after an interrupted one")
                return


def _new(number: int) -> Subject:
    """A kernel that is unique to a round."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...] + number

    x = np.arange(24, dtype=np.int32)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")
    return Subject(f"new kernel {number}", lambda: call(x), x + np.int32(number))


def _checks(soak: Soak, subject: Subject) -> Callable[[], None]:
    def run() -> None:
        with soak.faults(subject.name):
            soak.check(subject.name, subject.call(), subject.expected)

    return run
