"""Loads and stores under a mask: an element whose mask is false is not accessed, even if its index is outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.arrays import compare
from palladio.ops.references import access, memory
from palladio.ops.references.memory import Transforms, accessed, require_like, require_mask
from palladio.types.effects import read, write
from palladio.types.types import Type


def _load_type(ref: Type, mask: Type, other: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    part = accessed(ref, transforms, indices, ref=True)
    require_mask(mask, part)
    require_like("the value for masked elements", other, part)
    return (part,)


def _load_eval(ref: Any, mask: Any, other: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    return (np.where(mask, access.read(ref, transforms, indices), other),)


def _load_discharge(
    context: DischargeContext, ref: Atom, mask: Atom, other: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    part = context.emit(memory.extract, ref, *indices, transforms=transforms)[0]
    return Discharged(context.emit(compare.select, mask, part, other))


load_masked = Op(
    "load_masked",
    "value = ref[transforms] where mask, else other. The mask is a bool array of the value's shape.",
    _load_type,
    _load_eval,
    effects=(read(0),),
    discharge=_load_discharge,
    work=Work.NONE,
)


def _store_type(ref: Type, value: Type, mask: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    part = accessed(ref, transforms, indices, ref=True)
    require_like("the value", value, part)
    require_mask(mask, part)
    return ()


def _store_eval(ref: Any, value: Any, mask: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    mask, value = np.asarray(mask), np.asarray(value)

    def update(target: Any, key: Any, inside: Any) -> None:
        if key is ...:
            np.copyto(target, value, where=mask)
            return
        # Elements may be selected twice; only those under the mask may be written.
        positions, inside = access.positions_of(key, target.shape) if inside is None else (key, inside)
        chosen = mask & inside
        target[access.only(positions, chosen)] = value[chosen]

    access.combine(ref, transforms, indices, update)
    return ()


def _store_discharge(
    context: DischargeContext, ref: Atom, value: Atom, mask: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    return Discharged((), {0: context.emit(insert_masked, ref, value, mask, *indices, transforms=transforms)[0]})


store_masked = Op(
    "store_masked",
    "ref[transforms] = value where mask. The mask is a bool array of the value's shape.",
    _store_type,
    _store_eval,
    effects=(write(0),),
    discharge=_store_discharge,
    work=Work.NONE,
)


def _insert_type(array: Type, value: Type, mask: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    part = accessed(array, transforms, indices, ref=False)
    require_like("the value", value, part)
    require_mask(mask, part)
    return (array,)


def _insert_eval(array: Any, value: Any, mask: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    result = np.array(array)
    _store_eval(result, value, mask, *indices, transforms=transforms)
    return (result,)


insert_masked = Op(
    "insert_masked",
    "An array with the part that a stack of transforms selects replaced by a value where a mask holds. What "
    "`store_masked` discharges to.",
    _insert_type,
    _insert_eval,
    work=Work.NONE,
)
