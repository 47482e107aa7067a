"""Products with a few rows, whose number is known only when the kernel runs: the matrix is read in place.

Packing a matrix takes as long as reading it from memory and writing it to a cache; that pays only for more than a few
rows. If the matrix is contiguous across the summed axis, each of its lines is multiplied with all rows as it arrives,
by the kernels of `row_kernel`. If it is contiguous along that axis, each element is read from memory once as in a
`Gemv`: some of its rows stay in the first-level cache while all rows of the left operand are multiplied with them,
as many at a time as the registers hold the sums of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Int, V, i64
from palladio.cpu.emit.lazy_array import LINE_BYTES, StridedArray, cut, fill, widths
from palladio.cpu.emit.llvm_types import I64, PTR
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.gemv import ROWS, STEPS, Gemv, lanes_of
from palladio.cpu.products.micro_kernel import multiply_pairs
from palladio.cpu.products.operands import Element, PackSource, Range, RowReader
from palladio.cpu.products.parts_kernel import PartsKernel, transposed_parts
from palladio.cpu.products.row_kernel import RowKernel, heights, most_sums, vectors_of
from palladio.cpu.products.row_order import PARTS, divided, hardware_prefetches, parts_of_sums, row_order
from palladio.cpu.products.rows_ahead import RowsAhead, distance_of
from palladio.types import dtypes
from palladio.types.dtypes import DType

TOGETHER = 4
"""The most rows of the left operand that are multiplied at a time with some rows of a matrix."""

LOW, LOW_STEPS = 8, 8
"""Kernels of at most this many rows multiply this many rows of the matrix at a time."""

HIGH_STEPS = 16
"""Kernels of more rows, whose sums fill the first-level cache, load and store them for this many rows of the matrix."""

APART = 16
"""Elements between the rows of the left operand, so that not all begin in the same set of the first-level cache."""


class FewRows(Gemv):
    """The product of some rows of the left operand, `most` at most, while it is emitted.

    Args:
        matrix: the right operand in memory.
        pairs: whether an element of the operands is a pair of bfloat16; the summed axis has whole vectors of these.
        tallest: the most rows of a kernel; by default, as many as its registers hold.

    Fields:
        together: the rows of the left operand that are multiplied at a time where no kernel of `row_kernel` is.
        line: room for a row of the left operand on its way to the order of `PartsKernel`.
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
        tallest: int | None = None,
    ) -> None:
        self.read(scope, lhs, rhs, sums, swapped=False)
        self.pairs = pairs
        self.lanes = lanes_of(sums)
        self.together = max(1, min(TOGETHER, most_sums(sums, self.lanes) // ROWS))
        self.chains = 1  # or the order of a sum would depend on how many rows of the matrix a tile has
        self.lhs = lhs
        self.later = rhs.later
        self.matrix = matrix
        self.heights = [height for height in heights(sums) if tallest is None or height <= tallest]
        # The kernels read whole vectors of columns, and keep sums of two rows in registers; else it is as by a `Gemv`.
        contiguous = self.across is not None and matrix.strides[1] == 1
        self.by_kernels = contiguous and self.free >= registers.LANES and bool(self.heights)
        self.divided = self.by_kernels and parts_of_sums(sums) > 0
        if self.divided:  # two rows take as long as the most
            self.heights = sorted({1, max(self.heights)})
        padded = -(-most // self.together) * self.together
        if self.by_kernels:
            padded = max(map(self.padded, range(1, most + 1)))
        # The kernels read few steps of all rows at a time, which lie together.
        shape = (padded, self.depth + APART)
        if self.divided:
            shape = (divided(self.depth, PARTS)[0], padded, PARTS)  # type: ignore[assignment]
        elif self.by_kernels:
            shape = (-(-self.depth // HIGH_STEPS), padded, HIGH_STEPS)  # type: ignore[assignment]
        # Rows that are in memory are multiplied from there, if each is read from one end to the other.
        self.there = lhs.plain if self.along is not None and not pairs else None
        self.range: Range = 0, 0
        self.ahead: RowsAhead | None = None
        shape = (0, 0) if self.there is not None else shape  # type: ignore[assignment]
        self.room = scope.arena.buffer(self.e, shape, dtypes.INT32 if pairs else sums)
        self.line = scope.arena.buffer(self.e, (self.depth,), sums) if self.divided else None
        # The last columns, if they are not a whole vector, are computed with some before them again, in a vector of
        # sums after those of all columns.
        self.last = registers.LANES if self.by_kernels and self.free % registers.LANES else 0
        place = scope.arena.buffer(self.e, (padded, odd_lines(self.free + self.last, sums)), sums)
        self.sums_of_all = StridedArray(place.base, place.strides, (padded, self.free), sums)

    def run_rows(self, low: Int, count: Int) -> Callable[[Int], RowReader]:
        """Emit the product for `count` rows from `low` on; returns the sums of each row by its number among them."""
        self.multiply(low, count)
        return self.sums_of

    def sums_of(self, row: Int) -> RowReader:
        """The sums of a row, from (column, width)."""
        mine = self.sums_from(row, 1)
        return lambda column, width: mine.at(self.e, (0, column), width)

    def multiply(self, low: Int, count: Int) -> None:
        """Emit the product for rows from `low` on: `count` rows of `sums_of_all` are computed."""
        e, lhs = self.e, self.lhs
        self.range = low, e.add(low, count)
        if self.there is None:
            with e.loop(0, count) as n:
                self.copy_row(n, lambda k, width: lhs.element(e.add(low, n), k, width))
        if self.by_kernels:
            self.multiply_across(count)
            return
        if self.there is None:
            self.clear_rows(count, self.in_whole(count))
        if self.along is not None:
            two = e.compare("icmp sle", e.index(count), i64(2))
            with e.when(two):
                self.multiply_all(self.along, 2 * ROWS, lambda: self.last_ones(0, count))
            with e.when(e.negated(two)):
                self.multiply_all(self.along, ROWS, lambda: self.some(count))
        elif self.across is not None:
            self.clear_sums(e.intrinsic("smax", I64, e.index(count), self.in_whole(count)))
            self.add_all(self.across, lambda: self.some(count))

    def copy_row(self, row: Int, element: Callable[[Int, int], V]) -> None:
        """Copy a row of the left operand to `room`.

        Args:
            element: its elements, from (step, width).
        """
        e, line = self.e, self.line
        for start, end, width in widths(self.depth):
            with e.loop(start, end, width) as k:
                if line is None:
                    self.room.put(e, self.place(row, k), element(k, width), width)
                else:
                    line.put(e, (k,), element(k, width), width)
        if line is None:
            return
        # A step of each part at a time; those of parts that end before are not read.
        size, parts, rest = divided(self.depth, PARTS)
        starts, lanes = [part * size for part in range(parts + (rest > 0))], registers.LANES
        whole = (rest or size) // lanes * lanes
        with e.loop(0, whole, lanes) as k:
            found = [line.at(e, (e.add(k, start),), lanes) for start in starts]
            for n, steps in enumerate(transposed_parts(e, [*found, *[found[0]] * (PARTS - len(found))])):
                self.room.put(e, (e.add(k, n), row, 0), steps, PARTS)
        for part, start in enumerate(starts):
            with e.loop(whole, min(size, self.depth - start)) as k:
                self.room.put(e, (k, row, part), line.at(e, (e.add(k, start),), 1), 1)

    def multiply_all(self, along: Element, most: int, parts: Callable[[], Iterable[None]]) -> None:
        """The sums of each of some parts with all rows of the matrix, some of these at a time."""
        for rows in row_order(self.free, most, most if hardware_prefetches() else 0):
            with self.e.loop(rows.first, rows.stop, rows.step) as row:
                for _ in parts():
                    self.multiply_rows(along, rows.places(self.e, row))

    def add_all(self, across: Element, parts: Callable[[], Iterable[None]]) -> None:
        """Add the products with all rows of the matrix, a few rows at a time, to the sums of each of some parts."""
        for rows in row_order(self.depth, STEPS, parts_of_sums(self.sums)):
            with self.e.loop(rows.first, rows.stop, rows.step) as k:
                for _ in parts():
                    self.add_rows(across, rows.places(self.e, k))

    def padded(self, count: int) -> int:
        """A number of rows with those of padding: as many passes of one kernel as the tallest one would need."""
        passes = -(-count // self.heights[-1])
        return passes * next(height for height in self.heights if passes * height >= count)

    def multiply_across(self, count: Int) -> None:
        """The sums of all rows, by passes of the kernel of as few rows as all need that the tallest one would make.

        The loops are the same for all kernels: LLVM takes longer for them than for a kernel.
        """
        e, tallest = self.e, self.heights[-1]
        passes = e.binary("udiv", e.index(e.add(count, tallest - 1)), i64(tallest))
        height = i64(tallest)
        for fewer in reversed(self.heights[:-1]):
            enough = e.compare("icmp sge", e.index(e.mul(passes, fewer)), e.index(count))
            height = e.select(enough, i64(fewer), height)
        self.clear_rows(count, e.mul(passes, height))
        self.clear_sums(e.mul(passes, height))
        if self.divided:
            self.multiply_parts(passes, height)
        else:
            self.multiply_in_order(passes, height)
        if self.last:
            with e.loop(0, count) as n:
                last = self.sums_of_all.at(e, (n, self.free), registers.LANES)
                self.sums_of_all.put(e, (n, self.free - registers.LANES), last, registers.LANES)

    def multiply_parts(self, passes: V, height: V) -> None:
        """A row of each part of the matrix at a time."""
        for rows in row_order(self.depth, PARTS, PARTS):

            def kernel(height: int, vectors: int, steps: int = rows.count) -> PartsKernel:
                apart = self.sums_of_all.strides[0]
                return PartsKernel(self.sums, self.matrix.dtype, height, steps, apart)  # type: ignore[arg-type]

            with self.e.loop(rows.first, rows.stop) as k:
                left = self.room.address(self.e, (k, 0, 0))
                self.multiply_block(kernel, left, (k, rows.apart), 0, height, [passes])

    def multiply_in_order(self, passes: V, height: V) -> None:
        """Neighbouring rows of the matrix at a time."""
        e = self.e
        low = e.compare("icmp sle", height, i64(LOW))
        steps = e.select(low, i64(LOW_STEPS), i64(HIGH_STEPS))
        distance = e.select(low, i64(distance_of(LOW_STEPS)), i64(distance_of(HIGH_STEPS)))
        with e.loop(0, e.binary("udiv", e.index(e.add(steps, self.depth - 1)), steps)) as block:
            k = e.mul(block, steps)
            here = e.intrinsic("smin", I64, steps, e.index(e.sub(self.depth, k)))
            rest = here, self.rows_after(e.add(k, here)), distance
            with e.loop(0, passes) as number:
                row = e.mul(number, height)
                left = self.room.address(e, self.place(row, k))
                self.multiply_block(self.row_kernel, left, (k, 1), row, height, rest)

    def row_kernel(self, height: int, vectors: int) -> RowKernel:
        """The kernel of some rows and vectors."""
        apart = self.sums_of_all.strides[0]
        return RowKernel(self.sums, self.matrix.dtype, height, vectors, HIGH_STEPS, apart)  # type: ignore[arg-type]

    def multiply_block(
        self,
        kernel: Callable[[int, int], RowKernel | PartsKernel],
        left: V,
        rows: tuple[Int, int],
        row: Int,
        height: V,
        rest: Sequence[V],
    ) -> None:
        """Some rows of the left operand times some of the matrix, by panels of columns, with the kernel of a height.

        Args:
            kernel: from its height and its number of vectors.
            left: the address of the left operand.
            rows: the first row of the matrix, and the distance to the next one.
            row: the first row of the sums.
            rest: the last arguments of the kernel; an address is that of a row of the matrix.
        """
        e, size, (k, apart) = self.e, self.matrix.dtype.itemsize, rows
        between = e.index(e.mul(self.matrix.strides[0], size * apart))
        start, sums = self.matrix.address(e, (k, 0)), self.sums_of_all.address(e, (row, 0))
        for each in self.heights:
            with e.when(e.compare("icmp eq", height, i64(each))):
                for column, columns, vectors, place in self.column_panels(each):
                    there = e.pointer(start, column, size)
                    more = [e.pointer(value, column, size) if value.type == PTR else value for value in rest]
                    arguments = left, there, between, e.pointer(sums, place, self.sums.itemsize), i64(columns), *more
                    name = self.declared(kernel(each, vectors))
                    e.line(f"call void @{name}({', '.join(map(str, arguments))})")

    def declared(self, kernel: RowKernel | PartsKernel) -> str:
        """The name of a kernel, which is declared."""
        if kernel.name not in self.e.declared:
            text, needed = kernel.text
            self.e.declared |= {**needed, kernel.name: text}
        return kernel.name

    def column_panels(self, height: int) -> Iterator[tuple[int, int, int, int]]:
        """Ranges of columns: the first one, their number, the vectors at a time, and the place of the sums."""
        vectors = 1 if self.divided else vectors_of(height, self.sums)
        lanes, wide = registers.LANES, vectors * registers.LANES
        for first, stop, _ in cut(self.free // lanes * lanes, wide):
            yield first, stop - first, vectors if first % wide == 0 and (stop - first) % wide == 0 else 1, first
        if self.free % lanes:
            yield self.free - lanes, lanes, 1, self.free

    def rows_after(self, row: Int) -> V:
        """The address of later rows of the matrix, or of those of the block of a later step."""
        e, later = self.e, self.later
        here = self.matrix.address(e, (row, 0))
        if later is None:
            return here
        past = e.pointer(later.base, e.mul(e.sub(row, self.depth), later.between), 1)
        return e.select(e.compare("icmp slt", e.index(row), i64(self.depth)), here, past)

    def clear_rows(self, first: Int, stop: Int) -> None:
        """Clear rows of padding of the left operand."""
        e, room = self.e, self.room
        parts, size = (room.shape[0], room.shape[2]) if self.by_kernels else (1, self.depth)
        with e.loop(first, stop) as n:
            base = room.address(e, self.place(n, 0))
            fill(e, StridedArray(base, (room.strides[0], 1), (parts, size), room.dtype), 0)

    def clear_sums(self, count: Int) -> None:
        """Clear the sums of the first rows."""
        with self.e.loop(0, count) as n:
            base = self.sums_of_all.address(self.e, (n, 0))
            fill(self.e, StridedArray(base, self.sums_of_all.strides, (1, self.free + self.last), self.sums), 0)

    def place(self, row: Int, k: Int) -> tuple[Int, ...]:
        """The index of an element of the left operand in `room`, of its first part if it is divided."""
        if not self.by_kernels:
            return row, k
        if self.divided:
            return k, row, 0
        if isinstance(k, int):
            return k // HIGH_STEPS, row, k % HIGH_STEPS
        return self.e.binary("udiv", k, i64(HIGH_STEPS)), row, self.e.binary("urem", k, i64(HIGH_STEPS))

    def in_whole(self, count: Int) -> V:
        """The rows that are multiplied `together` at a time. The last three of four are, with one of padding: a second
        pass over the matrix, in a cache by then, would leave the memory idle.
        """
        padding = 1 if self.together > 3 else 0
        passes = self.e.binary("udiv", self.e.index(self.e.add(count, padding)), i64(self.together))
        return self.e.index(self.e.mul(passes, self.together))

    def some(self, count: Int) -> Iterator[None]:
        """All rows, a few at a time, as `vectors`, `few` and `result`."""
        e, whole = self.e, self.in_whole(count)
        with e.loop(0, whole, self.together) as n:
            self.choose(n, self.together)
            yield
        yield from self.last_ones(whole, count)

    def last_ones(self, first: Int, count: Int) -> Iterator[None]:
        """The rows from one on, if these are two or one."""
        for size in (2, 1):
            with self.e.when(self.e.compare("icmp eq", self.e.index(self.e.sub(count, first)), i64(size))):
                self.choose(first, size)
                yield

    def multiply_rows(self, along: Element, rows: Sequence[Int]) -> None:
        if self.matrix.strides[0] == 1 and not hardware_prefetches():
            matrix = replace(self.matrix, strides=self.matrix.strides[::-1], shape=self.matrix.shape[::-1])
            self.ahead = RowsAhead(self.e, matrix, (rows[0], len(rows)), self.later)
        super().multiply_rows(along, rows)

    def step(
        self,
        along: Element,
        rows: Sequence[Int],
        k: Int,
        width: int,
        chain: int,
        slots: dict[tuple[int, int, int], V],
    ) -> None:
        if self.ahead is not None and width == self.lanes:
            joined = 2 if self.pairs else 1
            self.ahead.prefetch(self.e.mul(k, joined), width * joined)
        super().step(along, rows, k, width, chain, slots)

    def multiplied(self, x: V, y: V, total: V) -> V:
        return multiply_pairs(self.e, x, y, total) if self.pairs else super().multiplied(x, y, total)

    def rows_ahead(self, k: Int, steps: int) -> RowsAhead | None:
        return RowsAhead(self.e, self.matrix, (k, steps), self.later) if self.matrix.strides[1] == 1 else None

    def choose(self, first: Int, vectors: int) -> None:
        e = self.e
        self.vectors = vectors
        self.result = self.sums_from(first, vectors)
        self.few = lambda n, k, width: self.room.at(e, self.place(e.add(first, n), k), width)
        if self.there is not None:
            self.few = self.rows_there(self.there, first, vectors)

    def rows_there(self, there: StridedArray, first: Int, count: int) -> Element:
        """Elements of some rows of the left operand in memory; the last row again in place of those of padding."""
        e, (low, end) = self.e, self.range
        last = e.index(e.sub(end, 1))
        rows = [e.intrinsic("smin", I64, e.index(e.add(e.add(low, first), n)), last) for n in range(count)]
        starts = [replace(there, base=there.address(e, (row, 0))) for row in rows]
        return lambda n, k, width: starts[n].at(e, (0, k), width)

    def sums_from(self, first: Int, rows: int) -> StridedArray:
        base = self.sums_of_all.address(self.e, (first, 0))
        return StridedArray(base, self.sums_of_all.strides, (rows, self.free), self.sums)


def odd_lines(columns: int, dtype: DType) -> int:
    """At least as many columns, an odd number of cache lines, so that rows lie in all sets of the first-level cache."""
    line = LINE_BYTES // dtype.itemsize
    return line * (-(-columns // line) | 1)
