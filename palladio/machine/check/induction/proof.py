"""The proof that the records of a few sizes imply the verdict on every larger one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from palladio.machine.check.induction.continuation import Part, obstacle_to
from palladio.machine.check.induction.trace import Step, Trace

FEWEST = 4
"""The least number of consecutive sizes for an induction."""

PLANS = 6
"""The most periods that are tried."""

PROBES = 16
"""The approximate number of states of each repetition that are compared with those one part later."""

Record = Callable[[int, Collection[str] | None, Collection[int]], Trace]
"""Records the run of a size, by its number, as `Recorder` does."""


class SizeStep(NamedTuple):
    """Two sizes, by their numbers, and the parts that the larger one's run repeats once more."""

    small: int
    large: int
    parts: Sequence[Part]


TOO_FEW = "the runs do not repeat steps of smaller sizes, or there are too few sizes: a ring of n stages needs about 5n"
"""The reason where no part of a run is repeated."""

NOT_AGAIN = "no state of the runs comes again, or there are too few sizes: a ring of n stages needs about 5n"
"""The reason where the state differs before and after each repetition."""


def obstacle(record: Record, count: int) -> str:
    """Why runs of `count` sizes, without findings, do not imply that no larger size has any; empty if they do."""
    if count < FEWEST:
        return f"it takes at least {FEWEST} sizes"
    first = []
    for number in range(count):
        first.append(record(number, None, ()))
        if first[-1].obstacle:
            return first[-1].obstacle
        if first[-1].launches != 1:
            return f"it is for one launch of several threads, and the function makes {first[-1].launches}"
    shared = set[str]().union(*(trace.shared for trace in first))
    found = []
    for plan in itertools.islice(_plans([trace.within(shared) for trace in first]), PLANS):
        reason = next(filter(None, (_obstacle_to(record, shared, each) for each in plan)), "")
        if not reason:
            return ""
        found.append(reason)
    return next((reason for reason in found if reason != NOT_AGAIN), "") or (NOT_AGAIN if found else _unlike(first))


def _unlike(traces: Sequence[Trace]) -> str:
    """Why no part of the runs is repeated."""
    if not _are_linear([trace.programs for trace in traces[-FEWEST:]]):
        return "the programs of these sizes differ in more than integers that grow in proportion"
    if traces[-1].allocated != traces[-2].allocated:
        grown = min(name for name, _ in traces[-1].allocated ^ traces[-2].allocated)
        return f"the size of {grown}, memory of a block, grows"
    return TOO_FEW


def _obstacle_to(record: Record, shared: Collection[str], longer: SizeStep) -> str:
    """Why larger runs may do more than repeat the parts, between equal states; empty if they do nothing new.

    The smaller run is recorded again, with its controlling numbers.
    """
    large = record(longer.large, shared, _all_probes(longer.parts))
    parts = [moved for part in longer.parts if (moved := _moved(large, part)) is not None]
    if len(parts) < len(longer.parts):
        return large.incomplete or NOT_AGAIN
    return obstacle_to(record(longer.small, shared, ()).steps, large.steps, parts)


def _moved(trace: Trace, part: Part) -> Part | None:
    """The part, moved to where the states before and after it are equal and its decisions have been for two lengths."""
    steps, length = trace.steps, part.length
    for first in (n + 1 for n in _probes(part) if steps[n].state == steps[n + length].state):
        before = range(first - 2 * length, first)
        if before[0] >= part.start and all(steps[n].decided == steps[n + length].decided for n in before):
            return part._replace(small=part.small - part.large + first, large=first)
    return None


def _plans(traces: Sequence[Trace]) -> Iterator[list[SizeStep]]:
    """For each period, the parts by which the last runs exceed those of sizes one period smaller."""
    for period in range(1, len(traces) // 2 + 1):
        if not _are_linear([trace.programs for trace in traces[-max(2 * period, FEWEST) :]]):
            return
        found = []
        for number in range(len(traces) - period, len(traces)):
            small, large = traces[number - period], traces[number]
            parts = insertions(small.steps, large.steps) if small.allocated == large.allocated else []
            if not parts:
                break
            found.append(SizeStep(number - period, number, parts))
        else:
            yield found


def _are_linear(programs: Sequence[str]) -> bool:
    """True if programs differ in integers only, each of which is linear in the size."""
    texts = [_FLOAT.sub("", program) for program in programs]
    if len({_INTEGER.sub("", text) for text in texts}) > 1:
        return False
    integers = np.array([[*map(float, _INTEGER.findall(text))] for text in texts])
    return not np.any(np.diff(integers, n=2, axis=0))


_INTEGER = re.compile(r"\d+")
_FLOAT = re.compile(r"[-+\w.]+:b?f\d+\w*")
"""Floating-point constants do not control threads."""


def _probes(part: Part) -> Sequence[int]:
    """Some of the steps after which a part may begin: late ones, since states settle only after a while."""
    first = max(part.start - 1, part.large - part.length, 0)
    return range(first, part.large, max(1, (part.large - first) // PROBES))


def _all_probes(parts: Sequence[Part]) -> set[int]:
    """The steps after which states are compared."""
    return {step + shift for part in parts for step in _probes(part) for shift in (0, part.length)}


def insertions(small: Sequence[Step], large: Sequence[Step]) -> list[Part]:
    """The parts that a larger run has more than a smaller one; empty if they differ otherwise."""
    found: list[Part] = []
    mine = theirs = 0
    while True:
        while mine < len(small) and theirs < len(large) and small[mine].events == large[theirs].events:
            mine, theirs = mine + 1, theirs + 1
        if mine == len(small) and theirs == len(large):
            return found
        part = _repeated(small, large, mine, theirs)
        if part is None:
            return []
        found.append(part)
        theirs += part.length


def _repeated(small: Sequence[Step], large: Sequence[Step], mine: int, theirs: int) -> Part | None:
    """The part that the larger run repeats here, before both continue alike."""
    following = small[mine].events if mine < len(small) else None
    for length in range(1, min(theirs, len(large) - theirs) + 1):
        after = large[theirs + length].events if theirs + length < len(large) else None
        if after != following:
            continue
        start = theirs
        while start > 0 and large[start - 1].events == large[start + length - 1].events:
            start -= 1
        if theirs - start >= length:
            return Part(start, mine, theirs, length)
    return None


__all__ = ["FEWEST", "insertions", "obstacle"]
