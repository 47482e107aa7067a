"""The interpreter of the definition: it runs a program on NumPy values through the `eval` of each operation.

A program is prepared once: it becomes a Python function with one line per equation, kept with the program. The line that failed
names the equation, so running costs nothing for errors, and an error gets the location of its equation here and nowhere else.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from palladio.base.errors import InternalError, PalladioError, attach
from palladio.ir.op import ControlEval, Run
from palladio.ir.program import Atom, Eqn, Literal, Program

Prepared = Callable[..., Sequence[Any]]

_FILE = "<palladio program>"
_KEPT = "_prepared"


def evaluate(program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """Run a program. Arrays and references are NumPy arrays; references are written in place.

    Returns:
        The values of the program's outputs.
    """
    prepared = program.__dict__.get(_KEPT)
    if prepared is None:
        prepared = program.__dict__[_KEPT] = _prepare(program)
    return prepared(*values)


def drive(steps: ControlEval) -> Sequence[Any]:
    """Run a control-flow operation's generator, evaluating each program that it asks for."""
    try:
        request: Run = next(steps)
        while True:
            request = steps.send(evaluate(request.program, request.values))
    except StopIteration as stop:
        return stop.value


def _call(eqn: Eqn) -> Callable[..., Any]:
    function = partial(eqn.op.eval, **eqn.params) if eqn.params else eqn.op.eval
    if eqn.op.control:
        return lambda *values: drive(function(*values))
    return function


def _prepare(program: Program) -> Prepared:
    """Write the program as the source of one Python function, line n + 2 for equation n, and compile it."""
    names: dict[Any, str] = {var: f"v{number}" for number, var in enumerate(program.inputs)}
    scope: dict[str, Any] = {}

    def name(atom: Atom) -> str:
        if isinstance(atom, Literal):
            constant = f"c{len(scope)}"
            scope[constant] = atom.value
            return constant
        return names[atom]

    lines = [f"def run({', '.join(names.values())}):"]
    for number, eqn in enumerate(program.eqns):
        scope[f"f{number}"] = _call(eqn)
        arguments = ", ".join(name(atom) for atom in eqn.inputs)
        for var in eqn.outputs:
            names[var] = f"v{len(names)}"
        targets = "".join(f"{names[var]}, " for var in eqn.outputs)
        lines.append(f" {targets}{'= ' if targets else ''}f{number}({arguments})")
    lines.append(f" return [{', '.join(name(atom) for atom in program.outputs)}]")
    exec(compile("\n".join(lines), _FILE, "exec"), scope)
    return partial(_run_located, scope["run"], program)


def _run_located(run: Prepared, program: Program, *values: Any) -> Sequence[Any]:
    try:
        return run(*values)
    except (PalladioError, InternalError) as error:
        if error.location is None:
            error.location = _failed_equation(program, error).location
        raise
    except Exception as error:
        eqn = _failed_equation(program, error)
        with attach(eqn.location, f"evaluating {eqn.op.name}"):
            raise


def _failed_equation(program: Program, error: Exception) -> Eqn:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    return program.eqns[(frames[0].lineno or 2) - 2]
