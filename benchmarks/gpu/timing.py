"""Times on the card: interleaved contenders, each call between two events of the driver, with a cold L2 cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from palladio.hopper.launch.driver import driver

FLUSHED = 128 << 20
"""Bytes that are written before each timing: more than the L2 cache (50 MiB), and some tens of microseconds of work
in which the host runs ahead of the card."""
ROUNDS, LEAST_ROUNDS = 30, 5
SECONDS = 4.0
"""Time limit of the rounds of a case, after which no further round starts."""


@dataclass(frozen=True)
class Contender:
    """An implementation: its name, and a function that enqueues it on a stream and returns its result."""

    name: str
    run: Callable[[], Any]


class Clock:
    """Events of the driver on one stream."""

    def __init__(self, stream: int) -> None:
        self.driver = driver()
        self.device = self.driver.hopper(0)
        self.stream = stream
        with self._context():
            self._flush = int(self.driver.call("cuMemAlloc", FLUSHED))
            self._events = [self.driver.call("cuEventCreate", 0) for _ in range(2)]

    @contextmanager
    def _context(self) -> Iterator[None]:
        with self.driver.current(self.device):
            yield

    def milliseconds(self, run: Callable[[], Any]) -> float:
        """The time of one call."""
        start, end = self._events
        with self._context():
            self.driver.call("cuMemsetD8Async", self._flush, 0, FLUSHED, self.stream)
            self.driver.call("cuEventRecord", start, self.stream)
        run()
        with self._context():
            self.driver.call("cuEventRecord", end, self.stream)
            self.driver.call("cuEventSynchronize", end)
            return float(self.driver.call("cuEventElapsedTime", start, end))

    def close(self) -> None:
        """Free the memory and the events."""
        with self._context():
            self.driver.call("cuMemFree", self._flush)
            for event in self._events:
                self.driver.call("cuEventDestroy", event)


def medians(contenders: list[Contender], stream: int, rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of each contender in milliseconds; they are interleaved, so that clocks and heat affect all."""
    clock = Clock(stream)
    times: dict[str, list[float]] = {each.name: [] for each in contenders}
    begun = time.monotonic()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.monotonic() - begun > SECONDS:
            break
        for each in contenders:
            times[each.name].append(clock.milliseconds(each.run))
    clock.close()
    return {name: statistics.median(found) for name, found in times.items()}
