"""What lives longer than a call: semaphores that one gives to the next, and references that a kernel closes over."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio import lax

X = np.arange(32, dtype=np.float32).reshape(4, 8)
OUT = pl.ShapeDtypeStruct((4, 8), np.float32)
DMA = pltpu.SemaphoreType.DMA
WHOLE = pl.BlockSpec(memory_space=pl.ANY)
COUNT = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
EXECUTORS = pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])


def started(x: Any, shape: Any = ()) -> Any:
    """Starts a copy of an array: the array, the copy in flight, and its semaphores."""

    def kernel(x_ref: Any, _: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.make_async_copy(x_ref, o_ref, semaphore.at[1] if shape else semaphore).start()

    outs = (OUT, OUT, DMA(shape))
    specs = (WHOLE, WHOLE, COUNT)
    return pl.pallas_call(kernel, outs, in_specs=[WHOLE], out_specs=specs, input_output_aliases={0: 0})(x)


def finished(x: Any, copy: Any, semaphore: Any) -> Any:
    """Waits for it."""

    def kernel(x_ref: Any, o_ref: Any, semaphore: Any, _: Any) -> None:
        pltpu.make_async_copy(x_ref, o_ref, semaphore.at[1] if semaphore.shape else semaphore).wait()

    specs = [WHOLE, WHOLE, COUNT]
    return pl.pallas_call(kernel, OUT, in_specs=specs, out_specs=WHOLE, input_output_aliases={1: 0})(x, copy, semaphore)


@EXECUTORS
@pytest.mark.parametrize("shape", [(), (2,)])
def test_one_call_starts_a_copy_and_the_next_waits_for_it(executor: str, shape: Any) -> None:
    with pl.executor(executor):
        assert np.array_equal(finished(*started(X, shape)), X)


def test_a_semaphore_between_calls_is_its_count() -> None:
    _, _, semaphore = started(X, (2,))
    assert semaphore.tolist() == [0, X.nbytes]


@EXECUTORS
def test_a_loop_carries_a_copy_that_is_in_flight(executor: str) -> None:
    @pl.jit
    def chain(x: Any) -> Any:
        return finished(*lax.fori_loop(0, 3, lambda _, state: started(finished(*state) + 1), started(x)))

    with pl.executor(executor):
        assert np.array_equal(chain(X), X + 3)


@EXECUTORS
def test_a_call_hands_a_regular_semaphore_on(executor: str) -> None:
    def signals(semaphore: Any) -> None:
        pl.semaphore_signal(semaphore, 3)

    def waits(semaphore: Any, left: Any) -> None:
        pl.semaphore_wait(semaphore, 2)
        left[0] = pl.semaphore_read(semaphore)

    with pl.executor(executor):
        count = pl.pallas_call(signals, pltpu.SemaphoreType.REGULAR, out_specs=COUNT)()
        left = pl.pallas_call(waits, pl.ShapeDtypeStruct((1,), np.int32), in_specs=[COUNT])(count)
    assert (count, left) == (3, 1)


def test_a_wait_for_more_than_was_started_is_a_deadlock() -> None:
    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="deadlock"):
        finished(X, X, np.int32(X.nbytes - 4))


def test_a_check_goes_on_after_a_grid_that_deadlocks() -> None:
    def waits(x: Any, out: Any, semaphore: Any) -> None:
        pl.semaphore_wait(semaphore)
        out[...] = x[...]

    call = pl.pallas_call(
        waits, pl.ShapeDtypeStruct(X.shape, X.dtype), grid=(2,), scratch_shapes=[pltpu.SemaphoreType.REGULAR]
    )
    report = pl.check(lambda x: call(x) + call(x), X, schedules=2)
    assert {finding.code for finding in report.findings} == {"deadlock"}


@EXECUTORS
def test_a_kernel_closes_over_references(executor: str) -> None:
    def inner(refs: Any) -> None:
        x_ref, y_ref = refs

        def kernel(scale: Any, o_ref: Any, buffer: Any) -> None:
            i = pl.program_id(0)
            buffer[...] = x_ref[i] * scale[0]
            y_ref[i] = buffer[...]
            o_ref[...] = buffer[...] + 1

        block = pl.BlockSpec((None, 8), lambda i, _: (i, 0))
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), out_specs=block, scratch_shapes=[pltpu.VMEM((8,), np.float32)]
        )
        doubled = pl.pallas_call(kernel, OUT, grid_spec=grid)(np.full(1, 2, np.float32))
        x_ref[...] = doubled

    with pl.executor(executor):
        x, y = pl.run_state(inner)((X, np.zeros_like(X)))
    assert np.array_equal(y, 2 * X)
    assert np.array_equal(x, 2 * X + 1)


@EXECUTORS
def test_a_call_changes_a_reference_outside_of_kernels(executor: str) -> None:
    total = pl.new_ref(np.zeros(8, np.float32))

    def add(refs: Any, x_ref: Any) -> None:
        refs[...] += x_ref[...]

    with pl.executor(executor):
        call = pl.pallas_call(
            functools.partial(add, total), (), grid=(4,), in_specs=[pl.BlockSpec((None, 8), lambda i: (i, 0))]
        )
        assert call(X) == ()
    assert np.array_equal(pl.freeze(total), X.sum(axis=0))
