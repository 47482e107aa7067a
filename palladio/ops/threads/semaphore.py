"""Semaphores: counters that threads, cores and devices increment and wait for."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.base.errors import PalladioTypeError
from palladio.ir.core import Op
from palladio.ops.references.memory import Transforms, part_of
from palladio.ops.threads.copy import COUNT, only_among_threads, require_space, stays_a_reference
from palladio.types.effects import Sync
from palladio.types.types import DMA_SEMAPHORE, SEMAPHORE, Type


def _require_semaphore(semaphore: Type, stack: Transforms, indices: Sequence[Type]) -> None:
    root = require_space("a semaphore", semaphore, SEMAPHORE, DMA_SEMAPHORE)
    if part_of(root, stack, indices).shape != ():
        raise PalladioTypeError("one semaphore is needed", got=str(root), hint="pick one: ref.at[i]")


def _counted_type(semaphore: Type, amount: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    _require_semaphore(semaphore, transforms, indices)
    if amount != COUNT:
        raise PalladioTypeError("a semaphore counts in scalars of int32", got=str(amount))
    return ()


semaphore_signal = Op(
    "semaphore_signal",
    "Adds `amount: i32[]` to the semaphore, which may be another block's, core's or device's (`.peer`).",
    _counted_type,
    only_among_threads("semaphore_signal"),
    sync=Sync(arrives=("semaphore",)),
    discharge=stays_a_reference,
)


def _wait_type(
    semaphore: Type, amount: Type, *indices: Type, transforms: Transforms, decrement: bool
) -> Sequence[Type]:
    return _counted_type(semaphore, amount, *indices, transforms=transforms)


semaphore_wait = Op(
    "semaphore_wait",
    "Waits until the semaphore is at least `amount: i32[]`; with `decrement` it then takes that off.",
    _wait_type,
    only_among_threads("semaphore_wait"),
    sync=Sync(waits="semaphore"),
    discharge=stays_a_reference,
)


def _read_type(semaphore: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    _require_semaphore(semaphore, transforms, indices)
    return (COUNT,)


semaphore_read = Op(
    "semaphore_read",
    "The semaphore's count, i32[]. It may change at once.",
    _read_type,
    only_among_threads("semaphore_read"),
    sync=Sync(polls="semaphore"),
    discharge=stays_a_reference,
)
