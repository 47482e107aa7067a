"""Processes that share the schedules of a check with the calling process."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from functools import partial
from threading import Lock
from typing import Any


class Workers(Executor):
    """A pool of processes, including this one: while it waits for a result it runs tasks that are not started.

    Each process has one task at a time, so that the next idle process takes the next task.

    Args:
        jobs: the number of processes, at least 2.
    """

    def __init__(self, jobs: int) -> None:
        self._others = ProcessPoolExecutor(jobs - 1, mp_context=multiprocessing.get_context("spawn"))
        self._idle = jobs - 1
        self._left: deque[_Work] = deque()
        self._lock = Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a task for the next idle process."""
        work = _Work(self, partial(fn, *args, **kwargs))
        self._left.append(work)
        self._hand_out()
        return work

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the other processes after all tasks have ended; tasks not yet started may be cancelled."""
        while (work := self.take()) is not None:
            work.ends(_cancelled if cancel_futures else work.run)
        self._others.shutdown(wait)

    def take(self, work: _Work | None = None) -> _Work | None:
        """This task if it is not started, else the oldest such one; it counts as started from now on."""
        with self._lock:
            return self._taken(work)

    def _taken(self, work: _Work | None = None) -> _Work | None:
        while self._left:
            found = work if work in self._left else self._left[0]
            self._left.remove(found)
            if found.set_running_or_notify_cancel():
                return found
        return None

    def _hand_out(self) -> None:
        """Give tasks to the idle processes."""
        while True:
            with self._lock:
                work = self._taken() if self._idle else None
                if work is None:
                    return
                self._idle -= 1
            self._others.submit(work.run).add_done_callback(partial(self._done, work))

    def _done(self, work: _Work, found: Future[Any]) -> None:
        with self._lock:
            self._idle += 1
        work.ends(found.result)
        self._hand_out()


class _Work(Future[Any]):
    """A task, and later its result."""

    def __init__(self, workers: Workers, run: Callable[[], Any]) -> None:
        super().__init__()
        self.workers = workers
        self.run = run

    def result(self, timeout: float | None = None) -> Any:
        """The result; until it is available, this process runs other tasks of the check."""
        while not self.done():
            work = self.workers.take(self)
            if work is None:
                break
            work.ends(work.run)
        return super().result(timeout)

    def ends(self, result: Callable[[], Any]) -> None:
        """Set the result or the error of the task."""
        try:
            found = result()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(found)


def _cancelled() -> None:
    raise CancelledError


__all__ = ["Workers"]
