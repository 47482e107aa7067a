"""Interrupts at random moments of calls on several threads."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import palladio as pl
from tools.soak.frame import Soak
from tools.soak.subjects import Subject, subjects

THREADS = "4"


def interrupts(soak: Soak) -> None:
    """Interrupt a call at a random moment, then check the next one, and that no worker still writes the first array."""
    os.environ["PALLADIO_NUM_THREADS"] = THREADS
    with pl.executor("cpu"):
        found = subjects(soak.rng)
        lengths = [_seconds(each) for each in found]
        for _ in soak.rounds():
            first, second = soak.rng.integers(len(found), size=2)
            with soak.faults(f"{found[first].name}, then {found[second].name}"):
                _round(soak, found[first], found[second], soak.rng.uniform(1e-6, 1.3 * lengths[first]))


def _seconds(subject: Subject) -> float:
    times = []
    for _ in range(7):
        begun = time.perf_counter()
        subject.call()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def _round(soak: Soak, first: Subject, second: Subject, moment: float) -> None:
    out = np.zeros_like(first.expected) if first.writes and soak.rng.random() < 0.5 else None
    result = interrupted(soak, first, {} if out is None else {"out": out}, moment)
    if result is not None:
        soak.check(first.name, result, first.expected)
    left = None if out is None else out.copy()
    soak.check(f"{second.name} after {first.name}", second.call(), second.expected)
    if left is not None:
        soak.check(f"array of {first.name} later", out, left)


def interrupted(soak: Soak, subject: Subject, options: dict[str, Any], moment: float) -> Any:
    """The result of a call, or None if it was interrupted.

    The system may hand the signal to a thread that waits for a core, so that its handler runs after the call: then it
    raises nothing.
    """
    running = True

    def interrupt(number: int, frame: Any) -> None:
        if running:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, moment)
            return subject.call(**options)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            running = False
    except KeyboardInterrupt:
        soak.counts.calls += 1
        soak.counts.interrupts += 1
        return None
