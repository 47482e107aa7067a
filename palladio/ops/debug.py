"""Operations that change no value: printing, checking and promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.errors import DebugCheckError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.types import dtypes
from palladio.types.effects import DEBUG
from palladio.types.types import ArrayType


def _print_type(*values: ArrayType, format: str) -> Sequence[ArrayType]:
    return ()


def _print_eval(*values: Any, format: str) -> Sequence[Any]:
    print(format.format(*values))
    return ()


debug_print = Op(
    "debug_print",
    "Prints `format.format(*values)` on standard output.",
    _print_type,
    _print_eval,
    effects=(DEBUG,),
    work=Work.NONE,
)


def _check_type(condition: ArrayType, *, message: str) -> Sequence[ArrayType]:
    if condition != ArrayType((), dtypes.BOOL):
        raise PalladioTypeError("the condition of a check is a scalar bool", got=str(condition))
    return ()


def _check_eval(condition: Any, *, message: str) -> Sequence[Any]:
    if not condition:
        raise DebugCheckError(f"debug_check failed: {message}")
    return ()


debug_check = Op(
    "debug_check",
    "Fails with `message` where the condition, a bool[], is false.",
    _check_type,
    _check_eval,
    effects=(DEBUG,),
    work=Work.NONE,
)


def _promise_type(value: ArrayType, *, values: tuple[int, ...]) -> Sequence[ArrayType]:
    if not dtypes.is_integer(value.dtype):
        raise PalladioTypeError("multiple_of takes integers", got=str(value))
    if any(number < 1 for number in values):
        raise PalladioValueError("multiple_of takes positive factors", got=values)
    return (value,)


def _promise_eval(value: Any, *, values: tuple[int, ...]) -> Sequence[Any]:
    for number in values:
        if np.any(np.asarray(value) % number):
            raise PalladioValueError(
                "the promise of multiple_of is broken", expected=f"a multiple of {number}", got=value
            )
    return (value,)


multiple_of = Op(
    "multiple_of",
    "The value, with the promise that it is a multiple of each factor.",
    _promise_type,
    _promise_eval,
    work=Work.NONE,
)
