"""A launch's program as one branch on the number of the warpgroup, between the programs of its roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, map_subprograms, with_body, with_parts
from palladio.lower.forms import SPLIT
from palladio.lower.roles import Role, roles, thread_input, threads_of
from palladio.ops.arrays.compare import eq, select
from palladio.ops.control import cond
from palladio.ops.threads.launch import Launch, MeshShape, launch
from palladio.passes.pipeline import ANY, Pass
from palladio.types import dtypes


def _split_program(mesh: MeshShape, program: Program) -> tuple[Program, tuple[int, ...]]:
    """A program as a branch between its roles, and the role of each thread."""
    count = threads_of(mesh)
    if count is None:
        return program, ()
    thread = thread_input(mesh, program)
    found = roles(program, thread, count)
    role_of = tuple(next(n for n, role in enumerate(found) if each in role.threads) for each in range(count))
    if len(found) == 1 or thread is None:
        return found[0].program, role_of
    return _choice(program, thread, found), role_of


def _choice(program: Program, thread: Var, found: Sequence[Role]) -> Program:
    builder = Builder()
    builder.location = program.location
    number: Atom = Literal(0, dtypes.INT32)
    for n, role in enumerate(found[1:], 1):
        for each in role.threads:
            (mine,) = builder.emit(eq, thread, Literal(each, dtypes.INT32))
            (number,) = builder.emit(select, mine, Literal(n, dtypes.INT32), number)
    outputs = builder.emit(cond, number, *program.inputs, branches=tuple(role.program for role in found))
    return Program(program.inputs, tuple(builder.eqns), outputs, program.name, program.location)


def _split(eqn: Eqn) -> Eqn:
    inner = map_subprograms(eqn.params, split_roles_in)
    if eqn.op is not launch or eqn.launch.roles:
        return with_parts(eqn, eqn.inputs, inner)
    params: Launch = eqn.launch
    found = [_split_program(*each) for each in zip(params.meshes, inner["programs"], strict=True)]
    programs, role_of = zip(*found, strict=True)
    return with_parts(eqn, eqn.inputs, {**inner, "launch": replace(params, roles=role_of), "programs": programs})


def split_roles_in(program: Program) -> Program:
    """The program with the programs of its launches split by role."""
    return with_body(program, map(_split, program.eqns), program.outputs)


split_roles = Pass(
    name="split_roles",
    consumes=ANY,
    produces=SPLIT,
    run=split_roles_in,
    doc="Writes the program of a launch as one choice between the programs of its roles, each specialised for the "
    "warpgroups that run it.",
)
