"""Programs as the kernels of calls, for executors that run calls only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.driver.executors import CPU
from palladio.ir.bind import form
from palladio.ir.core import Eqn, Literal, Program, Var
from palladio.lower import bound_zeros, fuse, initialize, join_products, keep_arrays, schedule, view
from palladio.ops.grid import Blocked, BlockMap, Grid, grid_call
from palladio.ops.references.memory import load, store
from palladio.ops.threads.launch import launch
from palladio.passes import run_passes
from palladio.types.types import ANY, ArrayType, RefType


def one_point_call(program: Program) -> Program:
    """A call, at the one point of a grid without axes, of a kernel that does what a program does.

    Its operands are the program's inputs; its results the program's outputs, and after them what the references hold
    in the end.
    """
    given = [Var(_reference(var.type), var.hint) for var in program.inputs]
    results = [Var(_reference(atom.type), "") for atom in program.outputs]
    refs = [(n, var) for n, var in enumerate(program.inputs) if isinstance(var.type, RefType)]
    loads: list[Eqn] = []
    for var, ref in zip(program.inputs, given, strict=True):
        if not isinstance(var.type, RefType):
            loads.append(
                Eqn(load, (ref,), (var,), {"transforms": ()}, form(load, (ref,), {"transforms": ()}, None).effects)
            )
    stores = [
        form(store, (ref, atom), {"transforms": ()}, None) for ref, atom in zip(results, program.outputs, strict=True)
    ]
    ends = [var for _, var in refs]
    kernel = Program((*given, *results, *ends), (*loads, *program.eqns, *stores), (), program.name)
    outputs = (*results, *ends)
    grid = Grid(
        sizes=(),
        scalars=0,
        inputs=tuple(_whole(ref) for ref in given),
        outputs=tuple(_whole(ref) for ref in outputs),
        output_types=tuple(ArrayType(ref.type.shape, ref.type.dtype) for ref in outputs),
        scratch=(),
        aliases=tuple((n, len(results) + place) for place, (n, _) in enumerate(refs)),
        parallel=(),
    )
    operands = tuple(Var(ArrayType(var.type.shape, var.type.dtype), var.hint) for var in program.inputs)
    eqn = form(grid_call, operands, {"grid": grid, "kernel": kernel}, None)
    return Program(operands, (eqn,), eqn.outputs, program.name)


def as_compiled(program: Program) -> Program:
    """A program in the form that the compiler for CPUs takes, all guards in place and no constants folded."""
    return run_passes(program, [schedule, view, fuse, bound_zeros, join_products, keep_arrays, initialize])


def run_on_cpu(program: Program, values: Sequence[Any]) -> list[Any]:
    """Run a program compiled, its references written in place; launches as they stand, since no kernel calls them."""
    if any(eqn.op is launch for eqn in program.eqns):
        return list(CPU.load(as_compiled(program))(values))
    results = CPU.load(as_compiled(one_point_call(program)))([np.asarray(value) for value in values])
    count = len(program.outputs)
    refs = [value for value, var in zip(values, program.inputs, strict=True) if isinstance(var.type, RefType)]
    for ref, final in zip(refs, results[count:], strict=True):
        ref[...] = final
    return list(results[:count])


def _reference(type: Any) -> RefType:
    return RefType(type.shape, type.dtype, ANY)


def _whole(ref: Var) -> BlockMap:
    zeros = tuple(Literal(0, np.int32) for _ in ref.type.shape)
    return BlockMap(tuple(map(Blocked, ref.type.shape)), ref.type, Program((), (), zeros, "whole"))
