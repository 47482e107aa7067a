"""The classes of mutation that `tools.mutants` applies to a kernel's program.

Most change one equation: a wait, fence, arrival, signal or copy left out or done twice, a wait that leaves more in
flight, an index of a barrier, stage or element increased by one, an atomic replaced by ordinary accesses. The others
change all uses of a reference: a barrier counts one arrival more or fewer; the slots of a ring share memory, or there
is one slot fewer than the kernel assumes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palladio.ir.core import Eqn, Literal, Program, Var, subprograms, walk
from palladio.ir.rewrite import Builder, with_parts
from palladio.machine.repair.edit import first_part, reindexed, replaced, shape_at, spots, stepped, with_params
from palladio.machine.repair.references import Slots, accesses, launches, recounted, references, slots_of, wrapped
from palladio.ops import OPS
from palladio.types.attributes import Arrivals
from palladio.types.effects import EffectKind
from palladio.types.transforms import Index, Operand, Peer, SliceEntry
from palladio.types.types import BARRIER, SMEM, RefType


@dataclass(frozen=True)
class Mutant:
    """A kernel's program with one change.

    Fields:
        mutation: the name of the class.
        place: the changed line and operation, or reference.
        what: the same with the text of the line, which does not depend on line numbers.
        sites: the changed equations; if none of them runs, the mutant is the kernel itself.
    """

    mutation: str
    place: str
    what: str
    program: Program
    sites: tuple[Eqn, ...]


Change = Callable[[Eqn], Iterator[Sequence[Eqn]]]


def _left_out(*names: str) -> Change:
    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield ()

    return change


def _twice(*names: str) -> Change:
    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield eqn, eqn

    return change


def _one_more_in_flight(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    """A wait that leaves one group more in flight than it should."""
    if eqn.op.name in ("wgmma_wait", "wait_smem_to_gmem"):
        yield (with_params(eqn, n=eqn.params["n"] + 1),)
    if eqn.op.name == "accumulator_load" and eqn.params["wait_n"] is not None:
        yield (with_params(eqn, wait_n=eqn.params["wait_n"] + 1),)


def _sources_only(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    if eqn.op.name == "wait_smem_to_gmem" and not eqn.params["read_only"]:
        yield (with_params(eqn, read_only=True),)


def _at_next(*names: str, position: int) -> Change:
    """The first index of an input increased by one, modulo the extent: another barrier, another stage."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name not in names:
            return
        stacks = eqn.op.stacks(eqn.params["transforms"])
        if not stacks[position] or not isinstance(stacks[position][0], Index):
            return
        extent = shape_at(eqn, position, 0)[0]
        if extent > 1 and not isinstance(stacks[position][0].entries[0], SliceEntry):
            yield reindexed(eqn, {position}, 0, 0, lambda entry: (entry + 1) % extent, [("add", 1), ("rem", extent)])

    return change


def _without_effect(*names: str) -> Change:
    """The equation left out, with zeros for its result."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            builder = Builder()
            builder.location = eqn.location
            part = eqn.outputs[0].type
            builder.emit(OPS["broadcast"], Literal(0, part.dtype), shape=part.shape, axes=())  # type: ignore[union-attr]
            (made,) = builder.eqns
            yield (replace(made, outputs=eqn.outputs),)

    return change


def _one_signal_fewer(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    amount = eqn.inputs[1] if eqn.op.name == "semaphore_wait" else None
    if isinstance(amount, Literal) and int(amount.value) > 1:
        fewer = Literal(int(amount.value) - 1, amount.type.dtype)
        yield (replace(eqn, inputs=(eqn.inputs[0], fewer, *eqn.inputs[2:])),)


_COMBINED = {"add": "add", "max": "max", "min": "min", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}


def _ordinary(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    """An atomic access as a load, the operation, and a store."""
    if eqn.op.name != "atomic":
        return
    builder = Builder()
    builder.location = eqn.location
    ref, value, *indices = eqn.inputs
    (old,) = builder.emit(OPS["load"], ref, *indices, transforms=eqn.transforms)
    (read,) = builder.eqns
    new = value if eqn.kind == "exchange" else builder.emit(OPS[_COMBINED[eqn.kind]], old, value)[0]
    builder.emit(OPS["store"], ref, new, *indices, transforms=eqn.transforms)
    renamed: dict[Any, Any] = dict(zip(read.outputs, eqn.outputs, strict=True))

    def with_old(each: Eqn) -> Eqn:
        inputs, outputs = (tuple(renamed.get(atom, atom) for atom in part) for part in (each.inputs, each.outputs))
        return replace(each, inputs=inputs, outputs=outputs)

    yield [with_old(each) for each in builder.eqns]


def _overwriting(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    if eqn.op.name in ("copy_smem_to_gmem", "async_store_smem") and eqn.params["reduction"] is not None:
        yield (with_parts(eqn, eqn.inputs, {**eqn.params, "reduction": None}),)  # its effects change


def _more_registers(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    if eqn.op.name == "set_max_registers" and eqn.params["count"] > MANY_REGISTERS:
        yield (with_params(eqn, count=eqn.params["count"] + 8),)


MANY_REGISTERS = 168
"""The registers of a lane with three warpgroups; a request for more waits."""


_SWAP: Any = object()


def _later(*names: str) -> Change:
    """Marks an equation for `_mutated`, which exchanges it with the arrival after it."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield eqn, _SWAP

    return change


_BY_EQUATION: Mapping[str, Change] = {
    "a barrier wait left out": _left_out("barrier_wait"),
    "a wgmma wait left out": _left_out("wgmma_wait"),
    "a wait for stores left out": _left_out("wait_smem_to_gmem"),
    "a fence left out": _left_out("commit_smem"),
    "an arrival left out": _left_out("barrier_arrive"),
    "a copy left out": _left_out("copy_gmem_to_smem"),
    "a group never committed": _left_out("commit_smem_to_gmem_group"),
    "an arrival too many": _twice("barrier_arrive"),
    "a wait too many: the wrong phase": _twice("barrier_wait"),
    "a copy too many: the wrong bytes": _twice("copy_gmem_to_smem"),
    "one group more in flight": _one_more_in_flight,
    "only the sources of stores awaited": _sources_only,
    "a wait for another barrier": _at_next("barrier_wait", position=0),
    "an arrival at another barrier": _at_next("barrier_arrive", position=0),
    "a copy into another stage": _at_next("copy_gmem_to_smem", position=1),
    "a copy that arrives elsewhere": _at_next("copy_gmem_to_smem", position=2),
    "a release before its wait": _later("wgmma_wait", "barrier_wait"),
    "a fence of global memory left out": _left_out("commit_gmem"),
    "a signal left out": _left_out("semaphore_signal"),
    "a signal too many": _twice("semaphore_signal"),
    "a signal of another semaphore": _at_next("semaphore_signal", position=0),
    "a wait for a semaphore left out": _left_out("semaphore_wait"),
    "a wait for a semaphore too many": _twice("semaphore_wait"),
    "a wait for one signal fewer": _one_signal_fewer,
    "a wait for another semaphore": _at_next("semaphore_wait", position=0),
    "an atomic left out": _without_effect("atomic", "atomic_cas"),
    "an atomic made of ordinary accesses": _ordinary,
    "a store into a peer left out": _left_out("async_store_smem"),
    "a reduction that overwrites": _overwriting,
    "a copy of cores left out": _left_out("dma_start", "dma_start_remote"),
    "a wait for a copy of cores left out": _left_out("dma_wait"),
    "registers not given back or asked for": _left_out("set_max_registers"),
    "more registers asked for": _more_registers,
}
OTHER_ATOMIC, OTHER_LOAD, OTHER_STORE, OTHER_PRODUCT, OTHER_OUT, OTHER_PEER = (
    "an atomic of another element",
    "a load from another place",
    "a store to another place",
    "a product of another stage",
    "a copy out of or to another place",
    "another block of the cluster",
)
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    OTHER_ATOMIC: ("atomic", "atomic_cas"),
    OTHER_LOAD: ("load",),
    OTHER_STORE: ("store", "accumulate", "swap", "async_store_smem"),
    OTHER_PRODUCT: ("wgmma",),
    OTHER_OUT: ("copy_smem_to_gmem", "dma_start"),
}
WRONG_INDEX = (*_ELSEWHERE, OTHER_PEER)
"""Classes in which a kernel may synchronise correctly and compute something else, the same in every schedule."""
ONE_MORE, ONE_FEWER = "a barrier that counts one more", "a barrier that counts one fewer"
SHARED = "slots that share memory"
FEWER_SLOTS, FEWER_BARRIERS, FEWER_BOTH = (
    f"one stage too few: {what}" for what in ("buffers", "barriers", "buffers and barriers")
)
NO_DELAY = "no delay_release"
CLASSES = (*_BY_EQUATION, *WRONG_INDEX, ONE_MORE, ONE_FEWER, SHARED, FEWER_SLOTS, FEWER_BARRIERS, FEWER_BOTH, NO_DELAY)
"""The names of the classes, in the order of the table."""


def mutants(program: Program) -> Iterator[Mutant]:
    """Every mutant of a program, except those of `NO_DELAY`, which the author of a kernel writes."""
    for name, change in _BY_EQUATION.items():
        for found, eqn in _mutated(program, change):
            yield Mutant(name, place(eqn), _what(eqn), found, (eqn,))
    sizes = {axis.name: axis.size for made in launches(program) for mesh in made.meshes for axis in mesh.axes}
    changes = {name: _moved(*operations, written=_written(program)) for name, operations in _ELSEWHERE.items()}
    for name, change in {**changes, OTHER_PEER: _other_peer(sizes)}.items():
        for found, eqn in _mutated(program, change):
            yield Mutant(name, place(eqn), _what(eqn), found, (eqn,))
    for root in references(program, BARRIER):
        yield from _recounted(program, root)
    yield from _aliased(program)


def place(eqn: Eqn) -> str:
    """The line and operation of an equation."""
    location = eqn.location
    return eqn.op.name if location is None else f"{Path(location.file).name}:{location.line} {eqn.op.name}"


def _what(eqn: Eqn) -> str:
    location = eqn.location
    text = "" if location is None else linecache.getline(location.file, location.line).strip()
    return f"{eqn.op.name}: {text}"


# One equation.


def _mutated(program: Program, change: Change) -> Iterator[tuple[Program, Eqn]]:
    """Every program in which one equation has changed, and that equation."""
    for spot in spots(program):
        for new in change(spot.eqn):
            if _SWAP in new:
                swapped = _swapped(spot.program.eqns, spot.index)
                if swapped is not None:
                    count = len(swapped) - spot.index
                    yield replaced(program, spot.path, spot.index, count, swapped[spot.index :]), spot.eqn
            else:
                yield replaced(program, spot.path, spot.index, 1, new), spot.eqn


def _swapped(eqns: Sequence[Eqn], number: int) -> list[Eqn] | None:
    """The equations with one moved after the next synchronising one, if that is an arrival, possibly in a branch."""
    for other in range(number + 1, len(eqns)):
        if any(kind is EffectKind.SYNC for kind, _ in eqns[other].effects):
            inside = [eqn.op.name for part in subprograms(eqns[other]) for eqn in walk(part) if _synchronises(eqn)]
            if set(inside or [eqns[other].op.name]) != {"barrier_arrive"}:
                return None
            return [*eqns[:number], *eqns[number + 1 : other + 1], eqns[number], *eqns[other + 1 :]]
    return None


def _synchronises(eqn: Eqn) -> bool:
    return not eqn.op.control and any(kind is EffectKind.SYNC for kind, _ in eqn.effects)


# Indices.


def _moved(*names: str, written: frozenset[str]) -> Change:
    """The first index of memory that the kernel writes, increased by one, or by its size, modulo the extent."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name not in names:
            return
        stacks = eqn.op.stacks(eqn.params["transforms"])
        for position in range(1 if eqn.op.name == "async_store_smem" else len(stacks)):
            atom = eqn.inputs[position]
            if not isinstance(atom.type, RefType) or atom.hint not in written:  # type: ignore[union-attr]
                continue
            found = first_part(eqn, position)
            if found is not None:
                level, axis, size, extent = found
                steps = [("add", size), ("rem", extent)]
                yield reindexed(eqn, {position}, level, axis, lambda n: (n + size) % extent, steps)  # noqa: B023

    return change


def _other_peer(sizes: Mapping[str, int | None]) -> Change:
    """The block of the cluster of a reference, increased by one, modulo the size."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if not eqn.op.index_start:
            return
        stacks = list(eqn.op.stacks(eqn.params["transforms"]))
        for position, stack in enumerate(stacks):
            if stack and isinstance(stack[0], Peer):
                ((axis, block), *rest), builder = stack[0].blocks, Builder()
                builder.location = eqn.location
                inputs, size = list(eqn.inputs), sizes[axis] or 1
                if isinstance(block, Operand):
                    atom = stepped(builder, inputs[eqn.op.index_start + block.position], [("add", 1), ("rem", size)])
                    block = Operand(len(inputs) - eqn.op.index_start)
                    inputs.append(atom)
                else:
                    block = (block + 1) % size
                new = [*stacks[:position], (Peer(((axis, block), *rest)), *stack[1:]), *stacks[position + 1 :]]
                transforms = tuple(new) if eqn.op.ref_count > 1 else new[0]
                yield *builder.eqns, replace(with_params(eqn, transforms=transforms), inputs=tuple(inputs))

    return change


# References.


def _written(program: Program) -> frozenset[str]:
    """The names of the references that the programs of a launch write, by accesses or copies."""
    found: set[str] = set()
    for eqn in walk(program):
        if eqn.op.index_start:
            found |= {atom.hint for atom in eqn.written}
    return frozenset(found)


def _recounted(program: Program, root: Var) -> Iterator[Mutant]:
    """A barrier that counts one arrival more or fewer."""
    type: Any = root.type
    arrivals = type.attribute(Arrivals)
    if arrivals is None:
        return
    sites = tuple(eqn for eqn, _ in accesses(program, root))
    for name, step in ((ONE_MORE, 1), (ONE_FEWER, -1)):
        if arrivals.count + step >= 1:
            changed = recounted(program, root, arrivals.count + step)
            yield Mutant(name, f"barrier {root.hint}", root.hint, changed, sites)


# Stages.


def _aliased(program: Program) -> Iterator[Mutant]:
    """Buffers whose slots share memory, and rings with one slot fewer than the kernel assumes."""
    buffers, barriers = list(slots_of(program, SMEM)), list(slots_of(program, BARRIER))

    def mutant(name: str, chosen: Sequence[Slots], count: int) -> Mutant:
        names = " and ".join(dict.fromkeys(each.root.hint for each in chosen))
        where = f"{names}, axis {chosen[0].level + chosen[0].axis}"
        sites = tuple(eqn for each in chosen for eqn, _ in each.sites)
        return Mutant(name, where, where, wrapped(program, chosen, count), sites)

    for each in buffers:
        yield mutant(SHARED, [each], 1)
    for each in buffers:
        if each.extent > 2:
            yield mutant(FEWER_SLOTS, [each], each.extent - 1)
    for each in barriers:
        if each.extent > 2:
            yield mutant(FEWER_BARRIERS, [each], each.extent - 1)
    for count in dict.fromkeys(each.extent for each in buffers if each.extent > 2):
        rings = [each for each in (*buffers, *barriers) if each.extent == count]
        yield mutant(FEWER_BOTH, rings, count - 1)


__all__ = ["CLASSES", "NO_DELAY", "WRONG_INDEX", "Mutant", "mutants", "place"]
