"""Programs that a kernel runs on the warps of its warpgroup."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.driver.checks.runs import run_once
from palladio.machine.run.policies import RoundRobin
from tests.dialect.kernels import found, kernel


def test_warp_map_runs_a_function_in_four_warps() -> None:
    def body(o_ref: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            o_ref[pl.axis_index("wg"), warp] = warp * 10 + pl.axis_index("wg")

    result = kernel(body, (2, 4), num_threads=2, thread_name="wg")()
    assert result.tolist() == [[0, 10, 20, 30], [1, 11, 21, 31]]


def test_the_warpgroup_goes_on_when_its_warps_have_ended() -> None:
    def body(o_ref: Any, s_ref: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            s_ref[warp] = warp

        o_ref[...] = s_ref[...]

    run = kernel(body, (4,), scratch_types=[plgpu.SMEM((4,), np.int32)])
    assert run().tolist() == [0, 1, 2, 3]
    assert found(run) == set()


def between_warps(ordered: bool) -> Any:
    """One warp writes what another one reads."""

    def body(o_ref: Any, s_ref: Any, full: Any) -> None:
        s_ref[...] = jnp.int32(0)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp == 1)
            def _() -> None:
                s_ref[...] = jnp.int32(7)
                plgpu.barrier_arrive(full)

            @pl.when(warp == 0)
            def _() -> None:
                if ordered:
                    plgpu.barrier_wait(full)
                o_ref[...] = s_ref[...]
                if not ordered:
                    plgpu.barrier_wait(full)

    return kernel(body, scratch_types=[plgpu.SMEM((), np.int32), plgpu.Barrier()])


def test_warps_wait_for_each_other_at_barriers() -> None:
    assert between_warps(True)() == 7
    assert found(between_warps(True)) == set()


def test_warps_that_do_not_wait_race() -> None:
    assert found(between_warps(False)) == {"data-race"}


def test_a_warp_may_issue_the_copies() -> None:
    def body(x_ref: Any, o_ref: Any, s_ref: Any, full: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp == 0)
            def _() -> None:
                plgpu.copy_gmem_to_smem(x_ref, s_ref, full)

        plgpu.barrier_wait(full)
        o_ref[...] = s_ref[...]

    run = kernel(body, (8,), scratch_types=[plgpu.SMEM((8,), np.int32), plgpu.Barrier()])
    x = np.arange(8, dtype=np.int32)
    assert np.array_equal(run(x), x)
    assert found(run, x) == set()


def test_a_kernel_on_a_mesh_of_warps_has_scratch_of_its_own() -> None:
    def body(o_ref: Any) -> None:
        @pl.kernel(mesh=plgpu.WarpMesh(axis_name="w"), scratch_types=[plgpu.ACC((4, 4))])
        def run(acc: Any) -> None:
            acc[...] = jnp.full((4, 4), pl.axis_index("w"), jnp.float32)
            o_ref[pl.axis_index("w")] = acc[...].astype(np.int32)[0, 0]

        run()

    assert kernel(body, (4,))().tolist() == [0, 1, 2, 3]


def test_the_warps_of_a_launch_share_its_memory_and_barriers() -> None:
    def body(o_ref: Any) -> None:
        @pl.kernel(
            mesh=plgpu.WarpMesh(axis_name="w"),
            scratch_types=[plgpu.SMEM((4,), np.int32), plgpu.Barrier(num_arrivals=4)],
        )
        def run(s_ref: Any, met: Any) -> None:
            warp = pl.axis_index("w")
            s_ref[warp] = warp * 3
            plgpu.barrier_arrive_and_wait(met)
            o_ref[warp] = s_ref[(warp + 1) % 4]

        run()
        run()

    assert kernel(body, (4,))().tolist() == [3, 6, 9, 0]
    assert found(kernel(body, (4,))) == set()


def test_memory_of_a_launch_of_warps_is_given_back() -> None:
    def body(o_ref: Any) -> None:
        for _ in range(3):
            scratch = [plgpu.SMEM((100 * 1024,), np.int8)]
            pl.core_map(plgpu.WarpMesh(axis_name="w"), scratch_types=scratch)(lambda s_ref: None)

    assert found(kernel(body)) == set()


def test_core_map_is_an_older_spelling_of_kernel() -> None:
    def body(o_ref: Any) -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="w"))
        def _() -> None:
            o_ref[pl.axis_index("w")] = pl.axis_index("w") + 1

    assert kernel(body, (4,))().tolist() == [1, 2, 3, 4]


def test_core_map_under_run_state_writes_to_the_references_around_it() -> None:
    @pl.jit
    def doubled(x: Any) -> Any:
        @pl.run_state
        def run(refs: Any) -> None:
            x_ref, y_ref = refs

            @pl.core_map(plgpu.Mesh(grid=(4,), grid_names=("i",)))
            def _() -> None:
                i = pl.axis_index("i")
                y_ref[i] = x_ref[i] * 2

        return run((x, jnp.zeros_like(x)))[1]

    x = np.arange(4, dtype=np.float32)
    assert doubled(x).tolist() == [0, 2, 4, 6]
    assert x.tolist() == [0, 1, 2, 3]


def test_as_torch_kernel_is_the_kernel() -> None:
    run = kernel(lambda o_ref: o_ref.set(jnp.int32(1)))
    assert plgpu.as_torch_kernel(run) is run


def test_a_warp_remembers_its_waits_from_one_launch_to_the_next() -> None:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
            def _() -> None:
                warp = pl.axis_index("warp")

                @pl.when(warp == 0)
                def _() -> None:
                    plgpu.copy_gmem_to_smem(x.at[step], shared, full)

                @pl.when(warp == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    for n in range(4):
                        out[step, n] = shared[n]

    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    scratch = [plgpu.SMEM((4,), np.float32), plgpu.Barrier()]
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)
    np.testing.assert_array_equal(call(x), x)
    assert pl.check(call, x, schedules=8).ok


def test_waits_of_the_warpgroup_count_for_its_warps_and_those_of_all_warps_for_it() -> None:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[2 * step], shared, full)
            plgpu.barrier_wait(full)
            out[2 * step] = shared[...]
            plgpu.copy_gmem_to_smem(x.at[2 * step + 1], shared, full)

            @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
            def _() -> None:
                warp = pl.axis_index("warp")
                plgpu.barrier_wait(full)
                out[2 * step + 1, warp] = shared[warp]

    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    scratch = [plgpu.SMEM((4,), np.float32), plgpu.Barrier()]
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)
    np.testing.assert_array_equal(call(x), x)
    assert pl.check(call, x, schedules=8).ok


def test_launches_of_warps_leave_nothing_behind() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        @pl.loop(0, 40)
        def _(step: Any) -> None:
            @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
            def _() -> None:
                warp = pl.axis_index("warp")
                shared[warp] = x[warp]

        out[...] = shared[...]

    x = np.arange(4, dtype=np.float32)
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    call = plgpu.kernel(body, out, scratch_types=[plgpu.SMEM((4,), np.float32)])
    components = []

    def prepare(machine: Any) -> None:
        start = machine.start

        def started(thread: Any, *rest: Any) -> None:
            components.append(thread.component)
            start(thread, *rest)

        machine.start = started

    assert not run_once(call, (x,), RoundRobin, prepare).findings
    assert len(components) == 1 + 4 * 40
    assert len(set(components)) == 5, "the block's thread and its four warps"
