"""The interpreter of the definition: it runs a program on NumPy values through the `eval` of each operation.

A program is prepared once: it becomes a Python function with one line per equation, which its evaluator keeps. The line
that failed names the equation, so running costs nothing for errors, and an error gets the location of its equation
here and nowhere else. An executor that carries out some operations in a way of its own is an evaluator with overrides.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import CodeType
from typing import Any, Protocol

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, PalladioError, attach
from palladio.ir.core import Atom, ControlEval, Eqn, Literal, Op, Program, Run, subprograms

Prepared = Callable[..., Sequence[Any]]
Override = Callable[[Eqn], Callable[..., Sequence[Any]] | None]
"""The way in which an executor carries out one equation, a function of its values; None for that of the definition."""


class Runner(Protocol):
    """Runs a prepared program on values: its inputs, and arrays for its outputs where the caller has some."""

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The values of the program's outputs; those of `out`, which lie in row-major order, are written then."""
        ...


_FILE = "<palladio program>"
_KEPT = "_prepared"
_PROGRAM = "program"
PLAIN = "{0}({1})"


class Evaluator:
    """Runs programs on NumPy values.

    Args:
        overrides: for operations that are not carried out by their definition, how else.
    """

    def __init__(self, overrides: Mapping[Op, Override] | None = None) -> None:
        self.overrides = dict(overrides or {})
        self._kept: dict[Program, Prepared] = {}

    def evaluate(self, program: Program, values: Sequence[Any]) -> Sequence[Any]:
        """Run a program. Arrays and references are NumPy arrays; references are written in place.

        Returns:
            The values of the program's outputs.
        """
        try:
            return self._prepared(program)(*values)
        except Exception as error:
            locate(program, error)
            raise

    def runner(self, program: Program) -> Runner:
        """The program as a function of its values, and of arrays for its results, if the caller has some."""
        return _Runner(self, program)

    def __getstate__(self) -> dict[str, Any]:
        return {"overrides": self.overrides, "_kept": {}}  # prepared functions are made again

    def prepare(self, program: Program) -> None:
        """Prepare a program and its sub-programs, so that the first run finds everything ready.

        The sub-programs of an override are its own affair.
        """
        self._prepared(program)
        for eqn in program.eqns:
            for inner in subprograms(eqn) if not self._overrides(eqn) else ():
                self.prepare(inner)

    def drive(self, steps: ControlEval) -> Sequence[Any]:
        """Run a control-flow operation's generator, evaluating each program that it requests."""
        try:
            request: Run = next(steps)
            while True:
                request = steps.send(self.evaluate(request.program, request.values))
        except StopIteration as stop:
            return stop.value

    def _prepared(self, program: Program) -> Prepared:
        """The program as a function: kept with the program for the definition, which is the same everywhere."""
        kept: dict[Any, Prepared] = self._kept if self.overrides else program.__dict__
        key = program if self.overrides else _KEPT
        run = kept.get(key)
        if run is None:
            run = kept[key] = as_function(program, lambda eqn: (PLAIN, self._call(eqn)))
        return run

    def _overrides(self, eqn: Eqn) -> Callable[..., Any] | None:
        override = self.overrides.get(eqn.op)
        return override(eqn) if override is not None else None

    def _call(self, eqn: Eqn) -> Callable[..., Any]:
        function = self._overrides(eqn)
        if function is not None:
            return function
        function = partial(eqn.op.eval, **eqn.params) if eqn.params else eqn.op.eval
        if eqn.op.control:
            return lambda *values: self.drive(function(*values))
        return function


@dataclass(frozen=True)
class _Runner:
    """A program as a function of values, which is pickled with it, if the overrides of its evaluator can be."""

    evaluator: Evaluator
    program: Program

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return written(self.evaluator.evaluate(self.program, values), out)

    def __deepcopy__(self, memo: object) -> _Runner:
        return self  # neither changes


DEFINITION = Evaluator()
"""The evaluator without overrides: what a program means."""

evaluate = DEFINITION.evaluate
drive = DEFINITION.drive


def written(results: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
    """The results, in the arrays of `out` if there are any."""
    if out is None:
        return results
    for target, result in zip(out, results, strict=True):
        np.copyto(target, result)
    return out


def as_function(program: Program, call: Callable[[Eqn], tuple[str, Callable[..., Any]]], first: str = "") -> Any:
    """Write the program as the source of one Python function, line n + 2 for equation n, and compile it.

    The name of a value is reused after its last use, so that no array lives much longer than that.

    Args:
        call: for each equation the form of its line, such as `PLAIN`, and the function {0} that it calls on {1}.
        first: a parameter before the program's inputs.
    """
    names: dict[Any, str] = {var: f"v{number}" for number, var in enumerate(program.inputs)}
    scope: dict[str, Any] = {_PROGRAM: weakref.ref(program)}
    last = {atom: number for number, eqn in enumerate(program.eqns) for atom in (*eqn.outputs, *eqn.inputs)}
    last |= dict.fromkeys(program.outputs, len(program.eqns))
    free: list[str] = []
    count = len(names)
    leading = [first] if first else []

    def name(atom: Atom) -> str:
        if isinstance(atom, Literal):
            constant = f"c{len(scope)}"
            scope[constant] = atom.value
            return constant
        return names[atom]

    lines = [f"def run({', '.join((*leading, *names.values()))}):"]
    for number, eqn in enumerate(program.eqns):
        form, scope[f"f{number}"] = call(eqn)
        arguments = ", ".join(map(name, eqn.inputs))
        free += [names[var] for var in {atom: None for atom in eqn.inputs if atom in names and last[atom] == number}]
        for var in eqn.outputs:
            if not free:
                free.append(f"v{count}")
                count += 1
            names[var] = free.pop()
        targets = "".join(f"{names[var]}, " for var in eqn.outputs)
        free += [names[var] for var in eqn.outputs if last[var] == number]
        lines.append(f" {targets}{'= ' if targets else ''}{form.format(f'f{number}', arguments)}")
    lines.append(f" return [{', '.join(name(atom) for atom in program.outputs)}]")
    exec(_compiled("\n".join(lines)), scope)
    return scope["run"]


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    """The code of a program's function; many programs differ only in the values of its names."""
    return compile(source, _FILE, "exec")


def locate(program: Program, error: Exception) -> None:
    """Give an error the location of the equation that failed; that of the innermost program, where several ran."""
    if isinstance(error, (PalladioError, InternalError)):
        if error.location is None:
            error.location = _failed_equation(program, error).location
        return
    eqn = _failed_equation(program, error)
    with attach(eqn.location, f"evaluating {eqn.op.name}"):
        raise error


def _failed_equation(program: Program, error: Exception) -> Eqn:
    line = 2
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == _FILE:
            program, line = frame.f_globals[_PROGRAM](), number
    return program.eqns[line - 2]
