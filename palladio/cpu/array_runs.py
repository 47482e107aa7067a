"""The array functions around kernel calls, such as those that say which group each step of a grouped product works on.

On small arrays, NumPy takes a few microseconds to begin each of them, and far less to compute it. Runs of such
equations therefore become one machine function: the kernel of a grid of one point, which sees its arrays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from palladio.cpu.emit.scope import Refused
from palladio.cpu.engine import compile_grid
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, substituted
from palladio.ops import OPS
from palladio.ops.grid import Blocked, BlockMap, Grid, grid_call
from palladio.ops.references.memory import load, store
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType

SMALL = 1 << 16
"""Elements of an array that is computed sooner than many a function of NumPy begins."""

FEW, MANY = 4, 100
"""Of fewer equations, and of more, none are compiled: what it takes is not worth it."""


def compiled_surroundings(program: Program) -> Program:
    """The program with its runs of array functions on small arrays compiled."""
    runs = [(small, list(eqns)) for small, eqns in groupby(program.eqns, _is_small)]
    eqns: list[Eqn] = []
    for number, (small, run) in enumerate(runs):
        later = [eqn for _, others in runs[number + 1 :] for eqn in others]
        eqns += _together(run, {*_used(later), *program.outputs}) if small and FEW <= len(run) <= MANY else run
    return replace(program, eqns=tuple(eqns))


def _is_small(eqn: Eqn) -> bool:
    """Whether an equation computes small arrays from small arrays by an array function, and nothing besides."""
    types = [*eqn.input_types, *(var.type for var in eqn.outputs)]
    plain = OPS.get(eqn.op.name) is eqn.op and not eqn.op.control and not eqn.effects
    plain = plain and eqn.op.name != "sort"  # long code, and little gained
    return plain and all(isinstance(type, ArrayType) and type.size <= SMALL for type in types)


def _used(eqns: Iterable[Eqn]) -> Iterator[Atom]:
    return (atom for eqn in eqns for atom in eqn.inputs)


def _together(run: Sequence[Eqn], wanted: set[Atom]) -> Sequence[Eqn]:
    """Some equations as one call of machine code; the equations themselves where one of them is not compiled."""
    made = [var for eqn in run for var in eqn.outputs]
    given = list(dict.fromkeys(atom for atom in _used(run) if isinstance(atom, Var) and atom not in {*made}))
    results = [var for var in made if var in wanted]
    kernel = _kernel(run, given, results)
    types = tuple(var.type for var in results)
    blocks = tuple(_whole(type, kernel.inputs[: len(given)]) for type in types)
    grid = Grid((), len(given), (), blocks, types, (), (), ())
    try:
        function = compile_grid(grid, kernel, [var.type for var in given])
    except Refused:
        return run
    op = replace(grid_call, eval=lambda *values, **params: function(values), control=False)
    return (Eqn(op, tuple(given), tuple(results), {}, (), run[0].location),)


def _whole(type: ArrayType, scalars: tuple[Var, ...]) -> BlockMap:
    """An array as its own only block."""
    first = Program(scalars, (), tuple(Literal(0, dtypes.INT32) for _ in type.shape))
    return BlockMap(tuple(map(Blocked, type.shape)), RefType(type.shape, type.dtype), first)


def _kernel(run: Sequence[Eqn], given: Sequence[Var], results: Sequence[Var]) -> Program:
    """The equations between loads of what they are given and stores of what is wanted of them."""
    refs = {var: Var(RefType(var.type.shape, var.type.dtype)) for var in (*given, *results)}
    builder = Builder()
    loaded: dict[Atom, Atom] = {}
    for var in given:
        (loaded[var],) = builder.emit(load, refs[var], transforms=())
    builder.eqns += [substituted(eqn, loaded) for eqn in run]
    for var in results:
        builder.emit(store, refs[var], var, transforms=())
    return Program(tuple(refs.values()), tuple(builder.eqns), (), "surroundings")
