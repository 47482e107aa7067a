"""The arrivals that a barrier counts: who arrives decides for how many warps one arrival stands."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.hopper.lowered import Lowered
from tests.hopper.kernels import F32, kernel, lowered, normal, on_twin

X = normal(64, dtype=F32)


def counted(found: Lowered, name: str) -> int:
    """The arrivals that complete a phase of a barrier."""
    (count,) = re.findall(rf"  {name}: \d+ barriers of (\d+)", found.text)
    return int(count)


def check(call: Any, name: str, count: int, want: np.ndarray, *inputs: np.ndarray) -> None:
    assert counted(lowered(call, *inputs), name) == count
    for out in on_twin(call, *inputs):
        np.testing.assert_array_equal(out, want)


def test_copies_alone_arrive_once_each() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        for half in range(2):
            part = pl.ds(32 * half, 32)
            plgpu.copy_gmem_to_smem(x.at[part], tile.at[part], full)
        plgpu.barrier_wait(full)
        out[...] = tile[...]

    scratch = {"tile": plgpu.SMEM((64,), F32), "full": plgpu.Barrier(num_arrivals=2)}
    check(kernel(body, (64,), F32, scratch), "full", 2, X, X)


def ahead(x: Any, out: Any, tile: Any, full: Any, copied: bool) -> None:
    """The first warpgroup writes, or lets a copy write, and arrives; the second one waits and reads."""

    @pl.when(pl.axis_index("group") == 0)
    def _() -> None:
        if copied:
            plgpu.copy_gmem_to_smem(x, tile.at[0], full)
        tile[1] = 2 * x[...]
        plgpu.barrier_arrive(full)

    @pl.when(pl.axis_index("group") == 1)
    def _() -> None:
        plgpu.barrier_wait(full)
        out[...] = tile[1] + (tile[0] if copied else 0)


@pytest.mark.parametrize(("copied", "arrivals"), [(False, 1), (True, 2)], ids=["threads", "copies and threads"])
def test_each_warp_of_a_thread_arrives(copied: bool, arrivals: int) -> None:
    scratch = {"tile": plgpu.SMEM((2, 64), F32), "full": plgpu.Barrier(num_arrivals=arrivals)}
    body = lambda *refs, **scratch: ahead(*refs, **scratch, copied=copied)
    call = kernel(body, (64,), F32, scratch, num_threads=2, thread_name="group")
    check(call, "full", 4 * arrivals, (3 if copied else 2) * X, X)


def test_one_warp_that_stands_for_a_thread_arrives_for_all() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any, free: Any) -> None:
        @pl.when(pl.axis_index("group") == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x, tile, full)
            plgpu.barrier_wait(full)
            plgpu.barrier_arrive(free)

        @pl.when(pl.axis_index("group") == 1)
        def _() -> None:
            plgpu.barrier_wait(free)
            out[...] = tile[...]

    scratch = {"tile": plgpu.SMEM((64,), F32), "full": plgpu.Barrier(), "free": plgpu.Barrier()}
    call = kernel(body, (64,), F32, scratch, num_threads=2, thread_name="group")
    assert "pal::arrive_many(" in lowered(call, X).text
    check(call, "free", 4, X, X)


def met(x: Any, out: Any, everybody: Any, names: tuple[str, ...]) -> None:
    plgpu.barrier_arrive(everybody)
    plgpu.barrier_wait(everybody)
    place = sum(pl.axis_index(name) * weight for name, weight in zip(names, (32, 16), strict=False))
    own = pl.ds(place, 64 if len(names) == 0 else 16)
    out[own] = x[own]


def test_blocks_that_differ_along_one_axis_of_a_cluster_arrive() -> None:
    """Of 2 by 2 blocks three reach each barrier: the one of the opposite corner does not."""
    names = ("across", "down")
    call = kernel(
        lambda *refs: met(*refs, names=names),
        (64,),
        F32,
        [plgpu.ClusterBarrier(collective_axes=names)],
        cluster=(2, 2),
        cluster_names=names,
    )
    check(call, "scratch0|everybody|barriers", 4 * 3, X, X)


def test_a_plane_of_blocks_is_refused() -> None:
    names = ("across", "down")
    call = kernel(
        lambda *refs: met(*refs, names=names),
        (64,),
        F32,
        [plgpu.ClusterBarrier(collective_axes=(names,))],
        cluster=(2, 2),
        cluster_names=names,
    )
    with pytest.raises(
        NotImplementedError, match="arrivals at a barrier of the cluster count along one axis at a time"
    ):
        lowered(call, X)


def test_registers_of_a_pipeline_are_those_that_a_block_begins_with() -> None:
    device = plgpu.H100_SXM
    assert [device.registers_at_launch(n) for n in (1, 2, 3, 4)] == [256, 256, 168, 128]

    def body(x: Any, out: Any) -> None:
        plgpu.emit_pipeline_warp_specialized(
            lambda _, x_block: None,
            grid=(2,),
            memory_registers=48,
            in_specs=[plgpu.BlockSpec((32,), lambda step: (step,))],
            max_concurrent_steps=2,
            wg_axis="group",
            num_compute_wgs=2,
        )(x)
        pl.when(pl.axis_index("group") == 0)(lambda: out.__setitem__(..., x[...]))

    found = lowered(kernel(body, (64,), F32, (), num_threads=3, thread_name="group"), X)
    assert sum(each.count * len(each.warpgroups) for each in found.registers) <= 3 * 168
