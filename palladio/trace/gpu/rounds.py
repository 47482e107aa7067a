"""Rounds: a function that all devices run is run up to its next launch on each, then that launch runs on all.

The function is called anew in every round, with the results of the launches so far. It is deterministic, so each round
gets one launch further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from palladio.base.dataclass import dataclass

Result = tuple[Any, Sequence[Any]]
"""The result of a launch, and the values that the references of the function have after it."""


class LaunchesTogether(Exception):
    """A function launches on GPUs, or on several cores of each device, so it runs in rounds."""


@dataclass(frozen=True)
class Gather:
    """An exchange of all devices between launches: each gets the arrays of all along an axis."""

    axis_name: str


class Arrived(Exception):
    """A device has reached a launch that no round has run yet. `refs` are the references that it has made so far."""

    def __init__(self, call: Any, args: Sequence[Any], refs: Sequence[Any]) -> None:
        super().__init__()
        self.call = call
        self.given = args
        self.refs = tuple(refs)


class _Round:
    """The known results of launches, and the references that the function has made."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = iter(results)
        self.refs: list[Any] = []


_rounds: ContextVar[_Round | None] = ContextVar("palladio_rounds", default=None)


@contextmanager
def in_rounds(results: Sequence[Result]) -> Iterator[None]:
    """Inside the block launches have these results, one after the other; the device stops at the next launch."""
    token = _rounds.set(_Round(results))
    try:
        yield
    finally:
        _rounds.reset(token)


def carried_out_in_rounds() -> bool:
    """True inside of a function that several devices run in rounds."""
    return _rounds.get() is not None


def made_in_round(ref: Any) -> Any:
    """Register a reference of the function; launches update its `value`."""
    around = _rounds.get()
    if around is not None:
        around.refs.append(ref)
    return ref


def result_of_round(call: Any, args: Sequence[Any]) -> Any:
    """The result of a launch on this device."""
    around = _rounds.get() or _Round(())
    for result, values in around.results:
        for ref, value in zip(around.refs, values, strict=False):  # others were made later
            ref.value = value
        return result
    raise Arrived(call, args, around.refs)
