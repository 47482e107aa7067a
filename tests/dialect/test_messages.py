"""Messages when a name of the GPU namespace is used wrongly, family by family, as golden files."""

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
from tests.dialect.messages import CLUSTER, SCRATCH, Calls, inside, texts


def nd(*args: Any, **options: Any) -> Callable[[], Any]:
    """A call of a kernel with a loop over a grid."""
    return inside(lambda: plgpu.nd_loop(*args, **{"collective_axes": "b", **options})(lambda info: None))


LOOPS: Calls = {
    "size": nd((2.5,)),
    "negative": nd((2, -1)),
    "tiling": nd((4, 6), tiling=(2, 4)),
    "tiling of another rank": nd((4, 6), tiling=(2,)),
    "no axes": nd((4,), collective_axes=()),
    "unknown axis": nd((4,), collective_axes="x"),
    "no function": inside(lambda: plgpu.nd_loop((4,), collective_axes="b")(3)),
    "stealing along an unknown axis": inside(lambda: plgpu.dynamic_scheduling_loop("y")(lambda info: None)),
    "stealing without a function": inside(lambda: plgpu.dynamic_scheduling_loop("b")(None)),
    "another function": inside(lambda: plgpu.nd_loop((4,), collective_axes="b")(lambda: print(1))),
    "a function without a carry": inside(
        lambda: plgpu.nd_loop((4,), collective_axes="b", init_carry=1)(lambda info: print())
    ),
    "a function that returns": inside(lambda: plgpu.nd_loop((4,), collective_axes="b")(lambda info: info.local_index)),
    "no plane": lambda: plgpu.planar_snake(0, (4,), 0, 1),
    "no such axis": lambda: plgpu.planar_snake(0, (4, 4), 2, 1),
    "no width": lambda: plgpu.planar_snake(0, (4, 4), 0, 0),
}


def capturing(s: Any) -> None:
    """Warps that close over an array."""
    x = s[...]
    plgpu.warp_map(lambda warp: s.set(x))


WARPS: Calls = {
    "warp_map outside": lambda: plgpu.warp_map(lambda warp: None),
    "warp_map of no function": inside(lambda: plgpu.warp_map(3)),
    "warp_map of another function": inside(lambda: plgpu.warp_map(lambda: print(1))),
    "warp_map that returns": inside(lambda: plgpu.warp_map(lambda warp: warp)),
    "warp_map that captures": inside(capturing),
    "core_map of no mesh": lambda: pl.core_map("w"),
    "no name": lambda: plgpu.WarpMesh(""),
    "blocks within a block": inside(lambda: pl.core_map(plgpu.Mesh(grid=(2,), grid_names="x"))(lambda: None)),
    "no kernel": lambda: plgpu.as_torch_kernel(3),
    "dependents outside": plgpu.griddepcontrol_wait,
}

UNIONS: Calls = {
    "no groups": plgpu.RefUnion,
    "an empty group": lambda: plgpu.RefUnion(SCRATCH["s"], []),
    "a barrier": lambda: plgpu.RefUnion(plgpu.Barrier()),
    "an accumulator": lambda: plgpu.RefUnion([plgpu.ACC((4, 4))]),
    "another memory": lambda: plgpu.RefUnion(plgpu.GMEM((4,), np.float32)),
    "no buffer": lambda: plgpu.RefUnion(3),
    "bool": lambda: plgpu.RefUnion(plgpu.SMEM((4,), np.bool_)),
    "assigned": inside(lambda union: union.__setitem__(..., 1)),
    "read": inside(lambda union: union[...]),
    "no such group": inside(lambda union: union[2]),
}

CLUSTERS: Calls = {
    "global memory": inside(lambda sem: plgpu.multicast_ref(sem, "c"), **CLUSTER),
    "no axes": inside(lambda s: plgpu.multicast_ref(s, ()), **CLUSTER),
    "no cluster axis": inside(lambda s: plgpu.multicast_ref(s, "b"), **CLUSTER),
    "no cluster": inside(lambda s: plgpu.cluster_ref(s, {"c": 0})),
    "a copy along no cluster axis": inside(
        lambda s, bar: plgpu.copy_gmem_to_smem(s, s, bar, collective_axes="b"), **CLUSTER
    ),
    "read": inside(lambda s: plgpu.multicast_ref(s, "c")[0], **CLUSTER),
}

BARRIERS: Calls = {
    "too many": lambda: plgpu.NamedBarrier(num_arrivals=1, num_barriers=17),
    "no arrivals": lambda: plgpu.NamedBarrier(num_arrivals=0),
    "a fraction of an arrival": lambda: plgpu.NamedBarrier(num_arrivals=0.5),
    "none": lambda: plgpu.NamedBarrier(num_arrivals=1, num_barriers=(0,)),
    "waiting alone": inside(lambda named: plgpu.barrier_wait(barrier=named)),
    "testing": inside(lambda named: plgpu.barrier_test(barrier=named)),
}

SEMAPHORES: Calls = {
    "another device": inside(lambda sem: plgpu.semaphore_signal(sem, 1, device_id=1)),
    "another device by name": inside(lambda sem: plgpu.semaphore_signal(sem, 1, device_id={"x": 3})),
    "devices in parallel": inside(
        lambda sem: plgpu.semaphore_signal_parallel(plgpu.SemaphoreSignal(sem, device_id=(0, 2)))
    ),
    "no signal": inside(lambda sem: plgpu.semaphore_signal_parallel(sem, sem)),
    "axes of devices": inside(lambda sem: plgpu.semaphore_signal_multicast(sem, collective_axes="x")),
    "scope": inside(lambda sem: plgpu.semaphore_signal(sem, memory_scope="block")),
    "scope of a wait": inside(lambda sem: plgpu.semaphore_wait(sem, memory_scope="block")),
    "half an increment": inside(lambda sem: plgpu.semaphore_signal(sem, 0.5)),
    "kind": lambda: plgpu.alloc_semaphore((2,), "dma"),
}

LAYOUTS: Calls = {
    "no layout": inside(lambda s: plgpu.layout_cast(s[...], "WGMMA")),
    "of a load": inside(lambda s: plgpu.load(s, layout=3)),
    "another number of axes": inside(lambda s: plgpu.layout_cast(s[0], plgpu.Layout.WGMMA)),
    "reduced too far": inside(lambda s: plgpu.layout_cast(s[...], plgpu.Layout.WGMMA.reduce(0))),
    "no parameters": plgpu.Layout.WG_STRIDED,
    "other parameters": lambda: plgpu.Layout.WG_STRIDED((3, 4), width=2),
    "reduced along no axis": lambda: plgpu.Layout.WGMMA.reduce(()),
    "reduced along an axis twice": lambda: plgpu.Layout.WGMMA.reduce((1, 1)),
    "tiles of no sizes": lambda: plgpu.Tiling((8, 4)),
    "empty tiles": lambda: plgpu.Tiling(((8, 0),)),
    "tiles that grow": lambda: plgpu.Tiling(((8,), (4, 4))),
    "replicated never": lambda: plgpu.Replicated(0),
    "iota along no axis": inside(lambda: plgpu.broadcasted_iota(np.int32, (2, 3), 2)),
    "iota of bool": inside(lambda: plgpu.broadcasted_iota(np.bool_, (2, 3), 0)),
    "chains": inside(lambda s: plgpu.sum(s[...], accumulator_ilp=0)),
    "sum of a reference": inside(lambda s: plgpu.sum(s, axis=0)),
    "bits": lambda: plgpu.find_swizzle(200, "the left operand"),
    "bits of nothing": lambda: plgpu.find_swizzle(0),
    "half a bit": lambda: plgpu.find_swizzle(0.5),
    "no transform": inside(lambda s: plgpu.transform_ref(s, "tiled")),
    "a swizzle that the buffer lacks": inside(lambda s: plgpu.transform_ref(s, plgpu.SwizzleTransform(64))),
    "a tile that does not divide": inside(lambda s: plgpu.transform_ref(s, plgpu.TilingTransform((3, 2)))),
    "no reference": inside(lambda s: plgpu.transpose_ref(s[...], (1, 0))),
}

PARAMETERS: Calls = {
    "kind": lambda: plgpu.CompilerParams(approx_math="yes"),
    "bool as a number": lambda: plgpu.CompilerParams(max_concurrent_steps=True),
    "least": lambda: plgpu.CompilerParams(max_concurrent_steps=0),
    "semantics": lambda: plgpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    "one word": lambda: plgpu.CompilerParams(dimension_semantics="parallel"),
    "lowering": lambda: plgpu.CompilerParams(lowering_semantics="Lane"),
    "profile": lambda: plgpu.CompilerParams(profile_space=100),
}

SMALL: dict[str, Any] = {"m": 64, "n": 8, "k": 16}
WIDE = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def product(m: int = 64, n: int = 64, k: int = 64, a: Any = (), b: Any = ()) -> Any:
    """A product held to the hardware's limits."""

    def body(o_ref: Any, a_ref: Any, b_ref: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a_ref, b_ref)

    operands = [plgpu.SMEM((m, k), np.float16, transforms=a), plgpu.SMEM((k, n), np.float16, transforms=b)]
    with plgpu.enable_hardware_limits():
        return kernel(body, scratch_types=[*operands, plgpu.ACC((m, n))])()


def held_to_limits() -> Any:
    """A layout that the hardware has not."""
    with plgpu.enable_hardware_limits():
        return inside(lambda s: plgpu.layout_cast(s[...], plgpu.Layout.WGMMA))()


LIMITS: Calls = {
    "rows": partial(product, m=32),
    "columns": partial(product, n=12),
    "too many columns": partial(product, n=264),
    "depth": partial(product, k=8),
    "swizzles": partial(product, a=WIDE, b=(plgpu.SwizzleTransform(64),)),
    "tiles": partial(product, a=(plgpu.TilingTransform((8, 32)), WIDE[1]), b=WIDE),
    "layout": held_to_limits,
}

REFUSED: Calls = {
    "Blackwell": lambda: plgpu.TMEM((128, 128), np.float32),
    "an attribute": lambda: plgpu.TMEMLayout.SCALES_LAYOUT,
    "Ampere": lambda: plgpu.wait_gmem_to_smem(0),
    "another compiler": lambda: plgpu.inline_mgpu(arg_types=()),
    "windows": lambda: plgpu.im2col_ref(None),
    "printing": lambda: plgpu.print_layout("x", jnp.zeros((2,))),
}

FAMILIES = {
    "loops": LOOPS,
    "warps": WARPS,
    "unions": UNIONS,
    "clusters": CLUSTERS,
    "barriers": BARRIERS,
    "semaphores": SEMAPHORES,
    "layouts": LAYOUTS,
    "parameters": PARAMETERS,
    "limits": LIMITS,
    "refused": REFUSED,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_messages(family: str, golden: Callable[..., None]) -> None:
    golden(texts(FAMILIES[family]), f"golden/{family}.txt")
