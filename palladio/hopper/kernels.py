"""Lowering of each kernel call of a program to CUDA C++."""

from __future__ import annotations

from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.ir.core import Eqn
from palladio.ops.threads.launch import launch


def lowered(eqn: Eqn) -> Lowered:
    """The kernel that an equation calls.

    Raises:
        Refused: the kernel is not compiled for Hopper.
    """
    if eqn.op is launch:
        return lower_launch(eqn.launch, eqn.programs, eqn.input_types)
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types)
