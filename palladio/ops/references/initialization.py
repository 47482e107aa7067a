"""Initialisation of uninitialised blocks: passes choose its place, and the stores that initialise rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import InternalError, PalladioValueError
from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.references import masked, memory
from palladio.types import dtypes
from palladio.types.effects import write
from palladio.types.types import Type


def _initialize_type(ref: Type, *, stored: bool) -> Sequence[Type]:
    memory.accessed(ref, (), (), ref=True)
    return ()


def _initialize_eval(ref: Any, *, stored: bool) -> Sequence[Any]:
    """Memory starts uninitialised; `stored` makes it so again, since a block about to be stored may not be read."""
    if stored:
        ref[...] = dtypes.uninitialized(ref.dtype)
    return ()


def _initialize_discharge(context: DischargeContext, ref: Atom, *, stored: bool) -> Discharged:
    return Discharged((), {0: ref})


initialize = Op(
    "initialize",
    "The elements of ref that nothing has stored become uninitialised values, and all of it counts as initialised. "
    "With `stored` none of them does, since the next access stores all of it.",
    _initialize_type,
    _initialize_eval,
    effects=(write(0),),
    discharge=_initialize_discharge,
    work=Work.NONE,
)


def _store_rows_type(ref: Type, value: Type, mask: Type, *, marks: bool) -> Sequence[Type]:
    masked.store_masked.type(ref, value, mask, transforms=())
    if len(ref.shape) != 2:
        raise PalladioValueError("rows are stored to a matrix", got=str(ref))
    return ()


def _store_rows_eval(ref: Any, value: Any, mask: Any, *, marks: bool) -> Sequence[Any]:
    chosen = np.any(mask, axis=1)
    if not np.array_equal(chosen, np.all(mask, axis=1)):
        raise InternalError(f"a mask of whole rows chooses parts of some: {mask}")
    ref[chosen] = value[chosen]
    return ()


def _store_rows_discharge(context: DischargeContext, ref: Atom, value: Atom, mask: Atom, *, marks: bool) -> Discharged:
    return Discharged((), {0: context.emit(masked.insert_masked, ref, value, mask, transforms=())[0]})


store_rows = Op(
    "store_rows",
    "ref[i] = value[i] for each row i of a matrix in which the mask is true. The mask is a bool array of the value's "
    "shape, and the same in all of a row. The pass `fuse` writes it. With `marks` these rows count as initialised.",
    _store_rows_type,
    _store_rows_eval,
    effects=(write(0),),
    discharge=_store_rows_discharge,
    work=Work.NONE,
)
