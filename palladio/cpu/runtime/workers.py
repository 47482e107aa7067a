"""The worker threads of compiled calls.

There is one pool for the process. It grows to what the largest call has asked for, and its threads wait for the next
call: starting one costs more than many kernels. On Linux they keep off the core that the caller is on: a thread that
wakes beside a busy caller may stay there, waiting for its turn, while another core has nothing to do.

Python raises what a signal handler raises, `KeyboardInterrupt` above all, between any two instructions of the main
thread, those of an `except` and a `finally` too. So nothing here relies on a sequence of two steps:

* A helper enters a job through a gate, an `RLock` of its own, and holds it until it has left. The caller closes the
  gate by taking it, which waits for a helper inside and keeps out one that comes late. It may be closed any number of
  times, so that every level of a nested `finally` closes it again.
* What a helper writes to belongs to the job that it refers to. Should an interrupt in the very handler of another one
  get past all levels, a helper still writes to memory that is given to no other.
* The queue, the locks and the lists are those of C, which do not stop halfway.
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
"""The number of times that a worker comes back for more tasks: all end together, interrupts are seen soon."""

BRIEF_S, NAP_S = 2e-3, 5e-6
"""The time for which a caller polls whether its helpers have ended, and its sleep between two polls."""

LOOK_S = 0.25
"""The interval at which a waiting caller checks whether it is in a forked process, without its helpers."""

BACKLOG = 32
"""Requests in the queue for each thread, at most."""

REFUSED_S = 1.0
"""The time for which no worker is asked of a system that has refused one."""

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
    """Run the tasks below a number, each once, by as many threads, each taking the next ones when it is free.

    An exception in any of them, an interrupt of the caller among them, stops all after the tasks that they are at. None
    is left running when this returns. Where the system has fewer threads to give, these do all the work.

    Args:
        start: called in each thread with memory of its own; gives what runs the tasks from one number below another.
            It refers to all arrays that the tasks use.
        failed: gets the exceptions, so that a task can end early.
        memory: the bytes that each thread works in.

    Returns:
        The seconds of processor time that the work took, of all threads together.

    Raises:
        PalladioError: in a process that was forked meanwhile, by the handler of a signal, and lacks the helpers.
    """
    job = _Job(tasks, max(1, min(workers, tasks)), start, [] if failed is None else failed, memory)
    try:
        try:
            job.ask()
            job.work()
        except BaseException as error:
            job.failed.append(error)
        finally:
            job.close()
    finally:
        job.close()  # an interrupt may have come where the first one had not begun
    if job.failed:
        raise job.failed[0]
    return sum(job.busy)


class _Job:
    """The tasks of one call, and the gates through which helpers come to it."""

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

    def ask(self) -> None:
        """Ask helpers to come."""
        if self.workers > 1:
            self.helpers.ask(self, self.workers - 1)

    def gate(self) -> Any:
        """A gate for one more helper."""
        gate = threading.RLock()
        self.gates.append(gate)
        return gate

    def help(self, gate: Any) -> None:
        """Work as a helper, unless it is too late."""
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
        begun = time.thread_time()
        try:
            run = self.start(memory)
            while not self.failed:
                try:
                    first = self.firsts.pop()
                except IndexError:
                    return
                run(first, min(first + self.count, self.tasks))
        finally:
            self.busy.append(time.thread_time() - begun)
            POOL.give(memory)

    def close(self) -> None:
        """Keep out helpers that come late, and wait for those inside. An interrupt stops them, and not the waiting."""
        while not self.closed:
            try:
                for gate in self.gates:
                    self.shut(gate)
                self.start = None  # what is still in the queue keeps no array alive
                self.closed = True
            except BaseException as error:
                self.failed.append(error)

    def shut(self, gate: Any) -> None:
        """Take a gate. Mostly a helper leaves at about the same time, long before a sleeping caller would wake."""
        until = time.perf_counter() + BRIEF_S
        while not gate.acquire(blocking=False):
            if time.perf_counter() < until:
                time.sleep(NAP_S)
            elif gate.acquire(timeout=LOOK_S):
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
        core: gives the core that the calling thread is on.
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

    def ask(self, job: Any, count: int) -> None:
        """Ask some threads, fewer if there are no more, to help with a job."""
        self.place(count)
        if self.size < count:
            self.grow(count)
        environment = _floating_point()
        # Some requests of earlier calls may be there still, too late. They must not pile up while all are busy.
        for _ in range(min(count, self.size, BACKLOG * self.size - self.queue.qsize())):
            self.queue.put((job, job.gate(), self.cores, environment))

    def place(self, count: int) -> None:
        """Keep the threads on the cores that the caller may use now, off the one that it is on."""
        cores = knobs.allowed_cores()
        if count < len(cores):  # more threads than cores need each of them, the caller's as well
            cores -= {self.core()}
        if cores != self.cores:
            self.cores = cores
            for thread in self.ids:
                _keep_on(thread, cores)

    def grow(self, count: int) -> None:
        """Have this many threads, if the system gives them."""
        with self.growing:
            while self.size < count and time.perf_counter() - self.refused >= REFUSED_S:
                try:
                    start_thread(self.serve)
                except (RuntimeError, MemoryError):
                    self.refused = time.perf_counter()
                    return
                self.size += 1

    def serve(self) -> None:
        """Help with one job after the other: what a thread does until the process ends."""
        thread = threading.get_native_id()
        self.ids.append(thread)
        placed = None
        while True:
            job, gate, cores, environment = self.queue.get()
            if placed != cores:
                placed = cores
                _keep_on(thread, cores)
            _set_floating_point(environment)
            job.help(gate)
            del job, gate  # an idle thread keeps no array alive


def _keep_on(thread: int, cores: frozenset[int]) -> None:
    if cores:
        # Where it is not allowed, or the thread is gone, nothing is lost but time.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)


def _function(name: str) -> Any:
    """A function of the C library, called without letting other threads run; None where there is none."""
    return getattr(ctypes.PyDLL(None), name, None) if os.name == "posix" else None


@functools.cache
def _asks_core() -> Callable[[], int | None]:
    """Asks on which core the calling thread is, as far as the system tells."""
    return (_function("sched_getcpu") if sys.platform == "linux" else None) or (lambda: None)


_GET_FLOATING_POINT, _SET_FLOATING_POINT = _function("fegetenv"), _function("fesetenv")


def _floating_point() -> Any:
    """The floating-point environment of this thread: its rounding mode, and whether subnormal numbers become 0."""
    environment = ctypes.create_string_buffer(FLOATING_POINT_BYTES)
    if _GET_FLOATING_POINT:
        _GET_FLOATING_POINT(environment)
    return environment


def _set_floating_point(environment: Any) -> None:
    """Compute as another thread does, so that results do not depend on which thread computes them."""
    if _GET_FLOATING_POINT and _SET_FLOATING_POINT:
        _SET_FLOATING_POINT(environment)


def _begin_anew() -> None:
    """A forked process has none of the threads that its parent had."""
    global _HELPERS
    _HELPERS = Helpers(_asks_core())


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
