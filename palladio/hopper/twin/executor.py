"""Running programs with their kernels on the host twin: slow, and exact about what the hardware promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palladio.hopper.kernels import with_kernels
from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, run
from palladio.ir.core import Program
from palladio.ir.evaluate import evaluate, written


def load_on_twin(program: Program) -> Callable[..., Sequence[Any]]:
    """The program as a function of values, and of arrays for its results.

    Raises:
        Refused: a kernel that is not compiled for Hopper, with the reason.
    """
    compiled = with_kernels(program, _OnTwin)

    def run_program(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return written(evaluate(compiled, values), out)

    return run_program


@dataclass(frozen=True)
class _OnTwin:
    """The evaluation of one kernel call."""

    lowered: Lowered

    def __call__(self, *values: Any, **params: Any) -> Sequence[Any]:
        if self.lowered.blocks(values) == 0:
            return [np.full(each.shape, 0, each.dtype) for each in self.lowered.arrays if each.role == "output"]
        return run(self.lowered, values, SCHEDULES[2]).outputs
