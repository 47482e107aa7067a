"""Products with a few rows, whose number is known only when the kernel runs: the matrix is read in place.

Packing a matrix takes as long as reading it from memory and writing it to a cache; that pays only for more than a few
rows. As in a `Gemv`, each element of the matrix is read from memory once: some of its rows stay in the first-level
cache while all rows of the left operand are multiplied with them, four, two or one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Int, V, i64
from palladio.cpu.emit.lazy_array import LINE_BYTES, StridedArray, cut, fill, widths
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.gemv import ROWS, STEPS, Gemv
from palladio.cpu.products.micro_kernel import multiply_pairs
from palladio.cpu.products.operands import Element, PackSource
from palladio.types import dtypes
from palladio.types.dtypes import DType

TOGETHER = 4
"""Rows of the left operand that are multiplied at a time."""

AHEAD_BYTES = 1 << 15
"""The prefetch distance if the matrix is contiguous along the summed axis."""


APART = 16
"""Elements between the rows of the left operand, so that not all begin in the same set of the first-level cache."""


class FewRows(Gemv):
    """The product of some rows of the left operand, `most` at most, while it is emitted.

    Args:
        matrix: the right operand in memory.
        pairs: whether an element of the operands is a pair of bfloat16; the summed axis has whole vectors of these.
    """

    def __init__(
        self,
        scope: Scope,
        lhs: PackSource,
        rhs: PackSource,
        sums: DType,
        matrix: StridedArray,
        most: int,
        pairs: bool = False,
    ) -> None:
        self.read(scope, lhs, rhs, sums, swapped=False)
        self.pairs = pairs
        self.chains = 1  # or the order of a sum would depend on how many rows of the matrix a tile has
        self.lhs = lhs
        self.later = rhs.later
        self.matrix = matrix
        room = scope.arena.buffer(self.e, (most, self.depth + APART), dtypes.INT32 if pairs else sums)
        self.room = StridedArray(room.base, room.strides, (most, self.depth), room.dtype)
        self.sums_of_all = scope.arena.buffer(self.e, (most, self.free), sums)

    def run_rows(self, low: Int, count: Int) -> StridedArray:
        """Emit the product for rows from `low` on; returns `sums[most, columns]`, with `count` rows computed."""
        e, lhs = self.e, self.lhs
        with e.loop(0, count) as n:
            for start, end, width in widths(self.depth):
                with e.loop(start, end, width) as k:
                    self.room.put(e, (n, k), lhs.element(e.add(low, n), k, width), width)
        if self.along is not None:
            for first, stop, rows in cut(self.free, ROWS):
                with e.loop(first, stop, rows) as row:
                    for _ in self.some(count):
                        self.multiply_rows(self.along, row, rows)
        elif self.across is not None:
            with e.loop(0, count) as n:
                fill(e, self.sums_from(n, 1), 0)
            for first, stop, steps in cut(self.depth, STEPS):
                with e.loop(first, stop, steps) as k:
                    for _ in self.some(count):
                        self.add_rows(self.across, k, steps)
        return self.sums_of_all

    def some(self, count: Int) -> Iterator[None]:
        """All rows, a few at a time, as `vectors`, `few` and `result`."""
        e = self.e
        whole = e.binary("and", e.index(count), i64(-TOGETHER))
        with e.loop(0, whole, TOGETHER) as n:
            self.choose(n, TOGETHER)
            yield
        size = TOGETHER // 2
        while size:
            with e.when(e.compare("icmp ne", e.binary("and", e.index(count), i64(size)), i64(0))):
                self.choose(e.binary("and", e.index(count), i64(-2 * size)), size)
                yield
            size //= 2

    def step(
        self,
        along: Element,
        some: tuple[Int, int],
        k: Int,
        width: int,
        chain: int,
        slots: dict[tuple[int, int, int], V],
    ) -> None:
        row, rows = some
        joined = 2 if self.pairs else 1
        bytes = self.depth * joined * self.matrix.dtype.itemsize
        ahead = max(rows, AHEAD_BYTES // bytes)
        for r in range(rows if width == registers.LANES else 0):
            place = self.matrix.address(self.e, (self.e.mul(k, joined), self.e.add(row, r + ahead)))
            self.prefetch(place, width * joined)
        super().step(along, some, k, width, chain, slots)

    def multiplied(self, x: V, y: V, total: V) -> V:
        return multiply_pairs(self.e, x, y, total) if self.pairs else super().multiplied(x, y, total)

    def prefetch_part(self, k: Int, place: Int, width: int) -> None:
        """Prefetch a part of a row; rows past the last one are those of the block of a later step."""
        if width != registers.LANES:
            return
        e, later = self.e, self.later
        start = self.matrix.address(e, (k, place))
        if later is not None:
            past = e.add(e.mul(e.sub(k, self.depth), later.between), e.mul(place, self.matrix.dtype.itemsize))
            inside = e.compare("icmp slt", e.index(k), i64(self.depth))
            start = e.select(inside, start, e.pointer(later.base, past, 1))
        self.prefetch(start, width)

    def prefetch(self, start: V, elements: int) -> None:
        for offset in range(0, elements * self.matrix.dtype.itemsize, LINE_BYTES):
            self.e.prefetch(self.e.pointer(start, offset, 1))

    def choose(self, first: Int, vectors: int) -> None:
        e = self.e
        self.vectors = vectors
        self.result = self.sums_from(first, vectors)
        self.few = lambda n, k, width: self.room.at(e, (e.add(first, n), k), width)

    def sums_from(self, first: Int, rows: int) -> StridedArray:
        base = self.sums_of_all.address(self.e, (first, 0))
        return StridedArray(base, self.sums_of_all.strides, (rows, self.free), self.sums)
