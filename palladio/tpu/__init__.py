"""Pallas' TPU namespace, as far as it is not hardware: scalar prefetch, memory spaces, meshes of cores, asynchronous
copies within a core, between cores and between simulated devices, semaphores, and the simulator's parameters.

What is bound to that hardware is here by name and says so when it is used.

import palladio.tpu as pltpu
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from palladio.call.arrays import reciprocal
from palladio.call.launch.core_meshes import (
    CoreType,
    ScalarSubcoreMesh,
    TensorCoreMesh,
    VectorSubcoreMesh,
    create_tensorcore_mesh,
)
from palladio.call.tpu.arrays import bitcast, roll, touch, with_memory_space_constraint
from palladio.call.tpu.info import (
    SparseCoreInfo,
    TpuInfo,
    described_tpu,
    get_sparse_core_info,
    get_tpu_info,
    is_tpu_device,
)
from palladio.call.tpu.refused import REFUSED
from palladio.pipeline.params import CompilerParams, GridDimensionSemantics, SideEffectType
from palladio.pipeline.params import MemoryTiling as Tiling
from palladio.pipeline.specs import Buffered, PrefetchScalarGridSpec
from palladio.trace.access import load, store
from palladio.trace.dma import (
    AsyncCopyDescriptor,
    DeviceIdType,
    async_copy,
    async_remote_copy,
    core_barrier,
    core_ref,
    get_barrier_semaphore,
    make_async_copy,
    make_async_remote_copy,
    run_on_first_core,
    semaphore_signal,
    sync_copy,
)
from palladio.trace.semaphores import semaphore_read, semaphore_wait
from palladio.types.scratch import SemaphoreType
from palladio.types.types import ANY, CMEM, HBM, HOST, SEMAPHORE, VMEM, VMEM_SHARED, MemorySpace
from palladio.types.types import SCALAR as SMEM

if TYPE_CHECKING:
    from palladio.call.tpu.chips import ChipVersion, get_tpu_info_for_chip
    from palladio.call.tpu.interpret import (
        InterpretParams,
        force_tpu_interpret_mode,
        reset_tpu_interpret_mode_state,
        set_tpu_interpret_mode,
    )
    from palladio.call.tpu.packed import pack_elementwise, stochastic_round, unpack_elementwise
    from palladio.call.tpu.random import (
        prng_random_bits,
        prng_seed,
        sample_block,
        stateful_bernoulli,
        stateful_bits,
        stateful_normal,
        stateful_uniform,
        to_pallas_key,
    )
    from palladio.pipeline.buffered_refs import BufferedRef, BufferType
    from palladio.pipeline.tpu import (
        PipelineStep,
        emit_pipeline,
        emit_pipeline_with_allocations,
        make_pipeline_allocations,
    )

_LATER = {
    "palladio.call.tpu.chips": "ChipVersion get_tpu_info_for_chip",
    "palladio.call.tpu.interpret": "InterpretParams force_tpu_interpret_mode"
    " reset_tpu_interpret_mode_state set_tpu_interpret_mode",
    "palladio.call.tpu.packed": "pack_elementwise stochastic_round unpack_elementwise",
    "palladio.call.tpu.random": "prng_random_bits prng_seed sample_block stateful_bernoulli stateful_bits"
    " stateful_normal stateful_uniform to_pallas_key",
    "palladio.pipeline.buffered_refs": "BufferedRef BufferType",
    "palladio.pipeline.tpu": "PipelineStep emit_pipeline emit_pipeline_with_allocations make_pipeline_allocations",
}
"""Modules that few processes use, each with the names that it is imported for when one of them is first used."""
_HOMES = {name: module for module, names in _LATER.items() for name in names.split()}

PARALLEL = GridDimensionSemantics.PARALLEL
ARBITRARY = GridDimensionSemantics.ARBITRARY
CORE_PARALLEL = GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL = GridDimensionSemantics.SUBCORE_PARALLEL
dma_semaphore = SemaphoreType.DMA

__all__ = [
    "ANY",
    "ARBITRARY",
    "CMEM",
    "CORE_PARALLEL",
    "HBM",
    "HOST",
    "PARALLEL",
    "SEMAPHORE",
    "SMEM",
    "SUBCORE_PARALLEL",
    "VMEM",
    "VMEM_SHARED",
    "AsyncCopyDescriptor",
    "BufferType",
    "Buffered",
    "BufferedRef",
    "ChipVersion",
    "CompilerParams",
    "CoreType",
    "DeviceIdType",
    "GridDimensionSemantics",
    "InterpretParams",
    "MemorySpace",
    "PipelineStep",
    "PrefetchScalarGridSpec",
    "ScalarSubcoreMesh",
    "SemaphoreType",
    "SideEffectType",
    "SparseCoreInfo",
    "TensorCoreMesh",
    "Tiling",
    "TpuInfo",
    "VectorSubcoreMesh",
    "async_copy",
    "async_remote_copy",
    "bitcast",
    "core_barrier",
    "core_ref",
    "create_tensorcore_mesh",
    "described_tpu",
    "dma_semaphore",
    "emit_pipeline",
    "emit_pipeline_with_allocations",
    "force_tpu_interpret_mode",
    "get_barrier_semaphore",
    "get_sparse_core_info",
    "get_tpu_info",
    "get_tpu_info_for_chip",
    "is_tpu_device",
    "load",
    "make_async_copy",
    "make_async_remote_copy",
    "make_pipeline_allocations",
    "pack_elementwise",
    "prng_random_bits",
    "prng_seed",
    "reciprocal",
    "reset_tpu_interpret_mode_state",
    "roll",
    "run_on_first_core",
    "sample_block",
    "semaphore_read",
    "semaphore_signal",
    "semaphore_wait",
    "set_tpu_interpret_mode",
    "stateful_bernoulli",
    "stateful_bits",
    "stateful_normal",
    "stateful_uniform",
    "stochastic_round",
    "store",
    "sync_copy",
    "to_pallas_key",
    "touch",
    "unpack_elementwise",
    "with_memory_space_constraint",
]
__all__.extend(REFUSED)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found
    if name in REFUSED:
        return REFUSED[name]
    text = f"palladio.tpu has no {name!r}"
    raise AttributeError(text, name=name, obj=sys.modules[__name__])  # Python suggests others


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
