"""Arrays that are kept in memory: passes say which, and compilers compute the others where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.ir.core import Op, Work
from palladio.types.types import ArrayType


def _keep_type(array: ArrayType, *, passing: bool) -> Sequence[ArrayType]:
    return (array,)


def _keep_eval(array: Any, *, passing: bool) -> Sequence[Any]:
    return (array,)


keep = Op(
    "keep",
    "The same array, in memory of its own: its elements are computed here and once. With `passing` they are written "
    "while the next equation, a reduction of rows, goes through them.",
    _keep_type,
    _keep_eval,
    work=Work.NONE,
)
