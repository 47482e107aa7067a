"""The kernels of a program: each call of one as the CUDA C++ that it becomes."""

from __future__ import annotations

from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.ir.core import Eqn
from palladio.ops.threads.launch import launch


def lowered(eqn: Eqn) -> Lowered:
    """The kernel that an equation calls.

    Raises:
        Refused: one that is not compiled for Hopper, with the reason.
    """
    if eqn.op is launch:
        return lower_launch(eqn.launch, eqn.programs, eqn.input_types)
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types)
