"""The backward slice of a program from its branches, loop bounds, indices and predicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from palladio.ir.core import Atom, Eqn, Program, Var, walk
from palladio.ops.control import loop, repeat
from palladio.ops.threads.launch import launch
from palladio.types import dtypes
from palladio.types.transforms import Index, Operand, Peer, SliceEntry, Transform
from palladio.types.types import ArrayType, RefType
from palladio.types.views import View


def controlling(programs: Sequence[Program]) -> set[int]:
    """The equations, by identity, whose results control threads. Conservative: too many, never too few."""
    sources: dict[Var, list[Atom]] = defaultdict(list)
    makers: dict[Var, Eqn] = {}
    wanted: list[Atom] = []
    for eqn in (eqn for program in programs for eqn in walk(program)):
        makers.update(dict.fromkeys(eqn.outputs, eqn))
        wanted += deciding(eqn)
        for var, atom in _flows(eqn):
            sources[var].append(atom)
        wanted += eqn.condition.outputs if eqn.op is repeat else ()
    found, seen = set(), set()
    while wanted:
        atom = wanted.pop()
        if not isinstance(atom, Var) or atom in seen:
            continue
        seen.add(atom)
        wanted += sources[atom]
        maker = makers.get(atom)
        if maker is not None and not maker.subprograms:
            found.add(id(maker))
            wanted += maker.inputs
    return found


def deciding(eqn: Eqn) -> list[Atom]:
    """The operands of an equation that control its action or the elements that it accesses."""
    if eqn.op.control:
        return [*eqn.inputs[: 2 if eqn.op is loop else eqn.op.own_operands]]
    if not eqn.effects and not any(isinstance(type, RefType) for type in eqn.input_types):
        return []
    return [*_indices(eqn), *fixed(eqn)]


def fixed(eqn: Eqn) -> list[Atom]:
    """The operands that must be equal in every round: predicates, masks, amounts of semaphores, sizes of meshes."""
    if eqn.op is launch:
        return [*eqn.inputs[: eqn.launch.dynamic]]
    own = eqn.inputs[: eqn.op.index_start or None]
    return [atom for atom in own if _is_bool(atom) or (eqn.op.sync is not None and _is_index(atom))]


def _indices(eqn: Eqn) -> Sequence[Atom]:
    return eqn.inputs[eqn.op.index_start :] if eqn.op.index_start else ()


def _is_index(atom: Atom) -> bool:
    return isinstance(atom.type, ArrayType) and atom.type.shape == () and dtypes.is_integer(atom.type.dtype)


def _is_bool(atom: Atom) -> bool:
    return isinstance(atom.type, ArrayType) and atom.type.dtype == dtypes.BOOL


def _flows(eqn: Eqn) -> Iterator[tuple[Var, Atom]]:
    """The values that an equation's sub-programs take from its operands, from their last iteration, and return."""
    own = eqn.op.own_operands
    for inner in eqn.subprograms:
        for number, var in enumerate(inner.inputs):
            if own is None:
                yield from ((var, atom) for atom in eqn.inputs)
            elif number + own < len(eqn.inputs):
                yield var, eqn.inputs[number + own]
        carried = inner.inputs[len(inner.inputs) - len(inner.outputs) :]
        for result, var in zip(inner.outputs, carried, strict=False):
            if result.type == var.type:
                yield var, result
        yield from zip(eqn.outputs, inner.outputs, strict=False)


def positions(stack: Sequence[Transform]) -> set[int]:
    """The index operands that a stack of transforms uses."""
    return {position for transform in stack for position in _positions(transform)}


def _positions(transform: Transform) -> Iterator[int]:
    if isinstance(transform, View):
        yield from transform.operands
    elif isinstance(transform, Peer):
        yield from (index.position for _, index in transform.blocks if isinstance(index, Operand))
    elif isinstance(transform, Index):
        for entry in transform.entries:
            start = entry.start if isinstance(entry, SliceEntry) else entry
            if isinstance(start, Operand):
                yield start.position


__all__ = ["controlling", "deciding", "fixed", "positions"]
