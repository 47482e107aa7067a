"""The tasks of a call, spread over threads.

Threads that have ended their work wait for more of it: starting one costs more than many kernels. On Linux they keep
off the core that the caller is on: a thread that wakes beside a busy caller may stay there, waiting for its turn,
while another core has nothing to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from palladio.base import knobs

TURNS = 16
"""How often a thread comes back for more tasks: so often that all end together, and that an interrupt is seen soon."""

BRIEF_S, NAP_S = 2e-3, 5e-6
"""How long a caller looks again and again whether its helpers have ended, and for how long it sleeps between looks."""

Work = Callable[[int, int], None]


def run_tasks(tasks: int, workers: int, start: Callable[[], Work], failed: list[BaseException] | None = None) -> None:
    """Run the tasks below a number, each once, by as many threads, each taking the next ones when it is free.

    An exception in any of them, an interrupt of the caller among them, stops all after the tasks that they are at. None
    is left running when this returns.

    Args:
        start: called in each thread; gives what runs the tasks from one number below another.
        failed: gets the exceptions, so that a task can end early.
    """
    workers = max(1, min(workers, tasks))
    count = max(1, tasks // (workers * TURNS))
    queue = itertools.count(0, count)
    failed = [] if failed is None else failed

    def work() -> None:
        try:
            run = start()
            while not failed and (task := next(queue)) < tasks:
                run(task, min(task + count, tasks))
        except BaseException as error:
            failed.append(error)

    helpers = [_helpers(workers - 1).submit(work) for _ in range(workers - 1)]
    work()
    for helper in helpers:
        helper.cancel()  # if it has not begun, nothing is left for it, and others may be at work for long
        while not helper.done():
            try:
                _await(helper)
            except BaseException as error:  # an interrupt of the caller while it waits
                failed.append(error)
    if failed:
        raise failed[0]


def _await(helper: Future[None]) -> None:
    """Wait for a thread that helps: mostly it ends at about the same time, long before a sleeping caller would wake."""
    until = time.perf_counter() + BRIEF_S
    while time.perf_counter() < until:
        if helper.done():
            return
        time.sleep(NAP_S)
    helper.result()


class Helpers:
    """Threads that help callers.

    Args:
        count: how many at most.
        core: gives the core that the calling thread is on.
    """

    def __init__(self, count: int, core: Callable[[], int | None]) -> None:
        self.core = core
        self.pool = ThreadPoolExecutor(count, "palladio", self._begin)
        self.ids: list[int] = []
        self.avoided: int | None = None
        # As the process began: what the threads may use, and the caller too.
        self.allowed = knobs.allowed_cores()
        # More threads than cores need each of them, the caller's as well.
        self.enough = count < len(self.allowed)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Have a thread do some work, on another core than that of the calling thread."""
        core = self.core() if self.enough else None
        if core != self.avoided:
            self.avoided = core
            for thread in self.ids:
                self._keep_off(thread)
        return self.pool.submit(work)

    def _begin(self) -> None:
        thread = threading.get_native_id()
        self.ids.append(thread)
        self._keep_off(thread)

    def _keep_off(self, thread: int) -> None:
        if cores := self.allowed - {self.avoided}:
            # Where it is not allowed, or the thread is gone, nothing is lost but time.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, cores)


@functools.cache
def _asks_core() -> Callable[[], int | None]:
    """What asks on which core the calling thread is, as far as the system tells."""
    found = getattr(ctypes.CDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None
    return found or (lambda: None)


@functools.cache
def _helpers(count: int) -> Helpers:
    return Helpers(count, _asks_core())


# A forked process has none of the threads that its parent had.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)
