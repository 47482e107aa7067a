"""Medians of interleaved contenders."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palladio.hopper.launch.timing import Clock

ROUNDS, LEAST_ROUNDS = 30, 5
SECONDS = 4.0
"""Time limit of the rounds of a case, after which no further round starts."""


@dataclass(frozen=True)
class Contender:
    """An implementation: its name, and a function that enqueues it on a stream and returns its result."""

    name: str
    run: Callable[[], Any]


class ContenderError(Exception):
    """A contender has failed; its name is the argument, and the reason the cause."""


def medians(contenders: list[Contender], stream: int, rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of each contender in milliseconds; they are interleaved, so that clocks and heat affect all.

    Raises:
        ContenderError: a contender fails.
    """
    clock = Clock(stream)
    times: dict[str, list[float]] = {each.name: [] for each in contenders}
    begun = time.monotonic()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.monotonic() - begun > SECONDS:
            break
        for each in contenders:
            try:
                times[each.name].append(clock.milliseconds(each.run))
            except Exception as error:
                raise ContenderError(each.name) from error
    clock.close()
    return {name: statistics.median(found) for name, found in times.items()}
