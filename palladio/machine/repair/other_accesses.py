"""Accesses in another form: atomic or reducing instead of in two steps; to another block of the cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from palladio.base.errors import PalladioError
from palladio.ir.bind import form
from palladio.ir.core import Eqn, Program, walk
from palladio.ir.rewrite import Builder, with_parts
from palladio.machine.repair import wording
from palladio.machine.repair.candidate import Candidate, Tier
from palladio.machine.repair.edit import Spot, replaced, stepped, with_params
from palladio.machine.repair.references import launches
from palladio.machine.repair.survey import Survey
from palladio.ops import OPS
from palladio.ops.references.atomics import KINDS as ATOMIC_KINDS
from palladio.ops.references.memory import JOINED_BY
from palladio.types.transforms import Operand, Peer

_KINDS = {op: kind for kind, op in JOINED_BY.items() if kind in ATOMIC_KINDS}


def made_atomic(program: Program, spot: Spot) -> Tier:
    """A load, an operation and a store of the same elements as one atomic access."""
    eqns, store = spot.program.eqns, spot.eqn
    if store.op is not OPS["store"] or len(store.inputs) < 2:
        return
    ref, value, *indices = store.inputs
    for at, load in enumerate(eqns[: spot.index]):
        same = load.op is OPS["load"] and load.inputs == (ref, *indices)
        if not same or load.transforms != store.transforms:
            continue
        old = load.outputs[0]
        made = next((eqn for eqn in eqns[at + 1 : spot.index] if value in eqn.outputs), None)
        kind, other = "exchange", value
        if made is not None and made.op in _KINDS and old in made.inputs:
            kind = _KINDS[made.op]
            other = made.y if made.x is old else made.x
        between = eqns[at + 1 : spot.index]
        if any(other in eqn.outputs for eqn in between):  # not yet computed at the load
            continue
        try:
            atomic = form(OPS["atomic"], (ref, other, *indices), {"transforms": load.transforms, "kind": kind}, None)
        except PalladioError:  # not for this dtype
            continue
        atomic = replace(atomic, outputs=load.outputs, location=store.location)
        text = f"make the update in {wording.line(store)} one `plgpu.atomic_{kind}`"
        yield Candidate(text, replaced(program, spot.path, at, len(between) + 2, (atomic, *between)))


def made_reduction(program: Program, spot: Spot) -> Tier:
    """A copy that adds to its target, or reduces into it like another copy of the program."""
    eqn = spot.eqn
    if "reduction" not in eqn.params or eqn.reduction is not None:
        return
    used = [other.params.get("reduction") for other in walk(program)]
    for reduction in dict.fromkeys((*(kind for kind in used if kind is not None), "add")):
        changed = with_parts(eqn, eqn.inputs, {**eqn.params, "reduction": reduction})
        text = f'give the copy in {wording.line(eqn)} `reduction_op="{reduction}"`'
        yield Candidate(text, replaced(program, spot.path, spot.index, 1, (changed,)), key=(spot.path, text))


def other_peers(program: Program, survey: Survey, spot: Spot) -> Tier:
    """Another block of the cluster for a reference: that of another reference of the access, or a neighbour."""
    eqn = spot.eqn
    if not eqn.op.index_start:
        return
    sizes = {axis.name: axis.size or 1 for made in launches(program) for mesh in made.meshes for axis in mesh.axes}
    stacks = eqn.op.stacks(eqn.transforms)
    peers = {position: stack[0] for position, stack in enumerate(stacks) if stack and isinstance(stack[0], Peer)}
    used = Counter(blocks for other in spot.program.eqns for blocks in _blocks(other))
    named = dict(zip(peers, _blocks(eqn), strict=True))
    for position, peer in sorted(peers.items(), key=lambda each: used[named[each[0]]]):  # the odd one first
        root = survey.root(spot, position)
        name = root.hint if root is not None else "it"
        others = {named[at]: each for at, each in peers.items() if named[at] != named[position]}
        for other in others.values():
            text = f"reach `{name}` in {wording.line(eqn)} in the block that the other operand is in"
            yield Candidate(text, replaced(program, spot.path, spot.index, 1, (_at_peer(eqn, position, other),)))
        ((axis, block), *rest), size = peer.blocks, sizes[peer.blocks[0][0]]
        for step in dict.fromkeys((size - 1, 1)) if size > 1 else ():
            builder, inputs = Builder(), list(eqn.inputs)
            builder.location = eqn.location
            moved: Any = (block + step) % size if isinstance(block, int) else Operand(len(eqn.indices))
            if isinstance(block, Operand):
                inputs.append(stepped(builder, eqn.indices[block.position], [("add", step), ("rem", size)]))
            new = _at_peer(replace(eqn, inputs=tuple(inputs)), position, Peer(((axis, moved), *rest)))
            by = step - size if step == size - 1 else step
            text = f"move the block in which `{name}` is reached in {wording.line(eqn)} by {by:+}, modulo {size}"
            yield Candidate(text, replaced(program, spot.path, spot.index, 1, (*builder.eqns, new)))


def _blocks(eqn: Eqn) -> list[Any]:
    """The blocks of the cluster that an access reaches, each as atoms or numbers along its axes."""
    stacks = eqn.op.stacks(eqn.transforms) if eqn.op.index_start else ()
    return [
        tuple((axis, eqn.indices[at.position] if isinstance(at, Operand) else at) for axis, at in stack[0].blocks)
        for stack in stacks
        if stack and isinstance(stack[0], Peer)
    ]


def _at_peer(eqn: Eqn, position: int, peer: Peer) -> Eqn:
    """An equation whose reference at an input is in another block."""
    stacks = list(eqn.op.stacks(eqn.transforms))
    stacks[position] = (peer, *stacks[position][1:])
    return with_params(eqn, transforms=tuple(stacks) if eqn.op.ref_count > 1 else stacks[0])


__all__ = ["made_atomic", "made_reduction", "other_peers"]
