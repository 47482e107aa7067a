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
from palladio.cpu.launch_engine import Stuck, compile_launch
from palladio.cpu.scope import Refused
from palladio.ir.evaluate import evaluate
from palladio.ir.program import Eqn, Program
from palladio.ir.rewrite import map_subprograms
from palladio.ops.grid import grid_call
from palladio.ops.launch import launch
from palladio.types.types import RefType


class NotCompiledWarning(UserWarning):
    """A kernel runs on the evaluator because something in it is not compiled."""


def load_compiled(program: Program) -> Callable[..., Sequence[Any]]:
    """The program as a function of values, and of arrays for its results."""
    compiled = _compiled_calls(program)
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


@dataclass(frozen=True)
class _Launched(_Native):
    """The evaluation of one `launch` by its machine code. Where that cannot go on, the machine explains why."""

    eqn: Eqn

    def __call__(self, *values: Any, **params: Any) -> Sequence[Any]:
        return self.run_or_explain(values)

    def run_or_explain(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        changed = [n for n, type in enumerate(self.eqn.input_types) if isinstance(type, RefType)]
        before = [np.array(values[n]) for n in changed]
        try:
            return self.run(values, out)
        except Stuck:
            for n, value in zip(changed, before, strict=True):
                np.copyto(values[n], value)
            return written(self.eqn.op.eval(*values, **self.eqn.params), out)

    def run_alone(self, eqn: Eqn) -> Callable[..., Sequence[Any]]:
        def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
            try:
                return self.run_or_explain(values, out)
            except Exception as error:
                with attach(eqn.location, f"running {eqn.params['programs'][0].name}"):
                    raise error

        return run


def _compiled_calls(program: Program) -> Program:
    """The program with its kernel calls compiled, wherever they are."""
    return replace(program, eqns=tuple(map(_compiled, program.eqns)))


def _compiled(eqn: Eqn) -> Eqn:
    """A kernel call as a call of its machine code; other equations as they are."""
    if eqn.op.name == launch.name:
        return _compiled_launch(eqn)
    if eqn.op.name != grid_call.name:
        params = map_subprograms(eqn.params, _compiled_calls) if eqn.op.control else eqn.params
        return eqn if params is eqn.params else replace(eqn, params=params)
    grid, kernel = eqn.params["grid"], eqn.params["kernel"]
    try:
        run = compile_grid(grid, kernel, eqn.input_types)
    except Refused as reason:
        warnings.warn(f"the kernel {kernel.name} runs on the evaluator: {reason}", NotCompiledWarning, stacklevel=2)
        return eqn
    return replace(eqn, op=replace(grid_call, eval=_Native(run), control=False))


def _compiled_launch(eqn: Eqn) -> Eqn:
    """A launch as a call of its machine code, or as the machine runs it."""
    programs = eqn.params["programs"]
    try:
        run = compile_launch(eqn.params["launch"], programs, eqn.input_types)
    except Refused as reason:
        name = programs[0].name
        warnings.warn(f"the kernel {name} runs on the evaluator: {reason}", NotCompiledWarning, stacklevel=2)
        return eqn
    return replace(eqn, op=replace(eqn.op, eval=_Launched(run, eqn), control=False))
