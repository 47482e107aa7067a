"""The cache of calls of the library on arrays of a GPU.

Preparing a kernel from the arguments takes some hundred microseconds, more than many products. For the same shapes,
dtypes and options, a later call goes from the arrays to the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library import card_calls
from palladio.library.card_calls import KEPT as _KEPT
from palladio.library.checks import dtype_of, reshaped

__all__ = ["RowBucket", "called", "kept_call"]

COPIED_BYTES = 16
"""The copy engine copies rows of a multiple of as many bytes."""


@dataclass(frozen=True)
class RowBucket:
    """Numbers of rows that share a kernel, which is compiled for the largest of them.

    The kernel for more rows is launched with tensor maps of arrays with fewer, at whose ends the copy engine clips.

    Fields:
        rows: the largest number.
        operands: the axis of the rows of each operand that has them, by position.
        kernel: makes the kernel for a number of rows.
        result: the axis of the rows of the result; None if it has none.
    """

    rows: int
    operands: Mapping[int, int]
    kernel: Callable[[int], Callable[..., Any]]
    result: int | None = 0

    @staticmethod
    def of(
        rows: int,
        operands: Mapping[int, int],
        widths: Sequence[int],
        kernel: Callable[[int], Callable[..., Any]],
        result: int | None = 0,
    ) -> RowBucket | None:
        """The bucket of a number of rows; None if it has no other, or if the rows cannot be copied by the engine.

        Above 4096 rows, at most one in 16 is added, as far as tiles of 128 rows do not have it anyway.

        Args:
            widths: the bytes of a row of each operand and of the result.
            operands, kernel, result: as in the fields.
        """
        least = 16 if rows <= 64 else 64 if rows <= 128 else 128
        most = _rounded(rows, max(least, (1 << (rows - 1).bit_length()) // 32))
        copied = all(width % COPIED_BYTES == 0 for width in widths)
        return RowBucket(most, operands, kernel, result) if copied and most != rows else None


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


def kept_call(key: Hashable, interpret: Any, arrays: Sequence[Any], out: Any = None) -> Any:
    """The result of a cached call, of this function or its namesake; arguments as in `card_calls`."""
    found = card_calls.kept_call(key, interpret, arrays, out)
    return found if found is not None else card_calls.kept_call(card_calls.own(key), interpret, arrays, out)


def called(
    key: Hashable,
    kernel: Callable[[], Callable[..., Any]],
    interpret: Any,
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    out: Any = None,
    *,
    operands: Sequence[Any] | None = None,
    flat: tuple[int, ...] | None = None,
    bucket: RowBucket | None = None,
) -> Any:
    """The result of a kernel, which is cached for later calls if the arrays are on a GPU.

    Args:
        key, interpret, arrays, out: as in `card_calls.kept_call`.
        kernel: makes the kernel, a function of the arrays.
        shape: the shape of the result.
        operands, flat: the arrays, and the shape of the result, as seen by the kernel, if it has the same memory in
            other shapes.
        bucket: numbers of rows that share a kernel.
    """
    given = arrays if operands is None else operands
    call = _staged(key, kernel, interpret, arrays, shape, given, bucket) if _keeps(arrays) else kernel()
    if flat is None or flat == shape:
        return call(*given) if out is None else call(*given, out=out)
    if out is None:
        return call(*given).reshape(shape)
    call(*given, out=reshaped(out, shape, flat))
    return out


def _keeps(arrays: Sequence[Any]) -> bool:
    return _KEPT.usable and pl.is_on_gpu(arrays[0])


def _staged(
    key: Hashable,
    kernel: Callable[[], Callable[..., Any]],
    interpret: Any,
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    operands: Sequence[Any],
    bucket: RowBucket | None,
) -> Any:
    """The kernel, staged for these operands."""
    known = key, *((type(each), str(each.dtype), tuple(each.shape)) for each in operands)
    found = _KEPT.find(known, interpret, operands)
    if found is None:
        found = None if bucket is None else _of_bucket(key, bucket, interpret, operands)
        found = found or _ahead(key, kernel(), interpret, operands)
        _KEPT.keep(known, found, interpret, operands)
    if interpret is None:
        _KEPT.keep_on_card(card_calls.key_of(key, arrays), arrays, found, shape)
    return found


def _ahead(key: Hashable, call: Callable[..., Any], interpret: Any, operands: Sequence[Any]) -> Any:
    """A kernel, staged for operands or their descriptions."""

    def run(*values: Any) -> Any:
        return call(*values)

    return pl.jit(run, interpret=interpret).ahead(*operands, made_of=(key, plgpu.multiprocessors()))


def _of_bucket(key: Hashable, bucket: RowBucket, interpret: Any, operands: Sequence[Any]) -> Any:
    """The kernel of a bucket for operands with as many rows as these; None if it cannot run on fewer."""
    executor = pl.chosen_executor(interpret, operands)
    if executor != "hopper":
        return None
    known = "bucket", key, *((str(each.dtype), _shape(each, n, bucket)) for n, each in enumerate(operands))
    found = _KEPT.find(known, interpret, operands)
    if found is None:
        given = [pl.ShapeDtypeStruct(_shape(each, n, bucket), dtype_of(each)) for n, each in enumerate(operands)]
        found = _ahead(key, bucket.kernel(bucket.rows), executor, given)
        _KEPT.keep(known, found, interpret, operands)
    position, axis = next(iter(bucket.operands.items()))
    return found.of_fewer_rows(bucket.operands, operands[position].shape[axis], bucket.result)


def _shape(operand: Any, position: int, bucket: RowBucket) -> tuple[int, ...]:
    shape, axis = tuple(operand.shape), bucket.operands.get(position)
    return shape if axis is None else (*shape[:axis], bucket.rows, *shape[axis + 1 :])
