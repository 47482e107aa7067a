"""Comparison and select, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.ops.arrays.elementwise import anything, elementwise, require_alike
from palladio.types import dtypes
from palladio.types.types import ArrayType, Type

eq = elementwise(
    "eq", "x == y, as bool; False if one is NaN", np.equal, 2, anything, result=dtypes.BOOL, commutative=True
)
ne = elementwise(
    "ne", "x != y, as bool; True if one is NaN", np.not_equal, 2, anything, result=dtypes.BOOL, commutative=True
)
lt = elementwise("lt", "x < y, as bool; False if one is NaN", np.less, 2, anything, result=dtypes.BOOL)
le = elementwise("le", "x <= y, as bool; False if one is NaN", np.less_equal, 2, anything, result=dtypes.BOOL)
gt = elementwise("gt", "x > y, as bool; False if one is NaN", np.greater, 2, anything, result=dtypes.BOOL)
ge = elementwise("ge", "x >= y, as bool; False if one is NaN", np.greater_equal, 2, anything, result=dtypes.BOOL)


def _select_type(predicate: Type, on_true: Type, on_false: Type) -> Sequence[Type]:
    if not isinstance(predicate, ArrayType) or predicate.dtype != dtypes.BOOL:
        raise PalladioTypeError("the predicate of select is a bool array", got=str(predicate))
    cases = require_alike("select", anything, (on_true, on_false))
    shape = predicate.shape or cases.shape
    if cases.shape not in ((), shape):
        raise PalladioValueError(
            "select takes a predicate of the shape of its cases (or scalars)",
            got=", ".join(map(str, (predicate, on_true, on_false))),
        )
    return (ArrayType(shape, cases.dtype),)


def _select_eval(predicate: Any, on_true: Any, on_false: Any) -> Sequence[Any]:
    return (np.where(predicate, on_true, on_false),)


select = Op(
    "select",
    "`on_true` where the bool predicate, the first input, is true, `on_false` elsewhere; all of one shape, or scalars.",
    _select_type,
    _select_eval,
    nonnegative_if=all,
    work=Work.NONE,
    elementwise=True,
)
