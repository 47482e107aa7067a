"""Signal handlers and destructors, which Python runs between any two instructions, may call kernels."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import palladio as pl
from palladio.cpu.runtime import machine_code
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
            assert not prepared._underway
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
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


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
