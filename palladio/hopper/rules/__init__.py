"""Rules of the operations on Hopper: a module per family. `REFUSED` says why the others are not compiled."""

from __future__ import annotations

from palladio.hopper.emit.scope import Rule
from palladio.hopper.rules import (
    atomics,
    barriers,
    control,
    copies,
    elementwise,
    memory,
    reduce,
    selection,
    semaphores,
    serial,
    shape,
    tensor_cores,
    warps,
)

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        atomics,
        barriers,
        control,
        copies,
        elementwise,
        memory,
        reduce,
        selection,
        semaphores,
        serial,
        shape,
        tensor_cores,
        warps,
    )
    for name, rule in family.RULES.items()
}

_CORES = "the memories of cores are not a GPU's"
_VALUES = "references are kept, so nothing becomes this"
_OF_CPUS = "only the compiler for CPUs has the form with it"
_NOT_YET = "no rule has been written yet"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("dma_start", "dma_start_remote", "dma_wait"), _CORES),
    **dict.fromkeys(("insert_masked", "combine_each", "exchange_each"), _VALUES),
    **dict.fromkeys(("keep", "tee", "zero_outside", "initialize"), _OF_CPUS),
    **dict.fromkeys(("debug_print", "debug_check", "grid_call"), _NOT_YET),
}
"""Why an operation is not compiled; the user reads it."""
