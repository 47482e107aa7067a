"""What the checker remembers is bounded by the buffers and the threads, not by how long a kernel runs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.driver.checks.runs import run_once
from palladio.machine.check.shadow import Access, State
from palladio.machine.run.clocks import Clock
from palladio.machine.run.policies import Lazy, Priorities, Random, RoundRobin
from palladio.machine.run.threads import AsyncOp, Thread

KINDS = (Access, State, Clock, Thread, AsyncOp)
SPARE = 16
"""Records more or fewer that chance in the order of steps may leave; 256 steps make hundreds."""


def ring(steps: int) -> Any:
    """A ring of two stages between a copying and a computing warpgroup."""

    def body(x: Any, out: Any, buffer: Any, full: Any, empty: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            @pl.loop(0, steps)
            def _(step: Any) -> None:
                @pl.when(step >= 2)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[step % 2])

                plgpu.copy_gmem_to_smem(x.at[step % 4], buffer.at[step % 2], full.at[step % 2])

            @pl.loop(0, 2)
            def _(slot: Any) -> None:
                plgpu.barrier_wait(empty.at[slot])

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            out[...] = jnp.zeros(out.shape, out.dtype)

            @pl.loop(0, steps)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full.at[step % 2])
                out[...] = out[...] + buffer[step % 2]
                plgpu.barrier_arrive(empty.at[step % 2])

    scratch = [plgpu.SMEM((2, 8), jnp.float32), plgpu.Barrier(num_barriers=2), plgpu.Barrier(num_barriers=2)]
    out = pl.ShapeDtypeStruct((8,), jnp.float32)
    return plgpu.kernel(body, out, scratch_types=scratch, num_threads=2, thread_name="wg")


def scopes(steps: int) -> Any:
    """A shared scope with a barrier, entered in every step."""

    def body(x: Any, out: Any) -> None:
        @pl.loop(0, steps)
        def _(step: Any) -> None:
            def inside(buffer: Any, full: Any) -> None:
                @pl.when(pl.axis_index("wg") == 0)
                def _() -> None:
                    plgpu.copy_gmem_to_smem(x.at[step % 4], buffer, full)

                plgpu.barrier_wait(full)
                out[pl.axis_index("wg")] = buffer[...]

            pl.run_scoped(inside, plgpu.SMEM((8,), jnp.float32), plgpu.Barrier(), collective_axes="wg")

    return plgpu.kernel(body, pl.ShapeDtypeStruct((2, 8), jnp.float32), num_threads=2, thread_name="wg")


def stores(steps: int) -> Any:
    """Copies to global memory of which only the sources are ever waited for."""

    def body(x: Any, out: Any, buffer: Any) -> None:
        buffer[0] = x[0]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer.at[0], out)
        plgpu.wait_smem_to_gmem(0)

        @pl.loop(0, steps)
        def _(step: Any) -> None:
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            buffer[step % 2] = x[step % 4]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(buffer.at[step % 2], out, reduction_op="add")

        plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    out = pl.ShapeDtypeStruct((8,), jnp.float32)
    return plgpu.kernel(body, out, scratch_types=[plgpu.SMEM((2, 8), jnp.float32)])


def warps(steps: int) -> Any:
    """Warps that are launched in every step."""

    def body(x: Any, out: Any, buffer: Any) -> None:
        @pl.loop(0, steps)
        def _(step: Any) -> None:
            @plgpu.warp_map
            def _(warp: Any) -> None:
                buffer[warp] = x[step % 4, warp]

        out[...] = buffer[...]

    return plgpu.kernel(body, pl.ShapeDtypeStruct((4,), jnp.float32), scratch_types=[plgpu.SMEM((4,), jnp.float32)])


def kept(call: Any) -> list[int]:
    """How many accesses, states, clocks, threads and operations are alive as the last thread ends, without findings."""
    x = np.ones((4, 8), np.float32)
    counts: list[int] = []

    def prepare(machine: Any) -> None:
        leave = machine.leave

        def counted(cluster: Any) -> None:
            gc.collect()
            alive = gc.get_objects()
            counts.extend(sum(type(each) is kind for each in alive) for kind in (Access, State, Clock, Thread, AsyncOp))
            leave(cluster)

        machine.leave = counted

    assert not run_once(call, (x,), RoundRobin, prepare).findings
    return counts


@pytest.mark.parametrize("kernel", [ring, scopes, stores, warps])
def test_a_run_of_many_steps_keeps_no_more_than_one_of_few(kernel: Any) -> None:
    few, many = kernel(16), kernel(256)
    kept(few)  # what is made once for the process
    assert all(long <= short + SPARE for long, short in zip(kept(many), kept(few), strict=True))


def test_nothing_of_a_run_outlives_it() -> None:
    machines: list[Any] = []
    run_once(ring(4), (np.ones((4, 8), np.float32),), RoundRobin, lambda machine: machines.append(weakref.ref(machine)))
    run_once(counting, (), RoundRobin, lambda machine: machines.append(weakref.ref(machine)))
    gc.collect()
    assert [machine() for machine in machines] == [None, None]


@pytest.mark.parametrize("policy", [RoundRobin, Lazy, lambda: Random(3), lambda: Priorities(3)])
def test_a_run_is_freed_without_the_garbage_collector(policy: Any) -> None:
    clusters: list[Any] = []

    def prepare(machine: Any) -> None:
        leave = machine.leave

        def left(cluster: Any) -> None:
            clusters.append(weakref.ref(cluster))
            leave(cluster)

        machine.leave = left

    call, x = ring(4), np.ones((4, 8), np.float32)
    run_once(call, (x,), policy)
    gc.collect()
    gc.disable()
    try:
        run_once(call, (x,), policy, prepare)
        assert clusters
        assert not any(cluster() for cluster in clusters)
    finally:
        gc.enable()


def counting() -> Any:
    """A kernel with semaphores in an array."""

    def body(out: Any, tokens: Any) -> None:
        pl.semaphore_signal(tokens.at[1])
        pl.semaphore_wait(tokens.at[1])
        out[...] = jnp.zeros(out.shape, out.dtype)

    scratch = [plgpu.SemaphoreType.REGULAR((2,))]
    return plgpu.kernel(body, pl.ShapeDtypeStruct((8,), jnp.float32), scratch_types=scratch)()


def test_a_copy_of_a_second_scope_is_not_taken_for_one_of_the_first() -> None:
    """The barrier of the second scope takes the place of the first one in clocks, in every schedule."""

    def body(x: Any, out: Any) -> None:
        def awaited(buffer: Any, full: Any) -> None:
            for row in range(2):
                plgpu.copy_gmem_to_smem(x.at[row], buffer, full)
                plgpu.barrier_wait(full)
            out[0] = buffer[...]

        def hasty(buffer: Any, full: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[2], buffer, full)
            out[1] = buffer[...]
            plgpu.barrier_wait(full)

        for inside in (awaited, hasty):
            pl.run_scoped(inside, plgpu.SMEM((8,), jnp.float32), plgpu.Barrier(), collective_axes="wg")

    x = np.ones((4, 8), np.float32)
    kernel = plgpu.kernel(body, pl.ShapeDtypeStruct((2, 8), jnp.float32), num_threads=1, thread_name="wg")
    for schedule in ("round_robin", "latest"):
        assert [finding.code for finding in pl.check(kernel, x, schedule=schedule).findings] == ["copy-not-awaited"]


def test_a_check_of_many_schedules_keeps_no_more_than_one_of_few() -> None:
    counts: list[int] = []

    def count(*_: Any) -> None:
        gc.collect()
        counts.append(sum(type(each) in KINDS for each in gc.get_objects()))

    assert pl.check(ring(4), np.ones((4, 8), np.float32), schedules=32, progress=count).ok
    assert max(counts[8:]) <= max(counts[:8]) + SPARE
