"""The proof that larger sizes continue a pattern: the controlling numbers continue linearly."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from palladio.machine.check.induction.decisions import FIXED, LOOP, REACH, RESULT, UNKNOWN
from palladio.machine.check.induction.state import place_of
from palladio.machine.check.induction.trace import Decision, Step
from palladio.machine.check.induction.values import Number, RunsDiffer, continues_linearly, difference

MOST_REACHED = 1_000
"""The most accesses of one buffer of global memory that are proved pairwise disjoint."""


class Part(NamedTuple):
    """A part of a run that a larger one has once more.

    Fields:
        start: the first step of the larger run that is equal to the step `length` later, as are all up to `large`.
        small: the step at which the smaller run leaves the repetition.
        large: the step at which the larger run leaves it, less `length`.
        length: the number of steps of the part.
    """

    start: int
    small: int
    large: int
    length: int


class Reach(NamedTuple):
    """An access of a buffer of global memory: along each axis from `low` to `high`, of `extent`.

    Fields:
        repeats: whether it is in a repeated part.
    """

    writes: bool
    low: Number
    high: Number
    extent: Number
    repeats: bool


def obstacle_to(small: Sequence[Step], large: Sequence[Step], parts: Sequence[Part]) -> str:
    """Why larger runs may do more than repeat these parts; empty if they do nothing new."""
    reached: dict[str, list[Reach]] = defaultdict(list)
    try:
        for decision, inputs, outputs, repeats in _decisions(small, large, parts):
            if not _continues(decision, inputs, outputs):
                return _reason(decision)
            if decision.kind == REACH:
                *_, name, writes = decision.key
                reached[name].append(Reach(writes, *inputs, repeats))
    except RunsDiffer as unlike:
        return str(unlike)
    for name, reaches in reached.items():
        if not _stay_disjoint(reaches):
            return f"accesses of {name} may meet, or leave a part of it unwritten, at a larger size"
    return ""


def _reason(decision: Decision) -> str:
    """Why a decision may be another one at a larger size."""
    place = place_of(decision.eqn)
    if decision.kind == UNKNOWN:
        return f"what {place} reads decides what a thread does, and is not known at a larger size"
    if decision.kind == LOOP:
        return f"{place} may not take steps in proportion at a larger size"
    if decision.kind == REACH:
        return f"{place} may reach outside its array at a larger size"
    return f"{place} may do something else at a larger size"


Numbers = Sequence[Number]


def _decisions(
    small: Sequence[Step], large: Sequence[Step], parts: Sequence[Part]
) -> Iterator[tuple[Decision, Numbers, Numbers, bool]]:
    """Each decision of the larger run, except those in the repetitions that only it has, with its numbers."""
    left = list(parts)
    at = shift = 0
    while at < len(large):
        if left and at == left[0].large:
            shift, at = shift + left[0].length, at + left[0].length
            del left[0]
            continue
        repeated = left and at >= left[0].large - left[0].length
        if repeated and left[0].large - left[0].start < 2 * left[0].length:
            raise RunsDiffer("the runs have too few steps before a part of them is repeated")
        length = left[0].length if repeated else 0
        rows = [small[at - shift].decisions, large[at].decisions]
        if length:
            rows += [small[at - shift - length].decisions, large[at - length].decisions, large[at + length].decisions]
        yield from _numbers(rows)
        at += 1


def _numbers(rows: Sequence[Sequence[Decision]]) -> Iterator[tuple[Decision, Numbers, Numbers, bool]]:
    """The numbers of one step at both sizes; of a repeated step also the previous round at both, and the next one."""
    if len({tuple((each.kind, each.key) for each in row) for row in rows}) > 1:
        raise RunsDiffer("the steps of two sizes, or of two rounds, are decided in different ways")
    for same in zip(*rows, strict=True):
        try:
            inputs, outputs = ([_number(*each) for each in zip(*values, strict=True)] for values in _values(same))
        except RunsDiffer:
            raise RunsDiffer(_reason(same[1])) from None
        yield same[1], inputs, outputs, len(rows) > 2


def _values(same: Sequence[Decision]) -> tuple[list[Any], list[Any]]:
    return [each.inputs for each in same], [each.outputs for each in same]


def _number(small: Any, large: Any, *rounds: Any) -> Number:
    grown = difference(large, small)
    if not rounds:
        return Number(small, (grown,))
    small_before, before, after = rounds
    more = difference(after, large)
    if np.any(more != difference(large, before)) or np.any(grown != difference(before, small_before)):
        raise RunsDiffer
    return Number(small, (grown, grown + more))


def _continues(decision: Decision, inputs: Numbers, outputs: Numbers) -> bool:
    if decision.kind == RESULT:
        return continues_linearly(decision.eqn, inputs, outputs)
    if decision.kind == LOOP:
        return _loops(inputs[1].minus(inputs[0]), decision.eqn.step)
    if decision.kind == REACH:
        low, high, extent = inputs
        return low.grows and high.minus(low).plus(-1).grows and extent.minus(high).grows
    return decision.kind == FIXED and all(each.fixed for each in inputs)


def _loops(count: Number, step: int) -> bool:
    """True if a loop's trip count is constant or, outside repeated parts, grows with the size."""
    *own, last = count.directions
    if count.fixed or (count.value <= 0 and all(each <= 0 for each in count.directions)):
        return True
    return not own and bool(count.value >= 0 and last >= 0 and last % step == 0)


def _stay_disjoint(reached: Sequence[Reach]) -> bool:
    """True if disjoint accesses of a buffer stay disjoint at every size, and a fully written buffer stays so."""
    if not any(each.writes for each in reached):
        return True
    if all(each.low.fixed and each.high.fixed for each in reached):
        return all(each.extent.fixed for each in reached)
    if len(reached) > MOST_REACHED or not all(map(_grows_along_one_axis, reached)):
        return False
    return all(_apart(one, other) for one, other in itertools.combinations(reached, 2)) and all(
        _own_rounds_apart(each) for each in reached
    )


def _grows_along_one_axis(reach: Reach) -> bool:
    """True if the elements that it reaches, and those of the buffer, grow linearly with the size."""
    size = reach.high.minus(reach.low)
    if reach.repeats and not size.fixed:
        return False
    return all(np.count_nonzero(np.any(np.stack(each.directions), axis=0)) <= 1 for each in (size, reach.extent))


def _rounds(number: Number) -> Any:
    """The growth of a number with each round of a repeated part, 0 for other numbers."""
    return number.directions[-1] - number.directions[0]


def _apart(one: Reach, other: Reach) -> bool:
    """True if two accesses are disjoint in all rounds of each."""
    return bool(np.any(_after(one, other) | _after(other, one) | _interleaved(one, other)))


def _after(one: Reach, other: Reach) -> Any:
    """The axes along which the second access begins after the end of the first, in all rounds of both, as a mask."""
    gap = np.asarray(other.low.value) - np.asarray(one.high.value)
    grown = other.low.directions[0] - one.high.directions[0]
    ahead, after = _rounds(other.low), _rounds(one.high)
    return (gap >= 0) & (grown >= 0) & (grown + ahead >= 0) & (grown - after >= 0) & (grown + ahead - after >= 0)


def _interleaved(one: Reach, other: Reach) -> Any:
    """The axes along which both advance by equal strides and access disjoint parts of a stride, as a mask."""
    stride = _rounds(one.low)
    same = (stride == _rounds(other.low)) & (stride > 0) & (one.low.directions[0] == other.low.directions[0])
    sizes = [np.asarray(each.high.value) - np.asarray(each.low.value) for each in (one, other)]
    gap = (np.asarray(other.low.value) - np.asarray(one.low.value)) % np.maximum(stride, 1)
    return same & (gap >= sizes[0]) & (stride - gap >= sizes[1])


def _own_rounds_apart(reach: Reach) -> bool:
    """True if an access of a repeated part reaches different elements in every round."""
    size = np.asarray(reach.high.value) - np.asarray(reach.low.value)
    return not reach.repeats or bool(np.any(np.abs(_rounds(reach.low)) >= size))


__all__ = ["Part", "obstacle_to"]
