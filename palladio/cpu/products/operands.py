"""The operands of a matrix product, as descriptions of how their elements are computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import Allocation, StridedArray
from palladio.cpu.products.micro_kernel import transposed

Element = Callable[[Int, Int, int], V]

RowReader = Callable[[Int, int], V]
"""The elements of a row, from (column, width)."""

Range = tuple[Int, Int]
"""A half-open range of positions along an axis."""


@dataclass(frozen=True)
class PrefetchRange:
    """Memory that will be read.

    Fields:
        base: its first element.
        between: bytes between its rows.
        rows: the number of rows.
        lines: the cache lines of each row.
        there: whether it exists, if that is known only when the kernel runs.
    """

    base: V
    between: Int
    rows: Int
    lines: Int
    there: V | None = None


@dataclass(frozen=True)
class RowGroup:
    """Neighbouring panels of rows that are multiplied together.

    Fields:
        row: the first row.
        height: the rows of each panel.
        count: the number of panels; more than one are whole.
        rest: the number of rows after them, which are divided into lower panels.
        packs: whether the right operand is packed meanwhile.
    """

    row: Int
    height: Int
    count: Int = 1
    rest: Int = 0
    packs: bool = False


@dataclass(frozen=True)
class PackSource:
    """A matrix of the dtype of the sums, as a description of how its elements are computed.

    Fields:
        element: from (i, j, width) the elements [i, j], [i, j + 1], …
        transposed: from (i, j, width) the elements [i, j], [i + 1, j], …, if these are contiguous in memory.
        steady: its memory, if that is a block of an array that nothing writes.
        reads: the memory that computing an element reads.
        near: memory with contiguous rows that has the elements that it is computed from at the same indices.
        near_columns: as `near`, with contiguous columns.
        changes: whether a later step packs another block, if that is known; for the right operand.
        later: the block that a later step will pack; for the right operand.
        plain: its elements in memory with contiguous rows, if they need only packing.
        in_place: as `plain`, with any number of axes: its rows, in their order, are those of the matrix.
    """

    rows: int
    columns: int
    element: Element
    transposed: Element | None
    steady: StridedArray | None
    reads: Collection[Allocation]
    near: StridedArray | None = None
    later: PrefetchRange | None = None
    plain: StridedArray | None = None
    in_place: StridedArray | None = None
    near_columns: StridedArray | None = None
    changes: V | None = None

    def words(self, e: Emitter, i: Int, j: Int, width: int) -> Sequence[V]:
        """The pieces of the elements [i, j], [i, j + 1], …: here one."""
        return [self.element(i, j, width)]

    def words_across(self, e: Emitter, i: Int, j: Int, width: int) -> Sequence[V]:
        """The pieces of the elements [i, j], [i + 1, j], …"""
        return [(self.transposed or self.element)(i, j, width)]

    def square(self, e: Emitter, i: Int, j: Int, width: int) -> Iterator[Sequence[V]]:
        """The pieces of a square of elements from [i, j] on, row by row, of an operand with contiguous columns."""
        columns = [(self.transposed or self.element)(i, e.add(j, lane), width) for lane in range(width)]
        yield from ([row] for row in transposed(e, columns))


Pair = tuple[PackSource, PackSource]
"""A left and a right operand."""
