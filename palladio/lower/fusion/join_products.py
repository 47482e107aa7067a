"""The pass to the joined form: products that add to one another become one sum of several products."""

from __future__ import annotations

from collections.abc import Iterator

from palladio.ir.core import Eqn
from palladio.ir.rewrite import map_subprograms, with_parts
from palladio.lower.fusion.bound_zeros import BOUNDED
from palladio.lower.fusion.calls import form_of_calls, in_calls, programs_of
from palladio.lower.fusion.products import continuations, join_in
from palladio.passes.pipeline import Pass

JOINED_LATER = "products that add to one another are computed one after the other, each to memory"


def joined(call: Eqn) -> Eqn:
    """A kernel call with one equation for each sum of products."""
    return with_parts(call, call.inputs, map_subprograms(call.params, join_in))


def _found(call: Eqn) -> Iterator[tuple[Eqn, str]]:
    return ((later, JOINED_LATER) for each in programs_of(call) for _, later in continuations(each))


JOINED = form_of_calls("joined", _found)

join_products = Pass(
    name="join_products",
    consumes=BOUNDED,
    produces=JOINED,
    run=in_calls(joined),
    doc="Products that add to one another are one operation. Wants `bound_zeros` before it: a product that leaves out "
    "zeros stays alone, since the next one leaves out others.",
)
