"""Pallas' GPU namespace: for now masked access and the atomic operations.

    import palladio.gpu as plgpu

The concurrent dialect (threads, barriers, asynchronous copies, the tensor cores) comes later; a name of it that is not
here yet is an AttributeError that says so.
"""

from __future__ import annotations

from typing import Any

from palladio.call.interpret import InterpretGPUParams, force_gpu_interpret_mode, set_gpu_interpret_mode
from palladio.call.kernel import gpu_kernel as kernel
from palladio.call.masked import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    store,
)
from palladio.call.mesh import Mesh, WarpMesh
from palladio.trace.barriers import barrier_arrive, barrier_arrive_and_wait, barrier_test, barrier_wait
from palladio.trace.copies import (
    OOBFillMode,
    async_prefetch,
    async_store_smem,
    cluster_ref,
    commit_smem,
    commit_smem_to_gmem_group,
    copy_gmem_to_smem,
    copy_smem_to_gmem,
    wait_smem_to_gmem,
)
from palladio.trace.semaphores import semaphore_read, semaphore_signal, semaphore_wait
from palladio.trace.tensor_core import mma, set_max_registers, wgmma, wgmma_accumulator_load, wgmma_wait
from palladio.types.attributes import SwizzleTransform, TilingTransform
from palladio.types.scratch import ACC, Barrier, ClusterBarrier, SemaphoreType
from palladio.types.types import GMEM, REGS, SMEM, MemorySpace

WGMMAAccumulatorRef = ACC

__all__ = [
    "ACC",
    "GMEM",
    "REGS",
    "SMEM",
    "Barrier",
    "ClusterBarrier",
    "InterpretGPUParams",
    "MemorySpace",
    "Mesh",
    "OOBFillMode",
    "SemaphoreType",
    "SwizzleTransform",
    "TilingTransform",
    "WGMMAAccumulatorRef",
    "WarpMesh",
    "async_prefetch",
    "async_store_smem",
    "barrier_arrive",
    "barrier_arrive_and_wait",
    "barrier_test",
    "barrier_wait",
    "cluster_ref",
    "commit_smem",
    "commit_smem_to_gmem_group",
    "copy_gmem_to_smem",
    "copy_smem_to_gmem",
    "force_gpu_interpret_mode",
    "kernel",
    "mma",
    "semaphore_read",
    "semaphore_signal",
    "semaphore_wait",
    "set_gpu_interpret_mode",
    "set_max_registers",
    "wait_smem_to_gmem",
    "wgmma",
    "wgmma_accumulator_load",
    "wgmma_wait",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "load",
    "store",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"palladio.gpu has no {name!r} yet: it holds masked access and the atomic operations; "
        "the concurrent dialect comes later"
    )
