"""The order in which the rows of a matrix that is read in place are multiplied.

The hardware prefetches from several places at a time, each while it is read from one end to the other. A core that
reads a matrix at one place waits for memory most of the time. So where micro-kernels have no time to prefetch
themselves, the rows are divided into parts that lie one after the other, and a row of each part is read at a time.
Sources: measured on Zen 3, docs/time.md.
"""

from __future__ import annotations

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, Int
from palladio.cpu.emit.lazy_array import cut
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

PARTS = 8
"""The parts of a matrix: with twice as many, the first-level cache loses lines before they are read."""


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix that are added together, in a loop.

    Fields:
        first, stop, step: the first of these rows in each turn.
        count: their number.
        apart: the rows from one to the next.
    """

    first: int
    stop: int
    step: int
    count: int
    apart: int

    def places(self, e: Emitter, first: Int) -> list[Int]:
        """The rows of a turn."""
        return [e.add(first, n * self.apart) for n in range(self.count)]


def hardware_prefetches() -> bool:
    """True if only the hardware prefetches: the rows of several parts are then read side by side."""
    return not host.current().prefetches


def parts_of_sums(sums: DType) -> int:
    """The parts whose rows are added side by side; 0 if neighbours are.

    None are in float64, where sums have the order of packed products: a group's sums must not depend on which of its
    rows are in one tile.
    """
    return PARTS if sums == dtypes.FLOAT32 and hardware_prefetches() else 0


def divided(extent: int, parts: int) -> tuple[int, int, int]:
    """The rows of a part, the number of whole parts, and the rows of the last part after these."""
    size = -(-extent // parts)
    return size, *divmod(extent, max(1, size))


def row_order(extent: int, together: int, parts: int) -> list[Rows]:
    """The order of all rows: neighbours, or a row of each part at a time.

    Args:
        together: the neighbours at a time.
        parts: the number of parts; 0 for neighbours.
    """
    if not parts:
        return [Rows(first, stop, count, count, 1) for first, stop, count in cut(extent, together)]
    size, whole, rest = divided(extent, parts)
    every = Rows(0, rest, 1, whole + 1, size), Rows(rest, size, 1, whole, size)
    return [rows for rows in every if rows.first < rows.stop]
