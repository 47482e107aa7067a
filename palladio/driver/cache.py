"""Prepared calls, kept by what they were prepared from. Safe from many threads.

One prepares, the others wait for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOTHING: Any = object()


class PreparedCache(Generic[T]):
    """The most recently used prepared calls.

    `prepared` counts how often something was prepared, for those who want to know that nothing was.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.prepared = 0
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._underway: dict[Hashable, threading.RLock] = {}
        _CACHES.add(self)

    def get(self, key: Hashable | None, prepare: Callable[[], T]) -> T:
        """The entry of a key, prepared if there is none. A key of None is never kept."""
        if key is None:
            with self._lock:
                self.prepared += 1
            return prepare()
        with self._lock:
            found = self._entries.get(key, _NOTHING)
            if found is not _NOTHING:
                self._entries.move_to_end(key)
                return found
            turn = self._underway.setdefault(key, threading.RLock())
        with turn:
            with self._lock:
                if key in self._entries:
                    return self._entries[key]
                self._underway[key] = turn  # a first one may have failed and gone
            try:
                entry = prepare()
            except BaseException:
                with self._lock:
                    self._underway.pop(key, None)
                raise
            with self._lock:
                self.prepared += 1
                self._entries[key] = entry
                self._underway.pop(key, None)
                while len(self._entries) > self.capacity:
                    self._entries.popitem(last=False)
            return entry

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def begin_anew(self) -> None:
        """In a forked process: wait for no thread of its parent's."""
        self._lock = threading.Lock()
        self._underway = {}


_CACHES: weakref.WeakSet[PreparedCache[Any]] = weakref.WeakSet()


def _begin_anew() -> None:
    for cache in _CACHES:
        cache.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
