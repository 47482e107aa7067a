"""Floor 3: the closed set of operations, one record each, a module per family.

`ALL_OPS` lists every operation; `OPS` finds one by name; `parse` reads program text.
"""

from __future__ import annotations

import copyreg
from typing import Any

from palladio.ir.core import Op, Program
from palladio.ir.text import parse_program
from palladio.ops import control, debug, grid
from palladio.ops.arrays import arithmetic, bits, casts, compare, dot, keep, math, reduce, scan, shape, sort, zeros
from palladio.ops.references import atomics, initialization, masked, memory
from palladio.ops.threads import barrier, copy, dependent, launch, semaphore, wgmma
from palladio.types import attributes, layouts

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
    keep,
    zeros,
    memory,
    masked,
    initialization,
    atomics,
    control,
    debug,
    grid,
    copy,
    barrier,
    semaphore,
    wgmma,
    launch,
    dependent,
)

ALL_OPS: tuple[Op, ...] = tuple(
    value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Op)
)
OPS: dict[str, Op] = {op.name: op for op in ALL_OPS}
RECORDS: dict[str, type] = {**grid.RECORDS, **launch.RECORDS, **attributes.RECORDS, **layouts.RECORDS}


def _named(name: str) -> Op:
    return OPS[name]


def _reduced(op: Op) -> Any:
    """Copy and pickle an operation by name, since operations are compared by identity."""
    return (_named, (op.name,)) if OPS.get(op.name) is op else object.__reduce_ex__(op, 4)


copyreg.pickle(Op, _reduced)  # type: ignore[arg-type]


def parse(text: str) -> Program:
    """The program that a text describes, as `palladio.ir.text.parse_program`."""
    return parse_program(text, OPS, RECORDS)
