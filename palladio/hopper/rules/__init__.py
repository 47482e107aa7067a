"""Rules of the operations on Hopper, a module for each family. `REFUSED` has the reasons against the others."""

from __future__ import annotations

from palladio.hopper.emit.scope import Rule
from palladio.hopper.rules import (
    atomics,
    barriers,
    control,
    copies,
    debug,
    elementwise,
    memory,
    reduce,
    selection,
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
        debug,
        elementwise,
        memory,
        reduce,
        selection,
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
_NESTED = "call kernels one after the other, or write the inner one as a loop (pl.loop)"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("dma_start", "dma_start_remote", "dma_wait"), _CORES),
    **dict.fromkeys(("insert_masked", "combine_each", "exchange_each"), _VALUES),
    **dict.fromkeys(("keep", "tee", "zero_outside", "initialize"), _OF_CPUS),
    "grid_call": _NESTED,
}
"""The reasons why operations are not compiled, for messages to the user."""
