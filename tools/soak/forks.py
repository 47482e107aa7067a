"""Forks at random moments: by a signal handler in the middle of a call, while other threads call kernels."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from typing import Any

import palladio as pl
from tools.soak.frame import Soak
from tools.soak.subjects import Subject, subjects

CHILD_S = 30
"""The time in seconds after which a child counts as hung."""


def forks(soak: Soak) -> None:
    """Fork while this thread and another one call kernels; the child calls kernels, and both check their results."""
    os.environ["PALLADIO_NUM_THREADS"] = "3"
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, for a fork of a process with threads
    with pl.executor("cpu"):
        found = subjects(soak.rng)
    ended = threading.Event()
    beside = threading.Thread(target=_calls, args=(ended, found), daemon=True)
    beside.start()
    try:
        with pl.executor("cpu"):
            for _ in soak.rounds():
                first, second = (found[n] for n in soak.rng.integers(len(found), size=2))
                _round(soak, first, second, soak.rng.uniform(1e-6, 2e-3))
    finally:
        ended.set()
        beside.join()


def _calls(ended: threading.Event, found: list[Subject]) -> None:
    with pl.executor("cpu"):
        while not ended.wait(1e-4):
            for subject in found:
                subject.call()


def _round(soak: Soak, first: Subject, second: Subject, moment: float) -> None:
    children: list[int] = []

    def fork(*_: Any) -> None:
        child = os.fork()
        if child == 0:
            _child(second)
        children.append(child)

    signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, moment)
    with soak.faults(f"{first.name} with a fork"):
        while not children:
            soak.check(f"{first.name} with a fork", first.call(), first.expected)
    status = os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
    soak.counts.calls += 1
    if status == 1:
        soak.counts.wrong += 1
    elif status:
        soak.counts.faults += 1
        soak.note(f"{second.name} in a child that was forked in {first.name}: status {status}")


def _child(subject: Subject) -> None:
    """Call a kernel and end; the status is 0 if the result is right."""
    status = 2
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_S)
        status = 0 if subject.call().tobytes() == subject.expected.tobytes() else 1
    finally:
        os._exit(status)
