"""Running programs whose launches the machine carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palladio.ir.core import Eqn, Program
from palladio.ir.rewrite import map_subprograms
from palladio.machine import rules
from palladio.machine.rules.grid import run_grid
from palladio.machine.rules.launch import run_launch
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import RoundRobin
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import Launch, concurrent, launch

MakeMachine = Callable[[], Machine]
After = Callable[[Machine], None]


def unchecked() -> Machine:
    """The machine of the definition: threads take turns, asynchronous operations complete at once."""
    return Machine(RoundRobin())


@dataclass(frozen=True)
class _Launched:
    """The evaluation of one launch by a machine."""

    make: MakeMachine
    eqn: Eqn
    after: After | None

    def __call__(self, *values: Any, launch: Launch, programs: Sequence[Program]) -> Sequence[Any]:
        machine = self.make()
        results = run_launch(machine, launch, programs, values, self.eqn)
        if self.after is not None:
            self.after(machine)
        return results


@dataclass(frozen=True)
class _Stepped:
    """The evaluation by a machine of a grid whose kernel waits for what it starts."""

    make: MakeMachine
    eqn: Eqn
    after: After | None

    def __call__(self, *values: Any, **_: Any) -> Sequence[Any]:
        machine = self.make()
        results = run_grid(machine, self.eqn, values)
        if self.after is not None:
            self.after(machine)
        return results


def with_launches(program: Program, make: MakeMachine = unchecked, after: After | None = None) -> Program:
    """The program, made so that evaluating it runs its launches on machines.

    Args:
        make: makes the machine of one launch.
        after: gets it when the launch is over.
    """
    eqns = tuple(_with_launches(eqn, make, after) for eqn in program.eqns)
    if all(new is old for new, old in zip(eqns, program.eqns, strict=True)):
        return program
    return replace(program, eqns=eqns)


def _with_launches(eqn: Eqn, make: MakeMachine, after: After | None) -> Eqn:
    if concurrent(eqn):
        if eqn.op is launch:
            return replace(eqn, op=replace(launch, eval=_Launched(make, eqn, after)))
        return replace(eqn, op=replace(grid_call, eval=_Stepped(make, eqn, after), control=False))
    params = map_subprograms(eqn.params, lambda inner: with_launches(inner, make, after))
    return eqn if params is eqn.params else replace(eqn, params=params)


__all__ = ["rules", "unchecked", "with_launches"]
