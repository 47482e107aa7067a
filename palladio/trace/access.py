"""Masked loads and stores, and atomics, as functions of a reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.arrays import compare
from palladio.ops.references import atomics, masked
from palladio.trace.gpu.register_layouts import layout_cast
from palladio.trace.reference import Reference, TransformedReference, fitted
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.layouts import described_layout
from palladio.types.transforms import Index, Operand, SliceEntry, Transform, transformed


def _reached(ref: Any, index: Any) -> Reference:
    if not isinstance(ref, Reference):
        raise PalladioTypeError("a reference is needed", argument="ref", got=repr(ref))
    return ref if index is None else ref.at[index]


def _under_mask(target: Reference) -> Reference:
    """A reference whose static slices may reach past the end of an axis: the mask keeps the access inside.

    Such a slice starts at an operand, like one with a dynamic start.
    """
    array, operands = target.root.palladio_type.array, list(target.operands)
    transforms: list[Transform] = []
    for transform in target.transforms:
        if isinstance(transform, Index):
            entries = list(transform.entries)
            for axis, (entry, extent) in enumerate(zip(entries, array.shape, strict=True)):
                if isinstance(entry, SliceEntry) and isinstance(entry.start, int) and _past(entry, extent):
                    entries[axis] = SliceEntry(Operand(len(operands)), entry.size, entry.stride)
                    operands.append(np.int32(entry.start))
            transform = Index(tuple(entries))
        transforms.append(transform)
        array = transformed(array, [transform], [convert.array_type(operand) for operand in operands])
    if len(operands) == len(target.operands):
        return target
    return TransformedReference(target.root, tuple(transforms), tuple(operands))


def _past(part: SliceEntry, extent: int) -> bool:
    """True if a slice starts in its axis, or at its end, and reaches past the end."""
    return 0 <= part.start <= extent < part.start + (part.size - 1) * part.stride + 1  # type: ignore[operator]


def _mask(mask: Any, target: Reference) -> Any:
    given = convert.array_type(mask)
    if given.dtype != dtypes.BOOL:
        raise PalladioTypeError("a mask is a bool array", argument="mask", got=str(given))
    try:
        return convert.broadcast_to(mask, target.shape)
    except PalladioValueError as error:
        error.jax = f"Cannot broadcast {given.shape} to {target.shape}"
        raise


def load(
    ref: Any,
    idx: Any = None,
    *,
    mask: Any = None,
    other: Any = None,
    cache_modifier: str | None = None,
    eviction_policy: str | None = None,
    volatile: bool = False,
    layout: Any = None,
    optimized: bool = True,
) -> Any:
    """`ref[idx]`; where the mask is false nothing is read and the element is `other`, or uninitialised.

    Args:
        mask: `bool[...]` that broadcasts to the shape of the read. Slices may reach past the end where it is false.
        other: a value that broadcasts to the shape of the read.
        cache_modifier, eviction_policy, volatile, optimized: advice to compilers.
        layout: the register layout of the result, as `plgpu.layout_cast` takes it.

    Raises:
        PalladioTypeError: not a reference or layout; a mask that is not of bools; `other` without a mask or of
            another dtype.
        PalladioValueError: shapes that do not broadcast.
    """
    if layout is not None:
        layout = described_layout(layout)
    found = _loaded(ref, idx, mask, other)
    return found if layout is None else layout_cast(found, layout)


def _loaded(ref: Any, idx: Any, mask: Any, other: Any) -> Any:
    target = _reached(ref, idx)
    if mask is None:
        if other is not None:
            raise PalladioTypeError("other has a meaning only with a mask", argument="other")
        return target[...]
    target = _under_mask(target)
    filler = dtypes.uninitialized(target.dtype) if other is None else other
    inputs = (_mask(mask, target), fitted(filler, target), *target.operands)
    return bind(masked.load_masked, target.root, *inputs, transforms=target.transforms)[0]


def store(
    ref: Any,
    val: Any,
    *,
    idx: Any = None,
    mask: Any = None,
    eviction_policy: str | None = None,
    optimized: bool = True,
) -> None:
    """`ref[idx] = val`; where the mask is false nothing is written.

    Args:
        val: broadcasts to the shape of `ref[idx]`, and has its dtype.
        mask: a bool array that broadcasts to it.
        eviction_policy, optimized: advice to compilers.

    Raises:
        PalladioTypeError: not a reference, a mask that is not of bools, a value of another dtype.
        PalladioValueError: shapes that do not broadcast.
    """
    target = _reached(ref, idx)
    if mask is None:
        target[...] = val
        return
    target = _under_mask(target)
    inputs = (fitted(val, target), _mask(mask, target), *target.operands)
    bind(masked.store_masked, target.root, *inputs, transforms=target.transforms)


def swap(ref: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Write `ref[idx] = val` and return the old value.

    Where the mask is false nothing is written, and the old value is uninitialised.
    """
    if mask is None:
        return _reached(ref, idx).swap(val)
    old = load(ref, idx, mask=mask)
    store(ref, val, idx=idx, mask=mask)
    return old


def _neutral(kind: str, dtype: DType) -> Any:
    """The neutral element of an atomic operation."""
    values = {
        "add": -0.0 if dtypes.is_float(dtype) else 0,
        "max": dtypes.least(dtype),
        "min": dtypes.greatest(dtype),
        "and": -1,
        "or": 0,
        "xor": 0,
    }
    if kind not in values:
        raise PalladioNotImplementedError(f"an atomic {kind} has no mask", argument="mask", hint="use atomic_cas")
    return np.asarray(values[kind]).astype(dtype)


_LEFT_OUT: Any = object()


def _atomic(kind: str, doc: str) -> Any:
    def atomic(ref: Any, idx: Any, val: Any = _LEFT_OUT, *, mask: Any = None) -> Any:
        idx, val = (None, idx) if val is _LEFT_OUT else (idx, val)
        target = _reached(ref, idx)
        value = fitted(val, target)
        if mask is not None:
            value = convert.call(compare.select, _mask(mask, target), value, _neutral(kind, target.dtype))
        inputs = (value, *target.operands)
        return bind(atomics.atomic, target.root, *inputs, transforms=target.transforms, kind=kind)[0]

    atomic.__name__ = f"atomic_{kind}"
    atomic.__doc__ = (
        f"{doc} where the mask is true, atomically, element by element; returns the old elements.\n\n"
        "`atomic(ref, val)` is on all of `ref`, which may be `ref.at[idx]`.\n\n"
        "Raises:\n    PalladioTypeError: what is not a reference, or a dtype that has no such operation.\n"
        "    PalladioValueError, PalladioIndexError: shapes that do not broadcast, an index outside."
    )
    return atomic


atomic_add = _atomic("add", "`ref[idx] += val`")
atomic_max = _atomic("max", "`ref[idx] = max(ref[idx], val)`")
atomic_min = _atomic("min", "`ref[idx] = min(ref[idx], val)`")
atomic_and = _atomic("and", "`ref[idx] &= val`")
atomic_or = _atomic("or", "`ref[idx] |= val`")
atomic_xor = _atomic("xor", "`ref[idx] ^= val`")
atomic_xchg = _atomic("exchange", "`ref[idx] = val`")


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Compare and swap: where an element of `ref`, which may be `ref.at[idx]`, equals `cmp`, write `val`, atomically.

    Returns the old elements.

    Raises:
        PalladioTypeError: not a reference, or values of another dtype.
        PalladioValueError: values that do not broadcast to its shape.
    """
    target = _reached(ref, None)
    inputs = (fitted(cmp, target), fitted(val, target), *target.operands)
    return bind(atomics.atomic_cas, target.root, *inputs, transforms=target.transforms)[0]
