"""Dependent launches: they run one after the other, and the checker tracks which may overlap on hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.run.coroutines import RULES
from palladio.machine.run.threads import Thread


@RULES.at_once("griddepcontrol_wait")
def griddepcontrol_wait(eqn: Eqn) -> Callable[..., Any]:
    """Acquire the ends of the earlier launches."""

    def run(thread: Thread) -> Any:
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.launches.awaited(thread)
        return ()

    return run


@RULES.at_once("griddepcontrol_launch_dependents")
def griddepcontrol_launch_dependents(eqn: Eqn) -> Callable[..., Any]:
    """Let the next launch start early."""

    def run(thread: Thread) -> Any:
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.launches.released(thread)
        return ()

    return run
