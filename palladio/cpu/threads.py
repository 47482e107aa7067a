"""The tasks of a call, spread over threads.

Threads that have ended their work wait for more of it: starting one costs more than many kernels.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

TURNS = 16
"""How often a thread comes back for more tasks: so often that all end together, and that an interrupt is seen soon."""

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

    helpers = [_threads(workers - 1).submit(work) for _ in range(workers - 1)]
    work()
    for helper in helpers:
        while not helper.done():
            try:
                helper.result()
            except BaseException as error:  # an interrupt of the caller while it waits
                failed.append(error)
    if failed:
        raise failed[0]


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "palladio")


# A forked process has none of the threads that its parent had.
os.register_at_fork(after_in_child=_threads.cache_clear)
