"""A function that all devices run, carried out in rounds: up to its next launch on each, then that launch on all.

The function is called anew in every round, with the results of the launches so far at hand. It does the same each time,
so it comes one launch further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class LaunchesTogether(Exception):
    """A function launches on GPUs, or on several cores of each device: it is carried out in rounds."""


@dataclass(frozen=True)
class Gather:
    """A step of all devices between launches: each gets the arrays of all along an axis."""

    axis_name: str


class Arrived(Exception):
    """A device has come to a launch that no round has carried out yet."""

    def __init__(self, call: Any, args: Sequence[Any]) -> None:
        super().__init__()
        self.call = call
        self.given = args


_rounds: ContextVar[Iterator[Any] | None] = ContextVar("palladio_rounds", default=None)


@contextmanager
def in_rounds(results: Sequence[Any]) -> Iterator[None]:
    """Inside the block launches have these results, one after the other; the next one is where the device stops."""
    token = _rounds.set(iter(results))
    try:
        yield
    finally:
        _rounds.reset(token)


def carried_out_in_rounds() -> bool:
    """True inside of a function that several devices run so."""
    return _rounds.get() is not None


def result_of_round(call: Any, args: Sequence[Any]) -> Any:
    """The result of a launch on this device."""
    for result in _rounds.get() or ():
        return result
    raise Arrived(call, args)
