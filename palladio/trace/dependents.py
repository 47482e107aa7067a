"""What Pallas has for kernels that overlap the one before them, and Palladio's kernels, which do not, need not do."""

from __future__ import annotations

from palladio.trace.trace import require_trace


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
