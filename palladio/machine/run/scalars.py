"""Index arithmetic of threads: operations on scalars of int32 and bool, the majority of a kernel's equations.

Their results equal those of the definition, which works on arrays of any dtype; NumPy takes thirty times as long for an
array of one element as for its own scalars.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.ops import OPS
from palladio.types import dtypes
from palladio.types.types import ArrayType, Type

Values = Sequence[Any]

_MINUS_ONE, _ZERO, _ONE = np.int32(-1), np.int32(0), np.int32(1)


def _with(function: Callable[..., Any]) -> Callable[..., Values]:
    return lambda x, y: (function(x, y),)


def _quotient(x: Any, y: Any) -> Values:
    if x >= 0 and y > 0:  # otherwise Python rounds differently
        return (x // y,)
    return OPS["div"].eval(x, y)  # type: ignore[no-any-return]


def _remainder(x: Any, y: Any) -> Values:
    if x >= 0 and y > 0:
        return (x % y,)
    return OPS["rem"].eval(x, y)  # type: ignore[no-any-return]


_INTEGERS: dict[str, Callable[..., Values]] = {
    "add": _with(operator.add),
    "sub": _with(operator.sub),
    "mul": _with(operator.mul),
    "div": _quotient,
    "rem": _remainder,
    "sign": lambda x: (_ONE if x > 0 else _MINUS_ONE if x < 0 else _ZERO,),
    "min": lambda x, y: (x if x <= y else y,),
    "max": lambda x, y: (x if x >= y else y,),
    "lt": _with(operator.lt),
    "le": _with(operator.le),
    "gt": _with(operator.gt),
    "ge": _with(operator.ge),
}
_EITHER: dict[str, Callable[..., Values]] = {
    "eq": _with(operator.eq),
    "ne": _with(operator.ne),
    "bitwise_and": _with(operator.and_),
    "bitwise_or": _with(operator.or_),
    "bitwise_xor": _with(operator.xor),
    "bitwise_not": lambda x: (~x,),
}


def quick(eqn: Eqn) -> Callable[..., Values] | None:
    """A fast function for the equation's operation, if it is one of these on such scalars."""
    types = eqn.input_types
    if not all(_is_scalar(type, dtypes.INT32) or _is_scalar(type, dtypes.BOOL) for type in types):
        return None
    integers = all(_is_scalar(type, dtypes.INT32) for type in types)
    name = eqn.op.name
    if name == "select":
        return lambda predicate, on_true, on_false: (on_true if predicate else on_false,)
    if name == "convert" and not integers and eqn.dtype == dtypes.INT32:
        return lambda x: (_ONE if x else _ZERO,)
    if name in _EITHER:
        return _EITHER[name]
    return _INTEGERS.get(name) if integers else None


def _is_scalar(type: Type, dtype: dtypes.DType) -> bool:
    return isinstance(type, ArrayType) and type.shape == () and type.dtype == dtype


__all__ = ["quick"]
