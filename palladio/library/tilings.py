"""The tiles that the library chooses where its caller names none. docs/tilings.md has the rules with measurements.

A tiling is `(tm, tk, tn)`: the sizes of a tile along the rows, the summed axis and the columns of a product.
"""

from __future__ import annotations

import palladio as pl

MOST_COLUMNS = 512
"""Columns of a tile: so many that rows are laid out seldom, so few that packed columns stay in a cache."""

MOST_ROWS = 1024
"""Rows of a tile of a grouped product, of which only those of a group are computed."""

FEW_ROWS = (16, 64, 256)
"""Rows of a tile where there are fewer in all: one that reaches far past the last row is copied for nothing."""

DENSE_ROWS = 512
"""Rows of a tile of a dense product, all of which are computed."""

SUM_BYTES = 4
"""Bytes of an element of the packed right operand, which is converted to the dtype of the sums."""


def evenly(extent: int, most: int, parts: int, granule: int) -> int:
    """The size of the pieces of an axis that is cut evenly.

    Args:
        extent: the size of the axis.
        most: the largest piece.
        parts: the number of pieces is a multiple of this, as far as there are enough granules.
        granule: pieces are multiples of this; the last one may reach past the end.
    """
    granules = pl.cdiv(extent, granule)
    most_granules = max(1, most // granule)
    pieces = pl.cdiv(pl.cdiv(granules, most_granules), parts) * parts
    return pl.cdiv(granules, min(pieces, granules)) * granule


def _columns(k: int, n: int, parts: int) -> tuple[int, int]:
    """`(tk, tn)`: the whole summed axis, and columns whose packed block fits a thread's share of the last cache."""
    host = pl.processor()
    granule = 2 * host.vector_bytes // SUM_BYTES  # a micro-kernel's sums are two vectors wide
    share = host.cache_bytes[-1] // (2 * host.threads) // SUM_BYTES
    tn = evenly(n, min(MOST_COLUMNS, max(granule, share // k)), parts, granule)
    deepest = max(granule, share // tn)
    return k if k <= deepest else evenly(k, deepest, 1, granule), tn


def row_tile(m: int) -> int:
    """The rows of a tile of a grouped product with m rows."""
    return next((rows for rows in FEW_ROWS if m <= rows), MOST_ROWS)


def gmm_tiling(m: int, k: int, n: int) -> tuple[int, int, int]:
    """The tiling that `gmm` chooses for `[m, k] x [g, k, n]`.

    Only the columns are spread over the threads, so they are cut into as many tiles, or a multiple.

    Args:
        m, k, n: the sizes of the product, each at least 1.
    """
    return row_tile(m), *_columns(k, n, pl.processor().threads)


def tgmm_tiling(m: int, k: int, n: int, groups: int = 1) -> tuple[int, int, int]:
    """The tiling that `tgmm` chooses for the sums over m rows in `groups` groups, of `[k, n]` each.

    Args:
        m, k, n: the sizes of the product, each at least 1.
        groups: the number of groups.
    """
    rows = 1024 if m >= 256 * groups else 256
    granule = 2 * pl.processor().vector_bytes // SUM_BYTES
    tn = evenly(n, MOST_COLUMNS, 1, granule)
    tk = evenly(k, rows, max(1, pl.processor().threads // pl.cdiv(n, tn)), granule)
    return m, tk, tn


def matmul_tiling(m: int, k: int, n: int) -> tuple[int, int, int]:
    """The tiling that `matmul` chooses for `[m, k] x [k, n]`.

    Rows and columns are both spread over the threads: the rows are cut as far as they give each thread a tile of at
    least 64, then the columns.

    Args:
        m, k, n: the sizes of the product, each at least 1.
    """
    threads = pl.processor().threads
    by_rows = min(threads, pl.cdiv(m, 64))
    tm = evenly(m, DENSE_ROWS, by_rows, 1)
    tk, tn = _columns(k, n, pl.cdiv(threads, by_rows))
    return tm, tk, tn


def attention_blocks(heads: int, m: int, d: int) -> tuple[int, int]:
    """The numbers of queries and keys of a block that `attention` chooses.

    A block of scores, the queries and the keys stay in half of a second-level cache; every thread has several blocks of
    queries, as far as these have at least 32.

    Args:
        heads: the number of heads.
        m: the number of queries of each.
        d: the larger size of a key and a value.
    """
    host = pl.processor()
    queries = keys = 128
    while queries > 32 and SUM_BYTES * (queries * keys + (queries + 2 * keys) * d) > host.cache_bytes[1] // 2:
        queries //= 2
    while queries > 32 and heads * pl.cdiv(m, queries) < 2 * host.threads:
        queries //= 2
    return queries, keys
