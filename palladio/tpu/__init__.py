"""The part of Pallas' TPU namespace that is no hardware: scalar prefetch, memory spaces, compiler parameters.

import palladio.tpu as pltpu
"""

from palladio.call.masked import load, store
from palladio.call.params import CompilerParams, GridDimensionSemantics
from palladio.call.specs import PrefetchScalarGridSpec
from palladio.types.types import ANY, HBM, HOST, VMEM, MemorySpace
from palladio.types.types import SCALAR as SMEM

PARALLEL = GridDimensionSemantics.PARALLEL
ARBITRARY = GridDimensionSemantics.ARBITRARY

__all__ = [
    "ANY",
    "ARBITRARY",
    "HBM",
    "HOST",
    "PARALLEL",
    "SMEM",
    "VMEM",
    "CompilerParams",
    "GridDimensionSemantics",
    "MemorySpace",
    "PrefetchScalarGridSpec",
    "load",
    "store",
]
