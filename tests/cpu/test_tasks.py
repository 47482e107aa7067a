"""Tasks on several threads: results do not depend on how many there are, and atomic operations lose nothing."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.cpu.runtime import workers
from palladio.library import attention, gmm, matmul, softmax, tgmm

Array = Any
THREADS = ["1", "2", "3", "16"]


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def on_threads(count: str, run: Callable[[], Array], monkeypatch: pytest.MonkeyPatch) -> Array:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", count)
    with pl.executor("cpu"):
        return np.asarray(run())


SIZES = np.array([17, 0, 40, 3, 20], np.int32)
CALLS: dict[str, Callable[[], Array]] = {
    "gmm": lambda: gmm(normal(0, 80, 48), normal(1, 5, 48, 96), SIZES, tiling=(16, 48, 32)),
    "gmm, depth in steps": lambda: gmm(normal(0, 80, 40), normal(1, 5, 40, 96), SIZES, tiling=(32, 16, 32)),
    "tgmm": lambda: tgmm(normal(0, 64, 80), normal(1, 80, 96), SIZES, tiling=(16, 32, 32)),
    "matmul, bfloat16": lambda: matmul(
        normal(0, 70, 64).astype(ml_dtypes.bfloat16), normal(1, 64, 90).astype(ml_dtypes.bfloat16), tiling=(16, 64, 16)
    ).view(np.uint16),
    "softmax": lambda: softmax(normal(0, 70, 50), block_rows=4),
    "attention": lambda: attention(normal(0, 3, 70, 16), normal(1, 3, 70, 16), normal(2, 3, 70, 16), causal=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same_bits_on_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, *others = (on_threads(count, CALLS[name], monkeypatch) for count in THREADS)
    for other in others:
        np.testing.assert_array_equal(other, alone)


def parallel(kernel: Callable[..., None], tasks: int, out: Any, **options: Any) -> Any:
    """A call of as many tasks, each on the whole of its arrays."""
    return pl.pallas_call(
        kernel,
        out,
        grid=(tasks,),
        compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
        interpret="cpu",
        **options,
    )


TASKS, ROUNDS = 64, 4000


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_additions_of_all_threads_to_one_element_are_all_counted(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(zero: Any, counts: Any) -> None:
        def step(_: Any, carry: None) -> None:
            plgpu.atomic_add(counts, (0,), dtype(1))
            plgpu.atomic_add(counts, (pl.program_id(0) % 2 + 1,), dtype(2))

        pl.fori_loop(0, ROUNDS, step, None)

    monkeypatch.setenv("PALLADIO_NUM_THREADS", "4")
    zero = np.zeros(3, dtype)
    found = parallel(kernel, TASKS, pl.ShapeDtypeStruct((3,), dtype), input_output_aliases={0: 0})(zero)
    assert found.tolist() == [TASKS * ROUNDS] * 3


def test_the_largest_of_all_threads_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: Any, least: Any, best: Any) -> None:
        plgpu.atomic_max(best, (jnp.arange(8),), x[pl.program_id(0)])

    monkeypatch.setenv("PALLADIO_NUM_THREADS", "4")
    x = normal(0, 512, 8)
    least = np.full(8, -np.inf, np.float32)
    call = parallel(kernel, 512, pl.ShapeDtypeStruct((8,), np.float32), input_output_aliases={1: 0})
    np.testing.assert_array_equal(call(x, least), x.max(0))


def test_exchanges_under_a_condition_hand_out_each_ticket_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task takes the next number by compare-and-swap in a loop, and writes its own number there."""

    def kernel(next_free: Any, empty: Any, taken: Any, order: Any) -> None:
        def tries(state: Any) -> Any:
            free, _ = state
            return free, plgpu.atomic_cas(taken.at[0], free, free + 1)

        def failed(state: Any) -> Any:
            free, found = state
            return free != found

        def again(state: Any) -> Any:
            return tries((state[1], state[1]))

        mine, _ = pl.while_loop(failed, again, tries((jnp.int32(0), jnp.int32(0))))
        order[mine] = pl.program_id(0)

    monkeypatch.setenv("PALLADIO_NUM_THREADS", "4")
    outs = (pl.ShapeDtypeStruct((1,), np.int32), pl.ShapeDtypeStruct((256,), np.int32))
    call = parallel(kernel, 256, outs, input_output_aliases={0: 0, 1: 1})
    taken, order = call(np.zeros(1, np.int32), np.full(256, -1, np.int32))
    assert taken.tolist() == [256]
    assert sorted(order.tolist()) == list(range(256))


class Cores:
    """The cores of a machine on which threads may be told where to run, and the caller moves about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *allowed: int) -> None:
        self.caller = allowed[0]
        self.told: dict[int, set[int]] = {}
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(allowed), raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", self.tell, raising=False)

    def tell(self, thread: int, cores: set[int]) -> None:
        self.told[thread] = set(cores)

    def helpers(self) -> workers.Helpers:
        return workers.Helpers(lambda: self.caller)


class Asked:
    """A job that tells which thread has come to help."""

    def __init__(self) -> None:
        self.found: queue.SimpleQueue[int] = queue.SimpleQueue()

    def gate(self) -> None:
        """It has none."""

    def help(self, gate: None) -> None:
        self.found.put(threading.get_native_id())


def helper_of(helpers: workers.Helpers, count: int = 1) -> int:
    """A thread that helps, where some are requested."""
    pending = Asked()
    helpers.request(pending, count)
    return [pending.found.get(timeout=60) for _ in range(count)][0]


def test_a_thread_that_helps_keeps_off_the_core_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Cores(monkeypatch, 3, 5, 8)
    helpers = cores.helpers()
    assert cores.told == {helper_of(helpers): {5, 8}}
    cores.caller = 8
    assert cores.told == {helper_of(helpers): {3, 5}}


def test_a_caller_on_a_core_that_it_may_not_use_leaves_helpers_all_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Cores(monkeypatch, 3, 5)
    cores.caller = 4
    assert cores.told == {helper_of(cores.helpers()): {3, 5}}


def test_cores_that_the_caller_may_not_use_any_more_are_not_used_by_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Cores(monkeypatch, 3, 5, 8, 9)
    helpers = cores.helpers()
    helper_of(helpers)
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {3, 8}, raising=False)
    assert cores.told == {helper_of(helpers): {8}}


@pytest.mark.parametrize("allowed", [(3,), (3, 5)])
def test_threads_that_share_cores_may_use_all_of_them(
    allowed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = Cores(monkeypatch, *allowed)
    helper_of(cores.helpers(), len(allowed))
    assert all(told == set(allowed) for told in cores.told.values())


def test_a_system_that_refuses_to_move_threads_runs_them_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: int, cores: set[int]) -> None:
        raise PermissionError("not here")

    cores = Cores(monkeypatch, 3, 5)
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    assert helper_of(cores.helpers()) != threading.get_native_id()
