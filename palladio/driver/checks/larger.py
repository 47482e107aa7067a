"""The verdict of a check on sizes larger than those that ran, by induction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from palladio.driver.checks.runs import run_once
from palladio.machine.check.induction import InTurn, Recorder, Trace, obstacle


def larger_sizes(
    fn: Callable[..., Any], args: tuple[Any, ...], combinations: Sequence[dict[str, Any]]
) -> tuple[str, str]:
    """The larger sizes for which a verdict without findings follows, e.g. "k ≥ 3", and why none does: one is empty.

    Both are where the check is not about sizes that can be larger.
    """
    names = [*combinations[0]]
    values = [[each[name] for each in combinations] for name in names]
    if not names or not all(type(value) in (int, float) for column in values for value in column):
        return "", ""
    if len(names) > 1:
        return "", f"no induction for larger {' and '.join(names)}: it is over one size"
    (name,), (column,) = names, values
    reason = _uneven(column) or obstacle(lambda *wanted: _record(fn, args, name, column, *wanted), len(column))
    if reason:
        return "", f"no induction for larger {name}: {reason}"
    first, stride = column[0], column[1] - column[0]
    return f"{name} ≥ {first}" if stride == 1 else f"{name} = {first}, {first + stride}, {first + 2 * stride}, …", ""


def _uneven(values: Sequence[Any]) -> str:
    """Why an induction cannot be over these values; empty if it can."""
    strides = {after - before for before, after in itertools.pairwise(values)}
    if all(type(value) is int for value in values) and (not strides or (len(strides) == 1 and min(strides) > 0)):
        return ""
    return "the sizes are not integers that grow by the same amount each time"


def _record(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    name: str,
    values: Sequence[Any],
    number: int,
    shared: Collection[str] | None,
    states: Collection[int],
) -> Trace:
    recorder = Recorder(shared, states)
    run_once(partial(fn, **{name: values[number]}), args, InTurn, recorder.follow)
    return recorder.trace
