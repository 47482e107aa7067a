"""What each operation becomes on Hopper: a module per family. `REFUSED` says why the others are not compiled."""

from __future__ import annotations

from palladio.hopper.emit.scope import Rule
from palladio.hopper.rules import (
    barriers,
    control,
    copies,
    elementwise,
    memory,
    reduce,
    selection,
    serial,
    shape,
    tensor_cores,
)

RULES: dict[str, Rule] = {
    name: rule
    for family in (barriers, control, copies, elementwise, memory, reduce, selection, serial, shape, tensor_cores)
    for name, rule in family.RULES.items()
}

_CORES = "the memories of cores are not a GPU's"
_VALUES = "references are kept, so nothing becomes this"
_NOT_YET = "no rule has been written yet"

REFUSED: dict[str, str] = {
    **barriers.REFUSED,
    **dict.fromkeys(("dma_start", "dma_start_remote", "dma_wait"), _CORES),
    **dict.fromkeys(("insert_masked",), _VALUES),
    **dict.fromkeys(
        (
            *("nextafter", "erf_inv", "population_count", "clz"),
            *("atomic", "combine_each", "atomic_cas", "exchange_each"),
            *("debug_print", "debug_check", "grid_call", "launch", "async_store_smem"),
            *("semaphore_signal", "semaphore_wait", "semaphore_read"),
        ),
        _NOT_YET,
    ),
}
"""Why an operation is not compiled; the user reads it."""
