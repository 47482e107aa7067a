"""What each operation becomes on the CPU: a module per family of operations, named like it.

`RULES` has a rule for every operation that is compiled; `REFUSED` says why the others are not.
"""

from __future__ import annotations

from palladio.cpu.rules import (
    arithmetic,
    casts,
    compare,
    control,
    debug,
    dot,
    math,
    memory,
    order,
    reduce,
    selection,
    shape,
    special,
)
from palladio.cpu.scope import Rule

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        arithmetic,
        math,
        special,
        compare,
        casts,
        shape,
        reduce,
        order,
        memory,
        selection,
        control,
        debug,
        dot,
    )
    for name, rule in family.RULES.items()
}

_SEVERAL_THREADS = "kernels of several threads, and of copies in flight, run on the machine that defines them"

REFUSED: dict[str, str] = {
    "grid_call": "a kernel call inside a kernel",
} | dict.fromkeys(
    (
        *("copy_gmem_to_smem", "copy_smem_to_gmem", "commit_smem_to_gmem_group", "wait_smem_to_gmem", "commit_smem"),
        *("async_prefetch", "async_store_smem", "dma_start", "dma_start_remote", "dma_wait"),
        *(
            "barrier_arrive",
            "barrier_wait",
            "barrier_sync",
            "barrier_test",
            "semaphore_signal",
            "semaphore_wait",
            "semaphore_read",
        ),
        *("wgmma", "wgmma_wait", "accumulator_load", "accumulator_store", "set_max_registers", "layout_cast"),
        *("launch", "collective_scope"),
    ),
    _SEVERAL_THREADS,
)
