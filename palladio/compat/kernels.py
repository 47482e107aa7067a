"""Forward derivatives of kernels: a kernel without a grid is a function of whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio.ir.bind import bind
from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.debug import debug_print
from palladio.passes.discharge import discharge_program
from palladio.types import dtypes
from palladio.types.types import RefType


def as_function(call: Eqn) -> Callable[..., list[Any]] | None:
    """The function of arrays that a kernel call computes, its references discharged.

    None for a call with a grid, copies and semaphores, blocks of its arrays or outputs that begin with an input's
    values. What the kernel prints is left out: the call itself prints it.
    """
    grid, kernel = call.grid, call.kernel
    if grid.sizes or grid.aliases or kernel.synchronises:
        return None
    arrays = [*(atom.type for atom in call.inputs[grid.scalars :]), *grid.output_types]
    blocks = (*grid.inputs, *grid.outputs)
    if any(block.block_shape != array.shape for block, array in zip(blocks, arrays, strict=True)):
        return None
    program = discharge_program(_silent(kernel))
    of_outputs = slice(len(call.inputs), len(call.inputs) + len(grid.output_types))
    references = [n for n, var in enumerate(kernel.inputs) if isinstance(var.type, RefType)]
    first = len(program.outputs) - len(references)

    def function(*operands: Any) -> list[Any]:
        begun = [
            jnp.full(var.type.shape, dtypes.uninitialized(var.type.dtype), var.type.dtype)
            for var in program.inputs[len(operands) :]
        ]
        found = _formed(program, [*operands, *begun])
        final = dict(zip(references, found[first:], strict=True))
        return [final[n] for n in range(len(kernel.inputs))[of_outputs]]

    return function


def _silent(program: Program) -> Program:
    """The program without its prints."""
    kept = (eqn for eqn in program.eqns if eqn.op is not debug_print)
    eqns = [with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, _silent)) for eqn in kept]
    return with_body(program, eqns, program.outputs)


def _formed(program: Program, values: Sequence[Any]) -> list[Any]:
    """Form the equations of a program in the current trace; returns its outputs."""
    known: dict[Atom, Any] = dict(zip(program.inputs, values, strict=True))

    def value(atom: Atom) -> Any:
        return known[atom] if isinstance(atom, Var) else np.asarray(atom.value, atom.type.dtype)

    for eqn in program.eqns:
        known.update(zip(eqn.outputs, bind(eqn.op, *map(value, eqn.inputs), **eqn.params), strict=True))
    return [value(atom) for atom in program.outputs]
