"""The references of a launch in all its programs: their accesses, other types, rings of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Program, Var, subprograms, walk
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.machine.repair.edit import reindexed, shape_at
from palladio.ops.threads.launch import launch
from palladio.types.attributes import Arrivals
from palladio.types.transforms import Index, Peer, SliceEntry
from palladio.types.types import RefType

Known = Mapping[Atom, Var]


def launches(program: Program) -> list[Any]:
    """The launches of a program."""
    return [eqn.launch for eqn in walk(program) if eqn.op is launch]


def references(program: Program, space: Any) -> list[Var]:
    """The references to scratch memory of a space, at their allocation."""
    found: dict[Var, None] = {}
    for eqn in walk(program):
        made: Sequence[Var] = ()
        if eqn.op is launch:
            count = len(eqn.launch.scratch)
            made = [var for part in eqn.programs for var in part.inputs[len(part.inputs) - count :]]
        elif "allocations" in eqn.params:
            body = eqn.body
            made = body.inputs[len(body.inputs) - len(eqn.allocations) :]
        found.update((var, None) for var in made if isinstance(var.type, RefType) and var.type.space is space)
    return list(found)


def _within(eqn: Eqn, part: Program, known: Known) -> dict[Atom, Var]:
    """The references passed to a sub-program, by its own variables; replaced only if their type changes."""
    first = eqn.op.own_operands
    found: dict[Atom, Var] = {}
    for position, atom in enumerate(eqn.inputs) if first is not None else ():
        if atom in known and 0 <= position - first < len(part.inputs):
            var = part.inputs[position - first]
            found[var] = var if known[atom].type == var.type else Var(known[atom].type, var.hint)
    return found


def rewritten(
    program: Program, roots: Known, known: Known, change: Callable[[Eqn, set[int]], Sequence[Eqn]]
) -> Program:
    """The program with some references replaced, and every equation that reaches them changed.

    Args:
        roots: the replacements of references at their allocation.
        known: the replacements of references of this program.
        change: called with an equation, after replacement, and the positions of its replaced inputs.
    """
    known = {**known, **{var: roots[var] for var in program.inputs if var in roots}}
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        at = {position for position, atom in enumerate(eqn.inputs) if atom in known}

        def inner(part: Program, eqn: Eqn = eqn) -> Program:
            return rewritten(part, roots, _within(eqn, part, known), change)

        params = map_subprograms(eqn.params, inner)
        params = _with_new_types(params, roots)
        if at:
            inputs = tuple(known.get(atom, atom) for atom in eqn.inputs)
            eqns += change(with_parts(eqn, inputs, params), at)
        else:
            eqns.append(with_parts(eqn, eqn.inputs, params))
    changed = with_body(program, eqns, program.outputs)
    inputs = tuple(known.get(var, var) for var in program.inputs)
    return changed if inputs == program.inputs else replace(changed, inputs=inputs)


def _with_new_types(params: dict[str, Any], roots: Known) -> dict[str, Any]:
    """The parameters of an equation, with allocation types taken from the inputs of its programs."""
    if not any(new.type != old.type for old, new in roots.items()):
        return params
    if "launch" in params:
        made, program = params["launch"], params["programs"][0]
        count = len(made.scratch)
        scratch = tuple(var.type for var in program.inputs[len(program.inputs) - count :])
        return {**params, "launch": replace(made, scratch=scratch)}
    if "allocations" in params:
        inputs = params["body"].inputs
        return {**params, "allocations": tuple(v.type for v in inputs[len(inputs) - len(params["allocations"]) :])}
    return params


def accesses(program: Program, root: Var) -> list[tuple[Eqn, int]]:
    """The equations that access a reference, including sub-programs, with the positions of the reference."""
    found: list[tuple[Eqn, int]] = []

    def visit(part: Program, known: set[Atom]) -> None:
        known = known | ({root} & set(part.inputs))
        for eqn in part.eqns:
            if eqn.op.index_start:
                reached = range(len(eqn.op.stacks(eqn.transforms)))
                found.extend((eqn, position) for position in reached if eqn.inputs[position] in known)
            for inner in subprograms(eqn):
                visit(inner, set(_within(eqn, inner, {atom: atom for atom in eqn.inputs if atom in known})))  # type: ignore[misc]

    visit(program, set())
    return found


def _own(stack: Sequence[Any]) -> int:
    """The number of transforms before those within the buffer: 1 for a `Peer`, or 0."""
    return 1 if stack and isinstance(stack[0], Peer) else 0


@dataclass(frozen=True)
class Slots:
    """The slots of a buffer: an indexed axis of one level of its stacks, counted after a `Peer`."""

    root: Var
    level: int
    axis: int
    extent: int
    sites: tuple[tuple[Eqn, int], ...]


def slots_of(program: Program, space: Any) -> Iterator[Slots]:
    """The axes along which a reference of a space is indexed by several constants or by a variable."""
    for root in references(program, space):
        found: dict[tuple[int, int], list[tuple[Eqn, int, Any, int]]] = {}
        for eqn, position in accesses(program, root):
            stack = eqn.op.stacks(eqn.transforms)[position]
            for level, transform in enumerate(stack[_own(stack) :]):
                if isinstance(transform, Index):
                    shape = shape_at(eqn, position, level + _own(stack))
                    for axis, entry in enumerate(transform.entries):
                        if not isinstance(entry, SliceEntry):
                            found.setdefault((level, axis), []).append((eqn, position, entry, shape[axis]))
        for (level, axis), uses in found.items():
            entries = {entry if isinstance(entry, int) else None for _, _, entry, _ in uses}
            if uses[0][3] > 1 and (None in entries or len(entries) > 1):
                yield Slots(root, level, axis, uses[0][3], tuple((eqn, position) for eqn, position, *_ in uses))


def wrapped(program: Program, slots: Sequence[Slots], count: int) -> Program:
    """The program with `count` slots in these buffers: each slot index is taken modulo `count`."""
    for each in slots:

        def change(eqn: Eqn, at: set[int], each: Slots = each) -> Sequence[Eqn]:
            if not eqn.op.index_start:
                return (eqn,)
            eqns: list[Eqn] = []
            for position in sorted(at):
                stacks = eqn.op.stacks(eqn.transforms)
                stack = stacks[position] if position < len(stacks) else ()
                level = each.level + _own(stack)
                if len(stack) <= level or not isinstance(stack[level], Index):
                    continue
                if not isinstance(stack[level].entries[each.axis], SliceEntry):
                    *more, eqn = reindexed(
                        eqn, {position}, level, each.axis, lambda entry: entry % count, [("rem", count)]
                    )
                    eqns += more
            return (*eqns, eqn)

        program = rewritten(program, {each.root: each.root}, {}, change)
    return program


def recounted(program: Program, root: Var, count: int) -> Program:
    """The program in which a barrier counts `count` arrivals."""
    type: Any = root.type
    others = tuple(each for each in type.attributes if not isinstance(each, Arrivals))
    attributes = (replace(type.attribute(Arrivals), count=count), *others)
    new = replace(type, attributes=attributes)
    return rewritten(program, {root: Var(new, root.hint)}, {}, lambda eqn, _: (eqn,))
