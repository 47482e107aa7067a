"""Substitution, and a builder that writes the equations of a new program: shared by every rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_not
from typing import Any

from palladio.base.locations import Location
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Op, Program, Var

Substitution = Mapping[Atom, Atom]


def with_parts(eqn: Eqn, inputs: Sequence[Atom], params: dict[str, Any]) -> Eqn:
    """The equation with other inputs and parameters; outputs and location stay, effects follow.

    It is the same object if nothing changed. The output types must not change; the verifier checks it.
    """
    inputs = tuple(inputs)
    if params is eqn.params and inputs == eqn.inputs:  # atoms are equal if they are the same object
        return eqn
    effects = tuple(
        (effect.kind, None if effect.position is None else inputs[effect.position])
        for effect in eqn.op.effects_of([atom.type for atom in inputs], params)
    )
    return Eqn(eqn.op, inputs, eqn.outputs, params, effects, eqn.location)  # type: ignore[arg-type]


def substituted(eqn: Eqn, substitution: Substitution) -> Eqn:
    """The equation with its inputs replaced as the substitution says."""
    if substitution.keys().isdisjoint(eqn.inputs):
        return eqn
    return with_parts(eqn, [substitution.get(atom, atom) for atom in eqn.inputs], eqn.params)


def map_subprograms(params: dict[str, Any], change: Callable[[Program], Program]) -> dict[str, Any]:
    """The parameters with each program among them changed; the same dictionary if none did."""
    changed = params
    for key, value in params.items():
        new = _mapped(value, change)
        if new is not value:
            changed = {**changed, key: new}
    return changed


def _mapped(value: Any, change: Callable[[Program], Program]) -> Any:
    if isinstance(value, Program):
        return change(value)
    if isinstance(value, tuple):
        for item in value:
            if isinstance(item, Program):
                items = tuple(_mapped(item, change) for item in value)
                return items if any(map(is_not, items, value)) else value
    return value


def with_body(program: Program, eqns: Iterable[Eqn], outputs: Iterable[Atom]) -> Program:
    """The program with other equations and outputs; itself if nothing changed."""
    eqns, outputs = tuple(eqns), tuple(outputs)
    if eqns == program.eqns and outputs == program.outputs:  # these, too, are equal only to themselves
        return program
    return Program(program.inputs, eqns, outputs, program.name, program.location)


def with_signature(program: Program, inputs: Iterable[Var], outputs: Iterable[Atom]) -> Program:
    """The program with other inputs (a subset of its own, in any order) and outputs."""
    return Program(tuple(inputs), program.eqns, tuple(outputs), program.name, program.location)


class Builder:
    """Writes equations in order. `location` is given to those that are formed; a rewriting sets it as it goes."""

    def __init__(self) -> None:
        self.eqns: list[Eqn] = []
        self.location: Location | None = None

    def emit(self, op: Op, *inputs: Atom, **params: Any) -> tuple[Atom, ...]:
        """Form an equation and return its outputs."""
        eqn = form(op, inputs, params, self.location)
        self.eqns.append(eqn)
        return eqn.outputs

    def inline(self, program: Program, values: Sequence[Atom]) -> tuple[Atom, ...]:
        """Write the equations of a program here, with fresh variables and their locations, and return its outputs."""
        known: dict[Atom, Atom] = dict(zip(program.inputs, values, strict=True))
        for eqn in program.eqns:
            fresh = tuple(Var(var.type, var.hint) for var in eqn.outputs)
            moved = substituted(eqn, known)
            self.eqns.append(Eqn(moved.op, moved.inputs, fresh, moved.params, moved.effects, moved.location))
            known.update(zip(eqn.outputs, fresh, strict=True))
        return tuple(known.get(atom, atom) for atom in program.outputs)
