"""The pass to the fused form: operations that one loop computes better than several."""

from __future__ import annotations

from palladio.ir.core import Eqn
from palladio.ir.rewrite import map_subprograms, with_parts
from palladio.lower.forms import VIEWED
from palladio.lower.fusion.calls import in_calls
from palladio.lower.fusion.form import FUSED
from palladio.lower.fusion.masked_stores import mask_in
from palladio.lower.fusion.products import accumulate_in, round_in
from palladio.lower.fusion.row_stores import rows_in
from palladio.lower.fusion.sorts import shorten_in
from palladio.ops.grid import grid_call
from palladio.passes.pipeline import Pass


def fused(call: Eqn) -> Eqn:
    """A kernel call with its operations fused."""
    of_grids = (mask_in, rows_in) if call.op is grid_call else ()
    for regroup in (accumulate_in, round_in, shorten_in, *of_grids):
        call = with_parts(call, call.inputs, map_subprograms(call.params, regroup))
    return call


fuse = Pass(
    name="fuse",
    consumes=VIEWED,
    produces=FUSED,
    run=in_calls(fused),
    doc="Fuses operations of kernels: a matrix product and the addition to it are one, so are one and its rounding; "
    "a store of what a choice changes is one under a mask, or of rows; a sort says how few of its elements are used.",
)
