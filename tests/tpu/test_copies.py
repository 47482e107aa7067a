"""Asynchronous copies within a core: in kernels over a grid, and in programs of a mesh of cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from tests.errors.shown import shows

X = np.arange(32, dtype=np.float32).reshape(4, 8)
OUT = pl.ShapeDtypeStruct((4, 8), np.float32)
DMA = pltpu.SemaphoreType.DMA
WHOLE = pl.BlockSpec(memory_space=pltpu.HBM)
CORE = pltpu.TensorCoreMesh(axis_name="core")


def copied(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
    pltpu.async_copy(x_ref, buffer, semaphore).wait()
    o_ref[...] = buffer[...] + 1


def test_a_copy_in_a_kernel_without_a_grid() -> None:
    scratch = [pltpu.VMEM((4, 8), np.float32), DMA]
    assert np.array_equal(pl.pallas_call(copied, OUT, scratch_shapes=scratch)(X), X + 1)


def test_a_described_copy_runs_when_it_is_started() -> None:
    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        copy = pltpu.make_async_copy(x_ref, o_ref, semaphore)
        copy.start()
        copy.wait()

    assert np.array_equal(pl.pallas_call(kernel, OUT, scratch_shapes=[DMA])(X), X)


@pytest.mark.one_executor
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("executor", ["reference", "cpu", "simulator"])
def test_a_copy_of_a_chosen_reference_adds(number: int, executor: str) -> None:
    def kernel(n_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, p_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        p_ref[...] = y_ref[...]
        source, target = pl.select_ref(n_ref[0], x_ref, y_ref), pl.select_ref(n_ref[0], o_ref, p_ref)
        pltpu.sync_copy(source, target, add=True)

    given = X, X + 100
    with pl.executor(executor):
        found = pl.pallas_call(kernel, (OUT, OUT))(np.array([number], np.int32), *given)
    assert np.array_equal(found[number], 2 * given[number])
    assert np.array_equal(found[1 - number], given[1 - number])


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["cpu", "simulator"])
def test_a_copy_of_a_dynamic_size_adds(executor: str) -> None:
    def kernel(n_ref: Any, x_ref: Any, o_ref: Any) -> None:
        pltpu.sync_copy(x_ref, o_ref)
        rows = pl.ds(1, n_ref[0])
        pltpu.sync_copy(x_ref.at[rows], o_ref.at[rows], add=True)

    x = X[:4]
    with pl.executor(executor):
        found = pl.kernel(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), mesh=pltpu.TensorCoreMesh(axis_name="core"))(
            np.array([2], np.int32), x
        )
    expected = x.copy()
    expected[1:3] *= 2
    assert np.array_equal(found, expected)


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_a_copy_that_adds_to_a_part_of_its_source_adds_what_the_source_held(executor: str) -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        pltpu.sync_copy(x_ref, buffer)
        pltpu.sync_copy(buffer.at[pl.ds(0, 63)], buffer.at[pl.ds(1, 63)], add=True)
        pltpu.sync_copy(buffer, o_ref)

    x = np.arange(64, dtype=np.float32)
    with pl.executor(executor):
        found = pl.pallas_call(
            kernel, pl.ShapeDtypeStruct((64,), x.dtype), scratch_shapes=[pltpu.VMEM((64,), x.dtype)]
        )(x)
    np.testing.assert_array_equal(found[1:], x[1:] + x[:-1])


@pytest.mark.parametrize("initialised", [False, True])
def test_a_copy_that_adds_reads_its_target(initialised: bool) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        if initialised:
            pltpu.sync_copy(x_ref, o_ref)
        pltpu.sync_copy(x_ref, o_ref, add=True)

    report = pl.check(pl.kernel(kernel, OUT, mesh=CORE), X, schedules=1)
    assert [finding.code for finding in report.findings] == ([] if initialised else ["uninitialized-read"])


def double_buffered(x_ref: Any, o_ref: Any, buffer: Any, semaphores: Any) -> None:
    i, slots = pl.program_id(0), 2

    def fetch(step: Any) -> Any:
        slot = step % slots
        return pltpu.make_async_copy(x_ref.at[step], buffer.at[slot], semaphores.at[slot])

    @pl.when(i == 0)
    def _() -> None:
        fetch(0).start()

    @pl.when(i + 1 < pl.num_programs(0))
    def _() -> None:
        fetch(i + 1).start()

    fetch(i).wait()
    o_ref[...] = buffer[i % slots] * 2


def rows_of(kernel: Any, **options: Any) -> Any:
    return pl.pallas_call(
        kernel,
        OUT,
        grid=(4,),
        in_specs=[WHOLE],
        out_specs=pl.BlockSpec((None, 8), lambda i: (i, 0)),
        scratch_shapes=[pltpu.VMEM((2, 8), np.float32), DMA((2,))],
        **options,
    )


def test_copies_are_in_flight_over_the_steps_of_a_grid() -> None:
    assert np.array_equal(rows_of(double_buffered)(X), 2 * X)
    assert pl.check(rows_of(double_buffered), X).ok


def test_a_kernel_over_a_grid_copies_under_jit() -> None:
    assert np.array_equal(pl.jit(lambda x: rows_of(double_buffered)(x) + 1)(X), 2 * X + 1)


def test_a_kernel_over_a_grid_copies_on_every_executor() -> None:
    for name in ("reference", "simulator", "cpu"):
        with pl.executor(name):
            assert np.array_equal(rows_of(double_buffered)(X), 2 * X)


def test_scratch_of_a_grid_persists_while_it_copies() -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphores: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            buffer[1] = x_ref[0] * 0

        pltpu.async_copy(x_ref.at[pl.program_id(0)], buffer.at[0], semaphores.at[0]).wait()
        buffer[1] = buffer[1] + buffer[0]
        o_ref[...] = buffer[1]

    assert np.array_equal(rows_of(kernel)(X), np.cumsum(X, axis=0))


def test_prefetched_scalars_choose_what_is_copied() -> None:
    def kernel(rows: Any, x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref.at[rows[pl.program_id(0)]], o_ref.at[pl.program_id(0)], semaphore).wait()

    spec = pltpu.PrefetchScalarGridSpec(1, grid=(4,), in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=[DMA])
    order = np.array([2, 0, 3, 1], np.int32)
    assert np.array_equal(pl.pallas_call(kernel, OUT, grid_spec=spec)(order, X), X[order])


def test_a_copy_that_is_not_awaited_is_a_finding() -> None:
    def hasty(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        copy = pltpu.async_copy(x_ref, buffer, semaphore)
        o_ref[...] = buffer[...]
        copy.wait()

    call = pl.pallas_call(hasty, OUT, scratch_shapes=[pltpu.VMEM((4, 8), np.float32), DMA])
    (finding,) = pl.check(call, X).findings
    assert finding.code == "copy-not-awaited"


def test_a_source_that_is_changed_while_it_is_copied_is_a_finding() -> None:
    def hasty(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        buffer[...] = x_ref[...]
        copy = pltpu.async_copy(buffer, o_ref, semaphore)
        buffer[0] = x_ref[1]
        copy.wait()

    call = pl.pallas_call(hasty, OUT, scratch_shapes=[pltpu.VMEM((4, 8), np.float32), DMA])
    assert not pl.check(call, X).ok


def test_what_was_stored_may_be_copied_without_a_fence() -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        buffer[...] = x_ref[...] * 3
        pltpu.async_copy(buffer, o_ref, semaphore).wait()

    call = pl.pallas_call(kernel, OUT, scratch_shapes=[pltpu.VMEM((4, 8), np.float32), DMA])
    assert np.array_equal(call(X), 3 * X)
    assert pl.check(call, X).ok


def test_a_copy_that_is_never_awaited_leaves_its_semaphore_raised() -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        o_ref[...] = x_ref[...]
        pltpu.async_copy(x_ref, buffer, semaphore)

    call = pl.pallas_call(kernel, OUT, scratch_shapes=[pltpu.VMEM((4, 8), np.float32), DMA])
    codes = {finding.code for finding in pl.check(call, X).findings}
    assert codes == {"semaphore-not-drained", "scope-in-use"}


def test_sync_copy_needs_no_semaphore() -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        pltpu.sync_copy(x_ref.at[pl.ds(1, 2)], buffer)
        pltpu.sync_copy(buffer, o_ref.at[pl.ds(0, 2)])
        pltpu.sync_copy(x_ref.at[0], o_ref.at[2])
        pltpu.sync_copy(x_ref.at[0], o_ref.at[3])

    call = pl.kernel(kernel, OUT, mesh=CORE, scratch_types=[pltpu.VMEM((2, 8), np.float32)])
    assert np.array_equal(call(X), X[[1, 2, 0, 0]])
    assert pl.check(call, X).ok


def test_one_wait_may_take_several_copies() -> None:
    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        for row in range(4):
            pltpu.async_copy(x_ref.at[row], o_ref.at[3 - row], semaphore)
        pltpu.make_async_copy(x_ref, o_ref, semaphore).wait()

    call = pl.kernel(kernel, OUT, mesh=CORE, scratch_types=[DMA])
    assert np.array_equal(call(X), X[::-1])
    assert pl.check(call, X).ok


def test_a_scope_allocates_semaphores() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def scope(buffer: Any, semaphore: Any) -> None:
            pltpu.async_copy(x_ref, buffer, semaphore).wait()
            o_ref[...] = buffer[...]

        pl.run_scoped(scope, pltpu.VMEM((4, 8), np.float32), pltpu.SemaphoreType.DMA)

    assert np.array_equal(pl.kernel(kernel, OUT, mesh=CORE)(X), X)
    assert np.array_equal(pl.pallas_call(kernel, OUT)(X), X)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.bool_])
def test_copies_of_every_width(dtype: Any) -> None:
    x = (np.arange(24).reshape(4, 6) % 3).astype(dtype)

    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref.at[:, pl.ds(1, 5)], o_ref, semaphore).wait()

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4, 5), dtype), scratch_shapes=[DMA])
    assert np.array_equal(call(x), x[:, 1:])


# Pipelines over blocks that stay where they are.

LENIENT = pltpu.InterpretParams(detect_races=True, out_of_bounds_reads="uninitialized")


@pytest.mark.parametrize("space", [pltpu.HBM, pl.ANY])
@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("interpret", [True, False, LENIENT])
def test_a_pipeline_passes_the_block_of_an_array_that_it_does_not_copy(space: Any, rows: int, interpret: Any) -> None:
    block = pl.BlockSpec((2, 8), lambda i: (i, 0), memory_space=space)

    def body(x_ref: Any, o_ref: Any) -> None:
        assert x_ref.shape == o_ref.shape == (2, 8)
        o_ref[...] = x_ref[...] + 1

    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[block], out_specs=[block])(x_ref, o_ref)

    x = np.arange(8 * rows, dtype=np.float32).reshape(rows, 8)
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(kernel, out, in_specs=[WHOLE], out_specs=WHOLE, interpret=interpret)
    assert np.array_equal(call(x), x + 1)


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
def test_rows_are_gathered_and_scattered_by_the_indices_that_a_reference_holds(executor: str) -> None:
    def kernel(x: Any, at: Any, out: Any, held: Any, rows: Any) -> None:
        pltpu.sync_copy(at, held)
        pltpu.sync_copy(x.at[held.at[0]], rows)
        rows[...] += 1
        pltpu.sync_copy(rows, out.at[held.at[1], :])

    at = np.array([[3, 0, 3], [2, 0, 1]], np.int32)
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3, 8), np.float32),
        in_specs=[WHOLE, WHOLE],
        out_specs=WHOLE,
        scratch_shapes=[pltpu.VMEM((2, 3), np.int32), pltpu.VMEM((3, 8), np.float32)],
    )
    with pl.executor(executor):
        found = call(X, at)
    assert np.array_equal(found[at[1]], X[at[0]] + 1)


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
def test_a_tree_of_references_is_copied_at_once(executor: str) -> None:
    def kernel(x_ref: Any, o_ref: Any, first: Any, second: Any) -> None:
        pltpu.sync_copy({"a": x_ref.at[0], "b": (x_ref.at[1],)}, {"a": first, "b": (second,)})
        pltpu.sync_copy([], [])
        o_ref[0], o_ref[1] = second[...], first[...]

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    call = pl.pallas_call(
        kernel, pl.ShapeDtypeStruct((2, 4), np.float32), scratch_shapes=[pltpu.VMEM((4,), np.float32)] * 2
    )
    with pl.executor(executor):
        assert np.array_equal(call(x), x[::-1])


def test_trees_of_a_copy_have_one_structure() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.sync_copy((x_ref,), o_ref)

    with shows(
        TypeError,
        """
        dst_ref: source and target of a copy have one structure
          expected: (*,)
          got:      one value
          test_copies.py:N, in kernel
            pltpu.sync_copy((x_ref,), o_ref)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.float32))(np.ones(4, np.float32))


def test_a_wait_may_name_any_source() -> None:
    """Pallas looks only at the target of a copy that is waited for."""

    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        pltpu.make_async_copy(x_ref.at[pl.ds(2, 2)], buffer, semaphore).start()
        pltpu.make_async_copy(x_ref, buffer, semaphore).wait()
        o_ref[...] = buffer[...]

    scratch = [pltpu.VMEM((2, 8), np.float32), DMA]
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 8), np.float32), in_specs=[WHOLE], scratch_shapes=scratch)
    assert np.array_equal(call(X), X[2:])
