"""What ends a call early: Ctrl-C, and an exception in one of its threads. Nothing is left running."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.cpu.runtime import memory, workers
from palladio.cpu.runtime.workers import run_tasks
from tests.architecture.source import ROOT

ROUNDS = 20_000
TASKS = 4096


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, as in a program that the user started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def kernel(n: Any, x: Any, o: Any) -> None:
    def step(_: Any, value: Any) -> Any:
        return value * 0.5 + 1.0

    o[...] = pl.fori_loop(0, n[0], step, x[...])


SPEC = pl.BlockSpec((64,), lambda i: (i,))
CALL = pl.pallas_call(
    kernel,
    pl.ShapeDtypeStruct((64 * TASKS,), np.float32),
    grid=(TASKS,),
    in_specs=[pl.BlockSpec((1,), lambda i: (0,)), SPEC],
    out_specs=SPEC,
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
    interpret="cpu",
)
X = np.zeros(64 * TASKS, np.float32)


def test_an_interrupt_ends_a_long_call(interruptible: None) -> None:
    """Whole, this call takes minutes; the test ends because the interrupt does end it."""
    few, many = np.array([1], np.int32), np.array([ROUNDS], np.int32)
    CALL(few, X)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        CALL(many, X)
    timer.join()
    assert CALL(few, X).tolist() == [1] * X.size


def spread(task: Callable[[int], None], tasks: int = 64) -> None:
    """Run tasks one by one in two threads."""

    def start(memory: np.ndarray[Any, Any]) -> Callable[[int, int], None]:
        def run(first: int, last: int) -> None:
            for number in range(first, last):
                task(number)

        return run

    run_tasks(tasks, 2, start)


def test_every_task_runs_once() -> None:
    done: list[int] = []
    spread(done.append)
    assert sorted(done) == list(range(64))


def test_an_exception_in_one_thread_reaches_the_caller_and_stops_the_other() -> None:
    done: list[int] = []
    failed = threading.Event()

    def task(number: int) -> None:
        if number == 0:
            failed.set()
            raise ZeroDivisionError("in a task")
        failed.wait()
        done.append(number)

    with pytest.raises(ZeroDivisionError, match="in a task"):
        spread(task)
    assert len(done) < 32


def test_an_interrupt_while_the_caller_waits_lets_the_others_end_their_task(interruptible: None) -> None:
    caller, both, ended = threading.current_thread(), threading.Barrier(2), threading.Event()

    def task(number: int) -> None:
        both.wait(60)  # one task in each thread
        if threading.current_thread() is not caller:
            _thread.interrupt_main()
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        spread(task, 2)
    assert ended.is_set()


def test_an_interrupt_of_the_caller_at_work_lets_the_others_end_their_task(interruptible: None) -> None:
    caller, both, ended = threading.current_thread(), threading.Barrier(2), threading.Event()

    def task(number: int) -> None:
        both.wait(60)
        if threading.current_thread() is caller:
            raise KeyboardInterrupt
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        spread(task, 2)
    assert ended.is_set()


def test_a_call_does_not_wait_for_threads_that_are_at_work_for_another_caller() -> None:
    begun, ended = threading.Barrier(3), threading.Event()

    def held(number: int) -> None:
        begun.wait(60)
        ended.wait(60)

    other = threading.Thread(target=spread, args=(held, 2))
    other.start()
    begun.wait(60)
    done: list[int] = []
    brief = threading.Thread(target=spread, args=(done.append, 4), daemon=True)
    brief.start()
    brief.join(30)
    waited = brief.is_alive()
    ended.set()
    other.join()
    assert not waited
    assert sorted(done) == [0, 1, 2, 3]


def long_loop(n: Any, x: Any, o: Any) -> None:
    o[...] = pl.fori_loop(0, n[0], lambda _, value: value * 0.5 + 1.0, x[...])


def long_repeat(n: Any, x: Any, o: Any) -> None:
    def goes_on(state: Any) -> Any:
        return state[0] < n[0]

    def step(state: Any) -> Any:
        return state[0] + 1, state[1] * 0.5 + 1.0

    o[...] = pl.while_loop(goes_on, step, (pl.program_id(0) * 0, x[...]))[1]


def whole_call(kernel: Callable[..., None], **options: Any) -> Any:
    return pl.pallas_call(kernel, pl.ShapeDtypeStruct((4096,), np.float32), interpret="cpu", **options)


@pytest.mark.parametrize("kernel", [long_loop, long_repeat])
def test_an_interrupt_ends_one_long_task(kernel: Callable[..., None], interruptible: None) -> None:
    """Whole, this call takes an hour."""
    call, x = whole_call(kernel, grid=(1,)), np.zeros(4096, np.float32)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call(np.array([2**31 - 1], np.int32), x)
    timer.join()
    assert call(np.array([1], np.int32), x).tolist() == [1] * x.size


def test_an_interrupt_ends_the_steps_of_one_task(interruptible: None) -> None:
    def one_step(n: Any, x: Any, o: Any) -> None:
        o[...] = x[...] + 1.0

    def run(steps: int) -> Any:
        return whole_call(one_step, grid=(np.array(steps, np.int32),))(
            np.zeros(1, np.int32), np.zeros(4096, np.float32)
        )

    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(2**31 - 1)
    timer.join()
    assert run(2).tolist() == [1] * 4096


def test_a_failure_in_one_long_task_ends_the_others() -> None:
    def kernel(n: Any, x: Any, o: Any) -> None:
        with pl.enable_debug_checks():
            pl.debug_check(pl.program_id(0) > 0, "the first task fails")
        o[...] = pl.fori_loop(0, n[0], lambda _, value: value * 0.5 + 1.0, x[...])

    spec = pl.BlockSpec((2048,), lambda i: (i,))
    call = whole_call(
        kernel,
        grid=(2,),
        in_specs=[pl.BlockSpec(), spec],
        out_specs=spec,
        compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
    )
    with pytest.raises(pl.PalladioError, match="the first task fails"):
        call(np.array([2**31 - 1], np.int32), np.zeros(4096, np.float32))


class Interrupt(BaseException):
    """What the handler of a signal raises."""


class Interrupting:
    """Raises once in the calling thread, the given number of places after it has begun, in some modules.

    The places are those where Python handles signals: a function begins, or one of C has ended.
    """

    def __init__(self, place: int, *files: str) -> None:
        self.left = place
        self.files = files

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in self.files:
            self.left -= 1
            if self.left < 0:
                raise Interrupt  # which ends the tracing


@pytest.mark.parametrize("turn", range(3))
def test_an_interrupt_at_any_place_leaves_no_thread_at_work(turn: int) -> None:
    """A call is interrupted at its first place, the next one at its second, until one has no such place any more."""
    files = workers.__file__, memory.__file__
    caller, begun, ended = threading.current_thread(), [], []
    interrupted = 0
    while True:
        helped = threading.Event()

        def task(number: int, helped: threading.Event = helped) -> None:
            begun.append(number)
            if threading.current_thread() is caller:
                helped.wait(0.001)  # mostly the other one has come, and is at work
            else:
                helped.set()
                time.sleep(0.0005)
            ended.append(number)

        interrupting = Interrupting(interrupted, *files)
        try:
            sys.setprofile(interrupting)
            spread(task, 4)
        except Interrupt:
            interrupted += 1
        finally:
            sys.setprofile(None)
        assert len(begun) == len(ended), f"at place {interrupted}"
        if interrupting.left >= 0:
            break
    assert interrupted > 20
    done: list[int] = []
    spread(done.append)
    assert sorted(done) == list(range(64))


def test_what_follows_an_interrupt_is_right() -> None:
    """At random moments of calls on several threads, a thousand times; a process of its own, which may hang."""
    command = [sys.executable, "-m", "tools.soak", "interrupts", "--rounds=1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    calls, interrupts, faults, wrong = map(int, done.stdout.splitlines()[-1].split()[1:])
    assert calls >= 2000
    assert interrupts > 0
    assert (faults, wrong) == (0, 0)
