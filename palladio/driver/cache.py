"""Cache of prepared calls. Safe for use from many threads, signal handlers and destructors.

One thread prepares a call and the others wait for it, unless they are preparing another one themselves.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from palladio.base.holding import HOLDING

T = TypeVar("T")


class _Entry(Generic[T]):
    """A prepared call, and the number of its last use."""

    __slots__ = ("used", "value")

    def __init__(self, value: T, used: int) -> None:
        self.value = value
        self.used = used


class PreparedCache(Generic[T]):
    """The most recently used prepared calls.

    It has no lock: its changes of dictionaries are single atomic steps, and other code may run between two of them.

    `prepared` counts the preparations, for callers that check for reuse, and `cleared` the times that it was emptied.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.prepared = 0
        self.cleared = 0
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._uses = itertools.count()
        self._in_progress: dict[Hashable, Any] = {}
        _CACHES.add(self)

    def get(self, key: Hashable | None, prepare: Callable[[], T]) -> T:
        """The entry of a key, prepared if it is missing. A key of None is never kept."""
        found = self._entries.get(key)
        if found is not None:
            found.used = next(self._uses)
            return found.value
        if key is None or HOLDING.count:
            return self._prepare(key, prepare)
        turn = self._in_progress.setdefault(key, threading.RLock())
        with turn:
            try:
                found = self._entries.get(key)
                if found is not None:
                    return found.value
                self._in_progress.setdefault(key, turn)  # an earlier one may have failed and removed it
                return self._prepare(key, prepare)
            finally:
                self._in_progress.pop(key, None)

    def _prepare(self, key: Hashable | None, prepare: Callable[[], T]) -> T:
        HOLDING.count += 1
        try:
            value = prepare()
            self.prepared += 1
            if key is not None:
                self._entries[key] = _Entry(value, next(self._uses))
                self._make_room()
            return value
        finally:
            HOLDING.count -= 1

    def _make_room(self) -> None:
        while len(self._entries) > self.capacity:
            try:
                entries = list(self._entries.items())
            except RuntimeError:  # a destructor has prepared a call meanwhile, and made room
                return
            oldest, _ = min(entries, key=lambda item: item[1].used)
            self._entries.pop(oldest, None)

    def clear(self) -> None:
        """Forget everything."""
        self.cleared += 1
        self._entries.clear()

    def reset_after_fork(self) -> None:
        """In a forked process: do not wait for threads of the parent."""
        self._in_progress = {}


_CACHES: weakref.WeakSet[PreparedCache[Any]] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for cache in _CACHES:
        cache.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
