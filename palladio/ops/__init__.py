"""Floor 3: the closed set of operations, one record each, a module per family.

`ALL_OPS` lists every operation; `OPS` finds one by name; `parse` reads program text.
"""

from __future__ import annotations

from palladio.ir.op import Op
from palladio.ir.program import Program
from palladio.ir.text import parse_program
from palladio.ops import (
    arithmetic,
    atomics,
    barrier,
    bits,
    casts,
    compare,
    control,
    copy,
    debug,
    dot,
    grid,
    launch,
    masked,
    math,
    memory,
    reduce,
    scan,
    semaphore,
    shape,
    sort,
    wgmma,
)
from palladio.types import attributes

_FAMILIES = (
    arithmetic,
    math,
    compare,
    bits,
    casts,
    reduce,
    scan,
    sort,
    shape,
    dot,
    memory,
    masked,
    atomics,
    control,
    debug,
    grid,
    copy,
    barrier,
    semaphore,
    wgmma,
    launch,
)

ALL_OPS: tuple[Op, ...] = tuple(
    value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Op)
)
OPS: dict[str, Op] = {op.name: op for op in ALL_OPS}
RECORDS: dict[str, type] = {**grid.RECORDS, **launch.RECORDS, **attributes.RECORDS}


def parse(text: str) -> Program:
    """The program that a text describes, as `palladio.ir.text.parse_program`."""
    return parse_program(text, OPS, RECORDS)
