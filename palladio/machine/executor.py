"""Running programs whose launches the machine carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palladio.ir.program import Eqn, Program
from palladio.ir.rewrite import map_subprograms
from palladio.machine import rules
from palladio.machine.machine import Machine, RoundRobin
from palladio.machine.rules.launch import run_launch
from palladio.ops.launch import Launch, launch

MakeMachine = Callable[[], Machine]


def unchecked() -> Machine:
    """The machine of the definition: threads take turns, asynchronous operations complete at once."""
    return Machine(RoundRobin())


@dataclass(frozen=True)
class _Launched:
    """The evaluation of one launch by a machine."""

    make: MakeMachine
    eqn: Eqn

    def __call__(self, *values: Any, launch: Launch, programs: Sequence[Program]) -> Sequence[Any]:
        return run_launch(self.make(), launch, programs, values, self.eqn)


def with_launches(program: Program, make: MakeMachine = unchecked) -> Program:
    """The program, made so that evaluating it runs its launches on machines.

    Args:
        make: makes the machine of one launch.
    """
    eqns = tuple(_with_launches(eqn, make) for eqn in program.eqns)
    if all(new is old for new, old in zip(eqns, program.eqns, strict=True)):
        return program
    return replace(program, eqns=eqns)


def _with_launches(eqn: Eqn, make: MakeMachine) -> Eqn:
    if eqn.op is launch:
        return replace(eqn, op=replace(launch, eval=_Launched(make, eqn)))
    params = map_subprograms(eqn.params, lambda inner: with_launches(inner, make))
    return eqn if params is eqn.params else replace(eqn, params=params)


__all__ = ["rules", "unchecked", "with_launches"]
