"""Messages when meshes, memory, copies, accumulators and launches are used wrongly, as golden files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.dialect.kernels import kernel
from tests.dialect.messages import Calls, inside, texts

OUT = pl.ShapeDtypeStruct((), np.int32)

MESHES: Calls = {
    "a size that is not an integer": lambda: plgpu.Mesh(grid=(2.5,)),
    "an empty axis": lambda: plgpu.Mesh(grid=(2, 0)),
    "names": lambda: plgpu.Mesh(grid=(2, 3), grid_names=("x",)),
    "one name twice": lambda: plgpu.Mesh(grid=(2, 3), grid_names=("x", "x")),
    "cluster": lambda: plgpu.Mesh(cluster=(1, 1, 1, 2)),
    "threads without a name": lambda: plgpu.Mesh(num_threads=2),
    "a name without threads": lambda: plgpu.Mesh(thread_name="wg"),
    "too many threads": lambda: plgpu.Mesh(num_threads=17, thread_name="wg"),
    "an empty axis of a call": kernel(lambda o_ref: None, grid=(np.int32(0),), grid_names="x"),
}

MEMORY: Calls = {
    "a tile of no integers": lambda: plgpu.TilingTransform("8x64"),
    "an empty tile": lambda: plgpu.TilingTransform((8, 0)),
    "swizzle": lambda: plgpu.SwizzleTransform(48),
    "scratch": kernel(lambda o_ref, s: None, scratch_types=[np.float32]),
    "data of a barrier": inside(lambda bar: bar[...]),
    "data for a semaphore": inside(lambda sem: sem.__setitem__(..., 1)),
}

ACCUMULATORS: Calls = {
    "no matrix": lambda: plgpu.ACC((4,)),
    "initialised with no array": lambda: plgpu.ACC.init("zeros"),
    "initialised as scratch": kernel(
        lambda o_ref, acc: None, scratch_types=[plgpu.ACC.init(np.zeros((4, 4), np.float32))]
    ),
    "stored in part": inside(lambda acc: acc.__setitem__(0, 1.0)),
    "stored from a reference": inside(lambda acc, s: acc.__setitem__(..., s)),
    "read at a dynamic place": inside(lambda acc: acc[pl.axis_index("b")]),
    "loaded but none": inside(lambda s: plgpu.wgmma_accumulator_load(s, wait_n=0)),
    "added to but none": inside(lambda s: plgpu.wgmma(s, s, s)),
    "registers": inside(lambda: plgpu.set_max_registers(100, action="increase")),
    "action": inside(lambda: plgpu.set_max_registers(96, action="more")),
}

COPIES: Calls = {
    "no barrier": inside(lambda s: plgpu.copy_gmem_to_smem(s, s)),
    "a leader": inside(lambda s, bar: plgpu.copy_gmem_to_smem(s, s, bar, leader_tracked=1)),
    "a value": inside(lambda s, bar: plgpu.copy_gmem_to_smem(s[...], s, bar)),
    "another memory": inside(lambda s, bar: plgpu.copy_gmem_to_smem(s, s, bar)),
    "predicate": inside(lambda s: plgpu.copy_smem_to_gmem(s, s, 3)),
    "several barriers": kernel(
        lambda o_ref, bars: plgpu.barrier_wait(bars), scratch_types=[plgpu.Barrier(num_barriers=2)]
    ),
}


def copied(size: int, barrier: Any) -> Any:
    """A copy to a buffer of 4 elements that arrives at a barrier."""

    def body(x_ref: Any, o_ref: Any, s: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, s, full)

    scratch = [plgpu.SMEM((4,), np.float32), barrier]
    return kernel(body, scratch_types=scratch)(np.zeros((size,), np.float32))


COPIES["two shapes"] = partial(copied, 3, plgpu.Barrier())
COPIES["a named barrier"] = partial(copied, 4, plgpu.NamedBarrier(num_arrivals=1))


def captures(x: Any, o_ref: Any) -> None:
    """A body that would sum an array from outside."""
    o_ref[...] = jnp.sum(x)


WARPS = plgpu.WarpMesh("w")

LAUNCHES: Calls = {
    "a body that returns": kernel(lambda o_ref: o_ref[...]),
    "a mesh for each body": lambda: pl.kernel([lambda o_ref: None], OUT, mesh=[WARPS, WARPS]),
    "one body, several meshes": lambda: pl.kernel(lambda o_ref: None, OUT, mesh=[WARPS]),
    "no mesh": lambda: pl.kernel(lambda o_ref: None, OUT, mesh="w"),
    "one reference twice": inside(lambda s: pl.kernel(lambda a, b: None, mesh=WARPS)(s, s)),
    "closed over and passed": inside(lambda s: pl.kernel(lambda a: a.set(s[...]), mesh=WARPS)(s)),
    "an array closed over": kernel(partial(captures, np.zeros((4,), np.int32))),
    "barriers outside of kernels": lambda: pl.run_scoped(plgpu.barrier_arrive, plgpu.Barrier()),
}


FAMILIES = {
    "meshes": MESHES,
    "memory": MEMORY,
    "accumulators": ACCUMULATORS,
    "copies": COPIES,
    "launches": LAUNCHES,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_messages(family: str, golden: Callable[..., None]) -> None:
    golden(texts(FAMILIES[family]), f"golden/{family}.txt")
