"""Running a program with its kernel calls compiled.

Each `grid_call` becomes machine code, and so do the array functions of a staged function around it where their arrays
are small; on large ones NumPy's own run. A kernel that is not compiled runs on the evaluator too, after a warning that
says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from palladio.base.errors import Location, NotCompiledWarning, attach
from palladio.cpu.array_runs import compiled_surroundings
from palladio.cpu.emit.scope import Refused
from palladio.cpu.engine import compile_grid
from palladio.cpu.launches.coroutines import Deadlocked
from palladio.cpu.launches.engine import compile_launch
from palladio.ir.core import Eqn, Program, Var
from palladio.ir.evaluate import evaluate, written
from palladio.ir.rewrite import map_subprograms
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch
from palladio.types.types import ArrayType, RefType


def load_compiled(program: Program) -> Callable[..., Sequence[Any]]:
    """The program as a function of values, and of arrays for its results."""
    compiled = compiled_surroundings(_compiled_calls(program))
    if len(compiled.eqns) == 1:
        (eqn,) = compiled.eqns
        if isinstance(eqn.op.eval, _Native) and eqn.inputs == program.inputs and eqn.outputs == program.outputs:
            return eqn.op.eval.run_alone(_name(eqn))

    def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return written(evaluate(compiled, values), out)

    return run


@dataclass(frozen=True)
class _Native:
    """The evaluation of one kernel call by its machine code. Where that cannot go on, the machine explains why."""

    run: Callable[..., Sequence[Any]]
    eqn: Eqn

    def __call__(self, *values: Any, **params: Any) -> Sequence[Any]:
        return self.run_or_explain(values)

    def run_or_explain(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        changed = [n for n, type in enumerate(self.eqn.input_types) if isinstance(type, RefType)]
        before = [np.array(values[n]) for n in changed]
        try:
            return self.run(values, out)
        except Deadlocked:
            for n, value in zip(changed, before, strict=True):
                np.copyto(values[n], value)
            with np.errstate(all="ignore"):
                return written(evaluate(self.alone, values), out)

    @cached_property
    def alone(self) -> Program:
        """The call as a program of its own."""
        inputs = tuple(Var(type) for type in self.eqn.input_types)
        return Program(inputs, (replace(self.eqn, inputs=inputs, effects=()),), self.eqn.outputs)

    def run_alone(self, name: str) -> Callable[..., Sequence[Any]]:
        """It as the whole program, with nothing around it that a small kernel would wait for."""
        direct = self.run if all(isinstance(type, ArrayType) for type in self.eqn.input_types) else self.run_or_explain

        def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
            try:
                return direct(values, out)
            except Exception as error:
                with attach(self.eqn.location, f"running {name}"):
                    if isinstance(error, Deadlocked):
                        return self.run_or_explain(values, out)
                    raise error

        return run


def _compiled_calls(program: Program) -> Program:
    """The program with its kernel calls compiled, wherever they are."""
    return replace(program, eqns=tuple(map(_compiled, program.eqns)))


def _compiled(eqn: Eqn) -> Eqn:
    """A kernel call as a call of its machine code, or as the evaluator runs it; other equations as they are."""
    if eqn.op.name not in (grid_call.name, launch.name):
        params = map_subprograms(eqn.params, _compiled_calls) if eqn.op.control else eqn.params
        return eqn if params is eqn.params else replace(eqn, params=params)
    try:
        if eqn.op.name == launch.name:
            run = compile_launch(eqn.params["launch"], eqn.params["programs"], eqn.input_types)
        else:
            run = compile_grid(eqn.params["grid"], eqn.params["kernel"], eqn.input_types)
    except Refused as reason:
        _warn(f"the kernel {_name(eqn)} runs on the evaluator: {reason}", reason.location or eqn.location)
        return eqn
    return replace(eqn, op=replace(eqn.op, eval=_Native(run, eqn), control=False))


_WARNED: dict[Any, Any] = {}
"""What has been warned of, as the filters of Python's warnings remember it."""


def _warn(message: str, location: Location | None) -> None:
    """Warn as if at the user's line, once, wherever the kernel is called from."""
    if location is None:
        warnings.warn(message, NotCompiledWarning, stacklevel=3)
    else:
        warnings.warn_explicit(message, NotCompiledWarning, location.file, location.line, registry=_WARNED)


def _name(eqn: Eqn) -> str:
    """What the kernel of a call is called."""
    return (eqn.params["programs"][0] if eqn.op.name == launch.name else eqn.params["kernel"]).name  # type: ignore[no-any-return]
