"""Discharge: references become values.

A load becomes an `extract` of the value that its reference holds, a store an `insert` that makes the next one, a loop
that writes a reference a loop that carries it, a scope its body alone. The rule of an operation is in its record
(`Op.discharge`); this module has the state that the rules share: the current value of each reference.

Within one equation a reference occurs at one position unless it is only read (the verifier ensures it), so the new
values that a rule returns cannot contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palladio.base.errors import unreachable
from palladio.ir.core import Atom, Eqn, Literal, Program, Var, subprograms
from palladio.ir.rewrite import Builder, substituted, with_body
from palladio.ops.arrays.shape import broadcast
from palladio.passes.pipeline import ANY, VALUES, Pass
from palladio.types.types import RefType

Wants = Callable[[RefType], bool]


def everything(ref: RefType) -> bool:
    """The choice of every reference."""
    return True


def discharge_program(program: Program, wants: Wants = everything) -> Program:
    """The program with references turned to values: an input `ref<s, f32[m]>` becomes `f32[m]`.

    Its final value becomes an output. The final values follow the existing outputs, in the order of the inputs.

    Args:
        wants: the references to discharge, inputs and allocations of scopes alike; the others stay references.
    """
    turned = [n for n, var in enumerate(program.inputs) if isinstance(var.type, RefType) and wants(var.type)]
    return _discharge(program, turned, turned, wants)


def _discharge(program: Program, positions: Iterable[int], returned: Iterable[int], wants: Wants) -> Program:
    turned, returned = set(positions), list(returned)
    if not turned and not any(inner for eqn in program.eqns for inner in subprograms(eqn)):
        return program
    state = _State(wants)
    inputs: list[Var] = []
    for number, var in enumerate(program.inputs):
        if number in turned and isinstance(var.type, RefType):
            value = Var(var.type.array, var.hint)
            state.refs[var] = value
            var = value
        inputs.append(var)
    for eqn in program.eqns:
        state.rewrite(eqn)
    outputs = [state.value(atom) for atom in program.outputs]
    outputs += [state.refs[program.inputs[number]] for number in returned]
    if not turned:
        return with_body(program, state.builder.eqns, outputs)
    return Program(tuple(inputs), tuple(state.builder.eqns), tuple(outputs), program.name, program.location)


class _State:
    """The state of rewriting one program: the value of each discharged reference, and of each old variable."""

    def __init__(self, wants: Wants) -> None:
        self.wants = wants
        self.builder = Builder()
        self.refs: dict[Atom, Atom] = {}
        self.values: dict[Atom, Atom] = {}

    def value(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom)

    def rewrite(self, eqn: Eqn) -> None:
        """Write the replacement of an equation."""
        discharged = frozenset(n for n, atom in enumerate(eqn.inputs) if atom in self.refs)
        if not discharged and not any(True for _ in subprograms(eqn)):
            self.builder.eqns.append(substituted(eqn, self.values))
            return
        if eqn.op.discharge is None:
            unreachable(f"op {eqn.op.name!r} uses references and has no discharge rule")
        changed = frozenset(n for n in discharged if eqn.inputs[n] in eqn.written)
        self.builder.location = eqn.location
        before = len(self.builder.eqns)
        inputs = (self.refs.get(atom) or self.value(atom) for atom in eqn.inputs)
        result = eqn.op.discharge(_Context(self, discharged, changed), *inputs, **eqn.params)
        made: set[Atom] = {var for new in self.builder.eqns[before:] for var in new.outputs}
        replaced = [*zip(eqn.outputs, result.outputs, strict=True)]
        self.values.update(replaced)
        changes = [(eqn.inputs[position], new) for position, new in result.refs.items()]
        self.refs.update(changes)
        for old, new in (*replaced, *changes):
            if new in made and isinstance(new, Var) and isinstance(old, Var):
                new.hint = new.hint or old.hint


class _Context:
    """The context of one equation's discharge rule (`palladio.ir.core.DischargeContext`)."""

    def __init__(self, state: _State, discharged: frozenset[int], changed: frozenset[int]) -> None:
        self.discharged = discharged
        self.changed = changed
        self.emit = state.builder.emit
        self.inline = state.builder.inline
        self.wants = state.wants

    def uninitialized(self, ref: RefType) -> Atom:
        """An array of the value of unwritten memory of this type."""
        scalar = Literal(ref.initial, ref.dtype)
        return self.emit(broadcast, scalar, shape=ref.shape, axes=())[0] if ref.shape else scalar

    def discharge(self, program: Program, positions: Iterable[int], changed: Iterable[int]) -> Program:
        """The sub-program with these inputs turned to values, and the final values of `changed` after its outputs."""
        return _discharge(program, positions, changed, self.wants)


discharge = Pass(
    name="discharge",
    consumes=ANY,
    produces=VALUES,
    run=discharge_program,
    doc="Turns every reference into the values it holds and appends the final values of the reference inputs to the "
    "outputs. Leaves unused values behind for remove_dead_code, and whole extracts and inserts for simplify.",
)
