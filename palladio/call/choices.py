"""Measured choices, e.g. the tiles of a kernel, kept from one process to the next."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from palladio.driver.processor import Processor, processor

if TYPE_CHECKING:
    from palladio.base.object_store import ObjectStore

_STORED = "palladio choice"
"""Part of the key, to separate choices from compiled code in the same folder."""

SLOWER = 2.0
"""Calls that take this many times as long as the fastest in the first turns are not called again."""

LEAST_TURNS = 3
"""Turns that every call has: the first one after its code was loaded is seldom the fastest."""


class KeptChoices:
    """Tuples of integers by keys, in the cache folder that `PALLADIO_CACHE` names, or else in this process.

    A choice holds for one processor and number of threads. Choices that another process keeps later are not seen.

    Args:
        name: of the kind of choice, e.g. that of the kernel. Two objects with one name share their choices.
        of_host: False for choices that hold for any processor and number of threads, e.g. of kernels on a GPU.
    """

    def __init__(self, name: str, *, of_host: bool = True) -> None:
        self.name = name
        self._of_host = of_host
        self._found: dict[tuple[Hashable, Processor | None, Hashable], tuple[int, ...] | None] = {}

    def find(self, key: Hashable) -> tuple[int, ...] | None:
        """The choice kept under a key; None if there is none.

        Args:
            key: strings, integers and tuples of them.
        """
        store, host = _store(), self._host()
        place = None if store is None else store.folder, host, key
        if place not in self._found:
            kept = None if store is None else store.get(self._name_of(host, key))
            self._found[place] = None if kept is None else tuple(map(int, kept.split()))
        return self._found[place]

    def keep(self, key: Hashable, choice: Sequence[int]) -> None:
        """Keep a choice under a key, replacing an earlier one."""
        store, host = _store(), self._host()
        self._found[None if store is None else store.folder, host, key] = tuple(map(int, choice))
        if store is not None:
            store.put(self._name_of(host, key), " ".join(str(int(each)) for each in choice).encode())

    def _host(self) -> Processor | None:
        return processor() if self._of_host else None

    def _name_of(self, host: Processor | None, key: Hashable) -> str:
        import hashlib

        return hashlib.sha256(repr((_STORED, self.name, host, key)).encode()).hexdigest()


def _store() -> ObjectStore | None:
    from palladio.base import object_store  # needed by few programs that load Palladio

    return object_store.current()


def time_in_turns(
    calls: Sequence[Callable[[], object]],
    *,
    seconds: float = 1.0,
    progress: Callable[[float], object] | None = None,
) -> list[float]:
    """The time of each call, in seconds: the least of its turns.

    They are called in turns, so that other load on the machine slows all of them down alike, and once before
    that, which compiles. A call that is slower than twice the fastest after three turns is not called again.

    Args:
        calls: functions without arguments. They return when their work is done, and change nothing that another reads.
        seconds: the time to spend on the turns; every call has three of them, however long they take.
        progress: called with the part of the work that is done, from 0 to 1.
    """

    def timed(call: Callable[[], object]) -> float:
        begin = perf_counter()
        call()
        return perf_counter() - begin

    return least_of_turns([functools.partial(timed, call) for call in calls], seconds, progress)


def least_of_turns(
    clocks: Sequence[Callable[[], float]], seconds: float, progress: Callable[[float], object] | None = None
) -> list[float]:
    """The least time of each call, arguments as in `time_in_turns`; each clock makes its call once and times it."""
    say = progress or (lambda done: None)
    for number, clock in enumerate(clocks):
        say(number / (2 * len(clocks)))
        clock()
    taken: list[list[float]] = [[] for _ in clocks]
    left, start = list(range(len(clocks))), perf_counter()
    while left:
        for number in left:
            taken[number].append(clocks[number]())
        done = perf_counter() - start
        turns = max(map(len, taken))
        say(0.5 + 0.5 * min(1.0, turns / LEAST_TURNS, done / max(seconds, 1e-9)))
        if turns >= LEAST_TURNS:
            least = min(map(min, taken))
            left = [number for number in left if min(taken[number]) <= SLOWER * least] if done < seconds else []
    say(1.0)
    return [min(each) for each in taken]
