"""References into several blocks of a cluster at once."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.dialect.kernels import found, kernel


def exchanged(meet: bool) -> Any:
    """Each block of a cluster tells all the others its number."""

    def body(o_ref: Any, s_ref: Any, met: Any) -> None:
        me = pl.axis_index("c")
        everywhere = plgpu.multicast_ref(s_ref, "c").at[me]
        everywhere[...] = jnp.full((2,), me + 10)
        plgpu.barrier_arrive(met)
        if meet:
            plgpu.barrier_wait(met)
        o_ref[me] = s_ref[...]
        if not meet:
            plgpu.barrier_wait(met)

    scratch = [plgpu.SMEM((3, 2), np.int32), plgpu.ClusterBarrier(collective_axes="c")]
    return kernel(body, (3, 3, 2), cluster=(3,), cluster_names="c", scratch_types=scratch)


def test_a_store_goes_to_every_block_along_the_axis() -> None:
    run = exchanged(meet=True)
    assert run().tolist() == [[[10, 10], [11, 11], [12, 12]]] * 3
    assert found(run) == set()


def test_blocks_that_read_before_they_have_met_race() -> None:
    assert "data-race" in found(exchanged(meet=False))


def test_only_the_named_axes_vary() -> None:
    def body(o_ref: Any, s_ref: Any, met: Any) -> None:
        x, y = pl.axis_index("x"), pl.axis_index("y")
        plgpu.multicast_ref(s_ref, ("y",)).at[y][...] = x * 10 + y
        plgpu.barrier_arrive_and_wait(met)
        o_ref[x, y] = s_ref[...]

    scratch = [plgpu.SMEM((2,), np.int32), plgpu.ClusterBarrier(collective_axes="y")]
    run = kernel(body, (2, 2, 2), cluster=(2, 2), cluster_names=("x", "y"), scratch_types=scratch)
    assert run().tolist() == [[[0, 1], [0, 1]], [[10, 11], [10, 11]]]


def grouped(axes: Any) -> Any:
    """Each block tells the blocks of its plane (x, z) its number; those along y it only meets."""

    def body(o_ref: Any, s_ref: Any, met: Any) -> None:
        x, y, z = (pl.axis_index(name) for name in "xyz")
        me = pl.axis_index(("x", "z"))
        plgpu.multicast_ref(s_ref, ("x", "z")).at[me][...] = me + 10 * y
        plgpu.barrier_arrive_and_wait(met)
        o_ref[x, y, z] = s_ref[...]

    scratch = [plgpu.SMEM((4,), np.int32), plgpu.ClusterBarrier(collective_axes=axes)]
    return kernel(body, (2, 2, 2, 4), cluster=(2, 2, 2), cluster_names=("x", "y", "z"), scratch_types=scratch)


def test_a_barrier_counts_the_arrivals_of_a_plane_of_blocks() -> None:
    run = grouped((("x", "z"), "y"))
    expected = np.broadcast_to(np.arange(4) + 10 * np.arange(2)[:, None, None], (2, 2, 2, 4))
    assert np.array_equal(run(), expected)
    assert found(run) == set()
    assert "data-race" in found(grouped(("x", "y", "z")))  # not the block across the plane


def test_peers_are_references_to_each_block() -> None:
    def body(o_ref: Any, full: Any) -> None:
        for each in plgpu.multicast_ref(full, "c").peers:
            plgpu.barrier_arrive(each)
        plgpu.barrier_wait(full)
        o_ref[pl.axis_index("c")] = jnp.int32(1)

    scratch = [plgpu.Barrier(num_arrivals=2)]
    assert kernel(body, (2,), cluster=(2,), cluster_names="c", scratch_types=scratch)().tolist() == [1, 1]


def test_it_has_the_shape_and_dtype_of_each() -> None:
    seen = []

    def body(o_ref: Any, s_ref: Any) -> None:
        refs = plgpu.multicast_ref(s_ref, "c").at[1:]
        seen.append((refs.shape, refs.dtype, repr(refs)))

    kernel(body, cluster=(2,), cluster_names="c", scratch_types=[plgpu.SMEM((3,), np.float16)])()
    assert seen == [((2,), np.float16, "reference to f16[2] in smem of 2 blocks")]
