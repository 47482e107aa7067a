"""The loops of a matrix product: packing, blocking for the caches, and micro-kernels.

The right operand is packed into panels as wide as a micro-kernel's sums, in the order in which they are read. A block
of an array that nothing writes stays packed for later steps with the same block. The rows of the left operand are laid
out a panel at a time, then every panel of the right operand is multiplied with them. If the right operand is row-major
in memory, the first panel of rows packs it while it is multiplied. A micro-kernel is a separate function, so that all
callers share its code; its sums stay in registers throughout, and it prefetches the next panel of rows and the right
operand of a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from palladio.cpu.access.views import renumbered
from palladio.cpu.analysis.work import PRODUCTS
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Int, V
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, cut, fill, rows_of, widths, write
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.micro_kernel import LINE_BYTES, micro_kernel, transposed
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

NEAR_BYTES = 1 << 14
"""The most memory that a panel of the left operand may span to be multiplied in place: it fits a first-level cache."""

DEPTH_BYTES = 8192
"""Bytes of each row of the left operand that are laid out at a time: a panel of them stays in a second-level cache."""

KEPT_BYTES = 8 << 20
"""Bytes of packed blocks that a thread keeps for one product."""

# Rows a multiple of the page size apart would evict each other from the cache.
_APART = 16

TOGETHER = 8
"""Rows of the right operand that are packed together."""

LONG = 1 << 30
"""Multiply-adds above which a product polls for interrupts."""

Element = Callable[[Int, Int, int], V]

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
class PackSource:
    """A matrix of the dtype of the sums, as a description of how its elements are computed.

    Fields:
        element: from (i, j, width) the elements [i, j], [i, j + 1], …
        transposed: from (i, j, width) the elements [i, j], [i + 1, j], …, if these are contiguous in memory.
        steady: its memory, if that is a block of an array that nothing writes.
        reads: the memory that computing an element reads.
        near: memory with contiguous rows that has the elements that it is computed from at the same indices.
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


@dataclass(frozen=True)
class KBlock:
    """A range of steps along the summed axis that are multiplied together.

    Fields:
        first: the first step of the left operand that is laid out.
        laid: the number of steps that are laid out.
        begin, count: the first step that is multiplied, and their number.
        packed: the address of these steps of the packed right operand.
        room: the steps that each panel there has room for.
        starts: whether it is the first k-block of the product.
    """

    first: Int
    laid: Int
    begin: Int
    count: Int
    packed: V
    room: int
    starts: V


class Unpacked(Protocol):
    """The product of a few rows with a right operand that is not packed."""

    def run_rows(self, low: Int, count: Int) -> StridedArray:
        """Emit the product for `count` rows from `low` on; returns their sums."""


@dataclass(frozen=True)
class Few:
    """The number of rows beyond which packing the right operand pays, and the product of at most that many."""

    most: int
    product: Callable[[], Unpacked]


class Product:
    """One matrix product while it is emitted: `target[rows, columns] = init + lhs @ rhs`.

    Args:
        more: further pairs of operands, of the same sizes, whose products are added. To the micro-kernels they are
            further steps along the summed axis.
        joined: the number of neighbours along the summed axis in an element of the operands: 1, or in an int32 a pair
            of bfloat16 or a quad of 8-bit integers, unsigned ones on the left.
        offset: the excess of each left element of a quad; its product with the right operand is subtracted.
        span: the steps along the summed axis outside of which both operands are zero, if that is known.
    """

    def __init__(
        self,
        scope: Scope,
        lhs: PackSource,
        rhs: PackSource,
        sums: DType,
        joined: int = 1,
        span: Range | None = None,
        offset: int = 0,
        few: Few | None = None,
        more: Sequence[tuple[PackSource, PackSource]] = (),
    ) -> None:
        self.scope = scope
        self.few = few
        self.joined = joined
        self.offset = offset
        self.span = span if lhs.columns % registers.LANES == 0 and rhs.transposed is None else None
        # The dtype of an element of the packed operands.
        self.word = dtypes.INT32 if joined > 1 else sums
        self.e = scope.e
        self.lhs = lhs
        self.rhs = rhs
        self.sums = sums
        self.pairs = [(lhs, rhs), *more]
        self.depth = lhs.columns * len(self.pairs)
        height, wide = host.current().sums
        # Lanes of a vector may take several registers, but each vector takes one at least.
        size = max(registers.LANES * sums.itemsize, host.current().vector_bytes)
        self.vectors = max(1, wide // size)
        # Prefetching takes forty instructions in each step, more than a step of narrow vectors has.
        self.asks = host.current().vector_bytes == 64
        tallest = height * wide // (self.vectors * size)
        # The number of evenly spaced rows of the left operands, if panels of these are multiplied in place; else 0.
        self.in_place = self.rows_in_place(tallest)
        together = self.in_place or lhs.rows
        panels = max(1, -(-together // tallest))
        self.height = max(1, -(-together // panels))  # about equal heights: low panels cost nearly as much
        whole = lhs.columns if more else 1  # a k-block's steps are a multiple of this
        most = whole if self.in_place else max(1, DEPTH_BYTES // (whole * sums.itemsize)) * whole
        pieces = max(1, -(-self.depth // most))
        self.steps = max(1, -(-self.depth // whole // pieces)) * whole
        self.left = self.left_room()
        # The number of the current panel of rows, and the pace at which a later block is prefetched.
        self.number: Int = 0
        self.pace: Int = 0
        # The buffer that the result ends up in.
        self.into: StridedArray | None = None

    def rows_in_place(self, tallest: int) -> int:
        """The rows of each of several left operands, if they are evenly spaced and close together; else 0.

        If one operand is another one shifted, copies of them side by side would copy the same rows again and again.
        """
        found = [lhs.in_place for lhs, _ in self.pairs]
        lying = [array for array in found if array is not None and all(isinstance(n, int) for n in array.strides)]
        if self.joined > 1 or len(self.pairs) < 2 or len(lying) < len(self.pairs):
            return 0
        forms = {(array.shape, array.strides) for array in lying}
        (*_, rows, _), (*_, between, step) = lying[0].shape, lying[0].strides
        near = 0 < tallest * between * self.sums.itemsize <= NEAR_BYTES  # type: ignore[operator]
        return rows if len(forms) == 1 and near and step == 1 and rows >= tallest // 2 else 0

    def run(self, target: StridedArray, init: LazyArray | None, rows: Range | None = None) -> None:
        """Emit the product, or some of its rows. The target's columns are neighbours in memory.

        The target's dtype is that of the sums, or bfloat16 for sums of pairs in one k-block, which begin at zero.
        """
        fresh, first = init is None, lambda row: target.address(self.e, (row, 0))
        if init is not None and not self.offset:
            self.start(target, init)
            init = None
        rows, self.into = rows or (0, self.lhs.rows), target
        for _ in self.panels(rows, first, target.strides[0], fresh, init, target.dtype):
            pass

    def by_panels(
        self,
        use: Callable[[StridedArray, Int, int], None],
        init: LazyArray | None,
        rows: Range | None,
        into: StridedArray | None,
    ) -> None:
        """Emit the product a few rows at a time, in one buffer that all panels reuse.

        Args:
            use: gets the buffer `sums[height, columns]`, the number of the first row in it, and the height.
            into: the buffer that all rows end up in.
        """
        self.into = into
        room = self.scope.arena.buffer(self.e, (self.height, self.rhs.columns), self.sums)
        stride = room.strides[0]
        rows = rows or (0, self.lhs.rows)
        for row, height in self.panels(rows, lambda row: room.base, stride, init is None, init):
            use(StridedArray(room.base, room.strides, (height, self.rhs.columns), self.sums), row, height)

    def start(self, target: StridedArray, init: LazyArray) -> None:
        """Write the initial sums, unless they are already there."""
        if not init.shape:
            write(self.e, LazyArray(target.type, lambda index, width: init.at((), width)), target)
        elif init.buffer is None or (init.buffer.base, init.buffer.strides) != (target.base, target.strides):
            write(self.e, init, target)

    def panels(
        self,
        rows: Range,
        place: Callable[[Int], V],
        stride: Int,
        fresh: bool,
        init: LazyArray | None = None,
        dtype: DType | None = None,
    ) -> Iterator[tuple[Int, int]]:
        """Compute the rows panel by panel; yields the first row and the height of each panel when it is complete.

        Args:
            place, stride: the address of a panel's sums, and the stride of its rows in elements.
            fresh: whether the sums begin at zero instead of the values in memory.
            dtype: that of the target; by default that of the sums.
        """
        e, dtype = self.e, dtype or self.sums
        some = e.compare("icmp slt", *map(e.index, rows)) if any(isinstance(bound, V) for bound in rows) else None
        with e.when(some):
            few = self.are_few(rows, dtype)
            packed, needed = self.packed(few) if self.span is None else (self.packed_span(self.span), None)
            self.in_place = self.in_place if rows == (0, self.lhs.rows) else 0
            if self.few is not None and few is not None and needed is not None:
                thin = e.binary("and", few, needed)
                with e.when(thin):
                    yield from self.few_panels(self.few.product(), rows, place, stride, fresh, init)
                # The code below is for more rows, or for a matrix that is already packed.
                rows = rows[0], e.select(thin, e.index(rows[0]), e.index(rows[1]))
                needed = e.binary("and", needed, e.binary("xor", few, V("true", "i1")))
            self.pace = self.paced(rows)
            if self.offset:
                with e.when(needed):
                    self.pack(packed)
                init, fresh, needed = self.less_offset(packed, init), False, None
            for row, height, packs in self.row_panels(rows, packed, needed):
                self.number = e.binary("udiv", e.index(e.sub(row, rows[0])), V(str(self.height), "i64"))
                target = StridedArray(place(row), (stride, 1), (height, self.rhs.columns), dtype)
                if init is not None:
                    self.start(target, rows_of(e, init, row, height))
                if fresh and (self.span is not None or not self.depth):
                    span = self.span or (0, 0)
                    with e.when(e.compare("icmp sge", *map(e.index, span))):
                        fill(e, target, 0)
                if self.lhs.rows * self.depth * self.rhs.columns > LONG:
                    self.scope.function.poll(height * self.steps * self.rhs.columns // PRODUCTS)
                for piece in self.pieces(packed):
                    left = self.panel_in_place(row, height, piece) if self.in_place else None
                    if left is None:
                        self.lay_out(row, height, piece)
                    self.multiply(target, piece, row, fresh, packs, left)
                yield row, height

    def are_few(self, rows: Range, dtype: DType) -> V | None:
        """True if the rows are few enough for a right operand that is not packed; None if they never are."""
        known = all(isinstance(bound, int) for bound in rows)
        if self.few is None or known or self.span is not None or self.offset or dtype != self.sums or not self.depth:
            return None
        return self.e.compare("icmp sle", self.e.index(self.e.sub(rows[1], rows[0])), V(str(self.few.most), "i64"))

    def few_panels(
        self,
        product: Unpacked,
        rows: Range,
        place: Callable[[Int], V],
        stride: Int,
        fresh: bool,
        init: LazyArray | None,
    ) -> Iterator[tuple[Int, int]]:
        """Compute a few rows, each as a panel; the other arguments are as in `panels`."""
        e, columns = self.e, self.rhs.columns
        found = product.run_rows(rows[0], e.sub(rows[1], rows[0]))
        with e.loop(rows[0], rows[1], 1) as row:
            target = StridedArray(place(row), (stride, 1), (1, columns), self.sums)
            if init is not None:
                self.start(target, rows_of(e, init, row, 1))
            mine = StridedArray(found.address(e, (e.sub(row, rows[0]), 0)), found.strides, (1, columns), self.sums)

            def total(index: Sequence[Int], width: int) -> V:
                value = mine.at(e, index, width)
                return value if fresh else e.binary("fadd", value, target.at(e, index, width))

            write(e, LazyArray(target.type, total), target)
            yield row, 1

    def less_offset(self, packed: V, init: LazyArray | None) -> LazyArray:
        """The initial sums, minus the contribution of the left operand's offset to each column."""
        e, columns = self.e, self.rhs.columns
        more = self.scope.arena.buffer(e, (1, columns), self.sums)
        row = self.scope.arena.buffer(e, (1, 1), self.word)
        row.put(e, (0, 0), V(str(int.from_bytes(bytes([self.offset] * self.joined), "little", signed=True)), "i32"), 1)
        for piece in self.pieces(packed):
            self.multiply(more, piece, 0, True, False, replace(row, strides=(0, 0)))

        def at(index: Sequence[Int], width: int) -> V:
            column = more.at(e, (0, index[1]), width)
            begin = e.constant(0, column.type) if init is None else init.at(index if init.shape else (), width)
            return e.binary("sub", begin, column)

        return LazyArray(ArrayType((self.lhs.rows, columns), self.sums), at)

    def paced(self, rows: Range) -> Int:
        """The lines of a later block that each step of a micro-kernel prefetches, from either end, in 1/65536."""
        e, later = self.e, self.rhs.later
        if later is None:
            return 0
        panels = e.intrinsic("umax", "i64", e.index(self.quotient(e.sub(rows[1], rows[0]), self.height)), V("1", "i64"))
        lines = e.mul(e.mul(later.lines, later.rows), 32768)
        pace = self.quotient(lines, e.mul(panels, max(1, self.calls * self.depth)))
        return pace if later.there is None else e.select(later.there, e.index(pace), V("0", "i64"))

    def row_panels(self, rows: Range, packed: V, needed: V | None) -> Iterator[tuple[Int, int, bool]]:
        """Rows split into panels: (first row, height, packs). A remainder of unknown size is split into powers of two.

        Args:
            needed: whether the right operand must be packed. The first panel does that if it has enough rows.
        """
        e, (low, high) = self.e, rows
        first, tall = low, V(str(self.height), "i64")
        if needed is not None:
            enough = (
                e.compare("icmp sge", e.index(e.sub(high, low)), tall) if self.packs_meanwhile else V("false", "i1")
            )
            both = e.binary("and", needed, enough)
            with e.when(e.binary("xor", needed, both)):
                self.pack(packed)
            if self.packs_meanwhile:
                with e.when(both):
                    yield low, self.height, True
                first = e.add(low, e.select(both, tall, V("0", "i64")))
        if self.in_place:
            with e.loop(0, self.lhs.rows, self.in_place) as group:
                for top, bottom, height in cut(self.in_place, self.height):
                    with e.loop(e.add(group, top), e.add(group, bottom), height) as row:
                        yield row, height, False
            return
        if isinstance(low, int) and isinstance(high, int):
            for top, bottom, height in cut(high - low, self.height):
                with e.loop(e.add(first if top == 0 else low, top), low + bottom, height) as row:
                    yield row, height, False
            return
        count = e.index(e.sub(high, low))
        rest = e.binary("urem", count, tall)
        end = e.sub(high, rest)
        with e.loop(first, end, self.height) as row:
            yield row, self.height, False
        for height in (1 << bit for bit in reversed(range((self.height - 1).bit_length()))):
            with e.when(e.compare("icmp ne", e.binary("and", rest, V(str(height), "i64")), V("0", "i64"))):
                yield e.add(end, e.binary("and", rest, V(str(-2 * height), "i64"))), height, False

    @property
    def packs_meanwhile(self) -> bool:
        """True if a panel of rows can pack the right operand while it is multiplied."""
        return (
            len(self.pairs) == 1
            and self.rhs.plain is not None
            and self.rhs.columns % self.wide == 0
            and self.lhs.rows >= self.height
        )

    @property
    def wide(self) -> int:
        """The columns of a whole panel."""
        return registers.LANES * self.vectors

    def pieces(self, packed: V) -> Iterator[KBlock]:
        """The k-blocks of the summed axis."""
        if self.span is not None:
            yield from self.span_pieces(self.span, packed)
            return
        if len(self.pairs) > 1:
            for first in range(0, self.depth, self.steps):
                yield self.whole_piece(packed, first, min(self.steps, self.depth - first))
            return
        for first, stop, steps in cut(self.depth, self.steps):
            with self.e.loop(first, stop, steps) as k:
                yield self.whole_piece(packed, k, steps)

    def whole_piece(self, packed: V, k: Int, steps: int) -> KBlock:
        """A k-block of all steps in a range, packed after the steps before it."""
        place = self.e.pointer(packed, self.e.mul(k, self.rhs.columns), self.word.itemsize)
        starts = self.e.compare("icmp eq", self.e.index(k), V("0", "i64"))
        return KBlock(k, steps, k, steps, place, steps, starts)

    def packed_span(self, span: Range) -> V:
        """Pack the steps of a span of the right operand; returns their address."""
        pieces = -(-self.depth // self.span_steps)
        room = self.scope.arena.buffer(self.e, (pieces * self.span_steps * self.rhs.columns,), self.word)
        for piece in self.span_pieces(span, room.base):
            count = self.e.index(piece.count)
            whole = self.e.binary("and", count, V(str(-TOGETHER), "i64"))
            self.pack_steps(piece, self.rhs, 0, whole, TOGETHER)
            self.pack_steps(piece, self.rhs, whole, count, 1)
        return room.base

    def parts(self, piece: KBlock) -> Iterator[tuple[PackSource, PackSource, int, Int, Int]]:
        """The parts of a k-block by pair of operands: the pair, the first step in the k-block and in it, the steps."""
        if len(self.pairs) == 1:
            yield self.lhs, self.rhs, 0, piece.first, piece.laid
            return
        size, first, laid = self.lhs.columns, piece.first, piece.laid
        for n in range(first // size, (first + laid) // size):  # type: ignore[operator]
            yield *self.pairs[n], n * size - first, 0, size  # type: ignore[operator]

    @property
    def span_steps(self) -> int:
        """The steps of a k-block of a span: whole vectors of the left operand."""
        return -(-self.steps // registers.LANES) * registers.LANES

    def span_pieces(self, span: Range, packed: V) -> Iterator[KBlock]:
        """The k-blocks of a span, extended to whole vectors of the left operand unless that is read by columns."""
        e, lanes, steps = self.e, 1 if self.lhs.transposed else registers.LANES, self.span_steps
        low, high = map(e.index, span)
        aligned = e.binary("and", low, V(str(-lanes), "i64"))
        aligned_end = e.binary("and", e.index(e.add(high, lanes - 1)), V(str(-lanes), "i64"))
        some = e.compare("icmp slt", low, high)
        with e.loop(aligned, e.select(some, high, aligned), steps) as k:
            begin = e.intrinsic("smax", "i64", e.index(k), low)
            end = e.intrinsic("smin", "i64", e.index(e.add(k, steps)), high)
            laid = e.intrinsic("smin", "i64", V(str(steps), "i64"), e.index(e.sub(aligned_end, k)))
            place = e.pointer(packed, e.mul(e.sub(k, aligned), self.rhs.columns), self.word.itemsize)
            first = e.compare("icmp eq", e.index(k), aligned)
            yield KBlock(k, laid, begin, e.sub(end, begin), place, steps, first)

    def column_panels(self) -> Iterator[tuple[int, int, int, int]]:
        """Ranges of columns with equal panels: (first, end, vectors of a panel, lanes of a vector)."""
        for start, end, width in widths(self.rhs.columns):
            vectors = self.vectors if width == registers.LANES else 1
            for first, stop, size in cut(end - start, width * vectors):
                if size == width * vectors:
                    yield start + first, start + stop, vectors, width
                else:
                    yield start + first, start + stop, 1, width

    # The right operand.

    def packed(self, unless: V | None = None) -> tuple[V, V]:
        """The address of the packed right operand, and whether it must be packed, which is false if it still is.

        Args:
            unless: a condition of the running kernel under which it will not be packed.
        """
        size = max(1, self.depth * self.rhs.columns)
        steady, notes = [rhs.steady for _, rhs in self.pairs if rhs.steady is not None], self.scope.function.notes
        is_steady = len(steady) == len(self.pairs)
        slot, slots = self.scope.function.innermost
        if not is_steady or slots * size * self.sums.itemsize > KEPT_BYTES:
            slot, slots = 0, 1
        room = self.scope.arena.buffer(self.e, (slots, size), self.word)
        place = room.address(self.e, (slot, 0))
        noted = notes.take(slots * len(steady)) if is_steady and notes is not None else None
        if noted is None:
            return place, V("true", "i1")
        needed: V | None = None
        for n, ((_, rhs), source) in enumerate(zip(self.pairs, steady, strict=True)):
            self.scope.function.packed.update(rhs.reads)
            address = noted.address(self.e, (self.e.add(self.e.mul(slot, len(steady)), n),))
            mine = self.noted(source, address, unless)
            needed = mine if needed is None else self.e.binary("or", needed, mine)
        return place, needed or V("true", "i1")

    def noted(self, steady: StridedArray, note: V, unless: V | None = None) -> V:
        """Record that a block is packed now; returns whether it differs from the block recorded last.

        A block that reaches past the edge of its array is a copy in the arena and changes: it is never recorded.
        """
        e = self.e
        key = e.value("i64", f"ptrtoint {steady.base} to i64")
        arena = e.value("i64", f"ptrtoint {self.scope.arena.base} to i64")
        size = e.load("i64", V("@arena_size", "ptr"), 8)
        elsewhere = e.compare("icmp uge", e.binary("sub", key, arena), size)
        before = e.load("i64", note, 8)
        same = e.compare("icmp eq", key, before)
        kept = e.binary("and", same, elsewhere)
        after = e.select(elsewhere, key, V("0", "i64"))
        e.store(after if unless is None else e.select(unless, before, after), note, 8)
        return e.binary("xor", kept, V("true", "i1"))

    def pack(self, place: V) -> None:
        """Pack the right operand into panels: for each k-block, panel by panel, step by step.

        It is read several whole rows at a time: read panel by panel, every few bytes would be on another page.
        """
        e = self.e
        if len(self.pairs) > 1:
            for piece in self.pieces(place):
                for _, rhs, first, k, count in self.parts(piece):
                    for top, bottom, size in cut(count, self.together(rhs)):  # type: ignore[arg-type]
                        self.pack_steps(piece, rhs, first + top, first + bottom, size, e.sub(k, first))
            return
        for first, stop, steps in cut(self.depth, self.steps):
            for top, bottom, size in cut(steps, self.together(self.rhs)):
                with e.loop(first, stop, steps) as k:
                    self.pack_steps(self.whole_piece(place, k, steps), self.rhs, top, bottom, size)

    def together(self, rhs: PackSource) -> int:
        """The steps of a right operand that are packed together."""
        return TOGETHER if rhs.transposed is None else registers.LANES

    def pack_steps(
        self, piece: KBlock, rhs: PackSource, top: Int, bottom: Int, size: int, begin: Int | None = None
    ) -> None:
        """Pack steps of a k-block, from `top` below `bottom`, `size` at a time.

        Args:
            begin: the operand's step at the first step of the k-block; `piece.begin` by default.
        """
        e = self.e
        with e.loop(top, bottom, size) as step:
            for start, end, vectors, width in self.column_panels():
                with e.loop(start, end, vectors * width) as column:
                    base = e.pointer(self.panel(piece, column), e.mul(step, vectors * width), self.word.itemsize)
                    rows = StridedArray(base, (vectors * width, 1), (size, vectors * width), self.word)
                    k = e.add(piece.begin if begin is None else begin, step)
                    self.pack_panel(rhs, rows, k, column, vectors, width)

    def panel(self, piece: KBlock, column: Int) -> V:
        """The address of the panel of some columns."""
        return self.e.pointer(piece.packed, self.e.mul(column, piece.room), self.word.itemsize)

    def pack_panel(self, rhs: PackSource, panel: StridedArray, k: Int, column: Int, vectors: int, width: int) -> None:
        e, steps = self.e, panel.shape[0]
        if rhs.transposed is not None and width > 1:
            for n in range(vectors):
                for first, stop, size in cut(steps, width):
                    with e.loop(first, stop, size) as step:
                        self.pack_square(rhs, panel, (k, step), (column, n * width), size, width)
            return
        with e.loop(0, steps) as step:
            for n in range(vectors):
                value = rhs.element(e.add(k, step), e.add(column, n * width), width)
                panel.put(e, (step, n * width), value, width)

    def pack_square(
        self,
        rhs: PackSource,
        panel: StridedArray,
        step: tuple[Int, Int],
        column: tuple[Int, int],
        size: int,
        width: int,
    ) -> None:
        """`size` steps of one vector of columns, read along the steps and transposed in registers."""
        e = self.e
        k = e.add(*step)
        at = rhs.transposed or rhs.element
        if size < width:
            rows = [rhs.element(e.add(k, s), e.add(*column), width) for s in range(size)]
        else:
            rows = transposed(e, [at(k, e.add(e.add(*column), lane), width) for lane in range(width)])
        for s, row in enumerate(rows):
            panel.put(e, (e.add(step[1], s), column[1]), row, width)

    # The left operand.

    def left_room(self) -> StridedArray:
        """The buffer for a panel of the left operand: by rows, or by columns if the operand is read by columns."""
        size = self.height * (self.steps + _APART)
        room = self.scope.arena.buffer(self.e, (size,), self.word)
        strides = (1, self.height) if self.lhs.transposed else (self.steps + _APART, 1)
        return StridedArray(room.base, strides, (self.height, self.steps), self.word)

    def panel_in_place(self, row: Int, height: int, piece: KBlock) -> StridedArray | None:
        """Some rows of a left operand, in place."""
        array = self.pairs[piece.first // self.lhs.columns][0].in_place  # type: ignore[operator]
        if array is None:
            return None
        *_, between, step = array.strides
        index = renumbered(self.e, [row], (self.lhs.rows,), array.shape[:-1])
        return StridedArray(array.address(self.e, (*index, 0)), (between, step), (height, array.shape[-1]), array.dtype)

    def lay_out(self, row: Int, height: int, piece: KBlock) -> None:
        for lhs, _, place, k, count in self.parts(piece):
            self.lay_out_part(lhs, row, height, place, k, count)

    def lay_out_part(self, lhs: PackSource, row: Int, height: int, place: int, k: Int, count: Int) -> None:
        """Lay out `count` steps of a left operand from `k` on, at `place`."""
        e = self.e
        if lhs.transposed is not None:
            flipped = StridedArray(self.left.base, self.left.strides[::-1], self.left.shape[::-1], self.word)
            with e.loop(0, count) as step:
                for start, end, width in widths(height):
                    for r in range(start, end, width):
                        value = lhs.transposed(e.add(row, r), e.add(k, step), width)
                        flipped.put(e, (e.add(step, place), r), value, width)
            return
        # An unknown count is a number of whole vectors.
        known = isinstance(count, int)
        for start, end, width in widths(count) if known else ((0, count, registers.LANES),):  # type: ignore[arg-type]
            with e.loop(0, height) as r, e.loop(start, end, width) as step:
                value = lhs.element(e.add(row, r), e.add(k, step), width)
                self.left.put(e, (r, e.add(step, place)), value, width)

    # The product of a panel with all panels.

    def multiply(
        self,
        target: StridedArray,
        piece: KBlock,
        row: Int,
        fresh: bool,
        packs: bool,
        left: StridedArray | None = None,
    ) -> None:
        """Add the product of a panel of rows, by default the one laid out, with all panels of columns."""
        e, height, rows = self.e, target.shape[0], left or self.left
        starts = piece.starts if fresh else V("false", "i1")
        skipped = e.mul(e.sub(piece.begin, piece.first) if piece.begin is not piece.first else 0, rows.strides[1])
        place = e.pointer(rows.base, skipped, self.word.itemsize)
        for start, end, vectors, width in self.column_panels():
            with e.loop(start, end, vectors * width) as column:
                streams = self.streams(piece, row, column) if height == self.height and self.asks else []
                more = "".join(f", {argument}" for stream in streams for argument in stream)
                more += self.unpacked(piece, column) if packs else ""
                panel = self.panel(piece, column)
                sums = target.address(e, (0, column))
                stride = e.index(e.mul(target.strides[0], target.dtype.itemsize))
                size = height, vectors, width
                name = self.kernel(size, rows.strides, len(streams), packs, target.dtype != self.sums)
                e.line(f"call void @{name}({place}, {panel}, {sums}, {stride}, {e.index(piece.count)}, {starts}{more})")

    def unpacked(self, piece: KBlock, column: Int) -> str:
        """The arguments of a micro-kernel for the unpacked rows of a right panel that it packs."""
        e, plain = self.e, self.rhs.plain
        if plain is None:
            return ""
        row = e.mul(piece.begin, self.joined)
        return f", {plain.address(e, (row, column))}, {e.index(e.mul(plain.strides[0], plain.dtype.itemsize))}"

    def stream(self, area: PrefetchRange, done: Int, pace: Int) -> list[V]:
        """The arguments of a micro-kernel that prefetches a part of a range.

        Args:
            done: the number of earlier micro-kernel steps that have prefetched from it.
            pace: the lines, in 1/65536, that each step prefetches from either end.
        """
        e = self.e
        end = e.index(e.mul(area.lines, 65536))
        until = e.pointer(
            area.base, e.add(e.mul(area.between, e.sub(area.rows, 1)), e.mul(e.sub(area.lines, 1), LINE_BYTES)), 1
        )
        pace = e.intrinsic("umin", "i64", e.index(pace), end)
        position = e.binary("mul", e.index(done), pace)
        row = e.mul(e.binary("udiv", position, end), area.between)
        return [area.base, until, *map(e.index, (area.between, row, e.binary("urem", position, end), end, pace))]

    def streams(self, piece: KBlock, row: Int, column: Int) -> list[list[V]]:
        """The ranges that micro-kernels prefetch while they run, evenly through all of them."""
        e, found, near, later = self.e, [], self.lhs.near if len(self.pairs) == 1 else None, self.rhs.later
        following = self.panel_in_place(e.add(row, self.height), self.height, piece) if self.in_place else None
        panel = column // self.wide if isinstance(column, int) else e.binary("udiv", column, V(str(self.wide), "i64"))
        done, steps = e.add(e.mul(panel, self.depth), piece.first), self.calls * self.depth
        if later is not None:
            found.append(self.stream(later, e.add(e.mul(self.number, steps), done), self.pace))
        if self.span is not None and self.rhs.near is not None:
            found.append(self.prefetched_after(self.rhs.near, self.span, piece, panel))
        if near is not None:
            following = replace(near, base=near.address(e, (e.add(row, self.height), e.mul(piece.first, self.joined))))
        if following is not None:
            # The next panel of rows, the same steps.
            steps_bytes = following.dtype.itemsize * self.joined
            lines = e.add(self.quotient(e.mul(piece.laid, steps_bytes), LINE_BYTES), 1)
            between = e.mul(following.strides[0], following.dtype.itemsize)
            area = PrefetchRange(following.base, between, self.height, lines)
            pace = self.quotient(e.mul(lines, self.height * 32768), e.mul(piece.count, self.calls))
            found.append(self.stream(area, e.mul(panel, piece.count), pace))
        last = len(self.pairs) == 1 or piece.first == self.depth - self.lhs.columns
        if self.into is not None and last:
            # The memory that the next panel's sums will be written to.
            size = self.into.dtype.itemsize
            lines = max(1, self.rhs.columns * size // LINE_BYTES)
            start = self.into.address(e, (e.add(row, self.height), 0))
            area = PrefetchRange(start, e.mul(self.into.strides[0], size), self.height, lines)
            pace = self.quotient(lines * self.height * 32768, e.mul(piece.count, self.calls))
            found.append(self.stream(area, e.mul(panel, piece.count), pace))
        return found

    def prefetched_after(self, near: StridedArray, span: Range, piece: KBlock, panel: Int) -> list[V]:
        """Prefetch the range after a span of the right operand, of the same size: usually the span of the next step."""
        e, words = self.e, self.joined
        low, high = span
        count = e.sub(high, low)
        lines = max(1, self.rhs.columns * near.dtype.itemsize // LINE_BYTES)
        between = e.mul(near.strides[0], near.dtype.itemsize)
        area = PrefetchRange(near.address(e, (e.mul(high, words), 0)), between, e.mul(count, words), lines)
        before = e.add(e.mul(e.add(e.mul(self.number, self.calls), panel), count), e.sub(piece.begin, low))
        panels = max(1, self.lhs.rows // self.height)
        return self.stream(area, before, words * lines * 32768 // max(1, panels * self.calls))

    def quotient(self, x: Int, y: Int) -> Int:
        """The quotient of two integers, rounded down."""
        known = isinstance(x, int) and isinstance(y, int)
        return x // y if known else self.e.binary("udiv", self.e.index(x), self.e.index(y))  # type: ignore[operator]

    @property
    def calls(self) -> int:
        """The number of panels of columns."""
        return sum(-(-(end - start) // (vectors * width)) for start, end, vectors, width in self.column_panels())

    def kernel(
        self, size: tuple[int, int, int], strides: tuple[Int, ...], streams: int, packs: bool, rounds: bool
    ) -> str:
        """The name of the micro-kernel for blocks of a number of rows, vectors and lanes."""
        height, vectors, width = size
        apart: tuple[int, int] = strides  # type: ignore[assignment]
        word = {2: "pairs", 4: "quads"}.get(self.joined, self.sums)
        name = f"multiply_{word}_{height}x{vectors}x{width}_{strides[0]}_{strides[1]}"
        name += f"_ahead{streams}" if streams else ""
        name += ("_packs" if packs else "") + ("_rounds" if rounds else "")
        declared = self.e.declared
        if name not in declared:
            text, needed = micro_kernel(name, self.sums, self.word, size, apart, streams, packs, rounds, self.joined)
            declared.update(needed)
            declared[name] = text
        return name
