"""The pool of worker threads: how many there are, what they keep, and what becomes of calls where there are none."""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.cpu import engine
from palladio.cpu.runtime import native, workers
from palladio.cpu.runtime.workers import run_tasks

Array = np.ndarray[Any, Any]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> workers.Helpers:
    """A pool of no threads yet."""
    fresh = workers.Helpers(lambda: None)
    monkeypatch.setattr(workers, "_HELPERS", fresh)
    return fresh


def spread(count: int, task: Callable[[int], Any], tasks: int = 64) -> None:
    """Run tasks one by one."""

    def start(memory: Array) -> Callable[[int, int], None]:
        def run(first: int, last: int) -> None:
            for number in range(first, last):
                task(number)

        return run

    run_tasks(tasks, count, start)


def test_one_pool_grows_to_the_largest_call(pool: workers.Helpers) -> None:
    for count in (2, 5, 3, 8, 4):
        spread(count, lambda number: None)
    assert pool.size == 7


def refuse_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system give that many threads more."""
    start, left = _thread.start_new_thread, [None] * count

    def limited(*arguments: Any) -> Any:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        return start(*arguments)

    monkeypatch.setattr(_thread, "start_new_thread", limited)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_call_goes_on_with_the_threads_that_the_system_gives(
    given: int, pool: workers.Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_after(given, monkeypatch)
    done: list[int] = []
    for _ in range(3):
        spread(8, done.append)
    assert sorted(done) == sorted([*range(64)] * 3)
    assert pool.size == given


def test_refused_threads_are_requested_again_later(pool: workers.Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse_after(1, patch)
        spread(4, lambda number: None)
    pool.refused -= workers.REFUSED_S
    spread(4, lambda number: None)
    assert pool.size == 3


def test_requests_do_not_pile_up_while_all_threads_are_busy(pool: workers.Helpers) -> None:
    begun, ended = threading.Barrier(2), threading.Event()

    def held(number: int) -> None:
        begun.wait(60)
        ended.wait(60)

    other = threading.Thread(target=spread, args=(2, held, 2))
    other.start()
    try:
        while not pool.size or pool.queue.qsize():
            pass
        for _ in range(3 * workers.BACKLOG):
            spread(2, lambda number: None)
        assert pool.queue.qsize() <= workers.BACKLOG
    finally:
        ended.set()
        other.join()


def test_idle_threads_keep_no_array_alive(pool: workers.Helpers) -> None:
    both = threading.Barrier(2)
    array = np.zeros(8)
    gone = weakref.ref(array)

    def start(memory: Array, array: Array = array) -> Callable[[int, int], Any]:
        return lambda first, last: (both.wait(60), array.sum())

    run_tasks(2, 2, start)
    del start, array
    gc.collect()
    assert gone() is None


UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}


@pytest.mark.skipif(
    os.name != "posix" or os.uname().machine not in UPWARD, reason="the number of the mode is the processor's own"
)
def test_all_threads_round_as_the_caller_does(pool: workers.Helpers) -> None:
    both = threading.Barrier(2)
    library = ctypes.PyDLL(None)
    found = []

    def task(number: int) -> None:
        both.wait(60)
        found.append(library.fegetround())

    spread(2, task, 2)
    library.fesetround(UPWARD[os.uname().machine])
    try:
        spread(2, task, 2)
    finally:
        library.fesetround(0)
    spread(2, task, 2)
    assert found == [0, 0, *[UPWARD[os.uname().machine]] * 2, 0, 0]


HEAD = """
import atexit, os, signal, sys, threading, time, warnings
import numpy as np
import palladio as pl

warnings.simplefilter("ignore", DeprecationWarning)  # of Python, where a process with threads forks
x = np.ones((64, 1024), np.float32)

def halved(x_ref, o_ref):
    o_ref[...] = pl.fori_loop(0, 200, lambda _, value: value * 0.5 + 2.0, x_ref[...])

spec = pl.BlockSpec((1, 1024), lambda i: (i, 0))
call = pl.pallas_call(
    halved, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(64,), in_specs=[spec], out_specs=spec,
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
)

def right():
    return bool(np.all(call(x) == 4))
"""


def printed(program: str, count: int = 4) -> str:
    """The output of a program in a process of its own, with that many threads for a call."""
    settings = {**os.environ, "PALLADIO_NUM_THREADS": str(count), "PALLADIO_EXECUTOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], env=settings, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("before", ["", "right()"])
def test_a_thread_calls_kernels_after_the_main_thread_has_ended(before: str) -> None:
    program = """
def later():
    main.join()
    print([right() for _ in range(20)] == [True] * 20)
main = threading.main_thread()
threading.Thread(target=later).start()
"""
    assert printed(before + program) == "True\n"


@pytest.mark.parametrize("before", ["", "right()"])
def test_kernels_are_called_at_exit(before: str) -> None:
    assert printed(f"atexit.register(lambda: print([right() for _ in range(20)] == [True] * 20))\n{before}") == "True\n"


FORKED = """
def fork(*_):
    global child
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        if not right():
            os._exit(1)
        if {ends}:
            os._exit(0)

right()
child = None
signal.signal(signal.SIGVTALRM, fork)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.002)
try:
    while child is None:
        result = right()
except pl.PalladioError as error:
    result = str(error).startswith("the process was forked in the middle of this call")
if child == 0:
    os._exit(0 if result and right() else 2)
print(os.waitpid(child, 0)[1], result, right())
"""


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_forked_by_a_signal_handler_in_a_call_calls_kernels(ends: bool) -> None:
    """The handler's child ends there, or goes on with the call that it was forked in, whose threads it lacks."""
    assert printed(FORKED.replace("{ends}", str(ends))) == "0 True True\n"


def test_a_process_without_the_threads_of_a_call_raises_rather_than_to_wait(pool: workers.Helpers) -> None:
    """As after a fork: another pool, and a thread that never leaves."""
    begun, ended = threading.Barrier(2), threading.Event()
    caller = threading.current_thread()

    def task(number: int) -> None:
        begun.wait(60)
        if threading.current_thread() is caller:
            workers._reset_pool()
        else:
            ended.wait(60)

    with pytest.raises(Exception) as raised:
        spread(2, task, 2)
    ended.set()
    assert str(raised.value).startswith(
        "the process was forked in the middle of this call, whose threads have stayed in the parent\n"
        "  hint:     call the kernel again in this process"
    )


def test_the_processor_time_of_the_tasks_is_told_without_what_they_waited() -> None:
    def start(memory: Any) -> Any:
        return lambda first, last: time.sleep(0.05)

    assert 0 < run_tasks(2, 2, start) < 0.05


@pytest.mark.parametrize(("limit", "expected"), [(60, 1), (0, 4)])
def test_calls_of_less_work_than_a_limit_are_not_spread_after_the_first(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    spread: list[int] = []
    monkeypatch.setattr(native, "_of_openmp", lambda: None)  # or PyTorch's threads would run them
    monkeypatch.setattr(native, "brief_seconds", lambda openmp: (limit, limit))
    monkeypatch.setattr(engine, "run_tasks", lambda tasks, *rest: spread.append(tasks) or run_tasks(tasks, *rest))
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    block = pl.BlockSpec((1, 64), lambda i: (i, 0))

    def scaled(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * limit  # each limit has a kernel of its own

    call = pl.pallas_call(
        scaled,
        pl.ShapeDtypeStruct((8, 64), np.float32),
        grid=(8,),
        in_specs=[block],
        out_specs=block,
        compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
        interpret="cpu",
    )
    x = np.random.default_rng(0).standard_normal((8, 64), dtype=np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(call(x), x * limit)
    assert spread == [8] * expected


def test_threads_that_sleep_pay_for_more_work_than_those_of_openmp() -> None:
    assert all(openmp < own for openmp, own in zip(*map(native.brief_seconds, (True, False)), strict=True))
