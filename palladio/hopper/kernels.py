"""The kernels of a program: each call of one as the CUDA C++ that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.ir.core import Eqn, Program
from palladio.ir.rewrite import map_subprograms
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch


def is_kernel(eqn: Eqn) -> bool:
    """True if an equation calls a kernel."""
    return eqn.op is launch or eqn.op is grid_call


def lowered(eqn: Eqn) -> Lowered:
    """The kernel that an equation calls.

    Raises:
        Refused: one that is not compiled for Hopper, with the reason.
    """
    if eqn.op is launch:
        return lower_launch(eqn.params["launch"], eqn.params["programs"], eqn.input_types)
    return lower_grid(eqn.params["grid"], eqn.params["kernel"], eqn.input_types)


def with_kernels(program: Program, run: Callable[[Lowered], Callable[..., object]]) -> Program:
    """The program with each call of a kernel evaluated by a function that `run` makes.

    Raises:
        Refused: a kernel that is not compiled for Hopper, with the reason.
    """

    def replaced(eqn: Eqn) -> Eqn:
        if is_kernel(eqn):
            return replace(eqn, op=replace(eqn.op, eval=run(lowered(eqn)), control=False))
        params = map_subprograms(eqn.params, each) if eqn.op.control else eqn.params
        return eqn if params is eqn.params else replace(eqn, params=params)

    def each(inner: Program) -> Program:
        return replace(inner, eqns=tuple(map(replaced, inner.eqns)))

    return each(program)
