"""Arrays that are kept in memory: passes choose them, and compilers compute the others where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.references import memory
from palladio.types.effects import Effect, write
from palladio.types.types import ArrayType, Type


def _keep_type(array: ArrayType) -> Sequence[ArrayType]:
    return (array,)


def _keep_eval(array: Any) -> Sequence[Any]:
    return (array,)


keep = Op(
    "keep",
    "The same array, in memory: its elements are computed here and once.",
    _keep_type,
    _keep_eval,
    work=Work.NONE,
)


def _tee_type(array: ArrayType, *into: Type) -> Sequence[ArrayType]:
    for ref in into:
        memory.store.type(ref, array, transforms=())
    return (array, array)


def _tee_eval(array: Any, *into: Any) -> Sequence[Any]:
    for ref in into:
        memory.store.eval(ref, array, transforms=())
    return (array, array)


def _tee_effects(array: ArrayType, *into: Type) -> Iterator[Effect]:
    return (write(position) for position in range(1, 1 + len(into)))


def _tee_discharge(context: DischargeContext, array: Atom, *into: Atom) -> Discharged:
    (kept,) = context.emit(keep, array)
    return Discharged((kept, kept), dict.fromkeys(range(1, 1 + len(into)), kept))


tee = Op(
    "tee",
    "passed, kept = array, array. The next equation, a reduction of rows, goes through `passed`: each element is "
    "computed there, once, and written to the memory of `kept`, which later equations use. That memory is its own, or "
    "that of a reference `into` which what is computed from the array is stored before anything else happens there; a "
    "compiler that writes this one past its caches keeps the array in memory of its own.",
    _tee_type,
    _tee_eval,
    effects=_tee_effects,
    discharge=_tee_discharge,
    work=Work.NONE,
)
