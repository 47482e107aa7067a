"""The kernels of a program: each call of one as the LLVM text that it becomes."""

from __future__ import annotations

from palladio.cpu.launches.launch import LoweredLaunch, lower_launch
from palladio.cpu.lower import LoweredGrid, lower_grid
from palladio.ir.core import Eqn
from palladio.ops.threads.launch import launch


def lowered(call: Eqn) -> LoweredGrid | LoweredLaunch:
    """The kernel that an equation calls.

    Raises:
        Refused: one that is not compiled for the CPU, with the reason.
    """
    if call.op is launch:
        return lower_launch(call.launch, call.programs, call.input_types)
    return lower_grid(call.grid, call.kernel, call.input_types)
