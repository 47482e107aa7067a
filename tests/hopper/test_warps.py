"""`warp_map` on the twin: each warp is a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioNotImplementedError
from tests.hopper.kernels import F32, error, kernel, lowered, normal, on_twin

X = normal(4, 64, dtype=F32)
TILE, FULL, FREE = plgpu.SMEM(X.shape, F32), plgpu.Barrier(), plgpu.Barrier()


def same_as_evaluated(body: Callable[..., None], shape: tuple[int, ...], *scratch: Any, **options: Any) -> None:
    want = kernel(body, shape, F32, list(scratch), interpret="reference", **options)(X)
    for out in on_twin(kernel(body, shape, F32, list(scratch), **options), X):
        assert error(out, want) < 1e-6


def test_one_warp_copies_while_another_waits() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any, free: Any) -> None:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            @plgpu.warp_map
            def _(warp: Any) -> None:
                @pl.when(warp == 0)
                def _() -> None:
                    plgpu.copy_gmem_to_smem(x, tile, full)
                    plgpu.barrier_wait(free)

                @pl.when(warp == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    out[step] = tile[...] * (1.0 + step)
                    plgpu.barrier_arrive(free)

    same_as_evaluated(body, (3, *X.shape), TILE, FULL, FREE)


def test_what_warps_store_is_there_for_the_warpgroup_and_the_other_way_round() -> None:
    def body(x: Any, out: Any, tile: Any) -> None:
        tile[...] = 2 * x[...]

        @plgpu.warp_map
        def _(warp: Any) -> None:
            tile[warp] = tile[warp] + x[3 - warp].sum()

        out[...] = tile[...]

    same_as_evaluated(body, X.shape, TILE)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_one_instruction_adds_the_integers_of_a_warp_and_wraps_around(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(np.iinfo(dtype).max, size=(3, 256), dtype=dtype)
    x[2] = np.iinfo(dtype).min

    def body(x: Any, out: Any) -> None:
        for row in range(3):
            out[row] = jnp.full(8, x[row].sum(dtype=dtype), dtype)

    run = kernel(body, (3, 8), dtype)
    assert lowered(run, x).text.count("pal::warp_sum") == 3
    for out in on_twin(run, x):
        np.testing.assert_array_equal(out, np.repeat(x.sum(1, dtype=dtype), 8).reshape(3, 8))


@pytest.mark.parametrize(("dtype", "count"), [(np.int32, 16), (np.int64, 256), (np.int16, 256), (np.float32, 256)])
def test_other_sums_are_of_pairs_of_lanes(dtype: Any, count: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, size=(8, count)).astype(dtype)

    def body(x: Any, out: Any) -> None:
        out[...] = x[...].sum(1, dtype=dtype) if count < 32 else jnp.full(8, x[0].sum(dtype=dtype), dtype)

    run = kernel(body, (8,), dtype)
    text = lowered(run, x).text
    assert "pal::warp_sum" not in text and "pal::shuffle_xor" in text
    want = x.sum(1, dtype=dtype) if count < 32 else np.full(8, x[0].sum(dtype=dtype))
    for out in on_twin(run, x):
        np.testing.assert_array_equal(out, want)


def test_the_warps_of_every_warpgroup_change_layouts_in_memory_of_their_own() -> None:
    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("group")

        @plgpu.warp_map
        def _(warp: Any) -> None:
            square = x[warp].reshape(8, 8)
            out[group, warp] = (square.T + group).reshape(64)

    same_as_evaluated(body, (2, *X.shape), num_threads=2, thread_name="group")


def test_a_warpgroup_waits_for_the_copies_of_its_warps() -> None:
    def body(x: Any, out: Any, tile: Any) -> None:
        tile[...] = x[...]
        plgpu.commit_smem()

        @plgpu.warp_map
        def _(warp: Any) -> None:
            plgpu.copy_smem_to_gmem(tile.at[warp], out.at[3 - warp])

        plgpu.wait_smem_to_gmem(0)

    same_as_evaluated(body, X.shape, TILE)


def first_lines(body: Callable[..., None], *scratch: Any) -> str:
    with pytest.raises(PalladioNotImplementedError) as caught:
        lowered(kernel(body, X.shape, F32, list(scratch)), X)
    return str(caught.value).splitlines()[0]


def test_a_warpgroup_and_its_warps_wait_at_one_barrier() -> None:
    """The phase that all warps have observed is not one that the warpgroup waits for."""

    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x, tile, full)

            @pl.when(step % 2 == 0)
            def _() -> None:
                plgpu.barrier_wait(full)

            @pl.when(step % 2 == 1)
            def _() -> None:
                plgpu.warp_map(lambda warp: plgpu.barrier_wait(full))

            out[step] = tile[...] + step

    same_as_evaluated(body, (4, *X.shape), TILE, FULL)


def test_a_warp_stays_ahead_of_its_warpgroup_until_the_others_follow() -> None:
    """A wait of a single warp is not one of the warpgroup, which has observed what all of its warps have."""

    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        barrier = full.at[1]

        def waits_in(*warps: int) -> None:
            @plgpu.warp_map
            def _(warp: Any) -> None:
                for each in warps:
                    pl.when(warp == each)(lambda: plgpu.barrier_wait(barrier))

        for copy in range(4):
            plgpu.copy_gmem_to_smem(x.at[copy], tile, barrier)
            if copy == 0:
                waits_in(1)
            if copy == 2:  # warp 1 has waited three times, as a warp and twice with its warpgroup
                waits_in(0, 2, 3)
            else:
                plgpu.barrier_wait(barrier)
            out[copy] = tile[...]

    same_as_evaluated(body, X.shape, plgpu.SMEM((64,), F32), plgpu.Barrier(num_barriers=2))


def test_memory_of_a_single_warp_is_refused() -> None:
    def body(x: Any, out: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            def inner(own: Any) -> None:
                own[...] = x[warp]
                out[warp] = own[...]

            pl.run_scoped(inner, plgpu.SMEM((64,), F32))

    assert first_lines(body) == "scope of a single warp is not compiled for Hopper"
