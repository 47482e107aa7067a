"""Checking that a program is well formed: closed, typed as its operations say, effects bound to its own variables."""

from __future__ import annotations

from palladio.base.errors import InternalError, PalladioError
from palladio.ir.core import Atom, Eqn, Program, Var, subprograms
from palladio.types.types import ArrayType


class IllFormed(InternalError):
    """A program that breaks a rule, and the equation that does."""

    def __init__(self, message: str, equation: Eqn | None) -> None:
        super().__init__(message)
        self.rule = message
        self.equation = equation
        self.location = None if equation is None else equation.location


def verify(program: Program, after: str = "tracing") -> None:
    """Check a program and its sub-programs.

    Args:
        after: the name of the pass to blame.

    Raises:
        IllFormed: naming the pass, the equation and the broken rule.
    """
    known: set[Atom] = set(program.inputs)
    if len(known) != len(program.inputs):
        _blame(after, program, None, "an input variable appears twice")
    for eqn in program.eqns:
        _verify_equation(eqn, known, program, after)
        for inner in subprograms(eqn):
            verify(inner, after)
        known.update(eqn.outputs)
    for atom in program.outputs:
        if isinstance(atom, Var) and atom not in known:
            _blame(after, program, None, f"output {atom!r} is not defined")


def _verify_equation(eqn: Eqn, known: set[Atom], program: Program, after: str) -> None:
    for atom in eqn.inputs:
        if isinstance(atom, Var) and atom not in known:
            _blame(after, program, eqn, f"input {atom!r} is not defined before its use")
    if eqn.op.control:
        _verify_references(eqn, program, after)
    for var in eqn.outputs:
        if var in known:
            _blame(after, program, eqn, f"output {var!r} is defined twice")
    given = eqn.input_types
    try:
        types = tuple(eqn.op.type(*given, **eqn.params))
    except (PalladioError, TypeError) as error:
        _blame(after, program, eqn, str(error))
    if types != tuple(var.type for var in eqn.outputs):
        _blame(after, program, eqn, f"its outputs should have types {', '.join(map(str, types))}")
    effects = tuple(
        (effect.kind, None if effect.position is None else eqn.inputs[effect.position])
        for effect in eqn.op.effects_of(given, eqn.params)
    )
    if effects != eqn.effects:
        _blame(after, program, eqn, "its effects are not those of its operation")
    for var in eqn.outputs:
        if not isinstance(var.type, ArrayType):
            _blame(after, program, eqn, "an output is not an array")


def _verify_references(eqn: Eqn, program: Program, after: str) -> None:
    """Two inputs of a program are two memories: passes keep the order of effects on one reference only."""
    for atom in eqn.inputs:
        if atom in eqn.written and eqn.inputs.count(atom) > 1:
            _blame(after, program, eqn, f"reference {atom!r} is passed twice and written")


def _blame(after: str, program: Program, eqn: Eqn | None, rule: str) -> None:
    where = "" if eqn is None else f" in an equation of {eqn.op.name!r}"
    raise IllFormed(f"ill-formed program {program.name!r} after {after}{where}: {rule}", eqn)
