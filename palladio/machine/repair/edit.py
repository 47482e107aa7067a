"""Edits of one equation of a program, at any depth of its sub-programs.

A path leads to a sub-program: for each level the number of the equation, the parameter, and the index in it if that is
a tuple. Equations are addressed by path and number, not by identity, since one may occur twice in a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, with_body, with_parts
from palladio.ops import OPS
from palladio.ops.control import loop
from palladio.types.transforms import Index, Operand, SliceEntry, transformed

Step = tuple[int, str, int | None]
Path = tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Spot:
    """An equation with its position: number `index` of the sub-program `program` at `path`."""

    path: Path
    index: int
    program: Program

    @property
    def eqn(self) -> Eqn:
        """The equation."""
        return self.program.eqns[self.index]


def spots(program: Program, path: Path = ()) -> Iterator[Spot]:
    """Every equation of a program and of its sub-programs, outermost first."""
    for index, eqn in enumerate(program.eqns):
        yield Spot(path, index, program)
        for key, place, part in parts(eqn):
            yield from spots(part, (*path, (index, key, place)))


def parts(eqn: Eqn) -> Iterator[tuple[str, int | None, Program]]:
    """The sub-programs of an equation, each with its parameter and its index there."""
    for key, value in eqn.params.items():
        if isinstance(value, Program):
            yield key, None, value
        elif isinstance(value, tuple):
            yield from ((key, place, part) for place, part in enumerate(value) if isinstance(part, Program))


def part_at(program: Program, path: Path) -> Program:
    """The sub-program that a path leads to."""
    for index, key, place in path:
        found = program.eqns[index].params[key]
        program = found if place is None else found[place]
    return program


def with_part(eqn: Eqn, key: str, place: int | None, part: Program) -> Eqn:
    """The equation with another sub-program."""
    value = eqn.params[key]
    changed = part if place is None else (*value[:place], part, *value[place + 1 :])
    return with_parts(eqn, eqn.inputs, {**eqn.params, key: changed})


def with_part_at(program: Program, path: Path, part: Program) -> Program:
    """The program with another sub-program at a path."""
    if not path:
        return part
    (at, key, place), *rest = path
    outer = program.eqns[at]
    whole = with_part(outer, key, place, with_part_at(part_at(program, path[:1]), tuple(rest), part))
    return with_body(program, [*program.eqns[:at], whole, *program.eqns[at + 1 :]], program.outputs)


def replaced(program: Program, path: Path, index: int, count: int, eqns: Iterable[Eqn]) -> Program:
    """The program with `count` equations from number `index` on, in the sub-program at `path`, replaced by others."""
    part = part_at(program, path)
    changed = with_body(part, [*part.eqns[:index], *eqns, *part.eqns[index + count :]], part.outputs)
    return with_part_at(program, path, changed)


# Variables of an outer program in an inner one.


def passed_in(program: Program, path: Path, atom: Atom) -> tuple[Program, Atom] | None:
    """The program in which the sub-program at `path` gets an atom of this one as input, and the inner atom.

    None if the path leads through an operation that does not pass operands on.
    """
    if not path or isinstance(atom, Literal):
        return program, atom
    (at, key, place), *rest = path
    given = _given(program.eqns[at], key, place, atom)
    if given is None:
        return None
    eqn, name = given
    value = eqn.params[key]
    found = passed_in(value if place is None else value[place], tuple(rest), name)
    if found is None:
        return None
    inner, name_there = found
    eqn = with_part(eqn, key, place, inner)
    return with_body(program, [*program.eqns[:at], eqn, *program.eqns[at + 1 :]], program.outputs), name_there


def _given(eqn: Eqn, key: str, place: int | None, atom: Atom) -> tuple[Eqn, Var] | None:
    """The equation that passes an atom to its sub-programs, and the variable for it in one of them."""
    first = eqn.op.own_operands
    if first is None:
        return None
    constants = eqn.params.get("constants", len(eqn.inputs) - first)  # loop-invariant operands
    bounds = 1 if eqn.op is loop else 0
    end = first + bounds + constants if "constants" in eqn.params else len(eqn.inputs)
    value = eqn.params[key]
    program = value if place is None else value[place]
    for position in range(first + bounds, end):
        if eqn.inputs[position] is atom:
            return eqn, program.inputs[position - first]
    hint = getattr(atom, "hint", "")
    params = dict(eqn.params)
    at = end - first

    def with_input(part: Program) -> Program:
        inputs = (*part.inputs[:at], Var(atom.type, hint), *part.inputs[at:])
        return Program(inputs, part.eqns, part.outputs, part.name, part.location)

    for name, number, part in parts(eqn):
        changed = with_input(part)
        if number is None:
            params[name] = changed
        else:
            params[name] = (*params[name][:number], changed, *params[name][number + 1 :])
    if "constants" in params:
        params["constants"] += 1
    changed = replace(eqn, inputs=(*eqn.inputs[:end], atom, *eqn.inputs[end:]))
    eqn = with_parts(changed, changed.inputs, params)
    value = eqn.params[key]
    return eqn, (value if place is None else value[place]).inputs[at]


# Indices and parameters.


def with_params(eqn: Eqn, **params: Any) -> Eqn:
    """The equation with some static parameters changed that do not affect its effects."""
    return replace(eqn, params={**eqn.params, **params})


def with_operand(eqn: Eqn, name: str, atom: Atom) -> Eqn:
    """The equation with another atom for an operand that has no effects."""
    at = eqn.op.signature.operands.index(name)
    return replace(eqn, inputs=(*eqn.inputs[:at], atom, *eqn.inputs[at + 1 :]))


def shape_at(eqn: Eqn, position: int, level: int) -> tuple[int, ...]:
    """The shape of the selection of the first `level` transforms of an input's stack."""
    stack = eqn.op.stacks(eqn.transforms)[position]
    operands = [atom.type for atom in eqn.indices]
    return transformed(eqn.inputs[position].type.array, stack[:level], operands).shape  # type: ignore[union-attr,arg-type]


def reindexed(
    eqn: Eqn,
    positions: Iterable[int],
    level: int,
    axis: int,
    static: Callable[[int], int],
    steps: Sequence[tuple[str, int]],
) -> Sequence[Eqn]:
    """The equation with another index along one axis of one level of some stacks, preceded by the index arithmetic."""
    builder = Builder()
    builder.location = eqn.location
    inputs = list(eqn.inputs)
    stacks = list(eqn.op.stacks(eqn.transforms))
    for position in positions:
        entries = list(stacks[position][level].entries)
        entry = entries[axis]
        start: Any = entry.start if isinstance(entry, SliceEntry) else entry
        if isinstance(start, Operand):
            atom = stepped(builder, inputs[eqn.op.index_start + start.position], steps)
            start = Operand(len(inputs) - eqn.op.index_start)
            inputs.append(atom)
        else:
            start = static(start)
        entries[axis] = replace(entry, start=start) if isinstance(entry, SliceEntry) else start
        stack = stacks[position]
        stacks[position] = (*stack[:level], Index(tuple(entries)), *stack[level + 1 :])
    transforms = tuple(stacks) if eqn.op.ref_count > 1 else stacks[0]
    return *builder.eqns, replace(with_params(eqn, transforms=transforms), inputs=tuple(inputs))


def stepped(builder: Builder, atom: Atom, steps: Sequence[tuple[str, int]]) -> Atom:
    """An index after these operations with constants."""
    for name, amount in steps:
        (atom,) = builder.emit(OPS[name], atom, Literal(amount, atom.type.dtype))  # type: ignore[union-attr]
    return atom


def first_part(eqn: Eqn, position: int) -> tuple[int, int, int, int] | None:
    """The first level and axis at which a stack selects one of several equal parts; their size, and the extent."""
    for level, transform in enumerate(eqn.op.stacks(eqn.transforms)[position]):
        if not isinstance(transform, Index):
            continue
        shape = shape_at(eqn, position, level)
        for axis, (entry, extent) in enumerate(zip(transform.entries, shape, strict=True)):
            size = entry.size if isinstance(entry, SliceEntry) else 1
            if extent > size > 0 == extent % size and not (isinstance(entry, SliceEntry) and entry.stride != 1):
                return level, axis, size, extent
    return None
