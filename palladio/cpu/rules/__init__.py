"""What each operation becomes on the CPU: a module per family of operations, named like it.

`RULES` has a rule for every operation that is compiled; `REFUSED` says why the others are not.
"""

from __future__ import annotations

from palladio.cpu.rules import (
    arithmetic,
    casts,
    compare,
    control,
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
    for family in (arithmetic, math, special, compare, casts, shape, reduce, order, memory, selection, control, dot)
    for name, rule in family.RULES.items()
}

REFUSED: dict[str, str] = {
    "debug_print": "printing needs Python",
    "debug_check": "checks need Python",
    "grid_call": "a kernel call inside a kernel",
}
