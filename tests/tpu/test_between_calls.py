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


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("shape", [(), (2,)])
def test_one_call_starts_a_copy_and_the_next_waits_for_it(executor: str, shape: Any) -> None:
    with pl.executor(executor):
        assert np.array_equal(finished(*started(X, shape)), X)


def test_a_semaphore_between_calls_is_its_count() -> None:
    _, _, semaphore = started(X, (2,))
    assert semaphore.tolist() == [0, X.nbytes]


@pytest.mark.one_executor
@EXECUTORS
def test_a_loop_carries_a_copy_that_is_in_flight(executor: str) -> None:
    @pl.jit
    def chain(x: Any) -> Any:
        return finished(*lax.fori_loop(0, 3, lambda _, state: started(finished(*state) + 1), started(x)))

    with pl.executor(executor):
        assert np.array_equal(chain(X), X + 3)


@pytest.mark.one_executor
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


@pytest.mark.one_executor
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


@pytest.mark.one_executor
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


CORE = pl.CoreMesh("core", 1)
REGULAR = pltpu.SemaphoreType.REGULAR


def made(kind: Any = DMA) -> Any:
    """Semaphores that a launch leaves to its caller."""
    return pl.kernel(lambda _: None, kind, mesh=CORE)()


def copied_by_two_launches(x: Any) -> Any:
    semaphore = pl.new_ref(made(), memory_space=pltpu.SEMAPHORE)
    x_ref, y_ref = pl.new_ref(x), pl.empty_ref_like(pltpu.HBM(X.shape, X.dtype))

    @pl.core_map(CORE)
    def _() -> None:
        pltpu.make_async_copy(x_ref, y_ref, semaphore).start()

    @pl.core_map(CORE)
    def _() -> None:
        pltpu.make_async_copy(x_ref, y_ref, semaphore).wait()

    return y_ref[...]


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("function", [copied_by_two_launches, pl.jit(copied_by_two_launches)], ids=["eager", "staged"])
def test_launches_close_over_a_semaphore_that_another_launch_made(function: Any, executor: str) -> None:
    with pl.executor(executor):
        assert np.array_equal(function(X), X)


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("staged", [False, True])
def test_a_launch_takes_the_semaphores_of_another_as_arguments(staged: bool, executor: str) -> None:
    def signals(x_ref: Any, y_ref: Any, semaphores: Any, count: Any) -> None:
        pl.semaphore_signal(count, 3)
        pltpu.make_async_copy(x_ref, y_ref, semaphores.at[1]).start()

    def waits(x_ref: Any, semaphores: Any, count: Any, left: Any, y_ref: Any) -> None:
        pltpu.make_async_copy(x_ref, y_ref, semaphores.at[1]).wait()
        pl.semaphore_wait(count, 2)
        left[0] = pl.semaphore_read(count)

    def both(x: Any) -> Any:
        y, semaphores, count = pl.kernel(signals, (OUT, DMA((2,)), REGULAR), mesh=CORE)(x)
        outs = (pl.ShapeDtypeStruct((1,), np.int32), OUT)
        aliases = {0: 1}
        return pl.kernel(waits, outs, mesh=CORE, input_output_aliases=aliases)(y, semaphores, count)

    with pl.executor(executor):
        left, y = (pl.jit(both) if staged else both)(X)
    assert left.tolist() == [1]
    assert np.array_equal(y, X)


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("passed", [False, True])
def test_a_reference_to_semaphores_keeps_their_counts(passed: bool, executor: str) -> None:
    count = pl.empty_ref(REGULAR)

    def signals(semaphore: Any) -> None:
        pl.semaphore_signal(semaphore, 2)

    with pl.executor(executor):
        for _ in range(3):
            pl.kernel(signals if passed else functools.partial(signals, count), mesh=CORE)(*[count] * passed)
        assert pl.freeze(count).counts == 6


@pytest.mark.one_executor
@EXECUTORS
def test_a_value_of_semaphores_does_not_change(executor: str) -> None:
    def signals(semaphore: Any) -> None:
        pl.semaphore_signal(semaphore)

    value = made(REGULAR)
    with pl.executor(executor):
        pl.kernel(signals, mesh=CORE)(value)
    assert value.counts == 0
    assert repr(value) == "semaphore[]"


@pytest.mark.one_executor
@EXECUTORS
def test_a_staged_function_takes_and_returns_semaphores(executor: str) -> None:
    def signals(_: Any, semaphores: Any) -> None:
        pl.semaphore_signal(semaphores.at[1], 5)

    add = pl.jit(pl.kernel(signals, REGULAR((2,)), mesh=CORE, input_output_aliases={0: 0}))
    with pl.executor(executor):
        assert add(add(made(REGULAR((2,))))).counts.tolist() == [0, 10]


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("kept", [False, True])
def test_a_kernel_of_a_grid_takes_the_semaphores_of_a_launch(kept: bool, executor: str) -> None:
    def kernel(count: Any, o_ref: Any) -> None:
        pl.semaphore_signal(count.at[1], 3)
        o_ref[0] = pl.semaphore_read(count.at[1])

    given = made(REGULAR((2,)))
    given = pl.new_ref(given) if kept else given
    semaphores = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((1,), np.int32), in_specs=[semaphores])
    with pl.executor(executor):
        assert [call(given).tolist(), call(given).tolist()] == [[3], [6 if kept else 3]]


@pytest.mark.one_executor
@EXECUTORS
def test_a_kernel_of_a_grid_closes_over_a_semaphore(executor: str) -> None:
    count = pl.empty_ref(REGULAR)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.semaphore_signal(count)
        o_ref[...] = x_ref[...]

    row = pl.BlockSpec((1, 8), lambda i: (i, 0))
    with pl.executor(executor):
        call = pl.pallas_call(kernel, OUT, grid=(4,), in_specs=[row], out_specs=row)
        assert np.array_equal(call(X), X)
    assert pl.freeze(count).counts == 4


@pytest.mark.one_executor
@EXECUTORS
def test_a_launch_leaves_memory_and_a_semaphore_to_the_cores_of_another_mesh(executor: str) -> None:
    scalar, tensor = pl.CoreMesh("scalar", 1), pltpu.create_tensorcore_mesh("tensor", num_cores=1)

    def send(x_ref: Any, o_ref: Any, arrived: Any, sent: Any) -> None:
        pltpu.async_remote_copy(x_ref, o_ref, sent, arrived, device_id={"tensor": 0}).wait_send()

    def receive(x_ref: Any, o_ref: Any, arrived: Any) -> None:
        pltpu.make_async_copy(x_ref, o_ref, arrived).wait()
        o_ref[...] += 1

    @pl.jit
    def both(x: Any) -> Any:
        x_ref = pl.new_ref(x)
        outs = (pltpu.VMEM(X.shape, X.dtype) @ tensor, DMA(()) @ tensor)
        out, arrived = pl.kernel(send, outs, mesh=scalar, scratch_types=[DMA])(x_ref)
        out_ref = pl.new_ref(out)
        pl.kernel(receive, mesh=tensor)(x_ref, out_ref, pl.new_ref(arrived))
        return pl.freeze(out_ref)

    with pl.executor(executor):
        assert np.array_equal(both(X), X + 1)


def test_a_launch_that_waits_for_more_than_was_signalled_is_a_deadlock() -> None:
    count = pl.new_ref(made(REGULAR))

    def waits() -> None:
        pl.semaphore_wait(count, 1)

    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="deadlock"):
        pl.kernel(waits, mesh=CORE)()


@pytest.mark.one_executor
@EXECUTORS
def test_devices_make_and_take_semaphores(executor: str) -> None:
    mesh = pl.make_mesh((2,), ("x",))

    def waits(x_ref: Any, semaphore: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.semaphore_read(semaphore)
        pl.semaphore_wait(semaphore, 3)

    def signals(semaphore: Any) -> None:
        pl.semaphore_signal(semaphore, 3)

    def function(x: Any) -> Any:
        semaphore = pl.kernel(signals, REGULAR, mesh=CORE)()
        kept = pl.new_ref(semaphore)
        first = pl.kernel(waits, pl.ShapeDtypeStruct((2, 8), np.float32), mesh=CORE)(x, kept)
        return first + pl.kernel(waits, pl.ShapeDtypeStruct((2, 8), np.float32), mesh=CORE)(x, semaphore)

    spread = pl.PartitionSpec("x")
    with pl.executor(executor):
        run = pl.shard_map(function, mesh=mesh, in_specs=spread, out_specs=spread)
        assert np.array_equal(run(X), 2 * X + 6)
