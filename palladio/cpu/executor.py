"""Running a program with its kernel calls compiled.

Each `grid_call` becomes machine code; what stands around it (array functions of a staged function) runs on the
evaluator. A kernel that is not compiled runs on the evaluator too, after a warning that says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from palladio.base.errors import attach
from palladio.cpu.engine import compile_grid
from palladio.cpu.scope import Refused
from palladio.ir.evaluate import evaluate
from palladio.ir.program import Eqn, Program
from palladio.ops.grid import grid_call


class NotCompiledWarning(UserWarning):
    """A kernel runs on the evaluator because something in it is not compiled."""


def load_compiled(program: Program) -> Callable[..., Sequence[Any]]:
    """The program as a function of values, and of arrays for its results."""
    compiled = replace(program, eqns=tuple(map(_compiled, program.eqns)))
    if len(compiled.eqns) == 1:
        (eqn,) = compiled.eqns
        if isinstance(eqn.op.eval, _Native) and eqn.inputs == program.inputs and eqn.outputs == program.outputs:
            return eqn.op.eval.run_alone(eqn)

    def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return written(evaluate(compiled, values), out)

    return run


def written(results: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
    """The results, in the arrays of `out` if there are any."""
    if out is None:
        return results
    for target, result in zip(out, results, strict=True):
        np.copyto(target, result)
    return out


@dataclass(frozen=True)
class _Native:
    """The evaluation of one `grid_call` by its machine code."""

    run: Callable[..., Sequence[Any]]

    def __call__(self, *values: Any, **params: Any) -> Sequence[Any]:
        return self.run(values)

    def run_alone(self, eqn: Eqn) -> Callable[..., Sequence[Any]]:
        """It as the whole program, with nothing around it that a small kernel would wait for."""

        def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
            try:
                return self.run(values, out)
            except Exception as error:
                with attach(eqn.location, f"running {eqn.params['kernel'].name}"):
                    raise error

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
    return replace(eqn, op=replace(grid_call, eval=_Native(run), control=False))
