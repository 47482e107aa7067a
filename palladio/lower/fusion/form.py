"""The fused form: its rules are the reasons why the pass changes a program."""

from __future__ import annotations

from collections.abc import Iterator

from palladio.ir.core import Eqn, subprograms
from palladio.lower.fusion.calls import form_of_calls, programs_of
from palladio.lower.fusion.masked_stores import choices
from palladio.lower.fusion.products import roundings, starts
from palladio.lower.fusion.row_stores import row_stores
from palladio.lower.fusion.sorts import shortens
from palladio.ops.grid import grid_call

ADDED_LATER = "a product is computed before the addition to it, which can be the start of its sums"
ROUNDED_LATER = "a product is computed before it is rounded, which it can do with its sums"
LEFT = "a block is loaded only for what a choice leaves as it was, which is stored there again"
BY_ELEMENTS = "a mask chooses whole rows, and its store goes through elements"
SORTED = "all of a line is sorted, and only its greatest few elements are used"


def _found(call: Eqn) -> Iterator[tuple[Eqn, str]]:
    for each in programs_of(call):
        yield from ((addition, ADDED_LATER) for _, addition in starts(each))
        yield from ((conversion, ROUNDED_LATER) for _, conversion in roundings(each))
        yield from ((eqn, SORTED) for eqn in each.eqns if shortens(each, eqn))
        yield from ((choice.store, LEFT) for choice in choices(each) if call.op is grid_call)
    for program in subprograms(call) if call.op is grid_call else ():
        yield from ((eqn, BY_ELEMENTS) for eqn in row_stores(program))


FUSED = form_of_calls("fused", _found)
