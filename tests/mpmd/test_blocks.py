"""Several programs on GPU threads: meshes of blocks in one launch, and meshes of warps in one warpgroup."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.mpmd.calls import OUT, X

PRODUCERS = plgpu.Mesh(grid=(2,), grid_names=("x",))
CONSUMERS = plgpu.Mesh(grid=(2,), grid_names=("x",), num_threads=2, thread_name="wg")


def test_meshes_of_blocks_partition_a_launch() -> None:
    def one(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, pl.axis_index("x")] = x_ref[0, pl.axis_index("x")]

    def other(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            o_ref[1, pl.axis_index("x")] = x_ref[1, pl.axis_index("x")] * 2

    found = pl.mpmd_map([(PRODUCERS, one), (CONSUMERS, other)], pl.ShapeDtypeStruct((2, 2), np.float32))(X)
    assert np.array_equal(found, [X[0, :2], 2 * X[1, :2]])


def hands_over(x_ref: Any, o_ref: Any, rows: Any, ready: Any) -> None:
    block = pl.axis_index("x")
    rows[block] = x_ref[block] + 1
    pl.semaphore_signal(ready.at[block])


def takes_over(x_ref: Any, o_ref: Any, rows: Any, ready: Any) -> None:
    block = pl.axis_index("x")

    @pl.when(pl.axis_index("wg") == 0)
    def _() -> None:
        pl.semaphore_wait(ready.at[block])
        o_ref[block] = rows[block] * 2


def test_blocks_of_different_programs_meet_in_global_memory() -> None:
    scratch = [plgpu.GMEM((2, 4), np.float32), plgpu.SemaphoreType.REGULAR((2,))]
    call = pl.mpmd_map([(PRODUCERS, hands_over), (CONSUMERS, takes_over)], OUT, scratch_types=scratch)
    assert np.array_equal(call(X), 2 * (X + 1))
    assert pl.check(call, X).ok


def test_shared_memory_and_barriers_belong_to_the_blocks_of_one_mesh() -> None:
    def one(x_ref: Any, o_ref: Any, *_: Any) -> None:
        o_ref[0, pl.axis_index("x")] = x_ref[0, pl.axis_index("x")]

    def other(x_ref: Any, o_ref: Any, buffer: Any, full: Any) -> None:
        block, thread = pl.axis_index("x"), pl.axis_index("wg")

        @pl.when(thread == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x_ref, buffer, full)

        @pl.when(thread == 1)
        def _() -> None:
            plgpu.barrier_wait(full)
            o_ref[1, block] = jnp.sum(buffer[block])

    scratch = [(plgpu.SMEM @ CONSUMERS)((2, 4), np.float32), plgpu.Barrier() @ CONSUMERS]
    out = pl.ShapeDtypeStruct((2, 2), np.float32)
    call = pl.mpmd_map([(PRODUCERS, one), (CONSUMERS, other)], out, scratch_types=scratch)
    assert np.array_equal(call(X), [X[0, :2], X.sum(1)])
    assert pl.check(call, X).ok


def test_a_mesh_of_dynamic_size_runs_beside_another() -> None:
    def one(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[0]

    def other(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.axis_index("y") + 1] = x_ref[1] * pl.axis_size("y").astype(np.float32)

    several = plgpu.Mesh(grid=(np.int32(3),), grid_names=("y",))
    single = plgpu.Mesh(grid=(1,), grid_names=("x",))
    found = pl.mpmd_map([(single, one), (several, other)], pl.ShapeDtypeStruct((4, 4), np.float32))(X)
    assert np.array_equal(found, [X[0], 3 * X[1], 3 * X[1], 3 * X[1]])


def test_meshes_of_warps_partition_a_warpgroup() -> None:
    def body(x_ref: Any, o_ref: Any, rows: Any, full: Any) -> None:
        def copies() -> None:
            plgpu.copy_gmem_to_smem(x_ref, rows, full)

        def signals() -> None:
            plgpu.barrier_arrive(full)

        pl.mpmd_map([(plgpu.WarpMesh("copier", 1), copies), (plgpu.WarpMesh("other", 3), signals)])()
        plgpu.barrier_wait(full)
        o_ref[...] = rows[...] + 1

    call = plgpu.kernel(body, OUT, scratch_types=[plgpu.SMEM((2, 4), np.float32), plgpu.Barrier(num_arrivals=4)])
    assert np.array_equal(call(X), X + 1)
    assert pl.check(call, X).ok


def test_findings_name_the_program_of_a_block() -> None:
    def forgets(x_ref: Any, o_ref: Any, rows: Any, ready: Any) -> None:
        block = pl.axis_index("x")
        pl.semaphore_signal(ready.at[block])
        rows[block] = x_ref[block] + 1

    scratch = [plgpu.GMEM((2, 4), np.float32), plgpu.SemaphoreType.REGULAR((2,))]
    call = pl.mpmd_map([(PRODUCERS, forgets), (CONSUMERS, takes_over)], OUT, scratch_types=scratch)
    findings = pl.check(call, X).findings
    race = next(each for each in findings if each.code == "global-race")
    assert {participant.thread.split(" block")[0] for participant in race.participants} == {"forgets", "takes_over"}
