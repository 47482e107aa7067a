"""Running programs with their kernels on the host twin: slow, and exact about what the hardware promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from palladio.hopper.emit.grids import lower_grid
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, run
from palladio.ir.core import Eqn, Program
from palladio.ir.evaluate import evaluate, written
from palladio.ir.rewrite import map_subprograms
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch


def load_on_twin(program: Program) -> Callable[..., Sequence[Any]]:
    """The program as a function of values, and of arrays for its results.

    Raises:
        Refused: a kernel that is not compiled for Hopper, with the reason.
    """
    compiled = _compiled(program)

    def run_program(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return written(evaluate(compiled, values), out)

    return run_program


def _compiled(program: Program) -> Program:
    return replace(program, eqns=tuple(map(_kernel_on_twin, program.eqns)))


@dataclass(frozen=True)
class _OnTwin:
    """The evaluation of one kernel call."""

    lowered: Lowered

    def __call__(self, *values: Any, **params: Any) -> Sequence[Any]:
        if self.lowered.blocks(values) == 0:
            return [np.full(each.shape, 0, each.dtype) for each in self.lowered.arrays if each.role == "output"]
        return run(self.lowered, values, SCHEDULES[2]).outputs


def _kernel_on_twin(eqn: Eqn) -> Eqn:
    """A kernel call as a run of its text."""
    if eqn.op is launch:
        lowered = lower_launch(eqn.params["launch"], eqn.params["programs"], eqn.input_types)
    elif eqn.op is grid_call:
        lowered = lower_grid(eqn.params["grid"], eqn.params["kernel"], eqn.input_types)
    else:
        params = map_subprograms(eqn.params, _compiled) if eqn.op.control else eqn.params
        return eqn if params is eqn.params else replace(eqn, params=params)
    return replace(eqn, op=replace(eqn.op, eval=_OnTwin(lowered), control=False))
