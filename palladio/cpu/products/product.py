"""The loops of a matrix product: packing, blocking for the caches, and micro-kernels.

The right operand is packed into panels as wide as a micro-kernel's sums, in the order of their reads (`panels`).
The rows of the left operand are laid out one or some panels at a time, then every panel of the right operand is
multiplied with each of them: it comes from the last level of cache for the first one, from the second level for the
others. If the right operand is row-major in memory, the first panel of rows packs it while it is multiplied. A
micro-kernel is a separate function, so that all callers share its code; its sums stay in registers throughout, and it
prefetches the next panel of rows and the right operand of a later step (`streams`).

On tile registers (`tiles`), the right operand is packed before it is multiplied, and rows are laid out as tiles.
Float32 numbers are split into pieces of bfloat16 meanwhile (`tiles.split`). Where one group of rows alone reads a
packed operand, each k-block is packed right before it is multiplied, and takes the place of the last one: it never
leaves the second level of cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from palladio.base.dataclass import dataclass
from palladio.cpu.analysis.work import PRODUCTS
from palladio.cpu.emit.emitter import FALSE, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, cut, fill, rows_of, write
from palladio.cpu.emit.llvm_types import I32, I64
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.blocking import Blocking, KBlock
from palladio.cpu.products.micro_kernel import micro_kernel
from palladio.cpu.products.operands import PackSource, Pair, Range, RowGroup, RowReader
from palladio.cpu.products.panels import ColumnPanels, RowPanel
from palladio.cpu.products.streams import Ahead, Streams
from palladio.cpu.products.tiles.kernel import PLACE_BYTES, PanelKernel, TileKernel, configure, divided, release
from palladio.cpu.products.tiles.split import SplitKernel
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

LONG = 1 << 30
"""Multiply-adds above which a product polls for interrupts."""


class Unpacked(Protocol):
    """The product of a few rows with a right operand that is not packed."""

    def run_rows(self, low: Int, count: Int) -> Callable[[Int], RowReader]:
        """Emit the product for `count` rows from `low` on; returns the sums of each row by its number among them."""


@dataclass(frozen=True)
class RowLimit:
    """The number of rows beyond which packing the right operand pays, and the product of at most that many.

    Fields:
        fewer: a lower number of rows, up to which another product is faster.
    """

    most: int
    product: Callable[[], Unpacked]
    fewer: RowLimit | None = None


class Product:
    """One matrix product while it is emitted: `target[rows, columns] = init + lhs @ rhs`.

    Args:
        more: further pairs of operands, of the same sizes, whose products are added. To the micro-kernels they are
            further steps along the summed axis.
        joined: the number of neighbours along the summed axis in an element of the operands: 1, or in an int32 a pair
            of bfloat16 or a quad of 8-bit integers, unsigned ones on the left.
        offset: the excess of each left element of a quad; its product with the right operand is subtracted.
        instruction: the one that multiplies them on tile registers; empty if vectors are multiplied.
        pieces: the number of pieces of bfloat16 of each number: 1, or 3 on tile registers, where sums are float32.
        span: the steps along the summed axis where an operand may be nonzero, if that is known.
        shallow: the product that is faster where the span is short, and the least number of elements where it is not.
        places: the address of the places of the left tiles that are multiplied in place, if any are.
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
        few: RowLimit | None = None,
        more: Sequence[Pair] = (),
        instruction: str = "",
        pieces: int = 1,
        shallow: tuple[Product, int] | None = None,
        places: V | None = None,
    ) -> None:
        self.scope = scope
        self.e = scope.e
        self.lhs = lhs
        self.rhs = rhs
        self.sums = sums
        self.joined = joined
        self.offset = offset
        self.few = few
        self.shallow = shallow
        self.places = places
        self.begin: StridedArray | None = None
        # Where k-blocks are read once: the first row of the group that packs them, and whether it must.
        self.packs: tuple[Int, V | None] = 0, None
        self.instruction = instruction
        self.blocking = Blocking(scope.e, [(lhs, rhs), *more], sums, joined, span, bool(instruction), pieces)
        self.left = RowPanel(scope, self.blocking)
        self.right = ColumnPanels(scope, self.blocking, sums)
        self.streams = Streams(scope.e, self.blocking, self.left)

    def run(self, target: StridedArray, init: LazyArray | None, rows: Range | None = None) -> None:
        """Emit the product, or some of its rows. The target's columns are neighbours in memory.

        The target's dtype is that of the sums, or bfloat16 for sums of pairs in one k-block, which begin at zero.
        """
        fresh, first = init is None, lambda row: target.address(self.e, (row, 0))
        if init is not None and not self.offset:
            self.start(target, init)
            init = None
        rows, self.streams.into = rows or (0, self.lhs.rows), target
        for _ in self.panels(rows, first, target.strides[0], fresh, init, target.dtype):
            pass

    def by_panels(
        self,
        use: Callable[[StridedArray, Int, Int], None],
        init: LazyArray | None,
        rows: Range | None,
        into: StridedArray | None,
    ) -> None:
        """Emit the product a few rows at a time, in one buffer that all panels reuse.

        Args:
            use: gets the buffer, the number of the first row in it, and the number of rows.
            into: the buffer that all rows end up in.
        """
        self.streams.into = into
        tallest = max(self.blocking.room, self.shallow[0].blocking.room if self.shallow else 0)
        room = self.scope.arena.buffer(self.e, (tallest, self.rhs.columns), self.sums)
        rows = rows or (0, self.lhs.rows)
        for place, row, height in self.panels(rows, lambda row: room.base, room.strides[0], init is None, init):
            use(replace(room, base=room.address(self.e, (place, 0))), row, height)

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
    ) -> Iterator[tuple[Int, Int, Int]]:
        """Compute the rows panel by panel; yields the number of the first row of each panel in its group, the first row
        and the height when it is complete.

        Args:
            place, stride: the address of the sums of a group of panels, and the stride of its rows in elements. If the
                number of rows is not known, there is room for a whole panel.
            fresh: whether the sums begin at zero instead of the values in memory.
            dtype: that of the target; by default that of the sums.
        """
        e, dtype = self.e, dtype or self.sums
        if self.shallow is None:
            yield from self.all_panels(rows, place, stride, fresh, init, dtype)
            return
        product, least = self.shallow
        low, high = product.blocking.span or (0, 0)
        is_short = e.compare("icmp slt", e.index(e.sub(high, low)), i64(least))
        product.streams.into = self.streams.into
        for each, applies in ((product, is_short), (self, e.negated(is_short))):
            with e.when(applies):
                yield from each.all_panels(rows, place, stride, fresh, init, dtype)

    def all_panels(
        self, rows: Range, place: Callable[[Int], V], stride: Int, fresh: bool, init: LazyArray | None, dtype: DType
    ) -> Iterator[tuple[Int, Int, Int]]:
        """As `panels`, whatever the span."""
        e, blocking = self.e, self.blocking
        some = e.compare("icmp slt", *map(e.index, rows)) if any(isinstance(bound, V) for bound in rows) else None
        with e.when(some):
            few = self.are_few(rows, dtype)
            blocking.read_once = self.right.is_read_once(rows) if fresh else None
            if blocking.span is None:
                packed, needed = self.right.packed(few)
            else:
                packed, needed = self.right.packed_span(blocking.span), None
            blocking.in_place = blocking.in_place if rows == (0, self.lhs.rows) else 0
            if self.few is not None and few is not None and needed is not None:
                # Even if the matrix is already packed: a sum must not depend on which step a thread ran before.
                with e.when(few):
                    for product in self.few_products(self.few, rows):
                        yield from self.few_panels(product, rows, place, stride, fresh, init)
                rows = rows[0], e.select(few, e.index(rows[0]), e.index(rows[1]))
                needed = e.binary("and", needed, e.negated(few))
            self.streams.begin(rows)
            if self.offset:
                with e.when(needed):
                    self.right.pack(packed)
                excess, needed = self.excess(packed), None
                if init is None:
                    self.begin = self.negated(excess)
                else:
                    init, fresh = self.less(init, excess), False
            if self.instruction:
                configure(e)
            if blocking.read_once is not None:
                self.packs, needed = (rows[0], needed), None
            for group in self.row_groups(rows, packed, needed):
                number = e.binary("udiv", e.index(e.sub(group.row, rows[0])), i64(blocking.height))
                self.streams.number = number
                tall = group.height if isinstance(group.height, int) else blocking.height
                target = StridedArray(place(group.row), (stride, 1), (tall, self.rhs.columns), dtype)
                if init is not None:
                    self.start_rows(target, init, group)
                self.group(target, group, packed, fresh)
                if self.takes_rows(group):
                    yield 0, group.row, e.add(e.mul(group.count, group.height), group.rest)
                else:
                    for _, first, height in self.panels_of(group):
                        yield first, e.add(group.row, first), height
            if self.instruction:
                release(e)

    def takes_rows(self, group: RowGroup) -> bool:
        """True if the rows of a group are known only when the kernel runs, and are an argument of all micro-kernels:
        then the code for whole panels is that for the last one too."""
        return self.blocking.pieces > 1 and isinstance(group.rest, V)

    def panels_of(self, group: RowGroup) -> Iterator[tuple[Int, Int, Int]]:
        """The panels of a group: the number, the first row in the group, and the height of each."""
        e = self.e
        if self.takes_rows(group):
            rows = e.index(e.add(e.mul(group.count, group.height), group.rest))
            with e.loop(0, rows, group.height) as first:
                left = e.intrinsic("smin", I64, e.index(e.sub(rows, first)), e.index(group.height))
                yield self.blocking.quotient(first, group.height), first, left
            return
        with e.loop(0, group.count) as n:
            yield n, e.mul(n, group.height), group.height
        for first, height in self.blocking.lower_panels(group.rest):
            yield 0, e.add(e.mul(group.count, group.height), first), height

    def start_rows(self, target: StridedArray, init: LazyArray, group: RowGroup) -> None:
        """Write the initial sums of a group of panels of rows."""
        e = self.e
        for _, top, height in self.panels_of(group):
            size = height if isinstance(height, int) else 1
            with e.loop(top, e.add(top, height), size) as first:
                place, shape = target.address(e, (first, 0)), (size, *target.shape[1:])
                mine = StridedArray(place, target.strides, shape, target.dtype)
                self.start(mine, rows_of(e, init, e.add(group.row, first), size))

    def group(self, target: StridedArray, group: RowGroup, packed: V, fresh: bool) -> None:
        """Compute the sums of a group of panels of rows, of each of whose targets the first `height` rows are used."""
        e, blocking = self.e, self.blocking
        if fresh and (blocking.span is not None or not blocking.depth):
            span = blocking.span or (0, 0)
            with e.when(e.compare("icmp sge", *map(e.index, span))):
                fill(e, target, 0)
        if self.lhs.rows * blocking.depth * self.rhs.columns > LONG:
            rows = target.shape[0] * (1 if group.count == 1 else blocking.room // blocking.height)
            if self.instruction:  # Python code that handles an interrupt may use them, and may end the kernel
                release(e)
            self.scope.function.poll(rows * blocking.steps * self.rhs.columns // PRODUCTS)
            if self.instruction:
                configure(e)
        for block in blocking.k_blocks(packed):
            first, needed = self.packs
            if blocking.read_once is not None and needed is not None:
                is_first = e.compare("icmp eq", *map(e.index, (group.row, first)))
                with e.when(e.binary("and", needed, is_first)):
                    self.right.pack_block(block)
            left = self.left.in_place(group.row, target.shape[0], block) if blocking.in_place else None
            if left is None:
                self.left.lay_out(group.row, e.add(e.mul(group.count, group.height), group.rest), block)
            self.multiply(target, group, block, fresh, left)

    def are_few(self, rows: Range, dtype: DType) -> V | None:
        """True if the rows are few enough for a right operand that is not packed; None if they never are."""
        known, blocking = all(isinstance(bound, int) for bound in rows), self.blocking
        if self.few is None or known or blocking.span is not None or self.offset:
            return None
        if dtype != self.sums or not blocking.depth:
            return None
        return self.e.compare("icmp sle", self.e.index(self.e.sub(rows[1], rows[0])), i64(self.few.most))

    def few_products(self, limit: RowLimit, rows: Range) -> Iterator[Unpacked]:
        """The products of a few rows, each as an alternative for some numbers of rows."""
        e, fewer = self.e, limit.fewer
        if fewer is None:
            yield limit.product()
            return
        fits = e.compare("icmp sle", e.index(e.sub(rows[1], rows[0])), i64(fewer.most))
        for each, applies in ((fewer, fits), (limit, e.negated(fits))):
            with e.when(applies):
                yield each.product()

    def few_panels(
        self,
        product: Unpacked,
        rows: Range,
        place: Callable[[Int], V],
        stride: Int,
        fresh: bool,
        init: LazyArray | None,
    ) -> Iterator[tuple[Int, Int, int]]:
        """Compute a few rows, each as a panel; the other arguments, and what is yielded, are as in `panels`."""
        e, columns = self.e, self.rhs.columns
        found = product.run_rows(rows[0], e.sub(rows[1], rows[0]))
        with e.loop(rows[0], rows[1], 1) as row:
            target = StridedArray(place(row), (stride, 1), (1, columns), self.sums)
            if init is not None:
                self.start(target, rows_of(e, init, row, 1))
            sums = found(e.sub(row, rows[0]))

            def total(index: Sequence[Int], width: int) -> V:
                value = sums(index[1], width)
                return value if fresh else e.binary("fadd", value, target.at(e, index, width))

            write(e, LazyArray(target.type, total), target)
            yield 0, row, 1

    def excess(self, packed: V) -> StridedArray:
        """The part of each column of the sums that the left operand's offset adds."""
        e = self.e
        found = self.scope.arena.buffer(e, (1, self.rhs.columns), self.sums)
        row = self.scope.arena.buffer(e, (1, 1), self.blocking.word)
        row.put(e, (0, 0), V(str(int.from_bytes(bytes([self.offset] * self.joined), "little", signed=True)), I32), 1)
        for block in self.blocking.k_blocks(packed):
            self.multiply(found, RowGroup(0, 1), block, True, replace(row, strides=(0, 0)))
        return found

    def negated(self, excess: StridedArray) -> StridedArray:
        """The values that the sums of each row begin at, in place of their excess."""
        e = self.e

        def at(index: Sequence[Int], width: int) -> V:
            column = excess.at(e, index, width)
            return e.binary("sub", e.constant(0, column.type), column)

        write(e, LazyArray(excess.type, at), excess)
        return excess

    def less(self, init: LazyArray, excess: StridedArray) -> LazyArray:
        """The initial sums less the excess of their columns."""

        def at(index: Sequence[Int], width: int) -> V:
            column = excess.at(self.e, (0, index[1]), width)
            return self.e.binary("sub", init.at(index if init.shape else (), width), column)

        return LazyArray(ArrayType((self.lhs.rows, self.rhs.columns), self.sums), at)

    def row_groups(self, rows: Range, packed: V, needed: V | None) -> Iterator[RowGroup]:
        """Rows split into groups of panels. A remainder of unknown size is split into powers of two, for which the code
        around the micro-kernels is emitted once: LLVM takes longer for it than for these.

        Args:
            needed: whether the right operand must be packed. The first panel does that if it has enough rows.
        """
        e, whole, in_place, (low, high) = self.e, self.blocking.height, self.blocking.in_place, rows
        first, tall = low, i64(whole)
        if needed is not None:
            packs = self.right.packs_while_multiplying
            enough = e.compare("icmp sge", e.index(e.sub(high, low)), tall) if packs else FALSE
            both = e.binary("and", needed, enough)
            with e.when(e.binary("xor", needed, both)):
                self.right.pack(packed)
            if packs:
                with e.when(both):
                    yield RowGroup(low, whole, packs=True)
                first = e.add(low, e.select(both, tall, i64(0)))
        if in_place:
            with e.loop(0, self.lhs.rows, in_place) as group:
                for top, bottom, height in cut(in_place, whole):
                    with e.loop(e.add(group, top), e.add(group, bottom), height) as row:
                        yield RowGroup(row, height)
            return
        if isinstance(low, int) and isinstance(high, int):
            for top, bottom, height in cut(high - low, whole):
                start, stop = e.add(first if top == 0 else low, top), low + bottom
                if self.blocking.grouped and height == whole:
                    yield from self.groups(start, stop, stop)
                    continue
                with e.loop(start, stop, height) as row:
                    yield RowGroup(row, height)
            return
        count = e.index(e.sub(high, low))
        rest = e.binary("urem", count, tall)
        end = e.sub(high, rest)
        if self.blocking.grouped:
            yield from self.groups(first, end, high)
            return
        with e.loop(first, end, whole) as row:
            yield RowGroup(row, whole)
        for top, height in self.blocking.lower_panels(rest):
            yield RowGroup(e.add(end, top), height)

    def groups(self, first: Int, end: Int, high: Int) -> Iterator[RowGroup]:
        """Groups of whole panels; the last one, which may have none, has the rows beyond them too."""
        e, whole, together = self.e, self.blocking.height, self.blocking.together_now
        has_whole = e.compare("icmp slt", e.index(first), e.index(end))
        with e.loop(first, e.choose(has_whole, end, high), e.mul(together, whole)) as row:
            left = self.blocking.quotient(e.sub(end, row), whole)
            count = e.intrinsic("smin", I64, e.index(left), e.index(together))
            is_last = e.compare("icmp eq", e.index(e.add(row, e.mul(count, whole))), e.index(end))
            yield RowGroup(row, whole, count, e.choose(is_last, e.sub(high, end), 0))

    def multiply(
        self, target: StridedArray, group: RowGroup, block: KBlock, fresh: bool, left: StridedArray | None = None
    ) -> None:
        """Add the products of panels of rows, by default those laid out, with all panels of columns."""
        e, rows, blocking = self.e, left or self.left.buffer, self.blocking
        starts = block.starts if fresh else FALSE
        skips = block.begin is not block.first and not self.instruction
        skipped = e.mul(e.sub(block.begin, block.first) if skips else 0, rows.strides[1])
        rows = replace(rows, base=e.pointer(rows.base, skipped, blocking.word.itemsize))
        for start, end, vectors, width in blocking.column_panels():
            with e.loop(start, end, vectors * width) as column:
                self.streams.fetch_after_span(column)
                for n, first, height in self.panels_of(group):
                    mine = replace(rows, base=rows.address(e, (first, 0)))
                    sums = replace(target, base=target.address(e, (first, column)))
                    for tall in blocking.each_height(height):
                        if self.instruction:
                            self.multiply_tiles(sums, column, (tall, height, vectors), block, starts, mine)
                            continue
                        self.multiply_panels(sums, group, n, column, (tall, vectors, width), block, starts, mine)

    def multiply_tiles(
        self,
        sums: StridedArray,
        column: Int,
        size: tuple[int, Int, int],
        block: KBlock,
        starts: V,
        left: StridedArray,
    ) -> None:
        """Add the product of a panel of rows and a panel of columns, on tile registers.

        Args:
            size: the most rows, their number, and the vectors of each.
        """
        e, (tall, height, vectors) = self.e, size
        stride = e.index(e.mul(sums.strides[0], sums.dtype.itemsize))
        goes_on, given = self.blocking.read_once is not None, []
        kernel: PanelKernel
        if self.blocking.pieces > 1:
            in_place = self.lhs.columns if self.blocking.in_place else 0
            kernel = SplitKernel(tall, vectors, left.strides[0], goes_on, in_place)
            given = [e.index(height)]
        else:
            some, rounds = isinstance(height, V), sums.dtype != self.sums
            kernel = TileKernel(tall, vectors, left.strides[0], self.instruction, some, rounds)
            given = [e.index(height)] if some else []
        if kernel.name not in e.declared:
            text, needed = kernel.text
            e.declared.update({**needed, kernel.name: text})
        given = [left.base, self.right.panel(block, column), sums.base, stride, e.index(block.count), starts, *given]
        given += [e.negated(starts)] if goes_on else []
        if self.blocking.in_place and self.places is not None:
            given.append(e.pointer(self.places, divided(e, block.first)[0], PLACE_BYTES))
        e.line(f"call void @{kernel.name}({', '.join(map(str, given))})")

    def multiply_panels(
        self,
        sums: StridedArray,
        group: RowGroup,
        n: Int,
        column: Int,
        size: tuple[int, int, int],
        block: KBlock,
        starts: V,
        left: StridedArray,
    ) -> None:
        """Add the product of a panel of rows and a panel of columns."""
        e = self.e
        stride = e.index(e.mul(sums.strides[0], sums.dtype.itemsize))
        given = (
            f"{left.base}, {self.right.panel(block, column)}, {sums.base}, {stride}, {e.index(block.count)}, {starts}"
        )
        ahead = self.streams.of(block, group, n, column, size[0], left)
        given += ahead.arguments + (self.right.unpacked(block, column) if group.packs else "")
        if self.begin is not None:
            given += f", {self.begin.address(e, (0, column))}"
        name = self.kernel(size, left.strides, ahead, group.packs, sums.dtype != self.sums)
        e.line(f"call void @{name}({given})")

    def kernel(
        self, size: tuple[int, int, int], strides: tuple[Int, ...], ahead: Ahead, packs: bool, rounds: bool
    ) -> str:
        """The name of the micro-kernel for blocks of a number of rows, vectors and lanes."""
        height, vectors, width = size
        begins = self.begin is not None
        apart: tuple[int, int] = strides  # type: ignore[assignment]
        word = {2: "pairs", 4: "quads"}.get(self.joined, self.sums)
        name = f"multiply_{word}_{height}x{vectors}x{width}_{strides[0]}_{strides[1]}"
        streams = len(ahead.streams)
        name += (f"_ahead{streams}" if streams else "") + (f"_rows{ahead.rows}" if ahead.rows else "")
        name += ("_packs" if packs else "") + ("_rounds" if rounds else "") + ("_begins" if begins else "")
        declared, packed = self.e.declared, self.blocking.word
        if name not in declared:
            text, needed = micro_kernel(
                name, self.sums, packed, size, apart, streams, packs, rounds, self.joined, begins, ahead.rows
            )
            declared.update(needed)
            declared[name] = text
        return name
