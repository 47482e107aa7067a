"""Common subexpressions: a value that is computed twice is computed once.

Two equations are equal if operation, inputs and parameters are. Equations that only read references are equal as long
as nothing writes them in between; one with any other effect is never merged. Each sub-program is processed alone. Two
inputs of a program are assumed not to alias (the verifier refuses a written reference that is passed twice).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from palladio.ir.core import Atom, Eqn, Literal, Program
from palladio.ir.rewrite import map_subprograms, substituted, with_body, with_parts
from palladio.passes.pipeline import ANY, Pass
from palladio.types.effects import EffectKind

Versions = Counter[Atom]


def merge_in(program: Program) -> Program:
    """The program in which each common subexpression is computed only at its first occurrence."""
    same: dict[Atom, Atom] = {}
    known: dict[Hashable, Eqn] = {}
    written: Versions = Counter()
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        eqn = substituted(eqn, same)
        key = _key(eqn, written)
        first = known.setdefault(key, eqn) if key is not None else eqn
        if first is not eqn:
            same.update(zip(eqn.outputs, first.outputs, strict=True))
            continue
        written.update(eqn.written)
        if eqn.synchronises:  # other threads may have written to any reference
            written[None] += 1
        eqns.append(with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, merge_in)))
    return with_body(program, eqns, (same.get(atom, atom) for atom in program.outputs))


def _key(eqn: Eqn, written: Versions) -> Hashable | None:
    """The key of an equation, equal for equations that compute the same; None if it cannot be merged."""
    if not eqn.outputs or any(kind is not EffectKind.READ or var is None for kind, var in eqn.effects):
        return None
    inputs = [_atom_key(atom) for atom in eqn.inputs]
    if eqn.op.commutative:
        inputs.sort(key=hash)
    versions = tuple((written[var], written[None]) for _, var in eqn.effects if var is not None)
    params = tuple((name, _value_key(value)) for name, value in sorted(eqn.params.items()))
    return eqn.op, tuple(inputs), versions, params


def _atom_key(atom: Atom) -> Hashable:
    return (atom.type, atom.value.tobytes()) if isinstance(atom, Literal) else atom


def _value_key(value: Any) -> Hashable:
    """A parameter by type and value: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_value_key, value))
    if isinstance(value, float):
        return "float", value.hex()
    return type(value), value


merge_common_subexpressions = Pass(
    name="merge_common_subexpressions",
    consumes=ANY,
    produces=ANY,
    run=merge_in,
    doc="Computes each common subexpression once. Finds more after simplify, which brings equations to one form.",
)
