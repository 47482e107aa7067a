"""Which executor runs a call, and that calls from many threads do not disturb each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.driver import executors
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU, DEFAULT, REFERENCE, Executor, choose
from palladio.ir.bind import current
from palladio.ir.core import Program
from palladio.trace.grid import _axes

X = np.arange(4, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((4,), np.float32)


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the executors that ran; `other` is one more, which does what the reference does."""
    found: list[str] = []

    def watched(name: str) -> Callable[[Program], Any]:
        def load(program: Program) -> Any:
            run = REFERENCE.load(program)

            def running(values: Sequence[Any]) -> Sequence[Any]:
                found.append(name)
                return run(values)

            return running

        return load

    CALLS.clear()
    monkeypatch.delenv("PALLADIO_EXECUTOR", raising=False)
    monkeypatch.setitem(executors.EXECUTORS, "other", Executor("other", "The evaluator, watched.", watched("other")))
    return found


def test_the_executors_with_passes_say_so() -> None:
    assert set(PIPELINES) == {name for name, each in executors.EXECUTORS.items() if each.lowers}


def test_the_default_is_the_cpu(ran: list[str]) -> None:
    assert choose() is DEFAULT is CPU


def test_the_argument_chooses(ran: list[str]) -> None:
    assert pl.pallas_call(double, OUT, interpret="other")(X).tolist() == [0, 2, 4, 6]
    assert ran == ["other"]


def test_the_context_chooses_when_the_call_runs(ran: list[str]) -> None:
    call = pl.pallas_call(double, OUT)
    with pl.executor("other"):
        call(X)
    call(X)
    assert ran == ["other"]


def test_the_environment_chooses(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_EXECUTOR", "other")
    pl.pallas_call(double, OUT)(X)
    assert ran == ["other"]


def test_the_context_goes_before_the_environment(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_EXECUTOR", "other")
    with pl.executor("reference"):
        assert choose() is REFERENCE


@pytest.mark.parametrize("interpret", [True, "reference"])
def test_the_argument_goes_before_everything(ran: list[str], monkeypatch: pytest.MonkeyPatch, interpret: Any) -> None:
    monkeypatch.setenv("PALLADIO_EXECUTOR", "other")
    with pl.executor("other"):
        assert choose(interpret) is REFERENCE
        pl.pallas_call(double, OUT, interpret=interpret)(X)
    assert ran == []


@pytest.mark.parametrize("interpret", [None, False])
def test_an_argument_that_says_nothing_leaves_the_choice(ran: list[str], interpret: Any) -> None:
    with pl.executor("other"):
        assert choose(interpret).name == "other"


def test_contexts_nest_and_end_with_an_exception(ran: list[str]) -> None:
    with pl.executor("other"):
        with pytest.raises(RuntimeError), pl.executor("reference"):
            raise RuntimeError
        assert choose().name == "other"
    assert choose() is DEFAULT


def test_a_context_can_be_entered_again_inside_itself(ran: list[str]) -> None:
    context = pl.executor("other")
    with context:
        with pl.executor("reference"), context:
            assert choose().name == "other"
        assert choose().name == "other"
    assert choose() is DEFAULT


def test_a_decorated_function_has_its_executor_in_every_thread(ran: list[str]) -> None:
    together = threading.Barrier(2)

    @pl.executor("other")
    def chosen() -> str:
        together.wait(10)  # both threads are inside
        found = choose().name
        together.wait(10)
        return found

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            assert [each.result() for each in [pool.submit(chosen) for _ in range(2)]] == ["other"] * 2
        assert pool.submit(choose).result() is DEFAULT


def test_a_context_belongs_to_its_thread(ran: list[str]) -> None:
    with pl.executor("other"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(choose).result() is DEFAULT


def test_executors_keep_their_prepared_calls_apart(ran: list[str]) -> None:
    CALLS.clear()
    before = CALLS.prepared
    for name in ("reference", "other", "reference", "other"):
        pl.pallas_call(double, OUT, interpret=name)(X)
    assert CALLS.prepared - before == 2


def test_jit_runs_as_a_whole_on_its_executor(ran: list[str]) -> None:
    function = pl.jit(lambda x: pl.pallas_call(double, OUT)(x) + 1, interpret="other")
    assert function(X).tolist() == [1, 3, 5, 7]
    assert ran == ["other"]


# Threads.


def scaled(factor: int) -> list[float]:
    def kernel(x_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            sum_ref[...] = x_ref[...] * 0

        sum_ref[...] += x_ref[...] * factor
        o_ref[...] = sum_ref[...]

    spec = pl.BlockSpec((1,), lambda i: (i,))
    scratch = [pl.MemorySpace("vmem")((1,), np.float32)]
    call = pl.pallas_call(kernel, OUT, grid=(4,), in_specs=[spec], out_specs=spec, scratch_shapes=scratch)
    return call(X).tolist()


def test_sixteen_threads_with_the_same_and_with_different_kernels() -> None:
    CALLS.clear()
    before = CALLS.prepared
    gate = threading.Barrier(16)

    def work(number: int) -> bool:
        gate.wait()
        return all(scaled(factor) == (np.cumsum(X) * factor).tolist() for factor in (number % 4, 99, number % 4))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert CALLS.prepared - before == 5


def test_sixteen_threads_stage_one_function() -> None:
    gate = threading.Barrier(16)
    function = pl.jit(lambda x, y: pl.pallas_call(double, OUT)(x) + y)

    def work(number: int) -> bool:
        gate.wait()
        return function(X, X * number).tolist() == (X * (2 + number)).tolist()

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


# Nothing is left behind.


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, pl.PalladioValueError])
def test_an_exception_in_a_kernel_leaves_no_state(kind: type[BaseException]) -> None:
    outside, axes = current.get(), _axes.get()

    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            raise kind("stop")

    with pytest.raises(BaseException, match="stop"):
        pl.pallas_call(kernel, OUT, grid=(2,))(X)
    with pytest.raises(BaseException, match="stop"):
        pl.jit(pl.pallas_call(kernel, OUT, grid=(2,)))(X)
    assert (current.get(), _axes.get()) == (outside, axes)
    assert pl.pallas_call(double, OUT)(X).tolist() == [0, 2, 4, 6]


def test_an_interrupt_goes_through_as_it_is() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pl.pallas_call(kernel, OUT)(X)


def test_a_failure_while_running_leaves_no_state() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[0] > 0, "positive")
        o_ref[...] = x_ref[...]

    call = pl.pallas_call(kernel, OUT)
    with pl.enable_debug_checks():
        for _ in range(2):
            with pytest.raises(pl.DebugCheckError):
                call(X)
        assert call(X + 1).tolist() == [1, 2, 3, 4]
