"""Prefetches of a matrix that is read in place, a few of its rows side by side, in the order in which it is read.

The hardware does not prefetch across the end of a page, and starts anew for each row. So the lines some KiB further on
are prefetched, into the first level of cache: further on in the same rows, then at the start of the next rows, then at
that of the next block.
"""

from __future__ import annotations

from palladio.cpu.emit.emitter import Emitter, Int, i64
from palladio.cpu.emit.lazy_array import LINE_BYTES, StridedArray
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.products.operands import PrefetchRange

AHEAD_BYTES = 6 << 10
"""The prefetch distance, of all rows that are read side by side together: as much as memory delivers in 0.5 µs."""


def distance_of(rows: int) -> int:
    """The prefetch distance along each of some rows, in bytes."""
    return AHEAD_BYTES // rows // LINE_BYTES * LINE_BYTES


class RowsAhead:
    """Prefetches while some rows of a matrix are read side by side. It is made before the loop over their elements.

    Args:
        matrix: with contiguous rows.
        rows: the first one, and their number.
        later: the rows that are read after the last one of the matrix, if they are known.
    """

    def __init__(self, e: Emitter, matrix: StridedArray, rows: tuple[Int, int], later: PrefetchRange | None) -> None:
        (row, count), size = rows, matrix.dtype.itemsize
        self.e = e
        self.size = size
        self.whole = matrix.shape[1] * size
        self.distance = min(distance_of(count), self.whole)
        self.starts = [matrix.address(e, (e.add(row, number), 0)) for number in range(count)]
        # From the end of each row to the start of the one that is read after it.
        self.jump = e.index(e.sub(e.mul(matrix.strides[0], count * size), self.whole))
        if later is not None:
            after = e.add(row, count)
            past = e.pointer(later.base, e.mul(e.sub(after, matrix.shape[0]), later.between), 1)
            inside = e.compare("icmp slt", e.index(after), i64(matrix.shape[0]))
            following = e.select(inside, matrix.address(e, (after, 0)), past)
            there, here = (e.value(I64, f"ptrtoint {address} to i64") for address in (following, self.starts[0]))
            self.jump = e.index(e.sub(e.binary("sub", there, here), self.whole))

    def prefetch(self, start: Int, elements: int) -> None:
        """Prefetch the lines that are read some time after a part of each row.

        Args:
            start: the first element of the part.
        """
        e = self.e
        place = e.index(e.add(e.mul(start, self.size), self.distance))
        inside = e.compare("icmp slt", place, i64(self.whole))
        place = e.index(e.add(place, e.select(inside, i64(0), self.jump)))
        for row in self.starts:
            base = e.pointer(row, place, 1)
            for line in range(0, elements * self.size, LINE_BYTES):
                e.prefetch(e.pointer(base, line, 1), level=1)
