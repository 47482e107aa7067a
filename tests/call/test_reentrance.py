"""Signal handlers and destructors, which Python runs between any two instructions, may call kernels."""

from __future__ import annotations

import _thread
import gc
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import executionengine, ffi
from threadpoolctl import threadpool_limits

import palladio as pl
from palladio.base import signals
from palladio.base.signals import uninterrupted
from palladio.cpu.runtime import elf, machine_code
from palladio.driver import blas_threads, cache
from palladio.driver.blas_threads import one_thread
from palladio.driver.cache import PreparedCache


class Handling:
    """Handles a signal in the calling thread, the given number of places after it has begun, in one module.

    The places are those where Python does that: a function begins, or one of C has ended.
    """

    def __init__(self, place: int, module: types.ModuleType, handler: Callable[[], Any]) -> None:
        self.left = place
        self.file = module.__file__
        self.handler = handler

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename == self.file:
            self.left -= 1
            if self.left == -1:
                self.handler()


def at_each_place(module: types.ModuleType, run: Callable[[], Any], handler: Callable[[], Any]) -> int:
    """Run with the handler at the first place, at the second, until there is no such place; how many there are."""
    places = 0
    while True:
        handling = Handling(places, module, handler)
        sys.setprofile(handling)
        try:
            run()
        finally:
            sys.setprofile(None)
        if handling.left >= 0:
            return places
        places += 1


def in_time(run: Callable[[], Any], seconds: float = 60) -> Any:
    """The result of a function that may wait for ever."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for ever"
    return found[0]


def test_a_handler_may_prepare_the_same_call_and_others() -> None:
    prepared: PreparedCache[str] = PreparedCache(capacity=2)

    def run() -> int:

        def handler() -> None:
            assert [prepared.get(key, lambda key=key: key) for key in "abc"] == list("abc")  # type: ignore[misc]

        def calls() -> None:
            for key in "abcab":
                assert prepared.get(key, lambda key=key: key) == key  # type: ignore[misc]
            assert len(prepared._entries) <= 2
            assert not prepared._in_progress
            prepared.clear()

        return at_each_place(cache, calls, handler)

    assert in_time(run) > 10


def test_threads_that_prepare_what_the_other_one_needs_do_not_wait_for_each_other() -> None:
    """As when the handler of a signal calls a kernel while another thread compiles that."""
    prepared: PreparedCache[str] = PreparedCache()
    both = threading.Barrier(2)

    def needs(own: str, other: str) -> str:
        def prepare() -> str:
            both.wait(60)
            return own + prepared.get(other, lambda: other)

        return prepared.get(own, prepare)

    thread = threading.Thread(target=lambda: needs("a", "b"), daemon=True)
    thread.start()
    assert in_time(lambda: needs("b", "a")).startswith("ba")
    thread.join(60)
    assert not thread.is_alive()


def test_a_destructor_that_runs_while_code_is_compiled_does_not_wait_for_what_waits_for_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread prepares the same kernel, and wants to compile it."""
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    original = machine_code._optimised
    prepared: PreparedCache[str] = PreparedCache()
    other, preparing = [], threading.Event()
    kernels = iter(range(2, 9))

    def compiled() -> str:
        value = next(kernels)

        def kernel(x: Any, o: Any) -> None:
            o[...] = x[...] * value

        pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.int32), interpret="cpu")(np.ones(4, np.int32))
        return "compiled"

    def prepare() -> str:
        preparing.set()
        return compiled()

    def optimised(*arguments: Any) -> Any:
        monkeypatch.setattr(machine_code, "_optimised", original)
        other.append(threading.Thread(target=lambda: prepared.get("key", prepare), daemon=True))
        other[0].start()
        preparing.wait(60)
        assert prepared.get("key", lambda: "destructor") == "destructor"
        return original(*arguments)

    monkeypatch.setattr(machine_code, "_optimised", optimised)
    assert in_time(compiled) == "compiled"
    other[0].join(60)
    assert not other[0].is_alive()


def blas_thread_counts() -> set[int]:
    """Of the libraries that `one_thread` limits; ones that are loaded later, such as SciPy's, are not NumPy's."""
    return {each["num_threads"] for each in one_thread._libraries.info() if each["user_api"] == "blas"}


def test_a_handler_may_run_a_program_on_one_thread_where_another_one_begins_or_ends_that() -> None:
    def nested() -> None:
        with one_thread():
            pass

    def run() -> int:
        places = at_each_place(blas_threads, nested, nested)
        assert blas_thread_counts() == {2}
        return places

    with threadpool_limits(2, user_api="blas"):
        assert in_time(run) > 5


class Interrupt(BaseException):
    pass


def test_an_interrupt_leaves_no_program_on_one_thread() -> None:
    def interrupt() -> None:
        raise Interrupt

    def interrupted(place: int) -> bool:
        handling = Handling(place, blas_threads, interrupt)
        try:
            sys.setprofile(handling)
            with one_thread():
                pass
        except Interrupt:
            pass
        finally:
            sys.setprofile(None)
        return handling.left < 0

    with threadpool_limits(2, user_api="blas"):
        place = 0
        while interrupted(place):
            with one_thread():
                assert blas_thread_counts() == {1}
            assert blas_thread_counts() == {2}
            place += 1
    assert place > 5


def test_an_interrupt_while_code_is_compiled_leaves_the_compiler_to_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each place of the lock of llvmlite, until the main thread is at none of them any more while it compiles."""
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    factors = iter(range(2, 1000))

    def compiled() -> bool:
        factor = next(factors)

        def kernel(x: Any, o: Any) -> None:
            o[...] = x[...] * factor

        x = np.arange(4, dtype=np.int32)
        call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")
        return bool(np.all(call(x) == factor * x))

    def interrupt() -> None:
        raise Interrupt

    assert compiled()
    for place in range(40):
        handling = Handling(place, ffi, interrupt)
        try:
            sys.setprofile(handling)
            compiled()
        except Interrupt:
            pass
        finally:
            sys.setprofile(None)
        assert in_time(compiled, 20)
        if handling.left >= 0:
            break


def test_unused_code_is_freed_where_no_interrupt_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that compiles next, not by the main thread, which drops the last reference to what LLVM loaded."""
    monkeypatch.setattr(elf, "loaded", lambda code: None)
    freed: list[int] = []
    original = executionengine.ExecutionEngine._dispose

    def dispose(self: Any) -> None:
        freed.append(threading.get_ident())
        original(self)

    monkeypatch.setattr(executionengine.ExecutionEngine, "_dispose", dispose)
    text = "define i32 @kernel() {\n ret i32 7\n}\n; %d"
    code = machine_code.MachineCode(text % 1)
    gc.collect()
    freed.clear()
    del code
    assert freed == []
    machine_code.MachineCode(text % 2)
    assert len(freed) == 1
    assert threading.get_ident() not in freed


def test_an_interrupt_while_code_is_compiled_is_raised_afterwards() -> None:
    steps: list[str] = []

    def work() -> str:
        steps.append("begun")
        _thread.interrupt_main()
        threading.Event().wait(0.05)
        steps.append("ended")
        return "result"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["begun", "ended"]


def test_no_work_begins_after_its_interrupt() -> None:
    steps: list[str] = []

    def work() -> None:
        steps.append("begun")
        steps.append("ended")

    def interrupt() -> None:
        raise Interrupt

    interrupted = 0
    while True:
        handling = Handling(interrupted, signals, interrupt)
        try:
            sys.setprofile(handling)
            uninterrupted(work)
        except Interrupt:
            interrupted += 1
        finally:
            sys.setprofile(None)
        assert steps.count("begun") == steps.count("ended")
        if handling.left >= 0:
            break
    left = len(steps)
    uninterrupted(lambda: None)
    assert len(steps) == left
    assert interrupted > 3


def test_what_another_thread_compiles_and_raises_is_the_callers() -> None:
    def fail() -> None:
        raise ZeroDivisionError("there")

    assert uninterrupted(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError, match="there"):
        uninterrupted(fail)


def test_where_no_thread_can_be_started_the_caller_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert uninterrupted(threading.get_ident) == threading.get_ident()


FIRST = """
import os, signal, sys, threading
import numpy as np
import palladio as pl

x, found = np.ones(8, np.float32), []

def times(factor):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor
    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")

class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == "palladio.cpu.engine":
            os.kill(os.getpid(), signal.SIGUSR1)
            threading.Event().wait(0.2)

sys.meta_path.insert(0, Signalling())
signal.signal(signal.SIGUSR1, lambda *_: found.append(times(7)(x)))
result = times(3)(x)
print(np.all(result == 3), np.all(found[0] == 7))
"""


def test_a_handler_may_call_a_kernel_while_the_compiler_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("True True\n", "")
