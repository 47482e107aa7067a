"""The pass to the fused form: the operations computed together, and the arrays kept in memory between them."""

from __future__ import annotations

from palladio.ir.core import Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.forms import VIEWED
from palladio.lower.fusion.form import FUSED
from palladio.lower.fusion.keep_arrays import Keeping, kept
from palladio.lower.fusion.masked_stores import mask_in
from palladio.lower.fusion.products import accumulate_in, join_in, round_in
from palladio.lower.fusion.sorts import shorten_in
from palladio.lower.fusion.zero_ranges import bound_in
from palladio.ops.grid import grid_call
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes.pipeline import Pass


def fused(eqn: Eqn) -> Eqn:
    """An equation with the kernels fused that it calls, itself or in programs that it runs."""
    if not is_kernel_call(eqn):
        return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, fuse_in))
    for regroup in (accumulate_in, round_in, shorten_in, *((mask_in,) if eqn.op is grid_call else ())):
        eqn = with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, regroup))
    for regroup in (bound_in, join_in):
        eqn = with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, regroup))
    return kept(eqn, Keeping())


def fuse_in(program: Program) -> Program:
    """The program with the kernels that it calls fused. What surrounds them is computed by functions of arrays."""
    return with_body(program, map(fused, program.eqns), program.outputs)


fuse = Pass(
    name="fuse",
    consumes=VIEWED,
    produces=FUSED,
    run=fuse_in,
    doc="Fuses kernels: a matrix product and the addition to it are one operation, so are a sum of several products, "
    "one and its rounding, and a store of what a choice changes; where masks leave zeros, products and stores "
    "leave them out; arrays are computed where they are used, but for those that are kept.",
)
