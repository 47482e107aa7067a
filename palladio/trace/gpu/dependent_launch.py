"""Programmatic dependent launch, and delays."""

from __future__ import annotations

from typing import Any

from palladio.array import convert
from palladio.base.errors import PalladioTypeError
from palladio.ir.bind import bind
from palladio.ops.threads import dependent as ops
from palladio.trace.trace import require_trace
from palladio.types import dtypes


def griddepcontrol_wait() -> None:
    """Wait until the kernel launched before this one has ended and its writes are visible (`griddepcontrol.wait`).

    It covers this thread, and threads that it releases afterwards. Needed where the kernel before calls
    `griddepcontrol_launch_dependents` (PTX ISA, "griddepcontrol"); elsewhere it has no effect.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("griddepcontrol_wait")
    bind(ops.griddepcontrol_wait)


def griddepcontrol_launch_dependents() -> None:
    """Let the next kernel start before this one has ended (`griddepcontrol.launch_dependents`).

    Executors still run kernels one after the other; a check reports data that the next kernel may read too early.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("griddepcontrol_launch_dependents")
    bind(ops.griddepcontrol_launch_dependents)


def delay(nanos: Any) -> None:
    """Sleep for a number of nanoseconds. The behaviour of a kernel never depends on time, so this has no effect.

    Args:
        nanos: i32[].

    Raises:
        PalladioTypeError: not a scalar integer.
        PalladioValueError: outside of a kernel.
    """
    require_trace("delay")
    kind = convert.array_type(nanos)
    if kind.shape != () or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError("a delay is a scalar integer, in nanoseconds", argument="nanos", got=str(kind))
