"""Palladio: a kernel language for tile programs, embedded in Python.

A kernel is a Python function over references to blocks of arrays. See `palladio.architecture` for how it works.

    import palladio as pl
"""

from palladio.base.errors import (
    DebugCheckError,
    InternalError,
    PalladioAttributeError,
    PalladioError,
    PalladioIndexError,
    PalladioNotImplementedError,
    PalladioTypeError,
    PalladioValueError,
    ParseError,
)
from palladio.base.locations import caller_location
from palladio.call.core_meshes import CoreMesh
from palladio.call.cost import CostEstimate, estimate_cost
from palladio.call.jit import eval_shape, jit
from palladio.call.kernel import kernel
from palladio.call.mpmd import mpmd_map
from palladio.call.pallas_call import pallas_call
from palladio.call.params import CompilerParams
from palladio.call.sizes import align_to, cdiv, next_power_of_2, strides_from_shape
from palladio.call.specs import (
    BlockSpec,
    Buffered,
    GridSpec,
    PrefetchScalarGridSpec,
    RevisitMode,
    no_block_spec,
    squeezed,
)
from palladio.call.warps import core_map
from palladio.driver.check import Report, check
from palladio.driver.executors import executor
from palladio.ops.grid import Blocked, BoundedSlice, Element, Indirect, Squeezed
from palladio.trace.control import cond, fori_loop, loop, run_scoped, run_state, switch, when, while_loop, with_scoped
from palladio.trace.debug import debug_check, debug_print, enable_debug_checks, multiple_of
from palladio.trace.dma import DeviceIdType, semaphore_signal
from palladio.trace.grid import axis_index, axis_size, num_programs, program_id
from palladio.trace.indices import Slice, ds
from palladio.trace.semaphores import semaphore_read, semaphore_wait
from palladio.trace.trace import is_traced
from palladio.types.types import ANY, HOST, MemoryRef, MemorySpace, ShapeDtypeStruct

dslice = ds

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "HOST",
    "BlockSpec",
    "Blocked",
    "CoreMesh",
    "DeviceIdType",
    "BoundedSlice",
    "Buffered",
    "CompilerParams",
    "CostEstimate",
    "DebugCheckError",
    "Element",
    "GridSpec",
    "Indirect",
    "InternalError",
    "MemoryRef",
    "MemorySpace",
    "PalladioAttributeError",
    "PalladioError",
    "PalladioIndexError",
    "PalladioNotImplementedError",
    "PalladioTypeError",
    "PalladioValueError",
    "ParseError",
    "PrefetchScalarGridSpec",
    "RevisitMode",
    "ShapeDtypeStruct",
    "Slice",
    "Squeezed",
    "Report",
    "align_to",
    "axis_index",
    "axis_size",
    "caller_location",
    "cdiv",
    "check",
    "cond",
    "core_map",
    "debug_check",
    "debug_print",
    "ds",
    "dslice",
    "enable_debug_checks",
    "estimate_cost",
    "eval_shape",
    "executor",
    "fori_loop",
    "is_traced",
    "jit",
    "kernel",
    "loop",
    "mpmd_map",
    "multiple_of",
    "next_power_of_2",
    "no_block_spec",
    "num_programs",
    "pallas_call",
    "program_id",
    "run_scoped",
    "semaphore_read",
    "semaphore_signal",
    "semaphore_wait",
    "run_state",
    "squeezed",
    "strides_from_shape",
    "switch",
    "when",
    "while_loop",
    "with_scoped",
]
