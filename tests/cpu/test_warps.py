"""Warps that a thread launches, on the CPU executor: compiled, and with the results of the machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioValueError
from palladio.cpu.executor import NotCompiledWarning

INT = np.int32
MESH = plgpu.WarpMesh(axis_name="w")


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Whatever is called must be compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        yield


def agrees(body: Callable[..., None], shape: tuple[int, ...], *inputs: Any, dtype: Any = INT, **options: Any) -> Any:
    """What a kernel gives, which is what the machine gives."""
    found = []
    for executor in ("cpu", "reference"):
        call = plgpu.kernel(body, pl.ShapeDtypeStruct(shape, dtype), interpret=executor, **options)
        found.append(np.asarray(call(*inputs)))
    np.testing.assert_array_equal(*found)
    return found[0]


def test_a_ring_of_warps_in_each_thread_of_several_blocks() -> None:
    def body(x: Any, out: Any, tile: Any, turns: Any) -> None:
        block, wg = pl.axis_index("x"), pl.axis_index("wg")
        tile[wg] = jnp.zeros((4,), INT)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.loop(0, 5)
            def _(step: Any) -> None:
                @pl.when((warp > 0) | (step > 0))
                def _() -> None:
                    plgpu.barrier_wait(turns.at[wg, warp])

                tile[wg, warp] = tile[wg, (warp + 3) % 4] * 3 + x[block, wg, step] + warp
                plgpu.barrier_arrive(turns.at[wg, (warp + 1) % 4])

        out[block, wg] = tile[wg]

    x = np.random.default_rng(0).integers(-9, 9, (3, 2, 5)).astype(INT)
    scratch = [plgpu.SMEM((2, 4), INT), plgpu.Barrier(num_barriers=(2, 4))]
    agrees(body, (3, 2, 4), x, grid=(3,), grid_names=("x",), num_threads=2, thread_name="wg", scratch_types=scratch)


@pytest.mark.parametrize("seed", range(3))
def test_warps_hand_values_on_through_queues(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-99, 99, (12, 8)).astype(INT)
    depth = int(rng.integers(1, 4))

    def body(x_ref: Any, out: Any, tiles: Any, full: Any, empty: Any) -> None:
        offset = x_ref[0, 0]

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp == 0)
            def _() -> None:
                @pl.loop(0, 12)
                def _(step: Any) -> None:
                    @pl.when(step >= depth)
                    def _() -> None:
                        plgpu.barrier_wait(empty.at[step % depth])

                    plgpu.copy_gmem_to_smem(x_ref.at[step], tiles.at[step % depth], full.at[step % depth])

            @pl.when(warp == 2)
            def _() -> None:
                @pl.loop(0, 12)
                def _(step: Any) -> None:
                    plgpu.barrier_wait(full.at[step % depth])
                    out[step] = tiles[step % depth] + offset
                    plgpu.barrier_arrive(empty.at[step % depth])

    scratch = [plgpu.SMEM((depth, 8), INT), *[plgpu.Barrier(num_barriers=depth) for _ in range(2)]]
    found = agrees(body, (12, 8), x, scratch_types=scratch)
    np.testing.assert_array_equal(found, x + x[0, 0])


def test_what_a_thread_has_read_stays_what_it_was_while_its_warps_write() -> None:
    def body(x: Any, out: Any, first: Any, second: Any, met: Any) -> None:
        first[...], second[...] = x[0], x[1]
        before = first[...] * 2, second[...] + 1

        @plgpu.warp_map
        def _(warp: Any) -> None:
            plgpu.barrier_arrive_and_wait(met)
            first[warp] = warp
            second[warp] = -warp

        out[0], out[1], out[2], out[3] = *before, first[...], second[...]

    scratch = [plgpu.SMEM((4,), INT), plgpu.SMEM((4,), INT), plgpu.Barrier(num_arrivals=4)]
    agrees(body, (4, 4), np.arange(8, dtype=INT).reshape(2, 4), scratch_types=scratch)


def test_scratch_of_a_launch_of_warps_is_new_each_time() -> None:
    def body(out: Any) -> None:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            @pl.kernel(mesh=MESH, scratch_types=[plgpu.SMEM((4,), INT), plgpu.Barrier(num_arrivals=4)])
            def run(tile: Any, met: Any) -> None:
                warp = pl.axis_index("w")
                tile[warp] = warp * 10 + step
                plgpu.barrier_arrive_and_wait(met)
                out[step, warp] = tile[3 - warp]
                plgpu.barrier_arrive_and_wait(met)

            run()

    agrees(body, (3, 4))


@pytest.mark.parametrize("waits", [False, True], ids=["one by one", "waiting"])
def test_a_launch_of_warps_on_arrays_returns_arrays(waits: bool) -> None:
    def body(x: Any, out: Any, tile: Any, met: Any) -> None:
        tile[...] = x[0]
        before = tile[1] + 0

        def doubled(a: Any, o: Any) -> None:
            warp = pl.axis_index("w")
            if waits:
                plgpu.barrier_arrive_and_wait(met)
            o[warp] = a[warp] * 2 + tile[warp]
            if waits:
                plgpu.barrier_arrive_and_wait(met)
            tile[warp] = 100 + warp

        out[0] = pl.kernel(doubled, pl.ShapeDtypeStruct((4,), INT), mesh=MESH)(x[1] + 1)
        out[1] = tile[...] + before

    scratch = [plgpu.SMEM((4,), INT), plgpu.Barrier(num_arrivals=4)]
    agrees(body, (2, 4), np.arange(8, dtype=INT).reshape(2, 4), scratch_types=scratch)


def test_warps_look_at_memory_until_another_one_has_written() -> None:
    def body(out: Any, flag: Any) -> None:
        flag[...] = jnp.zeros((4,), INT)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp < 3)
            def _() -> None:
                pl.while_loop(lambda n: flag[warp + 1] == 0, lambda n: n + 1, jnp.asarray(0, INT))

            flag[warp] = warp + 1

        out[...] = flag[...]

    agrees(body, (4,), scratch_types=[plgpu.SMEM((4,), INT)])


def test_warps_that_wait_for_each_other_for_ever_are_told_so() -> None:
    def body(out: Any, full: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            plgpu.barrier_wait(full)

    call = plgpu.kernel(
        body, pl.ShapeDtypeStruct((4,), INT), interpret="cpu", scratch_types=[plgpu.Barrier(num_arrivals=4)]
    )
    with pytest.raises(PalladioValueError, match="deadlock: "):
        call()
