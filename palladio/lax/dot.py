"""Products of arrays, with the names of `jax.lax`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, call, cast, result_type
from palladio.array.functions.compare import greater_equal, less, logical_and, where
from palladio.array.functions.creation import arange, zeros
from palladio.array.functions.indexing import getitem
from palladio.array.functions.order import cumsum
from palladio.array.functions.reduce import as_array
from palladio.array.functions.shape import expand_dims
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.ops.arrays import dot as ops
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike

__all__ = [
    "DotAlgorithmPreset",
    "DotDimensionNumbers",
    "Precision",
    "PrecisionLike",
    "batch_matmul",
    "dot",
    "dot_general",
    "ragged_dot",
]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class Precision(Enum):
    """The precision of a product of float32, on machines that have a choice."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


class DotAlgorithmPreset(Enum):
    """The algorithms of a product that `jax.lax` names: dtypes of the factors, of the sums, and how many products.

    They have no meaning: floats narrower than float32 are added up in float32, others in their own dtype.
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15


PrecisionLike = Precision | DotAlgorithmPreset | str | tuple[Any, Any] | None


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sums of products over contracting axes.

    Args:
        dimension_numbers: `((lhs contracting, rhs contracting), (lhs batch, rhs batch))`, each a sequence of axes.
        precision: has no meaning: floats narrower than float32 are added up in float32, others in their own dtype.
        preferred_element_type: the dtype of the result. Without it, that in which the dtypes of `lhs` and `rhs` meet.

    Returns:
        `dtype[batch..., free axes of lhs..., free axes of rhs...]`.

    Raises:
        PalladioValueError: if the sizes of axes that belong together differ.
        PalladioIndexError: for an axis that is out of range.
    """
    lhs, rhs = as_array(lhs), as_array(rhs)
    try:
        (left, right), (left_batch, right_batch) = dimension_numbers
    except (TypeError, ValueError):
        raise PalladioValueError(
            "((lhs contracting, rhs contracting), (lhs batch, rhs batch)), each a sequence of axes",
            argument="dimension_numbers",
            expected="such as (((1,), (0,)), ((), ()))",
            got=repr(dimension_numbers),
        ) from None
    dtype = result_type(lhs, rhs)[0] if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    contracting = _axes(left, lhs), _axes(right, rhs)
    return call(
        ops.dot_general,
        lhs,
        rhs,
        contracting=contracting,
        batch=(_axes(left_batch, lhs), _axes(right_batch, rhs)),
        dtype=dtype,
    )


def _axes(axes: Sequence[int], array: Array) -> tuple[int, ...]:
    ndim = array_type(array).ndim
    return tuple(normalize_axis(axis, ndim) for axis in axes)


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The product of vectors and matrices, or with `dimension_numbers` that of `dot_general`.

    Raises:
        PalladioValueError: for an array that is neither a vector nor a matrix, or sizes that do not fit.
    """
    if dimension_numbers is None:
        ranks = array_type(lhs).ndim, array_type(rhs).ndim
        if not all(rank in (1, 2) for rank in ranks):
            raise PalladioValueError("dot takes vectors and matrices", got=f"{array_type(lhs)} and {array_type(rhs)}")
        dimension_numbers = (((ranks[0] - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """`dtype[batch..., m, k]` times `dtype[batch..., k, n]`, the batch axes being the same."""
    ndim = array_type(lhs).ndim
    if ndim < 2 or array_type(rhs).ndim != ndim:
        raise PalladioValueError(
            "batch_matmul takes two arrays of one rank, at least 2", got=f"{array_type(lhs)} and {array_type(rhs)}"
        )
    batch = tuple(range(ndim - 2))
    return dot_general(lhs, rhs, (((ndim - 1,), (ndim - 2,)), (batch, batch)), precision)


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
) -> Array:
    """The rows of `lhs`, in groups that follow each other, each group times its own matrix.

    Every row is multiplied by every matrix, one group after the other; `palladio.library.gmm` computes only the
    necessary products.

    Args:
        lhs: `dtype[m, k]`.
        rhs: `dtype[groups, k, n]`.
        group_sizes: the number of rows of each group, i32[groups].
        precision, preferred_element_type: as in `dot_general`.
        group_offset: not offered.

    Returns:
        `dtype[m, n]`; rows after the last group are zero.

    Raises:
        PalladioValueError: for arrays of other ranks or sizes.
        PalladioNotImplementedError: for a `group_offset`.
    """
    left, right, sizes = array_type(lhs), array_type(rhs), array_type(group_sizes)
    if (left.ndim, right.ndim, sizes.shape) != (2, 3, right.shape[:1]) or left.shape[1] != right.shape[1]:
        raise PalladioValueError(
            "ragged_dot takes lhs[m, k], rhs[groups, k, n] and group_sizes[groups]", got=f"{left}, {right} and {sizes}"
        )
    if group_offset is not None:
        raise PalladioNotImplementedError(
            "ragged_dot begins with the first group",
            argument="group_offset",
            got=repr(group_offset),
            hint="palladio.library.gmm has a group_offset",
        )
    ends = cumsum(cast(group_sizes, dtypes.INT32))
    row = expand_dims(arange(left.shape[0]), 1)
    dtype = result_type(lhs, rhs)[0] if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    total: Array = zeros((left.shape[0], right.shape[2]), dtype)
    for group in range(right.shape[0]):
        begin = ends[group - 1] if group else 0
        product = dot(lhs, getitem(rhs, group), precision=precision, preferred_element_type=dtype)
        mine = logical_and(greater_equal(row, begin), less(row, ends[group]))
        total = where(mine, product, total)
    return total
