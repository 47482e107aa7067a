"""The kernels of a program: each kernel call as LLVM text."""

from __future__ import annotations

from palladio.cpu.launches.launch import LoweredLaunch, lower_launch
from palladio.cpu.lower import lower_grid
from palladio.cpu.lowered import LoweredGrid
from palladio.ir.core import Eqn
from palladio.ops.threads.launch import launch


def lowered(call: Eqn) -> LoweredGrid | LoweredLaunch:
    """The kernel that an equation calls.

    Raises:
        Refused: if it is not compiled for the CPU, with the reason.
    """
    if call.op is launch:
        return lower_launch(call.launch, call.programs, call.input_types)
    return lower_grid(call.grid, call.kernel, call.input_types)
