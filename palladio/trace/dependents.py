"""What Pallas has for kernels that overlap the one before them, and Palladio's kernels, which do not, need not do."""

from __future__ import annotations

from palladio.base.errors import PalladioValueError
from palladio.trace.trace import current_trace


def _require_kernel(name: str) -> None:
    if current_trace() is None:
        raise PalladioValueError(f"{name} has a meaning only inside a kernel")


def griddepcontrol_wait() -> None:
    """Wait until the kernel launched before this one has come to its end (PTX `griddepcontrol.wait`).

    It has, whenever this one runs: launches do not overlap. So nothing happens.
    """
    _require_kernel("griddepcontrol_wait")


def griddepcontrol_launch_dependents() -> None:
    """Let the next kernel begin (PTX `griddepcontrol.launch_dependents`). It may not, and nothing happens."""
    _require_kernel("griddepcontrol_launch_dependents")
