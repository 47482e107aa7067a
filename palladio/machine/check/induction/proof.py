"""The proof: whether the records of a few sizes show the verdict on every larger one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from palladio.machine.check.induction.trace import Step, Trace

FEWEST = 4
"""The number of sizes in a row from which an induction may begin."""

PLANS = 3
"""The most periods that are tried."""

LOOKS = 16
"""About how many states of each repetition are compared with those a part later."""

Record = Callable[[int, Collection[str], Collection[int]], Trace]
"""Records the run of a size, by its number: the buffers of global memory that count, the steps with states."""


class Insertion(NamedTuple):
    """A part of a run that a larger one has once more.

    Fields:
        start: the number of steps of the larger run from which each step is the same as that `length` steps later.
        small: the number of steps of the smaller run up to where it leaves the repetition.
        large: the same of the larger run, less `length`.
        length: the steps of the part.
    """

    start: int
    small: int
    large: int
    length: int

    @property
    def looks(self) -> Sequence[int]:
        """Some of the steps after which the part may begin: late ones, since states settle only after a while."""
        first = max(self.start - 1, self.large - self.length, 0)
        return range(first, self.large, max(1, (self.large - first) // LOOKS))


def holds(record: Record, count: int) -> bool:
    """True if runs of `count` sizes, which have found nothing, show that of every larger one."""
    if count < FEWEST:
        return False
    first = []
    for number in range(count):
        first.append(record(number, (), ()))
        if not first[-1].settled or first[-1].launches != 1:
            return False
    shared = set[str]().union(*(trace.shared for trace in first))
    return any(
        all(_comes_back(record(number, shared, _looks(parts)), parts) for number, parts in plan.items())
        for plan in itertools.islice(_plans([trace.within(shared) for trace in first]), PLANS)
    )


def _plans(traces: Sequence[Trace]) -> Iterator[dict[int, list[Insertion]]]:
    """For each period, the parts by which the last runs are longer than those of sizes one period smaller."""
    for period in range(1, len(traces) // 2 + 1):
        found = {}
        for number in range(len(traces) - period, len(traces)):
            small, large = traces[number - period], traces[number]
            parts = insertions(small.steps, large.steps) if small.allocated == large.allocated else []
            if not parts:
                break
            found[number] = parts
        else:
            yield found


def _looks(parts: Sequence[Insertion]) -> set[int]:
    """The steps after which states are compared."""
    return {step + shift for part in parts for step in part.looks for shift in (0, part.length)}


def _comes_back(trace: Trace, parts: Sequence[Insertion]) -> bool:
    """True if a run comes to one state before and after each part."""
    states = [step.state for step in trace.steps]
    return all(any(states[n] == states[n + part.length] for n in part.looks) for part in parts)


def insertions(small: Sequence[Step], large: Sequence[Step]) -> list[Insertion]:
    """The parts by which a larger run differs from a smaller one; none if it is another run."""
    found: list[Insertion] = []
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


def _repeated(small: Sequence[Step], large: Sequence[Step], mine: int, theirs: int) -> Insertion | None:
    """The part that the larger run repeats here, before both go on alike."""
    following = small[mine].events if mine < len(small) else None
    for length in range(1, min(theirs, len(large) - theirs) + 1):
        after = large[theirs + length].events if theirs + length < len(large) else None
        if after != following:
            continue
        start = theirs
        while start > 0 and large[start - 1].events == large[start + length - 1].events:
            start -= 1
        if theirs - start >= length:
            return Insertion(start, mine, theirs, length)
    return None


__all__ = ["FEWEST", "Insertion", "holds", "insertions"]
