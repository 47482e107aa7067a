"""The fused form: its rules are the reasons for which the pass changes a program."""

from __future__ import annotations

from collections.abc import Iterator

from palladio.ir.core import Eqn, Program, subprograms, walk
from palladio.lower.fusion.keep_arrays import Keeping, kept
from palladio.lower.fusion.masked_stores import choices
from palladio.lower.fusion.products import continuations, roundings, starts
from palladio.lower.fusion.sorts import shortens
from palladio.lower.fusion.zero_ranges import unbounded
from palladio.ops.grid import grid_call
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes.pipeline import Form

ADDED_LATER = "a product is computed before the addition to it, which can be the start of its sums"
JOINED_LATER = "products that add to one another are computed one after the other, each to memory"
ROUNDED_LATER = "a product is computed before it is rounded, which it can do with its sums"
LEFT = "a block is loaded only for what a choice leaves as it was, which is stored there again"
UNBOUNDED = "a product, or a store under a mask, does not say outside of which positions its operands are zero"
SORTED = "all of a line is sorted, and only its greatest few elements are used"


def _broken(program: Program) -> tuple[Eqn | None, str] | None:
    for eqn in program.eqns:
        found = _in_call(eqn) if is_kernel_call(eqn) else map(_broken, subprograms(eqn))
        first = next((each for each in found if each is not None), None)
        if first is not None:
            return first
    return None


def _in_call(call: Eqn) -> Iterator[tuple[Eqn, str]]:
    for program in subprograms(call):
        for each in (program, *(inner for eqn in walk(program) for inner in subprograms(eqn))):
            yield from ((addition, ADDED_LATER) for _, addition in starts(each))
            yield from ((later, JOINED_LATER) for _, later in continuations(each))
            yield from ((conversion, ROUNDED_LATER) for _, conversion in roundings(each))
            yield from ((eqn, SORTED) for eqn in each.eqns if shortens(each, eqn))
            yield from ((eqn, UNBOUNDED) for eqn, _ in unbounded(each))
            yield from ((choice.store, LEFT) for choice in choices(each) if call.op is grid_call)
    keeping = Keeping()
    kept(call, keeping)
    yield from keeping.found


FUSED = Form("fused", _broken)
