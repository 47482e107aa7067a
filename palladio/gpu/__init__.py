"""Pallas' GPU namespace: kernels of concurrent threads, their memory, copies, barriers and products.

    import palladio.gpu as plgpu

Names that only another GPU or several devices could give a meaning are there and say so when they are used.
"""

from __future__ import annotations

import sys
from typing import Any

from palladio.call.gpu.interpret import InterpretGPUParams, force_gpu_interpret_mode, set_gpu_interpret_mode
from palladio.call.gpu.kernel import kernel
from palladio.call.gpu.params import CompilerParams, LoweringSemantics, TraceScope
from palladio.call.gpu.timing import time_kernels
from palladio.call.launch.mesh import Mesh, WarpMesh
from palladio.call.launch.warps import as_torch_kernel, warp_map
from palladio.call.refused import REFUSED
from palladio.driver.cards import card_name, multiprocessors
from palladio.pipeline.gpu import emit_pipeline
from palladio.pipeline.specs import GPUBlockSpec
from palladio.pipeline.warp_specialized import PipelinePipeline, emit_pipeline_warp_specialized
from palladio.trace.access import (
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
from palladio.trace.gpu.barriers import barrier_arrive, barrier_arrive_and_wait, barrier_test, barrier_wait
from palladio.trace.gpu.clusters import multicast_ref
from palladio.trace.gpu.copies import (
    OOBFillMode,
    async_prefetch,
    async_store_smem,
    cluster_ref,
    commit_gmem,
    commit_smem,
    commit_smem_to_gmem_group,
    copy_gmem_to_smem,
    copy_smem_to_gmem,
    wait_smem_to_gmem,
)
from palladio.trace.gpu.dependent_launch import griddepcontrol_launch_dependents, griddepcontrol_wait
from palladio.trace.gpu.hardware import enable_hardware_limits
from palladio.trace.gpu.loops import NDLoopInfo, dynamic_scheduling_loop, nd_loop, planar_snake
from palladio.trace.gpu.peers import multimem_load_reduce, multimem_store, remote_ref
from palladio.trace.gpu.register_layouts import broadcasted_iota, layout_cast, transform_ref, transpose_ref
from palladio.trace.gpu.register_layouts import max_of as max
from palladio.trace.gpu.register_layouts import min_of as min
from palladio.trace.gpu.register_layouts import product_of as prod
from palladio.trace.gpu.register_layouts import sum_of as sum
from palladio.trace.gpu.tensor_core import mma, set_max_registers, wgmma, wgmma_accumulator_load, wgmma_wait
from palladio.trace.grid import axis_index, axis_size
from palladio.trace.semaphores import (
    SemaphoreSignal,
    semaphore_read,
    semaphore_signal,
    semaphore_signal_multicast,
    semaphore_signal_parallel,
    semaphore_wait,
)
from palladio.types.attributes import SwizzleTransform, TilingTransform
from palladio.types.device import H100_SXM, Device
from palladio.types.layouts import Layout, Replicated, Tiling, find_swizzle
from palladio.types.scratch import ACC, Barrier, ClusterBarrier, NamedBarrier, SemaphoreType, alloc_semaphore
from palladio.types.types import GMEM, REGS, SMEM, GPUMemorySpace, ShapeDtypeStruct
from palladio.types.unions import RefUnion

WGMMAAccumulatorRef = ACC
MemorySpace = GPUMemorySpace
GPUCompilerParams = CompilerParams  # how earlier releases spell it
BlockSpec = GPUBlockSpec
Transform = TilingTransform | SwizzleTransform

__all__ = [
    "CompilerParams",
    "Device",
    "GPUCompilerParams",
    "GPUMemorySpace",
    "LoweringSemantics",
    "TraceScope",
    "as_torch_kernel",
    "warp_map",
    "multicast_ref",
    "multimem_load_reduce",
    "multimem_store",
    "remote_ref",
    "card_name",
    "multiprocessors",
    "time_kernels",
    "griddepcontrol_launch_dependents",
    "griddepcontrol_wait",
    "enable_hardware_limits",
    "NDLoopInfo",
    "dynamic_scheduling_loop",
    "nd_loop",
    "planar_snake",
    "broadcasted_iota",
    "layout_cast",
    "transform_ref",
    "transpose_ref",
    "max",
    "min",
    "prod",
    "sum",
    "SemaphoreSignal",
    "semaphore_signal_multicast",
    "semaphore_signal_parallel",
    "Layout",
    "Replicated",
    "Tiling",
    "find_swizzle",
    "NamedBarrier",
    "alloc_semaphore",
    "ShapeDtypeStruct",
    "RefUnion",
    "Transform",
    "ACC",
    "BlockSpec",
    "GMEM",
    "REGS",
    "SMEM",
    "H100_SXM",
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
    "axis_index",
    "axis_size",
    "async_store_smem",
    "barrier_arrive",
    "barrier_arrive_and_wait",
    "barrier_test",
    "barrier_wait",
    "cluster_ref",
    "emit_pipeline",
    "emit_pipeline_warp_specialized",
    "PipelinePipeline",
    "GPUBlockSpec",
    "commit_gmem",
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
__all__.extend(REFUSED)


def __getattr__(name: str) -> Any:
    if name in REFUSED:
        return REFUSED[name]
    text = f"palladio.gpu has no {name!r}"
    raise AttributeError(text, name=name, obj=sys.modules[__name__])  # Python suggests others
