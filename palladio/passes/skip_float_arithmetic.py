"""Replaces float arithmetic by infinities, for checks of a kernel's behaviour rather than of its values.

Loads, stores, copies, rearrangements, conversions, integers and comparisons stay, so that control flow and indices are
those of the kernel, unless they depend on floats. The machine handles products into accumulators.
"""

from __future__ import annotations

import numpy as np

from palladio.ir.core import Eqn, Literal, Program, Work, subprograms
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.arrays.shape import broadcast
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes.pipeline import ANY, Pass
from palladio.types import dtypes
from palladio.types.types import ArrayType


def _around_kernels(program: Program) -> Program:
    """The program with the arithmetic of floats in its kernels skipped; the arithmetic around them stays."""
    eqns = []
    for eqn in program.eqns:
        change = _skipped if is_kernel_call(eqn) else _around_kernels
        eqns.append(with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, change)))
    return with_body(program, eqns, program.outputs)


def _skipped(program: Program) -> Program:
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        if _computes_floats(eqn):
            eqns += [_infinities(eqn, number) for number in range(len(eqn.outputs))]
        else:
            eqns.append(with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, _skipped)))
    return with_body(program, eqns, program.outputs)


def _computes_floats(eqn: Eqn) -> bool:
    arithmetic = eqn.op.work is not Work.NONE and not eqn.effects and not any(subprograms(eqn))
    return arithmetic and all(
        isinstance(out.type, ArrayType) and dtypes.is_float(out.type.dtype) for out in eqn.outputs
    )


def _infinities(eqn: Eqn, number: int) -> Eqn:
    """The equation that defines one output of an equation as infinities."""
    output = eqn.outputs[number]
    params = {"shape": output.type.shape, "axes": ()}
    return Eqn(broadcast, (Literal(np.inf, output.type.dtype),), (output,), params, (), eqn.location)


skip_float_arithmetic = Pass(
    name="skip_float_arithmetic",
    consumes=ANY,
    produces=ANY,
    run=_around_kernels,
    doc="Replaces the arithmetic of floats in kernels by infinities, for runs of the simulator that look at what a "
    "kernel does. It changes what a program computes, so no executor's pipeline has it.",
)
