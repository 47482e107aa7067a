"""Operations on references, and the operations on values that discharge turns them into: `extract` and `insert`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.arrays import arithmetic, bits
from palladio.ops.references import access
from palladio.types import dtypes
from palladio.types.effects import accumulate as accumulates
from palladio.types.effects import read, write
from palladio.types.transforms import Transform, transformed
from palladio.types.types import ACC, SYNCHRONISING, ArrayType, RefType, Type

Transforms = tuple[Transform, ...]

# The combination of the old element with the new one. `set` takes the new one.
COMBINERS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}

JOINED_BY: dict[str, Op] = {
    "add": arithmetic.add,
    "mul": arithmetic.mul,
    "max": arithmetic.max,
    "min": arithmetic.min,
    "and": bits.bitwise_and,
    "or": bits.bitwise_or,
    "xor": bits.bitwise_xor,
}
"""The operation on elements of each kind of update."""


def part_of(root: RefType, transforms: Transforms, indices: Sequence[Type]) -> ArrayType:
    """The type of the part of a reference that transforms select, in any memory space."""
    return transformed(root.array, transforms, indices)  # type: ignore[arg-type]


def accessed(root: Type, transforms: Transforms, indices: Sequence[Type], *, ref: bool) -> ArrayType:
    """The type of the accessed elements, through a reference to memory or of an array."""
    if isinstance(root, RefType) and root.space in SYNCHRONISING:
        raise PalladioTypeError(
            "barriers and semaphores hold no data",
            got=str(root),
            hint="barrier_wait and barrier_arrive, semaphore_wait and semaphore_signal use them",
        )
    if isinstance(root, RefType) and root.space is ACC:
        raise PalladioTypeError(
            "an accumulator is read whole or in static parts, written whole, and added to by wgmma; nothing else",
            got=str(root),
            hint="value = acc[...], acc[...] = value, plgpu.wgmma(acc, a, b)",
        )
    if isinstance(root, RefType) != ref:
        raise PalladioTypeError(f"the first input must be {'a reference' if ref else 'an array'}", got=str(root))
    array = root.array if isinstance(root, RefType) else root
    return transformed(array, transforms, indices)  # type: ignore[arg-type]


def require_like(what: str, value: Type, wanted: ArrayType, jax: str | None = None) -> None:
    if not isinstance(value, ArrayType) or value.dtype != wanted.dtype:
        raise PalladioTypeError(
            f"{what} has another dtype than the reference", expected=str(wanted), got=str(value), jax=jax
        )
    if value.shape != wanted.shape:
        raise PalladioValueError(
            f"{what} has another shape than what it replaces", expected=str(wanted), got=str(value), jax=jax
        )


def require_mask(mask: Type, wanted: ArrayType) -> None:
    if mask != ArrayType(wanted.shape, dtypes.BOOL):
        raise PalladioTypeError(
            "a mask is a bool array", expected=str(ArrayType(wanted.shape, dtypes.BOOL)), got=str(mask)
        )


def require_combinable(kind: str, array: ArrayType) -> None:
    """Refuse a kind of update that does not exist, or not for this dtype."""
    if kind != "set" and kind not in COMBINERS:
        raise PalladioValueError("no such way to combine", expected=", ".join(["set", *COMBINERS]), got=kind)
    if kind in ("add", "mul") and dtypes.is_bool(array.dtype):
        raise PalladioTypeError(f"bools have no {kind}", got=str(array), hint="combine them with or, and, xor")
    if kind in ("and", "or", "xor") and dtypes.is_float(array.dtype):
        raise PalladioTypeError(f"floats have no {kind}", got=str(array))


# extract and insert: the pure twins.


def _extract_type(array: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    return (accessed(array, transforms, indices, ref=False),)


def _extract_eval(array: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    return (access.read(np.asarray(array), transforms, indices),)


extract = Op(
    "extract",
    "The part of an array that a stack of transforms selects. Elements outside its axes are uninitialised values.",
    _extract_type,
    _extract_eval,
    work=Work.NONE,
)


def _insert_type(array: Type, value: Type, *indices: Type, transforms: Transforms, kind: str) -> Sequence[Type]:
    part = accessed(array, transforms, indices, ref=False)
    require_like("the value", value, part)
    require_combinable(kind, part)
    return (array,)


def updated(array: Any, value: Any, transforms: Transforms, indices: Sequence[Any], kind: str) -> None:
    """Combine in place. An element that is selected several times is combined each time, in order."""
    value = np.asarray(value)
    if kind == "set":
        access.write(array, transforms, indices, value)
        return
    ufunc: Any = COMBINERS[kind]

    def update(target: Any, key: Any, inside: Any) -> None:
        if key is ...:  # a view, which holds each element once
            ufunc(target, value, out=target)
        elif inside is None:
            ufunc.at(target, key, value)
        else:
            ufunc.at(target, access.only(key, inside), value[inside])

    access.combine(array, transforms, indices, update)


def _insert_eval(array: Any, value: Any, *indices: Any, transforms: Transforms, kind: str) -> Sequence[Any]:
    result = np.array(array)
    updated(result, value, transforms, indices, kind)
    return (result,)


insert = Op(
    "insert",
    "An array with the part that a stack of transforms selects replaced by a value (`kind` set) or combined with it "
    "(add, mul, max, "
    "min, and, or, xor), in order where an element is selected twice. What falls outside its axes is dropped.",
    _insert_type,
    _insert_eval,
    work=Work.NONE,
)


# load and store.


def _load_type(ref: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    return (accessed(ref, transforms, indices, ref=True),)


def _load_eval(ref: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    value = access.read(ref, transforms, indices)
    # Nothing writes to a read-only array while a program runs: a view of it stays the value that was read.
    return (np.array(value) if ref.flags.writeable else value,)


def _load_discharge(context: DischargeContext, ref: Atom, *indices: Atom, transforms: Transforms) -> Discharged:
    return Discharged(context.emit(extract, ref, *indices, transforms=transforms) if transforms else (ref,))


load = Op(
    "load",
    "value = ref[transforms]",
    _load_type,
    _load_eval,
    effects=(read(0),),
    discharge=_load_discharge,
    work=Work.NONE,
)


def _store_type(ref: Type, value: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    require_like("the value", value, accessed(ref, transforms, indices, ref=True))
    return ()


def _store_eval(ref: Any, value: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    access.write(ref, transforms, indices, np.asarray(value))
    return ()


def inserted(
    context: DischargeContext, ref: Atom, value: Atom, indices: Any, transforms: Transforms, kind: str
) -> Atom:
    """The array after a part of it is replaced or combined."""
    if not transforms and kind == "set":
        return value
    return context.emit(insert, ref, value, *indices, transforms=transforms, kind=kind)[0]


def _store_discharge(
    context: DischargeContext, ref: Atom, value: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    return Discharged((), {0: inserted(context, ref, value, indices, transforms, "set")})


store = Op(
    "store",
    "ref[transforms] = value. Where an element is selected twice, the value that comes last stays.",
    _store_type,
    _store_eval,
    effects=(write(0),),
    discharge=_store_discharge,
    work=Work.NONE,
)


# swap, accumulate, atomic: operations that read and write.


def _swap_type(ref: Type, value: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    part = accessed(ref, transforms, indices, ref=True)
    require_like("the value", value, part)
    return (part,)


def _swap_eval(ref: Any, value: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    old = np.array(access.read(ref, transforms, indices))
    access.write(ref, transforms, indices, np.asarray(value))
    return (old,)


def _swap_discharge(
    context: DischargeContext, ref: Atom, value: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    old = _load_discharge(context, ref, *indices, transforms=transforms).outputs
    return Discharged(old, {0: inserted(context, ref, value, indices, transforms, "set")})


swap = Op(
    "swap",
    "old = ref[transforms]; ref[transforms] = value",
    _swap_type,
    _swap_eval,
    effects=(read(0), write(0)),
    discharge=_swap_discharge,
    work=Work.NONE,
)


def _accumulate_type(ref: Type, value: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    part = accessed(ref, transforms, indices, ref=True)
    require_like("the value", value, part)
    require_combinable("add", part)
    return ()


def _accumulate_eval(ref: Any, value: Any, *indices: Any, transforms: Transforms) -> Sequence[Any]:
    updated(ref, value, transforms, indices, "add")
    return ()


def _accumulate_discharge(
    context: DischargeContext, ref: Atom, value: Atom, *indices: Atom, transforms: Transforms
) -> Discharged:
    return Discharged((), {0: inserted(context, ref, value, indices, transforms, "add")})


accumulate = Op(
    "accumulate",
    "ref[transforms] += value; an element that is selected several times receives every addition",
    _accumulate_type,
    _accumulate_eval,
    effects=(accumulates(0),),
    discharge=_accumulate_discharge,
    work=Work.NONE,
)
