"""Evaluation of programs whose launches run on a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.ir.core import Eqn
from palladio.ir.evaluate import Evaluator
from palladio.machine import rules
from palladio.machine.rules.grid import run_grid
from palladio.machine.rules.launch import run_launch
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import RoundRobin
from palladio.ops.grid import grid_call
from palladio.ops.kernel_calls import KERNEL_CALLS
from palladio.ops.threads.launch import concurrent, launch

MakeMachine = Callable[[], Machine]
After = Callable[[Machine], None]


def unchecked() -> Machine:
    """The reference machine: threads take turns, and asynchronous operations complete immediately."""
    return Machine(RoundRobin())


def on_machines(make: MakeMachine = unchecked, after: After | None = None, grids: bool = False) -> Evaluator:
    """The evaluator that runs launches, and grids with a concurrent kernel, on machines.

    Args:
        make: makes the machine of one call.
        after: called with the machine at the end of the call.
        grids: run other grids on machines too.
    """
    return Evaluator(dict.fromkeys(KERNEL_CALLS, _OnMachines(make, after, grids)))


@dataclass(frozen=True)
class _OnMachines:
    """Carries out launches on machines; the fields are the arguments of `on_machines`."""

    make: MakeMachine
    after: After | None
    grids: bool

    def __call__(self, eqn: Eqn) -> Callable[..., Sequence[Any]] | None:
        if not concurrent(eqn) and not (self.grids and eqn.op is grid_call):
            return None
        return partial(self._run, eqn)

    def _run(self, eqn: Eqn, *values: Any) -> Sequence[Any]:
        machine = self.make()
        if eqn.op is launch:
            results = run_launch(machine, eqn.launch, eqn.programs, values, eqn)
        else:
            results = run_grid(machine, eqn, values)
        if self.after is not None:
            self.after(machine)
        return results


__all__ = ["on_machines", "rules", "unchecked"]
