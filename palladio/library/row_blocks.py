"""Row functions of a matrix: the rows of a block, and one kernel for all numbers of rows up to a power of two."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import palladio as pl
from palladio.library.checks import dtype_of
from palladio.library.staging import described


def rows_of_block(m: int, n: int, itemsize: int) -> int:
    """A power of two of rows, up to that of m.

    A kernel makes several passes over a block, which should stay in a first-level cache or close to it.

    Args:
        m, n: the sizes of the matrix.
        itemsize: the bytes of an element.
    """
    fitting = max(1, pl.processor().cache_bytes[0] // (n * itemsize))
    return 1 << min(fitting.bit_length() - 1, (m - 1).bit_length())


def staged(
    kept: pl.KeptCalls,
    options: Hashable,
    call_of: Callable[[tuple[int, int], int], Any],
    rows: Any,
    interpret: Any,
    block_rows: int | None = None,
    weight: Any = None,
) -> Any:
    """The kernel for a power of two of rows, or of blocks that the caller chose, which also serves fewer rows.

    Args:
        kept: its cache.
        options: the parameters of the kernel, besides shapes and dtypes.
        call_of: makes it, from the shape of the matrix and the rows of a block.
        rows: the matrix.
        block_rows: the rows of a block, if the caller chose them.
        weight: the second operand, the same for all rows, if there is one.
    """
    m, n = rows.shape
    most, dtype = 1 << (m - 1).bit_length(), dtype_of(rows)
    if block_rows is not None and block_rows < m:
        most = block_rows << (pl.cdiv(m, block_rows) - 1).bit_length()
    others = () if weight is None else (weight,)
    key = most, n, dtype, options, tuple(map(dtype_of, others)), block_rows
    found = kept.find(key, interpret)
    if found is None:
        call = call_of((most, n), min(block_rows or rows_of_block(most, n, dtype.itemsize), most))

        def of_rows(x: Any, weight: Any = None) -> Any:
            return call(x) if weight is None else call(x, weight)

        found = pl.jit(of_rows, interpret=interpret).ahead(described(rows, most), *map(described, others))
        kept.keep(key, found, interpret)
    return found
