"""Programmatic dependent launch, and delays: names of Pallas that change nothing about Palladio's kernels."""

from __future__ import annotations

from typing import Any

from palladio.array import convert
from palladio.base.errors import PalladioTypeError
from palladio.trace.trace import require_trace
from palladio.types import dtypes


def griddepcontrol_wait() -> None:
    """Wait until the kernel launched before this one has come to its end (PTX `griddepcontrol.wait`).

    It has, whenever this one runs: launches do not overlap. So nothing happens.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("griddepcontrol_wait")


def griddepcontrol_launch_dependents() -> None:
    """Let the next kernel begin (PTX `griddepcontrol.launch_dependents`). It may not, and nothing happens.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("griddepcontrol_launch_dependents")


def delay(nanos: Any) -> None:
    """Sleep for so many nanoseconds. What a kernel does never depends on time, so nothing happens.

    Args:
        nanos: i32[].

    Raises:
        PalladioTypeError: what is not a scalar integer.
        PalladioValueError: outside of a kernel.
    """
    require_trace("delay")
    kind = convert.array_type(nanos)
    if kind.shape != () or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError("a delay is a scalar integer, in nanoseconds", argument="nanos", got=str(kind))
