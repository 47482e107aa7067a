"""Calls from many threads, with varying numbers of workers and cores, and a system that refuses threads."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import palladio as pl
from palladio.cpu.runtime import workers
from tools.soak.frame import Soak
from tools.soak.subjects import Subject, subjects

CALLERS = 6
CALLS = 20


def threads(soak: Soak) -> None:
    """Each round, some threads call kernels at random; all results are checked."""
    with pl.executor("cpu"):
        found = subjects(soak.rng)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    for number in soak.rounds():
        os.environ["PALLADIO_NUM_THREADS"] = str(soak.rng.integers(1, 9))
        seeds = soak.rng.integers(1 << 31, size=CALLERS)
        with refused(number % 3 == 0), narrowed(cores, number % 4 == 1):
            callers = [threading.Thread(target=_calls, args=(soak, found, seed)) for seed in seeds]
            for each in callers:
                each.start()
            for each in callers:
                each.join()


def _calls(soak: Soak, found: list[Subject], seed: int) -> None:
    rng = np.random.default_rng(seed)
    with pl.executor("cpu"):
        for _ in range(CALLS):
            subject = found[rng.integers(len(found))]
            with soak.faults(f"{subject.name} in a thread"):
                soak.check(f"{subject.name} in a thread", subject.call(), subject.expected)


@contextmanager
def refused(whether: bool) -> Iterator[None]:
    """A new pool, for which the system starts one thread and refuses more."""
    if not whether:
        yield
        return
    start, left = _thread.start_new_thread, 1

    def limited(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("can't start new thread")
        return start(*arguments)

    workers._reset_pool()  # the workers of the old pool wait forever
    _thread.start_new_thread = limited
    try:
        yield
    finally:
        _thread.start_new_thread = start


@contextmanager
def narrowed(cores: set[int], whether: bool) -> Iterator[None]:
    """Restrict the process to one of the cores."""
    if not whether or len(cores) < 2:
        yield
        return
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
