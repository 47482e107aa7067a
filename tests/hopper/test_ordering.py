"""What the generator orders that programs take for granted: a thread of a launch is four warps."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.hopper.kernels import F32, error, kernel, lowered, normal, on_twin


def test_a_phase_is_not_over_before_every_warp_has_seen_the_last_one() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        for row in range(6):
            plgpu.copy_gmem_to_smem(x.at[row], tile.at[row], full)
            plgpu.barrier_wait(full)
        out[...] = tile[...]

    x = normal(6, 64, dtype=F32)
    for out in on_twin(kernel(body, x.shape, F32, [plgpu.SMEM(x.shape, F32), plgpu.Barrier()]), x):
        assert np.array_equal(out, x)


def test_a_buffer_is_not_filled_again_before_every_warp_has_read_it() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        @pl.loop(0, 5)
        def _(row: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[row], tile, full)
            plgpu.barrier_wait(full)
            out[row] = 2 * tile[...]

    x = normal(5, 256, dtype=F32)
    for out in on_twin(kernel(body, x.shape, F32, [plgpu.SMEM(x.shape[1:], F32), plgpu.Barrier()]), x):
        assert np.array_equal(out, 2 * x)


def test_what_a_warpgroup_stores_it_may_load_in_another_layout() -> None:
    def body(x: Any, out: Any, tile: Any) -> None:
        @pl.loop(0, 3)
        def _(_: Any) -> None:
            tile[...] = x[...]
            out[...] = tile.T[...] + 1

    x = normal(64, 32, dtype=F32)
    for out in on_twin(kernel(body, (32, 64), F32, [plgpu.SMEM(x.shape, F32)]), x):
        assert np.array_equal(out, x.T + 1)


def test_a_copy_whose_rows_are_no_multiple_of_16_bytes_is_done_by_threads() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)
        plgpu.barrier_wait(full)
        tile[...] = tile[...] * 3
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out)
        plgpu.wait_smem_to_gmem(0)

    x = normal(10, 7, dtype=F32)
    call = kernel(body, x.shape, F32, [plgpu.SMEM(x.shape, F32), plgpu.Barrier()])
    assert "tma_load" not in lowered(call, x).text
    for out in on_twin(call, x):
        assert np.array_equal(out, 3 * x)


def test_sums_over_warps_of_16_bit_floats_are_rounded_once() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...].sum(axis=0)

    x = normal(64, 8, dtype=np.float16)
    outs = on_twin(kernel(body, (8,), np.float16), x)
    assert all(error(out, x.astype(np.float64).sum(0)) < 1e-3 for out in outs)
