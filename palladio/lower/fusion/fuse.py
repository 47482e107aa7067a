"""Several equations as one, where a compiler computes them together."""

from __future__ import annotations

from palladio.ir.core import Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.forms import VIEWED
from palladio.lower.fusion.form import FUSED
from palladio.lower.fusion.products import addend, starts
from palladio.ops.arrays.dot import dot_accumulate
from palladio.passes.pipeline import Pass


def fuse_in(program: Program) -> Program:
    """The program with products that accumulate in place of products and additions to them."""
    sums = {addition: product for product, addition in starts(program)}
    products = {*sums.values()}
    eqns = (_fused(eqn, sums.get(eqn)) for eqn in program.eqns if eqn not in products)
    return with_body(program, eqns, program.outputs)


def _fused(eqn: Eqn, product: Eqn | None) -> Eqn:
    if product is None:
        return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, fuse_in))
    inputs = (addend(eqn, product), product.lhs, product.rhs)
    params = {"contracting": product.contracting, "batch": product.batch}
    return Eqn(dot_accumulate, inputs, eqn.outputs, params, (), product.location)


fuse = Pass(
    name="fuse",
    consumes=VIEWED,
    produces=FUSED,
    run=fuse_in,
    doc="Makes a matrix product and the addition to it one product whose sums begin with the other operand.",
)
