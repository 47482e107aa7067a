"""Pallas' namespace for the sparse cores of a TPU: gathers, scatters and scans of vectors, a barrier of sub-cores.

import palladio.tpu.sparse_core as plsc
"""

from __future__ import annotations

from palladio.call.launch.core_meshes import ScalarSubcoreMesh, VectorSubcoreMesh
from palladio.call.tpu.info import get_sparse_core_info
from palladio.call.tpu.sparse_core import (
    PackFormat,
    addupdate,
    addupdate_compressed,
    addupdate_scatter,
    all_reduce_ffs,
    all_reduce_population_count,
    bitcast,
    cummax,
    cummin,
    cumsum,
    fetch_and_add,
    load_expanded,
    load_gather,
    pack,
    parallel_loop,
    scan_count,
    sort_key_val,
    store_compressed,
    store_scatter,
    subcore_barrier,
    unpack,
)
from palladio.trace.indices import Indices

__all__ = [
    "Indices",
    "PackFormat",
    "ScalarSubcoreMesh",
    "VectorSubcoreMesh",
    "addupdate",
    "addupdate_compressed",
    "addupdate_scatter",
    "all_reduce_ffs",
    "all_reduce_population_count",
    "bitcast",
    "cummax",
    "cummin",
    "cumsum",
    "fetch_and_add",
    "get_sparse_core_info",
    "load_expanded",
    "load_gather",
    "pack",
    "parallel_loop",
    "scan_count",
    "sort_key_val",
    "store_compressed",
    "store_scatter",
    "subcore_barrier",
    "unpack",
]
