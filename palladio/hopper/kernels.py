"""Lowering of each kernel call of a program to CUDA C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.base.errors import attach
from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.ir.core import Eqn, subprograms, walk
from palladio.lower.grids.refetched import require_fetched_first, require_left_once
from palladio.lower.refused import Refused
from palladio.ops.threads.launch import launch
from palladio.types import dtypes


def lowered(eqn: Eqn) -> Lowered:
    """The kernel that an equation calls.

    Raises:
        Refused: the kernel is not compiled for Hopper.
    """
    _require_compiled_dtypes(eqn)
    if eqn.op is launch:
        return lower_launch(eqn.launch, eqn.programs, eqn.input_types)
    require_fetched_first(eqn.grid, eqn.kernel, "Hopper")
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types)


def require_runnable(eqn: Eqn, values: Sequence[Any]) -> None:
    """Check the data of a call of a kernel that is compiled, as far as they are in the memory of the host.

    Raises:
        Refused: these data need another order of loads and stores.
    """
    if eqn.op is not launch:
        with attach(eqn.location, "calling a kernel for Hopper"):
            require_left_once(eqn.grid, eqn.kernel, values, "Hopper")


def _require_compiled_dtypes(call: Eqn) -> None:
    """Refuse a kernel that computes with, or only moves, dtypes that are not compiled."""
    for eqn in (call, *(inner for program in subprograms(call) for inner in walk(program))):
        for type in (*eqn.input_types, *(var.type for var in eqn.outputs)):
            if dtypes.is_narrow(type.dtype):
                raise Refused(
                    f"no {dtypes.short_name(type.dtype)} is compiled for Hopper",
                    expected=dtypes.LISTED,
                    hint="convert the array before the kernel",
                    location=eqn.location,
                )
