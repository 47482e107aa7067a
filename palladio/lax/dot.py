"""Products of arrays, with the names of `jax.lax`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from palladio.array.axes import normalize_axis
from palladio.array.convert import Array, ArrayLike, array_type, call, result_type
from palladio.array.functions.reduce import as_array
from palladio.base.errors import PalladioValueError
from palladio.ops.arrays import dot as ops
from palladio.types import dtypes
from palladio.types.dtypes import DTypeLike

__all__ = ["DotDimensionNumbers", "Precision", "PrecisionLike", "batch_matmul", "dot", "dot_general"]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class Precision(Enum):
    """The precision of a product of float32, on machines that have a choice."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


PrecisionLike = Precision | str | tuple[Any, Any] | None


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
