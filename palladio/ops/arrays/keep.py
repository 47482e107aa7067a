"""Arrays that are kept in memory: passes say which, and compilers compute the others where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.references import memory
from palladio.types.effects import Effect, write
from palladio.types.types import ArrayType, Type


def _keep_type(array: ArrayType, *into: Type, passing: bool) -> Sequence[ArrayType]:
    for ref in into:
        memory.store.type(ref, array, transforms=())
    return (array,)


def _keep_eval(array: Any, *into: Any, passing: bool) -> Sequence[Any]:
    for ref in into:
        memory.store.eval(ref, array, transforms=())
    return (array,)


def _keep_effects(array: ArrayType, *into: Type, passing: bool) -> Iterator[Effect]:
    return (write(position) for position in range(1, 1 + len(into)))


def _keep_discharge(context: DischargeContext, array: Atom, *into: Atom, passing: bool) -> Discharged:
    (kept,) = context.emit(keep, array, passing=passing)
    return Discharged((kept,), dict.fromkeys(range(1, 1 + len(into)), kept))


keep = Op(
    "keep",
    "The same array, in memory: its elements are computed here and once. With `passing` they are written while the "
    "next equation, a reduction of rows, goes through them. The memory is its own, or that of a reference `into` which "
    "what is computed from the array is stored before anything else happens there.",
    _keep_type,
    _keep_eval,
    effects=_keep_effects,
    discharge=_keep_discharge,
    work=Work.NONE,
)
