"""Running a program with its kernel calls compiled.

Each `grid_call` becomes machine code; what stands around it (array functions of a staged function) runs on the
evaluator. A kernel that is not compiled runs on the evaluator too, after a warning that says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.cpu.engine import compile_grid
from palladio.cpu.scope import Refused
from palladio.ir.evaluate import evaluate
from palladio.ir.program import Eqn, Program
from palladio.ops.grid import grid_call


class NotCompiledWarning(UserWarning):
    """A kernel runs on the evaluator because something in it is not compiled."""


def load_compiled(program: Program) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The program as a function of values."""
    compiled = replace(program, eqns=tuple(map(_compiled, program.eqns)))

    def run(values: Sequence[Any]) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return evaluate(compiled, values)

    return run


def _compiled(eqn: Eqn) -> Eqn:
    """A kernel call as a call of its machine code; other equations as they are."""
    if eqn.op is not grid_call:
        return eqn
    grid, kernel = eqn.params["grid"], eqn.params["kernel"]
    try:
        run = compile_grid(grid, kernel, eqn.input_types)
    except Refused as reason:
        warnings.warn(f"the kernel {kernel.name} runs on the evaluator: {reason}", NotCompiledWarning, stacklevel=2)
        return eqn

    def native(*values: Any, **params: Any) -> Sequence[Any]:
        return run(*values)

    return replace(eqn, op=replace(grid_call, eval=native, control=False))
