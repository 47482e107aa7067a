"""Dependent launches: the next launch may start before this one has ended (PTX ISA, `griddepcontrol`)."""

from __future__ import annotations

from palladio.ir.core import Op
from palladio.ops.threads.copy import nothing_eval, nothing_type
from palladio.types.effects import Sync

griddepcontrol_wait = Op(
    "griddepcontrol_wait",
    "Waits until the launches before this one have ended; then their writes are visible to the thread "
    "(griddepcontrol.wait).",
    nothing_type,
    nothing_eval,
    sync=Sync(),
)

griddepcontrol_launch_dependents = Op(
    "griddepcontrol_launch_dependents",
    "Lets the next launch start before this one has ended (griddepcontrol.launch_dependents).",
    nothing_type,
    nothing_eval,
    sync=Sync(),
)
