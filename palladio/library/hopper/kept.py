"""The cache of calls of the library on arrays of a GPU.

Preparing a kernel from the arguments takes some hundred microseconds, more than many products. For the same shapes,
dtypes and options, a later call goes from the arrays to the launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library import card_calls
from palladio.library.card_calls import KEPT as _KEPT
from palladio.library.checks import dtype_of
from palladio.library.hopper.limits import COPIED_BYTES
from palladio.library.staging import reshaped

__all__ = ["Divided", "RowBucket", "called", "counting", "keeps", "kept_call", "kernel_rows", "most_rows", "staged"]

LEAST_OF_BLOCKS = 4096
"""The fewest rows for which a kernel is compiled whose blocks have some rows each."""


@dataclass(frozen=True)
class RowBucket:
    """Numbers of rows that share a kernel, which is compiled for the largest of them.

    The kernel for more rows is launched with tensor maps of arrays with fewer, at whose ends the copy engine clips. Or
    it is `counted`: its last operand is their number, an int32 that is passed by value, and it accesses no others. Or
    each of its blocks accesses `of_block` rows only, and as many blocks are launched as there are rows for.

    Fields:
        rows: the largest number.
        operands: for each operand that has rows, by position, their axis, and how many it has for each.
        kernel: makes the kernel for a number of rows.
        results: the same for each result.
        counted: True for a kernel that takes the number.
        of_block: the rows of a block, which divide all numbers of rows in the bucket; None for other kernels.
    """

    rows: int
    operands: Mapping[int, tuple[int, int]]
    kernel: Callable[[int], Callable[..., Any]]
    results: Mapping[int, tuple[int, int]]
    counted: bool = False
    of_block: int | None = None

    @staticmethod
    def of(
        rows: int,
        operands: Mapping[int, int],
        widths: Sequence[int],
        kernel: Callable[[int], Callable[..., Any]],
        result: int | None = 0,
    ) -> RowBucket | None:
        """The bucket of a number of rows; None if the rows cannot be copied by the engine.

        Above 4096 rows, at most one in 16 is added, as far as tiles of 128 rows do not have it anyway.

        Args:
            widths: the bytes of a row of each operand and of the result.
            operands: the axis of the rows of each operand that has them, by position.
            kernel: as in the fields.
            result: the axis of the rows of the result; None if it has none.
        """
        axes, results = {n: (axis, 1) for n, axis in operands.items()}, {} if result is None else {0: (result, 1)}
        return RowBucket(most_rows(rows), axes, kernel, results) if _copied(widths) else None

    def counting(
        self,
        operands: Mapping[int, tuple[int, int]],
        kernel: Callable[[int], Callable[..., Any]],
        results: Mapping[int, tuple[int, int]] | None = None,
    ) -> RowBucket:
        """The same bucket for a kernel that takes the number of rows.

        Args:
            operands, kernel, results: as in the fields; further operands and results that have rows.
        """
        operands, results = {**self.operands, **operands}, {**self.results, **(results or {})}
        return dataclasses.replace(self, operands=operands, kernel=kernel, results=results, counted=True)

    @staticmethod
    def with_count(
        rows: int, operands: Mapping[int, int], results: Mapping[int, int], kernel: Callable[[int], Callable[..., Any]]
    ) -> RowBucket:
        """The bucket of a number of rows, for a kernel that takes it.

        Args:
            operands, results: how many rows, along its first axis, each one has for each that is counted, by position.
            kernel: as in the fields.
        """
        given, found = ({n: (0, each) for n, each in axes.items()} for axes in (operands, results))
        return RowBucket(most_rows(rows), given, kernel, found, counted=True)

    @staticmethod
    def in_blocks(rows: int, of_block: int, kernel: Callable[[int], Callable[..., Any]]) -> RowBucket:
        """The bucket of the rows of a first operand and of the result, for a kernel whose blocks have some rows each.

        Args:
            of_block: as in the fields, a power of two.
            kernel: as in the fields.
        """
        rows_of = {0: (0, 1)}
        most = max(LEAST_OF_BLOCKS, 1 << (rows - 1).bit_length())
        return RowBucket(most, rows_of, kernel, rows_of, of_block=of_block)

    @property
    def key(self) -> Hashable:
        """Everything but types by which its kernel differs from other kernels of the same function."""
        return tuple(self.operands.items()), tuple(self.results.items()), self.counted, self.of_block

    def sizes(self, rows: int) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """The axes and sizes of the kernel's operands and results for a number of rows."""
        operands = {n: (axis, rows * each) for n, (axis, each) in self.operands.items()}
        return operands, {n: (axis, rows * each) for n, (axis, each) in self.results.items()}

    def types(self, operands: Sequence[Any]) -> list[Any]:
        """Descriptions of the kernel's operands, of the largest number of rows."""
        found = []
        for position, each in enumerate(operands):
            shape = list(each.shape)
            if position in self.operands:
                axis, many = self.operands[position]
                shape[axis] = self.rows * many
            found.append(pl.ShapeDtypeStruct(tuple(shape), dtype_of(each)))
        return [*found, pl.ShapeDtypeStruct((), jnp.int32)] if self.counted else found

    def count(self, operands: Sequence[Any]) -> int:
        """The number of rows of some operands."""
        position, (axis, each) = next(iter(self.operands.items()))
        return int(operands[position].shape[axis]) // each


def most_rows(rows: int) -> int:
    """The largest number of rows in the bucket of a number of rows."""
    least = 16 if rows <= 64 else 64 if rows <= 128 else 128
    step = max(least, (1 << (rows - 1).bit_length()) // 32)
    return -(-rows // step) * step


def kernel_rows(rows: int, widths: Sequence[int]) -> int:
    """The number of rows that the kernel for a number of rows is compiled for; arguments as in `RowBucket.of`."""
    return most_rows(rows) if _copied(widths) else rows


def _copied(widths: Sequence[int]) -> bool:
    """True if the engine copies rows of as many bytes."""
    return all(width % COPIED_BYTES == 0 for width in widths)


@dataclass(frozen=True)
class Divided:
    """A kernel whose work a configuration divides, which is part of the key under which the kernel is on disk."""

    call: Callable[..., Any]
    config: Hashable

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        """The result of the kernel."""
        return self.call(*arrays, **options)


def counting(launch: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """A function of arrays and, last, the number of their rows, as in a bucket that is `counted`.

    Args:
        launch: makes the function of the arrays from that number, i32[].
    """
    return lambda *arrays: launch(arrays[-1])(*arrays[:-1])


class _Counted:
    """A function of arrays that a kernel computes which takes the number of their rows last."""

    def __init__(self, run: Any, rows: int) -> None:
        self._run, self._rows = run, np.array(rows, np.int32)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        return self._run(*arrays, self._rows, out=out)

    def ready(self, library: Any, device: int, shape: Any) -> Any:
        """As in `Ahead.ready`."""
        return self._run.ready(library, device, shape, (self._rows,))


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
    made_of: Hashable = None,
    view: tuple[Callable[[Any], Any], tuple[int, ...]] | None = None,
) -> Any:
    """The result of a kernel, which is cached for later calls if the arrays are on a GPU.

    Args:
        key, interpret, arrays, out: as in `card_calls.kept_call`.
        kernel: makes the kernel, a function of the arrays.
        shape: the shape of the result.
        operands, flat: the arrays, and the shape of the result, as seen by the kernel, if it has the same memory in
            other shapes, or with its axes in another order.
        bucket: numbers of rows that share a kernel.
        made_of: the key of the kernel, if calls with several keys share it.
        view: the function from the result of the kernel to that of the call, which is a view of it with axes in another
            order, and the strides of this view in elements. There is no `out` then.
    """
    given = arrays if operands is None else operands
    call: Any = None
    if keeps(arrays):
        call = staged(key if made_of is None else made_of, kernel, interpret, given, bucket)
        if interpret is None:
            strides = None if view is None else view[1]
            _KEPT.keep_on_card(card_calls.key_of(key, arrays), arrays, call, shape, given, strides)
    call = kernel() if call is None else call
    if view is not None:
        return view[0](call(*given))
    if flat is None or flat == shape:
        return call(*given) if out is None else call(*given, out=out)
    if out is None:
        return call(*given).reshape(shape)
    call(*given, out=reshaped(out, shape, flat))
    return out


def keeps(arrays: Sequence[Any]) -> bool:
    """True if calls on arrays are cached."""
    return _KEPT.usable and pl.is_on_gpu(arrays[0])


def staged(
    key: Hashable,
    kernel: Callable[[], Callable[..., Any]],
    interpret: Any,
    operands: Sequence[Any],
    bucket: RowBucket | None = None,
) -> Any:
    """The kernel, staged for these operands and cached; arguments as in `called`."""
    known = key, plgpu.multiprocessors(), *((type(each), str(each.dtype), tuple(each.shape)) for each in operands)
    found = _KEPT.find(known, interpret, operands)
    if found is None:
        found = None if bucket is None else _of_bucket(key, bucket, interpret, operands)
        found = found or _ahead(key, kernel(), interpret, operands)
        _KEPT.keep(known, found, interpret, operands)
    return found


def _ahead(key: Hashable, call: Callable[..., Any], interpret: Any, operands: Sequence[Any]) -> Any:
    """A kernel, staged for operands or their descriptions."""

    def run(*values: Any) -> Any:
        return call(*values)

    config = call.config if isinstance(call, Divided) else None
    return pl.jit(run, interpret=interpret).ahead(*operands, made_of=(key, plgpu.multiprocessors(), config))


def _of_bucket(key: Hashable, bucket: RowBucket, interpret: Any, operands: Sequence[Any]) -> Any:
    """The kernel of a bucket for operands with as many rows as these; None if it cannot run on fewer."""
    executor = pl.chosen_executor(interpret, operands)
    if executor != "hopper":
        return None
    types = bucket.types(operands)
    shared = "bucket", key, bucket.key
    known = *shared, plgpu.multiprocessors(), *((str(each.dtype), each.shape) for each in types)
    found = _KEPT.find(known, interpret, operands)
    if found is None:
        found = _ahead(shared, bucket.kernel(bucket.rows), executor, types)
        _KEPT.keep(known, found, interpret, operands)
    rows = bucket.count(operands)
    blocks = None if bucket.of_block is None else rows // bucket.of_block
    guarded = bucket.counted or blocks is not None
    fewer = found.of_fewer_rows(*bucket.sizes(rows), guarded=guarded, blocks=blocks)
    return _Counted(fewer, rows) if bucket.counted and fewer is not None else fewer
