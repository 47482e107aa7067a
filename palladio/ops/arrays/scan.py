"""Cumulative operations along one axis: element n combines elements 0 to n, or with `reverse` n to the last.

Floats narrower than float32 are accumulated in float32, and each element is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic
from palladio.ops.arrays.elementwise import DTYPES, Accepts, in_float32, is_number, require_alike
from palladio.ops.arrays.reduce import require_axis
from palladio.types import dtypes
from palladio.types.types import Type


def _scan(name: str, doc: str, ufunc: np.ufunc, accepts: Accepts, joins: Op | None = None) -> Op:
    def type(array: Type, *, axis: int, reverse: bool) -> Sequence[Type]:
        found = require_alike(name, accepts, (array,))
        require_axis(name, axis, found)
        return (found,)

    def eval(array: Any, *, axis: int, reverse: bool) -> Sequence[Any]:
        def accumulate(values: Any) -> Any:
            values = np.flip(values, axis) if reverse else values
            found = ufunc.accumulate(values, axis=axis, dtype=values.dtype)
            return np.flip(found, axis) if reverse else found

        return (in_float32(accumulate)(array),)

    return Op(
        name, f"{doc} along `axis`, from its end with `reverse`.", type, eval, dtypes=DTYPES[accepts], joins=joins
    )


cumsum = _scan("cumsum", "The sums so far", np.add, is_number, arithmetic.add)
cumprod = _scan("cumprod", "The products so far", np.multiply, is_number, arithmetic.mul)
cummax = _scan(
    "cummax", "The greatest elements so far (NaN from the first NaN on)", np.maximum, is_number, arithmetic.max
)
cummin = _scan("cummin", "The least elements so far (NaN from the first NaN on)", np.minimum, is_number, arithmetic.min)
cumlogsumexp = _scan("cumlogsumexp", "log(sum(exp(x))) so far", np.logaddexp, dtypes.is_float)
