"""The library's default tiles. docs/tilings.md has the rules with measurements.

A tiling is `(tm, tk, tn)`: the sizes of a tile along the rows, the contracted axis and the columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import palladio as pl

TUNED = pl.KeptChoices("tilings")
"""The tiles that `tune` has measured, by function, dtypes and sizes."""

MOST_COLUMNS = 512
"""The most columns of a tile: enough to pack rows rarely, and few enough for packed columns to stay in a cache."""

LEAST_COLUMNS = 64
"""The fewest columns of a tile of a dense product; with fewer, its rows are divided among the threads."""

DEEPEST = 1 << 14
"""The most elements of a tile along the contracted axis; constant, so that sums do not depend on the threads."""

PAIR_COLUMNS = 16
"""Tiles with a multiple of this many columns are multiplied in pairs of bfloat16, or float32 on tile registers, which
sums in another order."""

LEAST_OF_GROUPS = 128
"""The fewest columns of a tile where the columns of many groups are divided: with fewer, threads would lay out the rows
of all groups for few products. The groups are divided among the threads then."""

LEAST_TILE_ROWS = 8
"""The fewest rows of a tile if rows are divided: a product of up to four rows sums in another order."""

BRIEF_OPERATIONS = 1 << 19
"""Operations, for each byte of a vector, that one thread executes before another one would start: 0.3 ms."""

MOST_VECTORS = 4
"""Products of at most this many rows or columns read all of the other operand, for any rows of a group."""

FEW_ROWS = 16
"""The most rows of a grouped product whose matrices are read once, in place, however its groups divide them."""

ROWS_OF_GROUP = 32, 64
"""The most rows of a group, on average, for which reading its matrix takes much of the time: where products prefetch,
and where only the hardware does."""

ROWS_OF_LONG_PIECES = 12
"""The most rows of a group, on average, for which whole rows of matrices are read where only the hardware prefetches:
more rows are packed for some groups, which takes longer for more columns."""

LONG_PIECE = 1024
"""The fewest columns of a tile of such groups, if other threads compute other groups. With more rows, up to as many
columns are packed as fit `PACKED_SHARE` of the last level of cache."""

PACKED_SHARE = 8
"""The part of the last level of cache, an eighth, that the packed columns of a group of a few rows take."""

ROWS_READ = 16
"""Rows that are multiplied with a matrix in about the time in which it arrives from memory."""

FEW_TOGETHER = 4
"""Of these, the rows that are multiplied at a time."""

SPREAD_GROUPS = 4
"""The groups for each thread from which groups of a few rows are spread over the threads instead of columns."""

SPREAD_SUMS = 128
"""Bytes of sums, for each column of a tile of such groups, that fit a quarter of the second level of cache."""

MANY_KEYS = 1024
"""The keys of a head from which larger blocks gain more than a last block with few keys left costs."""

WIDE_VECTOR_BYTES = 64
"""The bytes of a vector from which products prefetch a matrix that they read once; else the hardware does, whole rows
of it."""

SUM_BYTES = 4
"""Bytes of an element of the packed right operand, which is converted to the dtype of the sums."""


def tuning_key(function: str, lhs: Any, rhs: Any, *more: int) -> tuple[str | int, ...]:
    """The key of a product's tiles, without its sizes."""
    return function, *(str(array.dtype).removeprefix("torch.") for array in (lhs, rhs)), *map(int, more)


def tuned(
    model: Callable[[int, int, int], tuple[int, int, int]], function: str, lhs: Any, rhs: Any, *more: int
) -> Callable[[int, int, int], Any]:
    """The look-up of measured tiles of a product, with a model's choice as the default."""
    key = tuning_key(function, lhs, rhs, *more)
    return lambda m, k, n: TUNED.find((*key, m, k, n)) or model(m, k, n)


def evenly(extent: int, most: int, parts: int, granule: int) -> int:
    """The size of equal pieces of an axis, without a remainder if possible.

    A last tile that extends past the end of its array is copied, which costs more than tiles of another size.

    Args:
        extent: the size of the axis.
        most: the largest piece; up to twice as much if only that divides the axis.
        parts: the number of pieces is a multiple of this, if there are enough granules.
        granule: pieces are multiples of this, if it divides the axis, and at least as large.
    """
    least = pl.cdiv(pl.cdiv(extent, most), parts) * parts
    for unit in (granule, 1):
        for pieces in range(least, 2 * least + 1, parts):
            if extent % (pieces * unit) == 0 and extent // pieces >= granule:
                return extent // pieces
    for pieces in range(least, 0, -1):
        if extent % pieces == 0 and granule <= extent // pieces <= 2 * most:
            return extent // pieces
    granules = pl.cdiv(extent, granule)
    return int(min(extent, pl.cdiv(granules, min(least, granules)) * granule))


def _even_columns(n: int, most: int, parts: int, granule: int, largest: int = MOST_COLUMNS) -> int:
    """Columns divided as by `evenly`; only n and `largest` determine if tiles are multiples of `PAIR_COLUMNS`.

    Args:
        largest: more than twice as many columns are divided with a remainder if no divisor of n is large enough.
    """
    if n % PAIR_COLUMNS == 0:
        return PAIR_COLUMNS * evenly(n // PAIR_COLUMNS, most // PAIR_COLUMNS, parts, max(1, granule // PAIR_COLUMNS))
    wanted = pl.cdiv(pl.cdiv(n, most), parts) * parts
    sizes = [size for size in range(min(n, granule), min(n, 2 * largest) + 1) if n % size == 0]
    if n > 2 * largest and max(sizes, default=0) < MOST_COLUMNS // 4:
        return int(pl.cdiv(pl.cdiv(n, granule), wanted) * granule)
    counts = [n // size for size in reversed(sizes)]
    whole = [count for count in counts if wanted <= count <= 2 * wanted and count % parts == 0]
    return n // min(whole, default=max((count for count in counts if count <= wanted), default=counts[0]))


def _hardware_prefetches() -> bool:
    """True if products do not prefetch a matrix that they read once themselves."""
    return pl.processor().vector_bytes < WIDE_VECTOR_BYTES


def _columns(k: int, n: int, parts: int, few: int = 0, spread: bool = False) -> tuple[int, int]:
    """`(tk, tn)`: the whole contracted axis, and columns with a packed block that fits a thread's last-level cache.

    A matrix that is read once is not packed. It is read in long pieces, which the hardware prefetches: as many columns
    as have sums that fit half of the first level of cache; half of the second one where only the hardware prefetches.

    Args:
        few: the number of all rows, if the matrix is read once.
        spread: whether one thread computes all columns of a group, and reads its matrix while it is multiplied.
    """
    host = pl.processor()
    granule = 2 * host.vector_bytes // SUM_BYTES  # a micro-kernel's sums are two vectors wide
    tk = k if k <= DEEPEST else evenly(k, DEEPEST, 1, granule)
    share = host.cache_bytes[-1] // (2 * host.threads) // SUM_BYTES // tk
    if few:
        rows, level = (FEW_ROWS, 1) if _hardware_prefetches() else (min(few, FEW_TOGETHER), 0)
        near = max(MOST_COLUMNS, host.cache_bytes[level] // (2 * SUM_BYTES * rows))
        return tk, _even_columns(n, near, parts, granule, near if few <= MOST_VECTORS else MOST_COLUMNS)
    if spread:
        near = min(share, host.cache_bytes[1] // (4 * SPREAD_SUMS))
        if _hardware_prefetches():
            near = min(near, host.cache_bytes[-1] // (PACKED_SHARE * SUM_BYTES * tk))
        return tk, _even_columns(n, max(MOST_COLUMNS, near), parts, granule)
    return tk, _even_columns(n, min(MOST_COLUMNS, max(granule, PAIR_COLUMNS, share)), parts, granule)


def threads_of(m: int, k: int, n: int, matrices: int) -> int:
    """The number of threads of a product: one, if it is brief and its matrices are close to that thread."""
    host = pl.processor()
    brief = 2 * m * k * n <= BRIEF_OPERATIONS * host.vector_bytes
    return 1 if brief and matrices * k * n * SUM_BYTES <= host.cache_bytes[1] else host.threads


@pl.checked_call
def gmm_tiling(m: int, k: int, n: int, groups: int = 1) -> tuple[int, int, int]:
    """The tiling that `gmm` chooses for `[m, k] x [groups, k, n]`.

    Only the rows of a group are computed, so one tile has all rows, and no group spans two. Only the columns are
    divided among the threads, so the number of tiles is a multiple of the number of threads, unless few rows or few
    columns of many groups are spread over them by groups.

    Args:
        m, k, n: the sizes of the product, each at least 1.
        groups: the number of matrices.
    """
    by_hardware = _hardware_prefetches()
    few = m if m <= (ROWS_OF_LONG_PIECES * groups if by_hardware else FEW_ROWS) else 0
    parts = threads_of(m, k, n, groups)
    alone, is_spread = by_hardware and parts == 1, groups_are_spread(m, k, n, groups)
    if (alone or is_spread) and groups_are_small(m, groups):
        return m, *_columns(k, n, 1, few if by_hardware else 0, spread=True)
    if is_spread:
        return m, *_columns(k, n, max(1, n // LEAST_OF_GROUPS))
    if few and by_hardware and groups > 1:
        parts = max(1, min(parts, n // LONG_PIECE))
    return m, *_columns(k, n, parts, few)


def groups_are_spread(m: int, k: int, n: int, groups: int) -> bool:
    """True if a grouped product of a few rows a group, or of few columns, is spread over the threads by its groups, not
    by columns alone."""
    threads = threads_of(m, k, n, groups)
    suits = groups_are_small(m, groups) or n < LEAST_OF_GROUPS * threads
    return m > MOST_VECTORS and suits and groups >= SPREAD_GROUPS * threads > SPREAD_GROUPS


def groups_are_small(m: int, groups: int) -> bool:
    """True if reading the matrices of several groups takes much of the time, whatever the number of threads."""
    return groups > 1 and m <= ROWS_OF_GROUP[_hardware_prefetches()] * groups


@pl.checked_call
def tgmm_tiling(m: int, k: int, n: int, groups: int = 1) -> tuple[int, int, int]:
    """The tiling that `tgmm` chooses for the sums over m rows in `groups` groups, of `[k, n]` each.

    Args:
        m, k, n: the sizes of the product, each at least 1.
        groups: the number of groups.
    """
    rows = 1024 if m >= 256 * groups else 256
    granule = 2 * pl.processor().vector_bytes // SUM_BYTES
    tn = evenly(n, MOST_COLUMNS, 1, granule)
    tk = evenly(k, rows, max(1, threads_of(m, k, n, groups) // pl.cdiv(n, tn)), granule)
    return m, tk, tn


@pl.checked_call
def matmul_tiling(m: int, k: int, n: int) -> tuple[int, int, int]:
    """The tiling that `matmul` chooses for `[m, k] x [k, n]`.

    The columns are divided among the threads, and the rows too if there are too few columns, or they do not divide.

    Args:
        m, k, n: the sizes of the product, each at least 1.
    """
    threads = threads_of(m, k, n, 1)
    by_columns = min(threads, pl.cdiv(n, LEAST_COLUMNS))
    tk, tn = _columns(k, n, by_columns, m if m <= MOST_VECTORS else 0)
    by_columns = min(by_columns, pl.cdiv(n, tn))  # they may not divide evenly
    by_rows = min(max(1, m // LEAST_TILE_ROWS), pl.cdiv(threads, by_columns))
    return evenly(m, m, by_rows, LEAST_TILE_ROWS), tk, tn


@pl.checked_call
def attention_blocks(heads: int, m: int, d: int, n: int | None = None, causal: bool = False) -> tuple[int, int]:
    """The numbers of queries and keys of a block that `attention` chooses.

    A block of scores, the queries and the keys stay in half of a second-level cache; every thread has several blocks of
    queries, unless these would have fewer than 32. From `MANY_KEYS` keys on a block has twice as many, unless most of
    some blocks would be hidden.

    Args:
        heads: the number of heads.
        m: the number of queries of each.
        d: the larger size of a key and a value.
        n: the number of keys of each; by default as many as queries.
        causal: True if query i attends to keys 0 to i only.
    """
    host = pl.processor()
    queries = 128
    keys = 128 if causal or (m if n is None else n) < MANY_KEYS else 256

    def fits() -> bool:
        return SUM_BYTES * (queries * keys + (queries + 2 * keys) * d) <= host.cache_bytes[1] // 2

    if not fits():
        keys = 128
    while queries > 32 and not fits():
        queries //= 2
    while queries > 32 and heads * pl.cdiv(m, queries) < 2 * host.threads:
        queries //= 2
    return queries, keys
