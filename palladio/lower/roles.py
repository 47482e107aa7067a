"""The roles of a launch: the warpgroups that run the same program, and that program.

Threads of a kernel branch on their number: `cond (warpgroup == 2)`. Where the outcome is known for each warpgroup, they
get separate programs, without the branch. Threads with the same outcomes share one, in which the number stays a
variable if there are several of them.

The pass `split_roles` writes a launch's program as one choice between those of its roles; emission writes one branch
for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, map_subprograms, with_parts
from palladio.lower.ranges import constants
from palladio.ops.control import cond
from palladio.ops.threads.launch import Launch, MeshShape
from palladio.passes.common_subexpressions import merge_common_subexpressions
from palladio.passes.dead_code import remove_dead_code
from palladio.passes.pipeline import run_passes
from palladio.passes.simplify import simplify
from palladio.types.types import ArrayType

Values = Mapping[int, Any]
"""The value of a scalar in each thread of a role."""


@dataclass(frozen=True)
class Role:
    """Threads that run one program.

    Fields:
        threads: their numbers.
        program: with the inputs that the launch's program has.
    """

    threads: tuple[int, ...]
    program: Program


class _Split(Exception):
    """Threads that were grouped take different branches."""

    def __init__(self, parts: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.parts = parts


def roles(program: Program, thread: Var | None, count: int) -> tuple[Role, ...]:
    """The roles of a program that `count` threads run, those of lower numbers first.

    Args:
        thread: the input that is the number of the thread; None if there is only one.
    """
    waiting, found = [tuple(range(count))], []
    while waiting:
        threads = waiting.pop(0)
        try:
            special = _Specialised(threads).program(program, {thread: {n: n for n in threads}} if thread else {})
        except _Split as split:
            waiting = [*split.parts, *waiting]
            continue
        cleaned = run_passes(special, [simplify, merge_common_subexpressions, remove_dead_code])
        found.append(Role(threads, cleaned))
    return tuple(sorted(found, key=lambda role: role.threads))


def threads_of(mesh: MeshShape) -> int | None:
    """The number of warpgroups in a block; None if known only at the call, or if threads are not warpgroups."""
    axes = mesh.of("thread")
    return None if mesh.has_cores or len(axes) > 1 else axes[0].size if axes else 1


def thread_input(mesh: MeshShape, program: Program) -> Var | None:
    """The input of a mesh's program that is the number of the warpgroup; None if there is one, or several axes."""
    found = [var for var, axis in zip(program.inputs, mesh.axes) if axis.kind == "thread"]
    return found[0] if len(found) == 1 else None


def roles_of(params: Launch, number: int, program: Program) -> tuple[Role, ...]:
    """The roles of a mesh of a launch: those recorded by `split_roles`, or computed now."""
    mesh = params.meshes[number]
    if not params.roles or not params.roles[number]:
        count = math.prod(axis.size or 1 for axis in mesh.of("thread"))
        return roles(program, thread_input(mesh, program), count)
    role_of = params.roles[number]
    programs = program.eqns[-1].branches if max(role_of) else (program,)
    return tuple(
        Role(tuple(thread for thread, each in enumerate(role_of) if each == n), program)
        for n, program in enumerate(programs)
    )


def chooses(program: Program, thread: Var | None, threads: tuple[int, ...]) -> bool:
    """True if these threads take different branches of some `cond` of a program."""
    try:
        _Specialised(threads).program(program, {thread: {n: n for n in threads}} if thread else {})
    except _Split:
        return True
    return False


class _Specialised:
    """Specialises a program for some threads."""

    def __init__(self, threads: tuple[int, ...]) -> None:
        self.threads = threads

    def program(self, program: Program, known: Mapping[Any, Values]) -> Program:
        """The program, given the values of some of its inputs."""
        builder = Builder()
        atoms: dict[Atom, Atom] = {}
        values = dict(known)
        for var in program.inputs:
            if var in values:
                self.settle(var, atoms, values)
        self.write(builder, program.eqns, atoms, values)
        outputs = tuple(atoms.get(atom, atom) for atom in program.outputs)
        return Program(program.inputs, tuple(builder.eqns), outputs, program.name, program.location)

    def settle(self, var: Var, atoms: dict[Atom, Atom], values: dict[Any, Values]) -> None:
        """Replace a variable by a constant, if all threads have one value."""
        different = {np.asarray(value).tobytes() for value in values[var].values()}
        if len(different) == 1 and isinstance(var.type, ArrayType):
            atoms[var] = Literal(next(iter(values[var].values())), var.type.dtype)

    def write(self, builder: Builder, eqns: Sequence[Eqn], atoms: dict[Atom, Atom], values: dict[Any, Values]) -> None:
        """Write equations, with atoms replaced and known values folded."""
        for eqn in eqns:
            if eqn.op is cond and (outcome := self.values(eqn.index, values)) is not None:
                self.choose(builder, eqn, outcome, atoms, values)
                continue
            computed = self.computed(eqn, values)
            if computed is not None:
                values[eqn.outputs[0]] = computed
                self.settle(eqn.outputs[0], atoms, values)
            inputs = [atoms.get(atom, atom) for atom in eqn.inputs]
            params = eqn.params
            if eqn.op.control:
                params = self.inner(eqn, inputs, values)
            outputs = tuple(Var(var.type, var.hint) for var in eqn.outputs)
            new = with_parts(eqn, inputs, params)
            builder.eqns.append(Eqn(new.op, new.inputs, outputs, new.params, new.effects, new.location))
            for old, fresh in zip(eqn.outputs, outputs, strict=True):
                atoms.setdefault(old, fresh)

    def values(self, atom: Atom, values: Mapping[Any, Values]) -> Values | None:
        """The value of an atom in each thread, if it is known."""
        if isinstance(atom, Literal):
            return dict.fromkeys(self.threads, atom.value)
        return values.get(atom)

    def computed(self, eqn: Eqn, values: Mapping[Any, Values]) -> Values | None:
        """The value of the one scalar output of an equation without effects in each thread, if it is known."""
        if eqn.effects or eqn.op.control or len(eqn.outputs) != 1 or eqn.outputs[0].type.shape != ():
            return None
        known = [self.values(atom, values) for atom in eqn.inputs]
        if not known or any(each is None for each in known):
            return None
        found = {}
        with np.errstate(all="ignore"):
            for n in self.threads:
                inputs = [
                    np.asarray(each[n], atom.type.dtype)[()] for each, atom in zip(known, eqn.inputs, strict=True)
                ]
                found[n] = eqn.op.eval(*inputs, **eqn.params)[0]
        return found

    def choose(
        self, builder: Builder, eqn: Eqn, outcome: Values, atoms: dict[Atom, Atom], values: dict[Any, Values]
    ) -> None:
        """Inline the branch that these threads take."""
        branches = eqn.branches
        chosen: dict[int, list[int]] = {}
        for n in self.threads:
            chosen.setdefault(min(max(int(outcome[n]), 0), len(branches) - 1), []).append(n)
        if len(chosen) > 1:
            raise _Split([tuple(part) for part in chosen.values()])
        branch = branches[next(iter(chosen))]
        inner_atoms: dict[Atom, Atom] = {}
        inner_values: dict[Any, Values] = {}
        for var, atom in zip(branch.inputs, eqn.operands, strict=True):
            inner_atoms[var] = atoms.get(atom, atom)
            found = self.values(atom, values)
            if found is not None:
                inner_values[var] = found
        self.write(builder, branch.eqns, inner_atoms, inner_values)
        for var, atom in zip(eqn.outputs, branch.outputs, strict=True):
            atoms[var] = inner_atoms.get(atom, atom)
            found = self.values(atom, inner_values)
            if found is not None:
                values[var] = found

    def inner(self, eqn: Eqn, inputs: Sequence[Atom], values: Mapping[Any, Values]) -> dict[str, Any]:
        """The parameters of control flow with its programs specialised."""

        def change(program: Program) -> Program:
            known = {}
            for var, atom in constants(eqn, program):
                found = self.values(atom, values)
                if found is not None:
                    known[var] = found
            return self.program(program, known)

        return map_subprograms(eqn.params, change)
