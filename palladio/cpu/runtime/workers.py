"""The worker threads of compiled calls.

There is one pool for the process. It grows to the size that the largest call needs, and its threads wait for the next
call: starting one costs more than many kernels. On Linux they avoid the caller's core: a thread that wakes there may
stay queued after the busy caller while another core is idle.

Python raises the exceptions of signal handlers, above all `KeyboardInterrupt`, between any two instructions of the main
thread, also inside `except` and `finally`. So nothing here relies on a sequence of two steps:

* A helper enters a job through its own gate, an `RLock`, and holds it until it leaves. The caller closes the gate by
  taking it, which waits for a helper inside and keeps out a late one. A gate may be closed any number of times, so that
  every level of a nested `finally` closes it again.
* A helper writes only to memory of its job, which it refers to. Even if an interrupt inside the handler of another one
  gets past all levels, that memory is not given to any other call.
* The queue, the locks and the lists are implemented in C: their operations do not stop halfway.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.base.errors import PalladioError
from palladio.base.signals import start_thread
from palladio.cpu.runtime.memory import POOL

TURNS = 16
"""The number of times that a worker takes tasks in a call: all end together, and interrupts are noticed soon."""

BRIEF_S, BRIEF_SPREAD_S = 800e-6, 1200e-6
"""As those of `palladio.cpu.runtime.native` for OpenMP's threads, which poll for work. These sleep: another one begins
some 300 µs later, or 600 after a rest."""

POLLED_S, NAP_S = 2e-3, 5e-6
"""The time for which a caller polls whether its helpers have ended, and its sleep between two polls."""

FORK_CHECK_S = 0.25
"""The interval at which a waiting caller checks whether it is in a forked process, without its helpers."""

BACKLOG = 32
"""Requests in the queue for each thread, at most."""

REFUSED_S = 1.0
"""The time for which no thread is started after the system has refused one."""

FLOATING_POINT_BYTES = 64
"""More than the C library's `fenv_t` takes on any processor."""

Array = np.ndarray[Any, Any]
Work = Callable[[int, int], Any]


def run_tasks(
    tasks: int,
    workers: int,
    start: Callable[[Array], Work],
    failed: list[BaseException] | None = None,
    memory: int = 0,
) -> float:
    """Run a number of tasks, each once, on at most `workers` threads; each takes the next tasks when it is free.

    An exception in any of them, also an interrupt of the caller, stops all after their current tasks. None is still
    running when this returns. If the system provides fewer threads, these do all the work.

    Args:
        start: called in each thread with its private memory; returns the function that runs a range of tasks, which
            refers to all arrays that the tasks use.
        failed: the list that receives the exceptions, so that a task can end early.
        memory: the bytes that each thread works in.

    Returns:
        The seconds of processor time that the work took, of all threads together.

    Raises:
        PalladioError: in a process that a signal handler has forked during the call, which lacks the helpers.
    """
    job = _Job(tasks, max(1, min(workers, tasks)), start, [] if failed is None else failed, memory)
    try:
        try:
            job.request_helpers()
            job.work()
        except BaseException as error:
            job.failed.append(error)
        finally:
            job.close()
    finally:
        job.close()  # an interrupt may have arrived before the first one began
    if job.failed:
        raise job.failed[0]
    return sum(job.busy)


class _Job:
    """The tasks of one call, and the gates through which helpers enter it."""

    def __init__(
        self, tasks: int, workers: int, start: Callable[[Array], Work], failed: list[BaseException], memory: int
    ) -> None:
        self.tasks = tasks
        self.workers = workers
        self.count = max(1, tasks // (workers * TURNS))
        self.firsts = list(range(0, tasks, self.count))
        self.firsts.reverse()
        self.start: Callable[[Array], Work] | None = start
        self.failed = failed
        self.memory = memory
        self.gates: list[Any] = []
        self.busy: list[float] = []
        self.helpers = _HELPERS
        self.closed = False

    def request_helpers(self) -> None:
        """Request helpers."""
        if self.workers > 1:
            self.helpers.request(self, self.workers - 1)

    def gate(self) -> Any:
        """A gate for one more helper."""
        gate = threading.RLock()
        self.gates.append(gate)
        return gate

    def help(self, gate: Any) -> None:
        """Work as a helper, unless the gate is closed."""
        if gate.acquire(blocking=False):
            try:
                self.work()
            except BaseException as error:
                self.failed.append(error)
            finally:
                gate.release()

    def work(self) -> None:
        """Run tasks until none is left."""
        if not self.firsts or self.failed or self.start is None:
            return
        memory = POOL.take(self.memory)
        started = time.thread_time()
        try:
            run = self.start(memory)
            while not self.failed:
                try:
                    first = self.firsts.pop()
                except IndexError:
                    return
                run(first, min(first + self.count, self.tasks))
        finally:
            self.busy.append(time.thread_time() - started)
            POOL.give(memory)

    def close(self) -> None:
        """Keep out late helpers, and wait for those inside. An interrupt stops the helpers, but not the wait."""
        while not self.closed:
            try:
                for gate in self.gates:
                    self.shut(gate)
                self.start = None  # requests that are still in the queue keep no array alive
                self.closed = True
            except BaseException as error:
                self.failed.append(error)

    def shut(self, gate: Any) -> None:
        """Take a gate. It polls first: most helpers leave soon, long before a sleeping caller would wake."""
        until = time.perf_counter() + POLLED_S
        while not gate.acquire(blocking=False):
            if time.perf_counter() < until:
                time.sleep(NAP_S)
            elif gate.acquire(timeout=FORK_CHECK_S):
                return
            elif self.helpers is not _HELPERS:
                self.failed.append(
                    PalladioError(
                        "the process was forked in the middle of this call, whose threads have stayed in the parent",
                        hint="call the kernel again in this process",
                    )
                )
                return


class Helpers:
    """A pool of threads that help callers.

    Args:
        core: returns the core of the calling thread.
    """

    def __init__(self, core: Callable[[], int | None]) -> None:
        self.core = core
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.size = 0
        self.growing = threading.RLock()
        self.refused = -REFUSED_S
        self.ids: list[int] = []
        self.cores: frozenset[int] = frozenset()
        """The cores that the workers may run on."""

    def request(self, job: Any, count: int) -> None:
        """Request the help of some threads with a job, of fewer if there are no more."""
        self.place(count)
        if self.size < count:
            self.grow(count)
        environment = _floating_point()
        # Stale requests of earlier calls may still be queued. They must not pile up while all threads are busy.
        for _ in range(min(count, self.size, BACKLOG * self.size - self.queue.qsize())):
            self.queue.put((job, job.gate(), self.cores, environment))

    def place(self, count: int) -> None:
        """Restrict the threads to the cores that the caller may use now, except its own."""
        cores = knobs.allowed_cores()
        if count < len(cores):  # with as many helpers as cores, the caller's core is needed too
            cores -= {self.core()}
        if cores != self.cores:
            self.cores = cores
            for thread in self.ids:
                _pin(thread, cores)

    def grow(self, count: int) -> None:
        """Start threads until there are `count`, if the system provides them."""
        with self.growing:
            while self.size < count and time.perf_counter() - self.refused >= REFUSED_S:
                try:
                    start_thread(self.serve)
                except (RuntimeError, MemoryError):
                    self.refused = time.perf_counter()
                    return
                self.size += 1

    def serve(self) -> None:
        """The main loop of a worker: help with one job after the other until the process ends."""
        thread = threading.get_native_id()
        self.ids.append(thread)
        placed = None
        while True:
            job, gate, cores, environment = self.queue.get()
            if placed != cores:
                placed = cores
                _pin(thread, cores)
            _set_floating_point(environment)
            job.help(gate)
            del job, gate  # an idle thread keeps no array alive


def _pin(thread: int, cores: frozenset[int]) -> None:
    if cores:
        # If it is not allowed, or the thread has ended, only time is lost.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)


def _function(name: str) -> Any:
    """A function of the C library, called without releasing the GIL; None if there is none."""
    return getattr(ctypes.PyDLL(None), name, None) if os.name == "posix" else None


@functools.cache
def _core_function() -> Callable[[], int | None]:
    """A function that returns the core of the calling thread, or None if it is unknown."""
    return (_function("sched_getcpu") if sys.platform == "linux" else None) or (lambda: None)


_GET_FLOATING_POINT, _SET_FLOATING_POINT = _function("fegetenv"), _function("fesetenv")


def _floating_point() -> Any:
    """The floating-point environment of this thread: its rounding mode, and whether subnormal numbers become 0."""
    environment = ctypes.create_string_buffer(FLOATING_POINT_BYTES)
    if _GET_FLOATING_POINT:
        _GET_FLOATING_POINT(environment)
    return environment


def _set_floating_point(environment: Any) -> None:
    """Set this thread's floating-point environment, so that results do not depend on the thread that computes them."""
    if _GET_FLOATING_POINT and _SET_FLOATING_POINT:
        _SET_FLOATING_POINT(environment)


def _reset_pool() -> None:
    """Empty the pool: a forked process has none of its parent's threads."""
    global _HELPERS
    _HELPERS = Helpers(_core_function())


_reset_pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_pool)
