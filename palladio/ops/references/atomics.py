"""Atomic operations: read, combine and write one element at a time.

An element that is selected twice is combined twice, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, DischargeContext, Discharged, Op
from palladio.ops.references import access
from palladio.ops.references.memory import COMBINERS, Transforms, accessed, require_like
from palladio.types import dtypes
from palladio.types.effects import read, write
from palladio.types.types import ArrayType, Type

KINDS = ("add", "max", "min", "and", "or", "xor", "exchange")


def _one_by_one(
    array: Any, transforms: Transforms, indices: Sequence[Any], step: Callable[..., Any], *values: Any
) -> Any:
    """Replace each selected element by `step(old, *values)`, in row-major order; returns the old ones."""
    values = tuple(np.asarray(value) for value in values)
    old = dtypes.unwritten(values[0].shape, values[0].dtype)

    def update(target: Any, key: Any, inside: Any) -> None:
        if key is ...:  # a view, which holds each element once
            old[...] = target
            target[...] = step(old, *values)
            return
        positions, inside = access.positions_of(key, target.shape) if inside is None else (key, inside)
        given = [value[inside] for value in values]
        found = np.empty(given[0].shape, old.dtype)
        places = zip(*(axis.tolist() for axis in access.only(positions, inside)), strict=True)
        for n, place in enumerate(places):
            found[n] = target[place]
            target[place] = step(found[n], *(value[n] for value in given))
        old[inside] = found

    access.combine(array, transforms, indices, update)
    return old


def _exchange(old: Any, new: Any) -> Any:
    return new


def _exchange_if_equal(old: Any, expected: Any, new: Any) -> Any:
    return np.where(old == expected, new, old)


def _part(root: Type, indices: Sequence[Type], transforms: Transforms, ref: bool, *values: Type) -> ArrayType:
    part = accessed(root, transforms, indices, ref=ref)
    for value in values:
        require_like("the value", value, part)
    return part


def _check_kind(kind: str, part: ArrayType) -> None:
    if kind not in KINDS:
        raise PalladioValueError("no such atomic operation", expected=", ".join(KINDS), got=kind)
    if kind in ("and", "or", "xor") and dtypes.is_float(part.dtype):
        raise PalladioTypeError(f"atomic {kind} takes integers or bool", got=str(part))
    if kind in ("add", "max", "min") and part.dtype == dtypes.BOOL:
        raise PalladioTypeError(f"atomic {kind} takes numbers", got=str(part))


def _atomic_type(ref: Type, value: Type, *indices: Type, transforms: Transforms, kind: str) -> Sequence[Type]:
    part = _part(ref, indices, transforms, True, value)
    _check_kind(kind, part)
    return (part,)


def _atomic_eval(ref: Any, value: Any, *indices: Any, transforms: Transforms, kind: str) -> Sequence[Any]:
    return (_one_by_one(ref, transforms, indices, COMBINERS.get(kind, _exchange), value),)


def _atomic_discharge(
    context: DischargeContext, ref: Atom, value: Atom, *indices: Atom, transforms: Transforms, kind: str
) -> Discharged:
    new, old = context.emit(combine_each, ref, value, *indices, transforms=transforms, kind=kind)
    return Discharged((old,), {0: new})


atomic = Op(
    "atomic",
    "old = ref[transforms]; ref[transforms] = old combined with value (add, max, min, and, or, xor, exchange), one "
    "element at a time.",
    _atomic_type,
    _atomic_eval,
    effects=(read(0), write(0)),
    atomic=True,
    discharge=_atomic_discharge,
)


def _combine_type(array: Type, value: Type, *indices: Type, transforms: Transforms, kind: str) -> Sequence[Type]:
    part = _part(array, indices, transforms, False, value)
    _check_kind(kind, part)
    return (array, part)


def _combine_eval(array: Any, value: Any, *indices: Any, transforms: Transforms, kind: str) -> Sequence[Any]:
    result = np.array(array)
    (old,) = _atomic_eval(result, value, *indices, transforms=transforms, kind=kind)
    return (result, old)


combine_each = Op(
    "combine_each",
    "The array after `atomic`, and the old elements. What `atomic` discharges to.",
    _combine_type,
    _combine_eval,
)


def _cas_type(ref: Type, compare: Type, value: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    return (_part(ref, indices, transforms, True, compare, value),)


def _cas_eval(ref: Any, compare: Any, value: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    return (_one_by_one(ref, transforms, indices, _exchange_if_equal, compare, value),)


def _cas_discharge(
    context: DischargeContext, ref: Atom, compare: Atom, value: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    new, old = context.emit(exchange_each, ref, compare, value, *indices, transforms=transforms)
    return Discharged((old,), {0: new})


atomic_cas = Op(
    "atomic_cas",
    "old = ref[transforms]; ref[transforms] = value where old == compare, one element at a time.",
    _cas_type,
    _cas_eval,
    effects=(read(0), write(0)),
    atomic=True,
    discharge=_cas_discharge,
)


def _exchange_type(array: Type, compare: Type, value: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    return (array, _part(array, indices, transforms, False, compare, value))


def _exchange_eval(array: Any, compare: Any, value: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    result = np.array(array)
    (old,) = _cas_eval(result, compare, value, *indices, transforms=transforms)
    return (result, old)


exchange_each = Op(
    "exchange_each",
    "The array after `atomic_cas`, and the old elements. What `atomic_cas` discharges to.",
    _exchange_type,
    _exchange_eval,
)
