"""Array functions around kernel calls, e.g. those that compute the group of each step of a grouped product.

On small arrays, NumPy takes a few microseconds to start each of them, and far less to compute it. Runs of such
equations therefore become one machine function: the kernel of a grid of one point, whose blocks are whole arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from palladio.cpu.analysis.work import work_estimate
from palladio.cpu.lower import lower_grid
from palladio.cpu.lowered import LoweredGrid
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, substituted
from palladio.lower.fusion import bounded, fused, joined, kept
from palladio.lower.grids.schedule import scheduled
from palladio.lower.refused import Refused
from palladio.ops.arrays.sort import sort
from palladio.ops.grid import Blocked, BlockMap, Grid, grid_call
from palladio.ops.references.memory import load, store
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType

SMALL = 1 << 16
"""Elements of a small array, at most: computing it takes less time than starting many NumPy functions."""

FEW, MANY = 4, 128
"""The least and the most equations of a run that is compiled: for others it is not worth the time."""

LIGHT_WORK = 1 << 14
"""Elements that a light kernel computes, at most: they take microseconds."""


def with_runs(program: Program) -> tuple[Program, dict[Eqn, LoweredGrid]]:
    """The program with each run of array functions on small arrays as one kernel call, and these calls lowered."""
    runs = [(small, list(eqns)) for small, eqns in groupby(program.eqns, _is_small)]
    eqns: list[Eqn] = []
    lowered: dict[Eqn, LoweredGrid] = {}
    for number, (small, run) in enumerate(runs):
        later = [eqn for _, others in runs[number + 1 :] for eqn in others]
        if small and FEW <= len(run) <= MANY:
            call = scheduled(_together(run, {*_used(later), *program.outputs}))
            call = kept(joined(bounded(fused(call))))
            try:
                light = work_estimate(call.kernel) <= LIGHT_WORK
                lowered[call] = lower_grid(call.grid, call.kernel, call.input_types, light)
            except Refused:
                pass
            else:
                run = [call]
        eqns += run
    return replace(program, eqns=tuple(eqns)), lowered


def _is_small(eqn: Eqn) -> bool:
    """True if an equation computes small arrays from small arrays, without control flow or effects."""
    types = [*eqn.input_types, *(var.type for var in eqn.outputs)]
    plain = not eqn.op.control and not eqn.effects and eqn.op is not sort  # its code is long for little gain
    return plain and all(isinstance(type, ArrayType) and type.size <= SMALL for type in types)


def _used(eqns: Iterable[Eqn]) -> Iterator[Atom]:
    return (atom for eqn in eqns for atom in eqn.inputs)


def _together(run: Sequence[Eqn], wanted: set[Atom]) -> Eqn:
    """Some equations as one kernel call."""
    made = [var for eqn in run for var in eqn.outputs]
    given = list(dict.fromkeys(atom for atom in _used(run) if isinstance(atom, Var) and atom not in {*made}))
    results = [var for var in made if var in wanted]
    kernel = _kernel(run, given, results)
    types = tuple(var.type for var in results)
    blocks = tuple(_whole(type, kernel.inputs[: len(given)]) for type in types)  # type: ignore[arg-type]
    grid = Grid((), len(given), (), blocks, types, (), (), ())  # type: ignore[arg-type]
    return Eqn(grid_call, tuple(given), tuple(results), {"grid": grid, "kernel": kernel}, (), run[0].location)


def _whole(type: ArrayType, scalars: tuple[Var, ...]) -> BlockMap:
    """The map of an array's only block, which is the whole array."""
    first = Program(scalars, (), tuple(Literal(0, dtypes.INT32) for _ in type.shape))
    return BlockMap(tuple(map(Blocked, type.shape)), RefType(type.shape, type.dtype), first)


def _kernel(run: Sequence[Eqn], given: Sequence[Var], results: Sequence[Var]) -> Program:
    """The equations, between loads of their inputs and stores of their results that are used later."""
    refs = {var: Var(RefType(var.type.shape, var.type.dtype)) for var in (*given, *results)}
    builder = Builder()
    loaded: dict[Atom, Atom] = {}
    for var in given:
        (loaded[var],) = builder.emit(load, refs[var], transforms=())
    builder.eqns += [substituted(eqn, loaded) for eqn in run]
    for var in results:
        builder.emit(store, refs[var], var, transforms=())
    return Program(tuple(refs.values()), tuple(builder.eqns), (), "surroundings")
