"""Palladio: a kernel language for tile programs, embedded in Python.

A kernel is a Python function over references to blocks of arrays. See `palladio.architecture` for how it works.

    import palladio as pl
"""

import sys as _sys
from typing import TYPE_CHECKING, Any

from palladio.array.convert import broadcast_to
from palladio.array.copies import note_copy
from palladio.array.functions.creation import empty
from palladio.array.on_card import is_on_gpu, to_device_of
from palladio.array.tensors import refuse_freed
from palladio.base.calls import checked_call
from palladio.base.errors import (
    CopyWarning,
    DebugCheckError,
    InternalError,
    NotCompiledWarning,
    PalladioAttributeError,
    PalladioError,
    PalladioIndexError,
    PalladioNotImplementedError,
    PalladioTypeError,
    PalladioValueError,
    ParseError,
    RetracedWarning,
    UnsafeCacheWarning,
    UnwrittenOutputWarning,
)
from palladio.base.locations import caller_location
from palladio.base.version import VERSION
from palladio.call.ahead import KeptCalls
from palladio.call.arrays import empty_like, empty_ref_like, reciprocal
from palladio.call.choices import KeptChoices, time_in_turns
from palladio.call.cost import CostEstimate, estimate_cost
from palladio.call.devices.shard_map import DeviceMesh, PartitionSpec, make_mesh, shard_map
from palladio.call.jit import eval_shape, jit
from palladio.call.launch.core_meshes import CoreMesh
from palladio.call.launch.kernel import kernel
from palladio.call.launch.mpmd import mpmd_map
from palladio.call.launch.warps import core_map
from palladio.call.pallas_call import pallas_call
from palladio.call.refused import COMMON
from palladio.call.run_state import run_state
from palladio.call.vmap import vmap
from palladio.driver.executors import chosen_executor, executor
from palladio.driver.processor import Processor, processor
from palladio.ops.grid import BlockDim, Blocked, BoundedSlice, Element, Indirect, Squeezed
from palladio.pipeline.params import CompilerParams
from palladio.pipeline.specs import (
    BlockSpec,
    Buffered,
    GridSpec,
    PrefetchScalarGridSpec,
    RevisitMode,
    no_block_spec,
    squeezed,
)
from palladio.trace.array_refs import empty_ref, freeze, new_ref
from palladio.trace.control import cond, fori_loop, loop, run_scoped, switch, when, while_loop, with_scoped
from palladio.trace.debug import debug_check, debug_print, enable_debug_checks, multiple_of
from palladio.trace.dma import DeviceIdType, semaphore_signal
from palladio.trace.gpu.dependent_launch import delay
from palladio.trace.gpu.global_semaphores import get_global
from palladio.trace.grid import axis_index, axis_size, num_programs, program_id
from palladio.trace.indices import Slice, ds
from palladio.trace.select_ref import select_ref
from palladio.trace.semaphores import semaphore_read, semaphore_wait
from palladio.trace.trace import is_traced
from palladio.types.sizes import align_to, cdiv, next_power_of_2, strides_from_shape
from palladio.types.types import ANY, HOST, MemoryRef, MemorySpace, ShapeDtypeStruct

if TYPE_CHECKING:
    from palladio.driver.checks.check import check
    from palladio.driver.checks.report import Report
else:  # not for type checkers, for which a module with `__getattr__` has every name

    def __getattr__(name: str) -> Any:
        if name in COMMON:
            return COMMON[name]
        if name not in ("Report", "check"):
            text = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=_sys.modules[__name__])  # Python suggests others
        # These bring the machine with them, half of all that there is to load, which most processes never use.
        from palladio.driver.checks.check import check
        from palladio.driver.checks.report import Report

        globals().update(Report=Report, check=check)
        return globals()[name]


dslice = ds

__version__ = VERSION
__all__ = [
    "ANY",
    "HOST",
    "BlockDim",
    "BlockSpec",
    "Blocked",
    "CoreMesh",
    "DeviceIdType",
    "DeviceMesh",
    "BoundedSlice",
    "Buffered",
    "CompilerParams",
    "CopyWarning",
    "CostEstimate",
    "DebugCheckError",
    "Element",
    "GridSpec",
    "Indirect",
    "InternalError",
    "KeptCalls",
    "KeptChoices",
    "MemoryRef",
    "MemorySpace",
    "NotCompiledWarning",
    "PalladioAttributeError",
    "PalladioError",
    "PalladioIndexError",
    "PalladioNotImplementedError",
    "PalladioTypeError",
    "PalladioValueError",
    "ParseError",
    "PartitionSpec",
    "PrefetchScalarGridSpec",
    "Processor",
    "RetracedWarning",
    "RevisitMode",
    "ShapeDtypeStruct",
    "Slice",
    "Squeezed",
    "UnsafeCacheWarning",
    "UnwrittenOutputWarning",
    "Report",
    "align_to",
    "axis_index",
    "axis_size",
    "broadcast_to",
    "caller_location",
    "cdiv",
    "check",
    "checked_call",
    "chosen_executor",
    "cond",
    "core_map",
    "debug_check",
    "debug_print",
    "delay",
    "ds",
    "dslice",
    "empty",
    "empty_like",
    "empty_ref",
    "empty_ref_like",
    "enable_debug_checks",
    "estimate_cost",
    "eval_shape",
    "executor",
    "fori_loop",
    "freeze",
    "is_on_gpu",
    "is_traced",
    "jit",
    "kernel",
    "loop",
    "make_mesh",
    "mpmd_map",
    "multiple_of",
    "new_ref",
    "next_power_of_2",
    "no_block_spec",
    "note_copy",
    "num_programs",
    "pallas_call",
    "processor",
    "program_id",
    "reciprocal",
    "refuse_freed",
    "run_scoped",
    "select_ref",
    "semaphore_read",
    "get_global",
    "semaphore_signal",
    "semaphore_wait",
    "run_state",
    "shard_map",
    "squeezed",
    "strides_from_shape",
    "switch",
    "time_in_turns",
    "to_device_of",
    "vmap",
    "when",
    "while_loop",
    "with_scoped",
]
__all__.extend(COMMON)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
