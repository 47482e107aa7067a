"""The table of rules: the emission of each operation on the CPU, collected from the families.

`RULES` has a rule for every operation that is compiled in the kernel of a grid, `LAUNCHED` in the threads of a launch;
`REFUSED` and `REFUSED_IN_LAUNCHES` say why the others are not.
"""

from __future__ import annotations

from palladio.cpu.access import gather, memory
from palladio.cpu.emit.scope import Rule
from palladio.cpu.launches import barriers, control_flow, copies, grids, tensor_cores, warps
from palladio.cpu.products import dot
from palladio.cpu.rules import (
    arithmetic,
    casts,
    compare,
    control,
    debug,
    keep,
    math,
    order,
    reduce,
    shape,
    sort,
    special,
)
from palladio.ops import OPS

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        arithmetic,
        math,
        special,
        compare,
        casts,
        shape,
        keep,
        reduce,
        order,
        sort,
        memory,
        gather,
        control,
        debug,
        dot,
        tensor_cores,
        grids,
    )
    for name, rule in family.RULES.items()
}

ASYNCHRONOUS: dict[str, Rule] = {
    name: rule for family in (copies, barriers, control_flow, warps) for name, rule in family.RULES.items()
}

REFUSED: dict[str, str] = dict.fromkeys(
    ASYNCHRONOUS, "a kernel of a grid that waits, or has copies in flight, runs on the machine that defines them"
)

LAUNCHED: dict[str, Rule] = {
    **{name: control_flow.at_peer(OPS[name], rule) if OPS[name].index_start else rule for name, rule in RULES.items()},
    **ASYNCHRONOUS,
    **control_flow.CONTROL,
}
"""The rules for the threads of a launch, which see each other's memory and wait."""

REFUSED_IN_LAUNCHES: dict[str, str] = {}

_OF_RARE_DTYPES = (
    "grid_call launch loop cond scope initialize keep tee layout_cast multiple_of load load_masked store store_masked "
    "swap broadcast reshape transpose reverse concatenate pad select extract insert convert "
    "add sub mul neg abs sign max min clamp bitwise_and bitwise_or bitwise_xor bitwise_not eq ne lt le gt ge "
    "reduce_max reduce_min copy_gmem_to_smem copy_smem_to_gmem dma_start dma_wait"
)

OF_RARE_DTYPES = frozenset(_OF_RARE_DTYPES.split())
"""The operations that are compiled for integers of two and four bits, float4 and the rarer float8 kinds: programs keep,
move and convert such numbers, and compute in wider dtypes."""
