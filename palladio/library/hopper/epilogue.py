"""Epilogues: asynchronous stores of a warpgroup's part of a result, from the accumulator through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp

Ref = Any
Value = Any

BUFFERS = 2
"""Double buffering: while one piece of a result is stored, the next one is written to the other buffer."""


SUM_BYTES = 4
"""Bytes of an element of a sum."""


def partial_shape(rows: int, columns: int) -> tuple[int, int]:
    """The shape of the buffer for the sum of half of the contracted axis.

    Eight words more than its columns keep the four rows that a half-warp writes in different banks.
    """
    return rows, columns + 8


def partial_scratch(rows: int, columns: int, dtype: Any) -> dict[str, Any]:
    """The buffer for the sum of half of the contracted axis, and its barriers."""
    return {
        "partial": plgpu.SMEM(partial_shape(rows, columns), dtype),
        "partial_filled": plgpu.Barrier(),
        "partial_drained": plgpu.Barrier(),
    }


def store_with_partial(acc: Ref, group: Value, scratch: Mapping[str, Any], store: Callable[[Ref], None]) -> None:
    """Store the sum of two compute warpgroups' sums, each of half of the contracted axis.

    Args:
        acc: f32[m, n], this warpgroup's sum.
        scratch: with that of `partial_scratch`.
        store: starts the store of the first warpgroup's accumulator plus the other sum, its argument. It reads that
            before it returns.
    """
    partial = scratch["partial"].at[:, pl.ds(0, acc.shape[1])]

    @pl.when(group == 1)
    def _() -> None:
        partial[...] = acc[...]
        plgpu.barrier_arrive(scratch["partial_filled"])
        plgpu.barrier_wait(scratch["partial_drained"])

    @pl.when(group == 0)
    def _() -> None:
        plgpu.barrier_wait(scratch["partial_filled"])
        store(partial)
        plgpu.barrier_arrive(scratch["partial_drained"])


def store_tile(
    acc: Ref,
    staging: Ref,
    out: Ref,
    row: Value,
    column: Value,
    rows: Value | None = None,
    scale: Callable[[int, int], Value] | None = None,
    partial: Ref | None = None,
) -> None:
    """Start the store of an accumulator at a position in a matrix; elements outside the matrix are dropped.

    Args:
        acc: f32[m, n].
        staging: dtype[2, m, piece] in shared memory, private to this warpgroup; `piece` divides n. Earlier stores from
            it are waited for before it is written.
        out: dtype[rows, columns] in global memory.
        row, column: the position of the accumulator's corner.
        rows: the number of rows to store, at most m; all by default.
        scale: (first column, number of columns) -> the factor of that piece, which broadcasts to the piece.
        partial: f32[m, n] in shared memory, added to the accumulator.
    """

    def value(first: int, count: int) -> Value:
        part = acc[:, first : first + count]
        if partial is not None:
            part = part + partial[:, pl.ds(first, count)]
        return part if scale is None else part.astype(jnp.float32) * scale(first, count)

    store_pieces(value, acc.shape[1], staging, out, row, column, rows)


def store_pieces(
    value: Callable[[int, int], Value],
    columns: int,
    staging: Ref,
    out: Ref,
    row: Value,
    column: Value,
    rows: Value | None = None,
) -> None:
    """Start the store of columns at a position in a matrix, piece by piece; other arguments are as in `store_tile`.

    Args:
        value: (first column, number of columns) -> a piece, `[m, columns of it]`.
        columns: the number of columns of all pieces.
    """
    piece = staging.shape[2]
    store_rows = _row_copies(staging.shape[1], rows)
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    for number, first in enumerate(range(0, columns, piece)):
        buffer = staging.at[number % BUFFERS]
        if number >= BUFFERS:
            plgpu.wait_smem_to_gmem(BUFFERS - 1, wait_read_only=True)
        buffer[...] = value(first, piece).astype(buffer.dtype)
        plgpu.commit_smem()
        store_rows(buffer, out, row, pl.ds(column + first, piece))
        plgpu.commit_smem_to_gmem_group()


def _row_copies(extent: int, rows: Value | None) -> Callable[[Ref, Ref, Value, Any], None]:
    """A function that copies the first rows of a buffer with `extent` rows: (buffer, out, row, columns).

    The size of a copy is static. A dynamic number of rows is a sum of powers of two: one copy for each bit. Their first
    rows are computed here, once for all pieces.
    """
    parts: list[tuple[int, Value, Value]] = []
    if rows is not None:
        bits = (extent - 1).bit_length()
        for count in (1 << bit for bit in reversed(range(bits))):
            larger = (1 << bits) - 2 * count
            parts.append((count, jnp.bitwise_and(rows, larger), jnp.bitwise_and(rows, count) != 0))

    def copy_rows(buffer: Ref, out: Ref, row: Value, columns: Any) -> None:
        def copy(first: Value, count: int, predicate: Value = None) -> None:
            target = out.at[pl.ds(row + first, count), columns]
            plgpu.copy_smem_to_gmem(buffer.at[pl.ds(first, count)], target, predicate, commit_group=False)

        if rows is None:
            copy(0, extent)
            return
        pl.when(rows == extent)(lambda: copy(0, extent))

        @pl.when(rows < extent)
        def _() -> None:
            for count, first, given in parts:
                copy(first, count, given)

    return copy_rows
