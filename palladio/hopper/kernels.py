"""The kernels of a program: each call of one as the CUDA C++ that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.ir.core import Eqn, Program, subprograms
from palladio.ir.evaluate import Evaluator
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
        return lower_launch(eqn.launch, eqn.programs, eqn.input_types)
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types)


def calls_in(program: Program) -> Iterator[Eqn]:
    """The outermost kernel calls of a program."""
    for eqn in program.eqns:
        if is_kernel(eqn):
            yield eqn
        else:
            yield from (call for inner in subprograms(eqn) for call in calls_in(inner))


def evaluator(calls: Mapping[Eqn, Callable[..., Sequence[Any]]]) -> Evaluator:
    """The evaluator of a program whose kernel calls are carried out by these functions of their operands."""
    return Evaluator({launch: calls.get, grid_call: calls.get})
