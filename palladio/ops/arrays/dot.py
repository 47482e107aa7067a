"""Products of arrays: `dot_general`, which covers matrix products, batched and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, Eqn, Op, Work
from palladio.ops.arrays import arithmetic
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

Axes = tuple[tuple[int, ...], tuple[int, ...]]


@cache
def _free(ndim: int, taken: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis not in taken)


def _dot_type(lhs: ArrayType, rhs: ArrayType, *, contracting: Axes, batch: Axes, dtype: DType) -> Sequence[ArrayType]:
    for side, array, mine in (("lhs", lhs, (*contracting[0], *batch[0])), ("rhs", rhs, (*contracting[1], *batch[1]))):
        if len(set(mine)) != len(mine) or any(not 0 <= axis < array.ndim for axis in mine):
            raise PalladioValueError(
                f"the contracting and batch axes of {side} are different axes of it",
                expected=f"below {array.ndim}",
                got=mine,
            )
        if array.dtype == dtypes.BOOL:
            raise PalladioTypeError(f"{side} of a product is not an array of bool", got=str(array))
    for kind, (left, right) in (("contracting", contracting), ("batch", batch)):
        sizes = [lhs.shape[a] for a in left], [rhs.shape[b] for b in right]
        if sizes[0] != sizes[1]:
            raise PalladioValueError(
                f"the {kind} axes have different sizes", got=f"{lhs} over axes {left} and {rhs} over axes {right}"
            )
    shape = [lhs.shape[axis] for axis in batch[0]]
    shape += [lhs.shape[axis] for axis in _free(lhs.ndim, (*contracting[0], *batch[0]))]
    shape += [rhs.shape[axis] for axis in _free(rhs.ndim, (*contracting[1], *batch[1]))]
    return (ArrayType(tuple(shape), dtype),)


@cache
def _computed_in(lhs: DType, rhs: DType, result: DType) -> DType:
    """The dtype in which the products are summed: float32, float64 if any is float64.

    Integers in int64, wrapped at the end.
    """
    kinds = (lhs, rhs, result)
    if any(map(dtypes.is_float, (lhs, rhs))):
        return dtypes.FLOAT64 if dtypes.FLOAT64 in kinds else dtypes.FLOAT32
    return dtypes.INT64


def _exact_in_float(lhs: Any, rhs: Any, depth: int) -> bool:
    """True if every sum of integer products is exact in float64, for which NumPy has a fast product."""
    largest = [max(abs(int(dtypes.iinfo(x.dtype).min)), int(dtypes.iinfo(x.dtype).max)) for x in (lhs, rhs)]
    return depth * largest[0] * largest[1] < 1 << 53


def _as_matrices(array: Any, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Any:
    """The array as [batch..., rows, columns], a view where NumPy can make one."""
    order = (*batch, *rows, *columns)
    if order != tuple(range(array.ndim)):
        array = array.transpose(order)
    if len(rows) == len(columns) == 1:
        return array
    shape = array.shape
    lead, middle = len(batch), len(batch) + len(rows)
    return array.reshape(*shape[:lead], int(np.prod(shape[lead:middle])), int(np.prod(shape[middle:])))


def _dot_eval(lhs: Any, rhs: Any, *, contracting: Axes, batch: Axes, dtype: DType) -> Sequence[Any]:
    plain = lhs.ndim == rhs.ndim == 2 and not batch[0] and len(contracting[0]) == 1
    if plain and lhs.dtype == rhs.dtype == dtype and dtype in (dtypes.FLOAT32, dtypes.FLOAT64):
        # The most common products, with a microsecond of overhead.
        return (np.matmul(lhs.T if contracting[0][0] == 0 else lhs, rhs.T if contracting[1][0] == 1 else rhs),)
    return (_dot(np.asarray(lhs), np.asarray(rhs), contracting, batch, dtype),)


def _dot(lhs: Any, rhs: Any, contracting: Axes, batch: Axes, dtype: DType) -> Any:
    compute = _computed_in(lhs.dtype, rhs.dtype, dtype)
    left_free = _free(lhs.ndim, (*contracting[0], *batch[0]))
    right_free = _free(rhs.ndim, (*contracting[1], *batch[1]))
    shape = [lhs.shape[a] for a in (*batch[0], *left_free)] + [rhs.shape[a] for a in right_free]
    if compute == dtypes.INT64:
        depth = int(np.prod([lhs.shape[axis] for axis in contracting[0]]))
        compute = dtypes.FLOAT64 if _exact_in_float(lhs, rhs, depth) else compute
    if lhs.dtype != compute:
        lhs = dtypes.widened(lhs, compute)
    if rhs.dtype != compute:
        rhs = dtypes.widened(rhs, compute)
    left = _as_matrices(lhs, batch[0], left_free, contracting[0])
    right = _as_matrices(rhs, batch[1], contracting[1], right_free)
    result = np.matmul(left, right)
    if list(result.shape) != shape:
        result = result.reshape(shape)
    if result.dtype == dtype:
        return result
    if dtypes.is_integer(dtype) and dtypes.is_float(result.dtype):
        result = result.astype(np.int64)
    return result.astype(dtype)


dot_general = Op(
    "dot_general",
    "Sums of products over the contracting axes: lhs[batch, free, contracting] x rhs[batch, contracting, free] gives "
    "dtype[batch..., lhs free..., rhs free...]. The inputs may have different dtypes. Sums are float32, float64 where "
    "an input or the result is, and are rounded once to `dtype`; integer sums wrap around.",
    _dot_type,
    _dot_eval,
    work=Work.PRODUCT,
    dtypes="integer or float",
)


def _accumulate_type(
    acc: ArrayType, lhs: ArrayType, rhs: ArrayType, *more: ArrayType, contracting: Axes, batch: Axes
) -> Sequence[ArrayType]:
    if len(more) % 2:
        raise PalladioTypeError("each operand after the first two is one of a pair", got=f"{2 + len(more)} operands")
    for left, right in _pairs(lhs, rhs, *more):
        (product,) = _dot_type(left, right, contracting=contracting, batch=batch, dtype=acc.dtype)
        if acc != product:
            raise PalladioTypeError("an accumulator has the shape of the product", expected=str(product), got=str(acc))
    return (acc,)


def _pairs(*operands: Any) -> list[tuple[Any, Any]]:
    return list(zip(operands[::2], operands[1::2], strict=True))


def _accumulate_eval(acc: Any, lhs: Any, rhs: Any, *more: Any, contracting: Axes, batch: Axes) -> Sequence[Any]:
    for left, right in _pairs(lhs, rhs, *more):
        (product,) = _dot_eval(left, right, contracting=contracting, batch=batch, dtype=acc.dtype)
        (acc,) = arithmetic.add.eval(acc, product)
    return (acc,)


dot_accumulate = Op(
    "dot_accumulate",
    "acc + dot_general(lhs, rhs) in the dtype of `acc`, and + dot_general of each further pair in `more`, in order. "
    "Passes form it of products and additions to them: a compiler starts the sums with the elements of `acc`, so they "
    "may be rounded in another order.",
    _accumulate_type,
    _accumulate_eval,
    work=Work.PRODUCT,
    dtypes="integer or float",
)


def factors(eqn: Eqn) -> list[tuple[Atom, Atom]]:
    """The pairs of operands that a product equation multiplies: one for `dot_general`."""
    return _pairs(*(eqn.inputs[1:] if eqn.op is dot_accumulate else eqn.inputs))
