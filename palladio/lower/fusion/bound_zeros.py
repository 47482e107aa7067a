"""The pass to the bounded form: products and stores get the zero ranges of their operands."""

from __future__ import annotations

from collections.abc import Iterator

from palladio.ir.core import Eqn
from palladio.ir.rewrite import map_subprograms, with_parts
from palladio.lower.fusion.calls import form_of_calls, in_calls, programs_of
from palladio.lower.fusion.form import FUSED
from palladio.lower.fusion.zero_ranges import bound_in, unbounded
from palladio.passes.pipeline import Pass

UNBOUNDED = "a product, or a store under a mask, does not say outside of which positions its operands are zero"


def bounded(call: Eqn) -> Eqn:
    """A kernel call with products and stores that skip zeros."""
    return with_parts(call, call.inputs, map_subprograms(call.params, bound_in))


def _found(call: Eqn) -> Iterator[tuple[Eqn, str]]:
    return ((eqn, UNBOUNDED) for each in programs_of(call) for eqn, _ in unbounded(each))


BOUNDED = form_of_calls("bounded", _found)

bound_zeros = Pass(
    name="bound_zeros",
    consumes=FUSED,
    produces=BOUNDED,
    run=in_calls(bounded),
    doc="Where masks leave zeros, products and stores leave them out. Wants `fuse` before it, for stores under masks.",
)
