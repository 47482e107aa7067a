"""Execution of programs with their kernels on the host twin: slow, and exact about the hardware's guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.kernels import lowered, require_runnable
from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, Result, run
from palladio.ir.core import Eqn, Program
from palladio.ir.evaluate import Runner
from palladio.ops.kernel_calls import kernel_calls, on_kernels


def load_on_twin(program: Program) -> Runner:
    """The program as a function of values, and of arrays for its results.

    Raises:
        Refused: a kernel is not compiled for Hopper.
    """
    return on_kernels({eqn: _OnTwin(eqn, lowered(eqn)) for eqn in kernel_calls(program)}).runner(program)


Watcher = Callable[[Lowered, Sequence[Any]], Result]
_watcher: ContextVar[Watcher | None] = ContextVar("palladio_twin_watcher", default=None)


@contextmanager
def each_launch(run: Watcher) -> Iterator[None]:
    """A `with` block in which `run` executes each launch, from the kernel and its operands, for reporting tools."""
    token = _watcher.set(run)
    try:
        yield
    finally:
        _watcher.reset(token)


@dataclass(frozen=True)
class _OnTwin:
    """The evaluation of one kernel call."""

    eqn: Eqn
    lowered: Lowered

    def __call__(self, *values: Any) -> Sequence[Any]:
        require_runnable(self.eqn, values)
        if self.lowered.blocks(values) == 0:
            return [np.full(each.shape, 0, each.dtype) for each in self.lowered.arrays if each.role == "output"]
        watcher = _watcher.get()
        found = run(self.lowered, values, SCHEDULES[2]) if watcher is None else watcher(self.lowered, values)
        return found.outputs
