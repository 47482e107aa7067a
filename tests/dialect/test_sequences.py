"""Arguments that are sequences or names of axes: anything else is refused by name, at every function that takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from tests.dialect.messages import BLOCKS, CLUSTER, inside

NAMES: dict[str, tuple[str, Callable[[], Any]]] = {
    "a loop": ("collective_axes", inside(lambda: plgpu.nd_loop((4,), collective_axes=3)(lambda info: None), **BLOCKS)),
    "work stealing": ("grid_names", inside(lambda: plgpu.dynamic_scheduling_loop(3)(lambda info: None), **BLOCKS)),
    "its cluster": ("cluster_axes", inside(lambda: plgpu.dynamic_scheduling_loop("b", None, 3), **BLOCKS)),
    "a barrier of the cluster": ("collective_axes", lambda: plgpu.ClusterBarrier(collective_axes=0)),
    "an array of names": ("collective_axes", lambda: plgpu.ClusterBarrier(collective_axes=np.zeros(2))),
    "a mesh": ("grid_names", lambda: plgpu.Mesh(grid=(2,), grid_names=(3,))),
    "a block": ("collective_axes", lambda: plgpu.BlockSpec((4,), lambda: (0,), collective_axes=1.5)),
    "a peer": ("idxs", inside(lambda s: plgpu.cluster_ref(s, {0: 0}), **CLUSTER)),
    "a store into a peer": (
        "cluster_dim",
        inside(lambda s, bar: plgpu.async_store_smem(s[...], s, bar, cluster_idx=0, cluster_dim=2), **CLUSTER),
    ),
    "several peers": ("axes", inside(lambda s: plgpu.multicast_ref(s, 3), **CLUSTER)),
}
SEQUENCES: dict[str, tuple[str, Callable[[], Any]]] = {
    "tiles": (
        "tiling",
        inside(lambda: plgpu.nd_loop((4,), collective_axes="b", tiling=2)(lambda info: None), **BLOCKS),
    ),
    "a plane": ("shape", lambda: plgpu.planar_snake(0, 4, 0, 1)),
    "a block": ("block_shape", lambda: plgpu.BlockSpec(1.5, lambda: (0,))),
    "transforms of a block": ("transforms", lambda: plgpu.BlockSpec((4,), lambda: (0,), transforms=True)),
    "transforms of a buffer": ("transforms", lambda: plgpu.SMEM((4,), np.float32, transforms=3)),
    "axes": ("permutation", inside(lambda s: plgpu.transpose_ref(s, 1))),
    "semantics": ("dimension_semantics", lambda: plgpu.CompilerParams(dimension_semantics=3)),
    "semantics of a TPU": ("dimension_semantics", lambda: pltpu.CompilerParams(3)),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_axis_is_a_string(name: str) -> None:
    argument, call = NAMES[name]
    with pytest.raises(pl.PalladioTypeError, match="the name of an axis is a string") as caught:
        call()
    assert argument in str(caught.value)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_is_requested_by_the_name_of_the_argument(name: str) -> None:
    argument, call = SEQUENCES[name]
    with pytest.raises(pl.PalladioTypeError, match="this argument is a sequence") as caught:
        call()
    assert argument in str(caught.value)


def test_a_peer_is_told_by_named_indices() -> None:
    with pytest.raises(pl.PalladioTypeError, match="a block of the cluster is named by its indices along named axes"):
        inside(lambda s: plgpu.cluster_ref(s, 1), **CLUSTER)()


ARRAY = np.zeros(2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: plgpu.InterpretGPUParams(on_race=ARRAY),
        lambda: plgpu.set_gpu_interpret_mode(ARRAY),
        lambda: pltpu.set_tpu_interpret_mode(ARRAY),
        inside(lambda sem: plgpu.semaphore_signal(sem, memory_scope=ARRAY)),
        inside(lambda: pl.axis_index(ARRAY)),
    ],
    ids=["a choice", "the GPU's mode", "the TPU's mode", "a scope", "an axis"],
)
def test_an_array_is_no_choice(call: Callable[[], Any]) -> None:
    with pytest.raises(pl.PalladioError):
        call()
