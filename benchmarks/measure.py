"""Contenders run in turns: each result is checked against float64 once, then medians of several rounds are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

OURS = "Palladio"

BEST = "the best of them"
"""As the peer of a floor: the fastest one in this run."""

LONGEST_S = 10.0
"""The longest time of a contender's rounds, in seconds, estimated from its first two calls; one round is always run."""

FEW_ROUNDS = 7
"""Further rounds are run only as long as they settle the median of a short call, see `SETTLING_S`."""

SETTLING_S = 1.0
"""The longest time of more than `FEW_ROUNDS` rounds, in seconds: a busy machine disturbs some calls in a row."""

REST_S = 0.02
"""The pause between two timings: a library's threads that spin for more work would take a core from the next one."""


@dataclass(frozen=True)
class Contender:
    """One implementation.

    Fields:
        name: its name; ours is `OURS`.
        run: computes the result; None if the implementation is missing, and then `missing` says why.
        rounds: the most timings; a slow one has fewer, see `LONGEST_S` and `FEW_ROUNDS`.
        calls: the number of calls in one timing, above one for calls of microseconds.
    """

    name: str
    run: Callable[[], Any] | None
    rounds: int = 31
    calls: int = 1
    missing: str = ""


@dataclass(frozen=True)
class Floor:
    """How many times as fast as one peer, or `BEST`, we must be; a goal that fails nothing while it is not `held`."""

    peer: str
    ratio: float
    held: bool = True


def goal(peer: str, ratio: float) -> Floor:
    """A floor that is not held yet."""
    return Floor(peer, ratio, held=False)


@dataclass(frozen=True)
class Comparison:
    """Contenders that compute the same thing.

    Fields:
        name: the computation.
        expected: the result in float64. A contender whose relative error norm is over `tolerance` is not timed.
        operations: floating-point operations of one call, 0 if they are not reported.
        multiplied: the dtype of the operands of the compiled product, "float32" or "bfloat16", to be compared with the
            peak of the registers; empty without a product.
    """

    name: str
    contenders: Sequence[Contender]
    expected: np.ndarray[Any, Any]
    tolerance: float
    operations: int = 0
    floor: Floor | None = None
    multiplied: str = ""


@dataclass
class Timing:
    """One contender's relative error norm, the number of its rounds, and the seconds of a call in each of them."""

    contender: Contender
    error: float | None = None
    wrong: bool = False
    seconds: list[float] = field(default_factory=list)
    rounds: int = 0

    @property
    def median(self) -> float | None:
        """The median of the rounds, in seconds."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class Outcome:
    """A comparison and its timings, in the order of its contenders."""

    comparison: Comparison
    timings: Sequence[Timing]

    def alone(self) -> Outcome:
        """The outcome without the functions that were run, their operands and the expected result."""
        timings = [replace(each, contender=replace(each.contender, run=None)) for each in self.timings]
        contenders = [each.contender for each in timings]
        return Outcome(replace(self.comparison, contenders=contenders, expected=np.empty(0)), timings)

    def ratio(self, timing: Timing) -> float | None:
        """How many times as long a contender takes as we do."""
        ours = next(each.median for each in self.timings if each.contender.name == OURS)
        return None if ours is None or timing.median is None else timing.median / ours

    @property
    def judge(self) -> Timing | None:
        """The peer of the floor; None if there is no floor, or no timed peer to be `BEST`."""
        floor = self.comparison.floor
        peers = [each for each in self.timings if each.contender.name != OURS]
        if floor is None:
            return None
        if floor.peer == BEST:
            return min((each for each in peers if each.median), key=lambda each: each.median or 0, default=None)
        return next(each for each in peers if each.contender.name == floor.peer)

    @property
    def failures(self) -> list[str]:
        """The failures, in words."""
        name = self.comparison.name
        wrong = [each for each in self.timings if each.wrong]
        found = [f"{name}: the result of {each.contender.name} is wrong, error {each.error:.1e}" for each in wrong]
        floor = self.comparison.floor
        if floor is not None and floor.held:
            ratio = self.ratio(self.judge) if self.judge else None
            if ratio is None:
                found.append(f"{name}: not measured beside {floor.peer}, must be {floor.ratio:g} times as fast")
            elif ratio < floor.ratio:
                found.append(f"{name}: {ratio:.1f} times as fast as {floor.peer}, must be {floor.ratio:g}")
        return found

    @property
    def shortfall(self) -> str | None:
        """The distance to a goal that is not held yet, in words."""
        floor = self.comparison.floor
        if floor is None or floor.held:
            return None
        ratio = self.ratio(self.judge) if self.judge else None
        if self.judge is None or ratio is None or ratio >= floor.ratio:
            return None
        peer = self.judge.contender.name
        return f"{self.comparison.name}: {ratio:.2f} times as fast as {peer}, the goal is {floor.ratio:g}"


def error_norm(result: Any, expected: np.ndarray[Any, Any]) -> float:
    """The norm of the difference, relative to that of the expected result; both in float64."""
    difference = np.asarray(result).astype(np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def run(comparison: Comparison, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Check every contender, then time them in turns, the slow ones in some of the rounds only.

    Args:
        say: called with messages of progress.
    """
    timings = [_checked(each, comparison, say) for each in comparison.contenders]
    ready = [each for each in timings if each.contender.run is not None and not each.wrong]
    rounds = max((each.rounds for each in ready), default=0)
    for number in range(rounds):
        say(f"{comparison.name}: round {number + 1} of {rounds}")
        for each in ready:
            if number * each.rounds % rounds < each.rounds:
                time.sleep(REST_S)
                each.seconds.append(_timed(each.contender))
    return Outcome(comparison, timings)


def _checked(contender: Contender, comparison: Comparison, say: Callable[[str], None]) -> Timing:
    timing = Timing(contender)
    if contender.run is not None:
        say(f"{comparison.name}: checking {contender.name}")
        start = time.perf_counter()
        result = contender.run()
        timing.rounds = _fitting(contender, time.perf_counter() - start)
        if timing.rounds < contender.rounds:  # the first call may have compiled
            start = time.perf_counter()
            contender.run()
            timing.rounds = max(timing.rounds, _fitting(contender, time.perf_counter() - start))
        timing.error = error_norm(result, comparison.expected)
        timing.wrong = not timing.error <= comparison.tolerance
    return timing


def _fitting(contender: Contender, seconds: float) -> int:
    """The number of rounds for a call of this many seconds, at least one."""
    few, many = (int(limit / seconds) // contender.calls for limit in (LONGEST_S, SETTLING_S))
    return max(1, min(contender.rounds, few if few < FEW_ROUNDS else max(many, FEW_ROUNDS)))


def _timed(contender: Contender) -> float:
    run = contender.run or (lambda: None)
    start = time.perf_counter()
    for _ in range(contender.calls):
        run()
    return (time.perf_counter() - start) / contender.calls
