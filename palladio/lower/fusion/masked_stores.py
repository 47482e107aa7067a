"""Masked stores: where a select preserves old elements of a block, only the new ones are stored, under its mask.

A kernel that writes `out[...] = where(mask, value, out[...])` so neither reads the block nor needs it initialised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.arrays.compare import select
from palladio.ops.arrays.shape import broadcast
from palladio.ops.references.masked import store_masked
from palladio.ops.references.memory import load, store
from palladio.types.effects import EffectKind


class Choice(NamedTuple):
    """A load, the select that is its only use, and the store of the result."""

    load: Eqn
    select: Eqn
    store: Eqn


def choices(program: Program) -> Iterator[Choice]:
    """The loads of matrices for a select alone, whose result is stored to the same block before another effect."""
    used = Counter(atom for each in (*(eqn.inputs for eqn in program.eqns), program.outputs) for atom in each)
    loads: dict[Atom, Eqn] = {}
    found: dict[Atom, tuple[Eqn, Eqn]] = {}
    for eqn in program.eqns:
        if eqn.op is load and not eqn.transforms and used[eqn.outputs[0]] == 1 and len(eqn.ref.type.shape) == 2:
            loads[eqn.outputs[0]] = eqn
        elif eqn.op is select and eqn.on_false in loads and _is_mask(eqn) and used[eqn.outputs[0]] == 1:
            found[eqn.outputs[0]] = loads[eqn.on_false], eqn
        elif eqn.op is store and not eqn.transforms and eqn.value in found and found[eqn.value][0].ref is eqn.ref:
            yield Choice(*found[eqn.value], eqn)
        if eqn.op.control or any(kind is not EffectKind.READ for kind, _ in eqn.effects):
            loads.clear()
            found.clear()


def _is_mask(eqn: Eqn) -> bool:
    shape = eqn.outputs[0].type.shape
    return eqn.predicate.type.shape == shape and eqn.on_true.type.shape in (shape, ())


def mask_in(program: Program) -> Program:
    """The program with stores under a mask in place of loads, selects and stores."""
    stores, gone = {}, set()
    for choice in choices(program):
        stores[choice.store] = choice.select
        gone |= {choice.load, choice.select}
    eqns = (part for eqn in program.eqns if eqn not in gone for part in _masked(eqn, stores.get(eqn)))
    return with_body(program, eqns, program.outputs)


def _masked(eqn: Eqn, chosen: Eqn | None) -> Iterator[Eqn]:
    if chosen is None:
        yield with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, mask_in))
        return
    value = chosen.on_true
    if not value.type.shape:  # type: ignore[union-attr]
        spread = form(broadcast, (value,), {"shape": chosen.outputs[0].type.shape, "axes": ()}, eqn.location)  # type: ignore[union-attr]
        yield spread
        (value,) = spread.outputs
    yield form(store_masked, (eqn.ref, value, chosen.predicate), {"transforms": ()}, eqn.location)
