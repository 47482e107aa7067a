"""What JAX's interpreter of GPU kernels (0.12) passes in silence, hangs on or refuses, and the simulator does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp

RNG = np.random.default_rng(7)
SCHEDULES = 12


def codes(call: Callable[..., Any], *args: Any) -> set[str]:
    """The codes of what a check of a call finds."""
    return {finding.code for finding in pl.check(call, *args, schedules=SCHEDULES).findings}


def halves(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float16)


def like(array: np.ndarray[Any, Any], dtype: Any = None) -> pl.ShapeDtypeStruct:
    return pl.ShapeDtypeStruct(array.shape, dtype or array.dtype)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


def pipelined(waits: bool) -> Any:
    """A product over k in two stages whose memory is fetched again without waiting for the wgmma that reads it."""

    def body(a: Any, b: Any, out: Any, a_smem: Any, b_smem: Any, acc: Any, full: Any) -> None:
        def fetch(k: Any, slot: Any) -> None:
            plgpu.copy_gmem_to_smem(a.at[:, pl.ds(k * 16, 16)], a_smem.at[slot], full.at[slot])
            plgpu.copy_gmem_to_smem(b.at[pl.ds(k * 16, 16)], b_smem.at[slot], full.at[slot])

        fetch(0, 0)
        fetch(1, 1)

        @pl.loop(0, 4)
        def _(k: Any) -> None:
            slot = k % 2
            plgpu.barrier_wait(full.at[slot])
            plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
            if waits:
                plgpu.wgmma_wait(0)

            @pl.when(k + 2 < 4)
            def _() -> None:
                fetch(k + 2, slot)

        out[...] = acc[...]

    scratch = [
        plgpu.SMEM((2, 64, 16), jnp.float16),
        plgpu.SMEM((2, 16, 32), jnp.float16),
        plgpu.ACC((64, 32)),
        plgpu.Barrier(num_arrivals=2, num_barriers=2),
    ]
    return plgpu.kernel(body, pl.ShapeDtypeStruct((64, 32), jnp.float32), scratch_types=scratch)


def test_the_operand_of_a_product_in_flight_is_overwritten() -> None:
    a, b = halves(64, 64), halves(64, 32)
    assert codes(pipelined(waits=True), a, b) == set()
    assert codes(pipelined(waits=False), a, b) == {"wgmma-operand-overwritten"}


def test_a_pipeline_that_does_not_delay_its_release() -> None:
    def call(delay: int) -> Any:
        def body(a: Any, b: Any, out: Any, acc: Any) -> None:
            def step(_: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(acc, a_smem, b_smem)
                plgpu.wgmma_wait(1)

            specs = [
                plgpu.BlockSpec((64, 16), lambda k: (0, k), delay_release=delay),
                plgpu.BlockSpec((16, 32), lambda k: (k, 0), delay_release=delay),
            ]
            plgpu.emit_pipeline(step, grid=(4,), in_specs=specs, max_concurrent_steps=2)(a, b)
            out[...] = acc[...]

        return plgpu.kernel(body, pl.ShapeDtypeStruct((64, 32), jnp.float32), scratch_types=[plgpu.ACC((64, 32))])

    a, b = halves(64, 64), halves(64, 32)
    assert codes(call(1), a, b) == set()
    assert "wgmma-operand-overwritten" in codes(call(0), a, b)


def test_a_deadlock_is_a_finding_and_no_hang() -> None:
    def body(x: Any, barrier: Any) -> None:
        plgpu.barrier_wait(barrier)

    call = plgpu.kernel(body, (), scratch_types=[plgpu.Barrier()])
    assert codes(call, np.zeros(1, np.float32)) == {"deadlock"}


def test_a_completion_without_a_wait() -> None:
    def body(x: Any, out: Any, buffer: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x, buffer, barrier)
        out[...] = x[...]

    x = halves(8, 8)
    call = plgpu.kernel(body, like(x), scratch_types=[plgpu.SMEM(x.shape, x.dtype), plgpu.Barrier()])
    assert codes(call, x) == {"unobserved-completion"}


@pytest.mark.parametrize("predicate", [True, False])
def test_a_predicated_store(predicate: bool) -> None:
    def body(x: Any, out: Any, buffer: Any) -> None:
        out[...] = jnp.zeros(out.shape, out.dtype)
        buffer[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer, out, predicate=pl.axis_index("x") == (0 if predicate else 1))
        plgpu.wait_smem_to_gmem(0)

    x = halves(8, 8)
    call = plgpu.kernel(body, like(x), scratch_types=[plgpu.SMEM(x.shape, x.dtype)], grid=(1,), grid_names=("x",))
    with pl.executor("simulator"):
        np.testing.assert_array_equal(call(x), x if predicate else np.zeros_like(x))


@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu", "hopper-twin"])
def test_a_copy_whose_predicate_is_false_arrives_without_bytes(executor: str) -> None:
    def body(x: Any, out: Any, buffer: Any, full: Any) -> None:
        buffer[...] = jnp.full((8,), 7.0)

        @pl.loop(0, 4)
        def _(i: Any) -> None:
            plgpu.commit_smem()
            plgpu.copy_gmem_to_smem(x.at[i], buffer, full, predicate=i % 2 == 1)
            plgpu.barrier_wait(full)
            out[i] = buffer[...]

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    call = plgpu.kernel(body, like(x), scratch_types=[plgpu.SMEM((8,), np.float32), plgpu.Barrier()])
    with pl.executor(executor):
        assert np.array_equal(call(x), np.stack([np.full(8, 7), x[1], x[1], x[3]]))


def test_a_store_that_reduces() -> None:
    def body(x: Any, out: Any, buffer: Any) -> None:
        out[...] = x[...]
        buffer[...] = x[...]
        plgpu.commit_smem()
        plgpu.commit_gmem()
        plgpu.copy_smem_to_gmem(buffer, out, reduction_op="add")
        plgpu.wait_smem_to_gmem(0)

    x = RNG.standard_normal((8, 8)).astype(np.float32)
    call = plgpu.kernel(body, like(x), scratch_types=[plgpu.SMEM(x.shape, x.dtype)])
    with pl.executor("simulator"):
        np.testing.assert_array_equal(call(x), 2 * x)


def test_a_pipeline_with_outputs_in_shared_memory() -> None:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, x_smem: Any, out_smem: Any) -> None:
            out_smem[...] = x_smem[...] * 2

        spec = plgpu.BlockSpec((8, 16), lambda i: (i, 0))
        plgpu.emit_pipeline(step, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)(x, out)

    x = halves(32, 16)
    call = plgpu.kernel(body, like(x))
    report = pl.check(call, x, schedules=SCHEDULES)
    assert report.ok, report
    np.testing.assert_array_equal(call(x), 2 * x)


def test_an_accumulator_that_starts_as_an_array() -> None:
    def body(a: Any, b: Any, start: Any, out: Any, a_smem: Any, b_smem: Any) -> None:
        a_smem[...], b_smem[...] = a[...], b[...]
        plgpu.commit_smem()

        def multiply(acc: Any) -> None:
            plgpu.wgmma(acc, a_smem, b_smem)

        out[...] = pl.run_state(multiply)(plgpu.ACC.init(start[...]))

    a, b, start = halves(64, 16), halves(16, 8), RNG.standard_normal((64, 8)).astype(np.float32)
    scratch = [plgpu.SMEM(a.shape, a.dtype), plgpu.SMEM(b.shape, b.dtype)]
    call = plgpu.kernel(body, like(start), scratch_types=scratch)
    with pl.executor("simulator"):
        found = call(a, b, start)
    expected = start + product(a, b)
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


def test_a_register_operand_and_an_accumulator_that_is_stored() -> None:
    def body(a: Any, b: Any, out: Any, b_smem: Any, acc: Any) -> None:
        b_smem[...] = b[...]
        plgpu.commit_smem()
        acc[...] = jnp.ones(acc.shape, acc.dtype)
        plgpu.wgmma(acc, a[...], b_smem)
        out[...] = acc[...]

    a, b = halves(64, 16), halves(16, 8)
    scratch = [plgpu.SMEM(b.shape, b.dtype), plgpu.ACC((64, 8))]
    call = plgpu.kernel(body, pl.ShapeDtypeStruct((64, 8), jnp.float32), scratch_types=scratch)
    with pl.executor("simulator"):
        found = call(a, b)
    expected = 1 + product(a, b)
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("block", [(8, 8), (4, 16)])
def test_block_specs(block: tuple[int, int]) -> None:
    x = halves(16, 16)
    spec = pl.BlockSpec(block, lambda i, j: (i, j))

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + 1

    grid = (16 // block[0], 16 // block[1])
    call = pl.pallas_call(kernel, like(x), grid=grid, in_specs=[spec], out_specs=spec, interpret="simulator")
    np.testing.assert_array_equal(call(x), x + 1)


def test_semaphores_order_blocks() -> None:
    def body(x: Any, out: Any, ready: Any, waits: bool = True) -> None:
        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            out[0] = x[...]
            plgpu.semaphore_signal(ready)

        @pl.when(pl.axis_index("x") == 1)
        def _() -> None:
            if waits:
                plgpu.semaphore_wait(ready)
            out[1] = out[0] + 1

    x = RNG.standard_normal(8).astype(np.float32)

    def call(waits: bool) -> Any:
        def bound(*refs: Any) -> None:
            body(*refs, waits=waits)

        out = pl.ShapeDtypeStruct((2, 8), x.dtype)
        scratch = [plgpu.SemaphoreType.REGULAR]
        return plgpu.kernel(bound, out, scratch_types=scratch, grid=(2,), grid_names=("x",))

    report = pl.check(call(True), x, schedules=SCHEDULES)
    assert report.ok, report
    np.testing.assert_array_equal(call(True)(x), np.stack([x, x + 1]))
    assert "global-race" in codes(call(False), x)


def test_a_grid_whose_size_is_known_at_the_call() -> None:
    x = halves(6, 8)

    def body(x_ref: Any, out_ref: Any) -> None:
        i = pl.axis_index("x")
        out_ref[i] = x_ref[i] + 1

    call = plgpu.kernel(body, like(x), grid=(np.asarray(6, np.int32),), grid_names=("x",))
    with pl.executor("simulator"):
        np.testing.assert_array_equal(call(x), x + 1)


def test_an_accumulator_beside_shared_memory_in_one_scope() -> None:
    def body(a: Any, b: Any, out: Any) -> None:
        def inside(a_smem: Any, b_smem: Any, acc: Any) -> None:
            a_smem[...], b_smem[...] = a[...], b[...]
            plgpu.commit_smem()
            plgpu.wgmma(acc, a_smem, b_smem)
            out[...] = acc[...]

        buffers = plgpu.SMEM(a.shape, a.dtype), plgpu.SMEM(b.shape, b.dtype)
        pl.run_scoped(inside, *buffers, plgpu.ACC((64, 8)))

    a, b = halves(64, 16), halves(16, 8)
    call = plgpu.kernel(body, pl.ShapeDtypeStruct((64, 8), jnp.float32))
    with pl.executor("simulator"):
        found = call(a, b)
    assert np.linalg.norm(found - product(a, b)) < 1e-3 * np.linalg.norm(product(a, b))


def test_masked_loads_and_stores() -> None:
    def body(x: Any, out: Any, buffer: Any) -> None:
        buffer[...] = jnp.zeros(buffer.shape, buffer.dtype)
        plgpu.store(buffer, x[...], mask=x[...] > 0)
        out[...] = plgpu.load(buffer, mask=x[...] > 0, other=-1)

    x = halves(8, 8)
    call = plgpu.kernel(body, like(x), scratch_types=[plgpu.SMEM(x.shape, x.dtype)])
    with pl.executor("simulator"):
        np.testing.assert_array_equal(call(x), np.where(x > 0, x, -1))


def test_scalars_are_arguments() -> None:
    def body(x: Any, shift: Any, out: Any) -> None:
        out[...] = x[...] + shift[...]

    x = halves(8)
    with pl.executor("simulator"):
        np.testing.assert_array_equal(plgpu.kernel(body, like(x))(x, np.float16(2)), x + np.float16(2))


def test_memory_that_nothing_wrote() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = out[...] + x[...]

    x = halves(8)
    assert codes(plgpu.kernel(body, like(x)), x) == {"uninitialized-read"}


def test_one_block_multicasts_to_the_other() -> None:
    def body(x: Any, out: Any, buffer: Any, full: Any, done: Any) -> None:
        plgpu.copy_gmem_to_smem(x, buffer, full, collective_axes="c")
        plgpu.barrier_wait(full)
        out[pl.axis_index("c")] = buffer[...]
        plgpu.barrier_arrive(done)
        plgpu.barrier_wait(done)

    x = halves(8, 8)
    scratch = [
        plgpu.SMEM(x.shape, x.dtype),
        plgpu.Barrier(),
        plgpu.ClusterBarrier(collective_axes=("c",)),
    ]
    out = pl.ShapeDtypeStruct((2, 8, 8), x.dtype)
    call = plgpu.kernel(body, out, scratch_types=scratch, cluster=(2,), cluster_names=("c",))
    report = pl.check(call, x, schedules=SCHEDULES)
    assert report.ok, report
    np.testing.assert_array_equal(call(x), np.stack([x, x]))


def test_nothing_has_to_be_reset_after_a_finding() -> None:
    def body(x: Any, barrier: Any) -> None:
        plgpu.barrier_wait(barrier)

    broken = plgpu.kernel(body, (), scratch_types=[plgpu.Barrier()])
    x = halves(64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not pl.check(broken, x, schedules=2).ok
        assert pl.check(pipelined(waits=True), halves(64, 64), halves(64, 32), schedules=2).ok
