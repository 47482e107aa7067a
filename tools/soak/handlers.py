"""Signal handlers that call kernels at random moments of other calls and compilations."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

import palladio as pl
from tools.soak.frame import Soak
from tools.soak.subjects import subjects

NEW_EVERY = 20
"""The period, in rounds, of calls of a new kernel."""

DEPTH = 3
"""The maximum nesting of handlers: on a slow machine the next signal arrives before the first one is handled."""


def handlers(soak: Soak) -> None:
    """Call kernels, sometimes a new one that must be compiled, with a handler that calls others meanwhile."""
    os.environ["PALLADIO_NUM_THREADS"] = "3"
    os.environ["PALLADIO_CACHE"] = "0"
    with pl.executor("cpu"):
        found = subjects(soak.rng)

        depth = 0

        def handler(*_: Any) -> None:
            nonlocal depth
            if depth == DEPTH:
                return
            depth += 1
            subject = found[soak.rng.integers(len(found))]
            with soak.faults(f"{subject.name} in a handler"):
                soak.check(f"{subject.name} in a handler", subject.call(), subject.expected)
            soak.counts.interrupts += 1
            depth -= 1

        signal.signal(signal.SIGALRM, handler)
        for number in soak.rounds():
            subject = found[soak.rng.integers(len(found))]
            signal.setitimer(signal.ITIMER_REAL, soak.rng.uniform(1e-6, 3e-3), soak.rng.uniform(5e-3, 2e-2))
            try:
                with soak.faults(subject.name):
                    soak.check(f"{subject.name} under a handler", subject.call(), subject.expected)
                    if number % NEW_EVERY == 0:
                        _compile(soak, number)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)


def _compile(soak: Soak, number: int) -> None:
    """Call a kernel that is unique to a round."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...] + number

    x = np.arange(24, dtype=np.int32)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype))
    soak.check("a new kernel under a handler", call(x), x + np.int32(number))
