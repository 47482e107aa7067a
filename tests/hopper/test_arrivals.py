"""The arrivals that a barrier counts: who arrives decides for how many warps one arrival stands."""

from __future__ import annotations

import functools
import operator
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


AXES = ("across", "down", "deep")


@pytest.mark.parametrize(
    ("groups", "reached"),
    [
        (((*AXES[:2],),), 4),
        (((AXES[0], AXES[2]),), 4),
        (((AXES[0], AXES[2]), AXES[1]), 5),
        ((AXES[1], (AXES[0], AXES[2])), 5),
        ((AXES,), 8),
    ],
    ids=str,
)
def test_arrivals_count_in_a_plane_of_blocks(groups: tuple[Any, ...], reached: int) -> None:
    """One block arrives; the blocks that differ from it along one group of axes wait, and no others are reached."""

    def body(x: Any, out: Any, signalled: Any) -> None:
        here = [pl.axis_index(name) for name in AXES]
        same = {name: index == start for name, index, start in zip(AXES, here, (0, 1, 0), strict=True)}
        named = [(group,) if isinstance(group, str) else group for group in groups]
        others = [[same[name] for name in AXES if name not in group] for group in named]
        within = functools.reduce(operator.or_, (functools.reduce(operator.and_, each, True) for each in others))

        @pl.when((here[0] == 0) & (here[1] == 1) & (here[2] == 0))
        def _() -> None:
            for _ in range(reached):
                plgpu.barrier_arrive(signalled)

        pl.when(within)(lambda: plgpu.barrier_wait(signalled))
        own = pl.ds(64 * here[0] + 32 * here[1] + 16 * here[2], 16)
        out[own] = x[own]

    x = normal(128, dtype=F32)
    scratch = {"signalled": plgpu.ClusterBarrier(collective_axes=groups)}
    call = kernel(body, x.shape, F32, scratch, cluster=(2, 2, 2), cluster_names=AXES)
    check(call, "signalled", 4 * reached, x, x)


def test_a_single_warp_arrives_for_four_in_every_block_of_the_largest_cluster() -> None:
    def body(out: Any, signalled: Any) -> None:
        @pl.when(pl.axis_index("group") == 0)
        def _() -> None:
            plgpu.barrier_arrive(signalled)
            plgpu.barrier_wait(signalled)

        @pl.when(pl.axis_index("group") == 1)
        def _() -> None:
            plgpu.barrier_wait(signalled)
            out[pl.axis_index("c")] = 1.0

    scratch = {"signalled": plgpu.ClusterBarrier(collective_axes=("c",))}
    call = kernel(body, (8,), F32, scratch, num_threads=2, thread_name="group", cluster=(8,), cluster_names=("c",))
    check(call, "signalled", 4 * 8, np.ones(8, F32))


def test_a_cluster_has_at_most_8_blocks() -> None:
    def body(out: Any) -> None:
        out[pl.axis_index("c")] = 1.0

    with pytest.raises(NotImplementedError, match="a cluster has at most 8 blocks"):
        lowered(kernel(body, (16,), F32, cluster=(16,), cluster_names=("c",)))


@pytest.mark.parametrize("sizes", [(2, 2, 1), (1, 2, 2), (2, 1, 2)])
def test_an_axis_of_one_block_has_index_0(sizes: tuple[int, int, int]) -> None:
    def body(out: Any) -> None:
        across, down, deep = (pl.axis_index(name) for name in AXES)
        out[across * sizes[1] * sizes[2] + down * sizes[2] + deep] = 1.0

    for found in on_twin(kernel(body, (4,), F32, cluster=sizes, cluster_names=AXES)):
        np.testing.assert_array_equal(found, np.ones(4, F32))


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


SHARED = ["nothing", "global memory", "an operand in the memory of the result", "shared memory", "stores"]


@pytest.mark.parametrize("through", SHARED)
def test_a_barrier_of_a_cluster_orders_memory_only_if_blocks_share_it(through: str) -> None:
    """The order costs a wait for all accesses to global memory at each arrival."""
    aliased = through.startswith("an operand")

    def body(x: Any, out: Any, tile: Any, meet: Any, full: Any) -> None:
        own = pl.axis_index("c")
        tile[0] = out[own] = 1.0 if aliased else x[own]
        if through == "stores":
            plgpu.async_store_smem(x[own], tile.at[0], full, cluster_idx=1 - own, cluster_dim="c")
            plgpu.barrier_wait(full)
        plgpu.barrier_arrive(meet)
        plgpu.barrier_wait(meet)
        if through == "nothing":
            out[own + 2] = 2.0
        elif through in ("shared memory", "stores"):
            out[own + 2] = (plgpu.cluster_ref(tile, {"c": 1 - own}) if through == "shared memory" else tile)[0]
        else:
            out[own + 2] = (x if aliased else out)[1 - own]

    options = {"input_output_aliases": {0: 0}} if aliased else {}
    scratch = [plgpu.SMEM((1,), F32), plgpu.ClusterBarrier(collective_axes=("c",)), plgpu.Barrier()]
    call = kernel(body, (4,), F32, scratch, cluster=(2,), cluster_names=("c",), **options)
    text = lowered(call, X[:4]).text
    ordered = through != "nothing"
    assert ("arrive_cluster(" in text and "wait_cluster(" in text) is ordered
    assert ("arrive_peer(" in text) is not ordered
