"""The division of a matrix product into panels of rows, panels of columns and k-blocks, for registers and caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import cut, widths
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.products.operands import PackSource, Pair, Range
from palladio.cpu.products.tiles.kernel import TILE, TILES_ACROSS, TILES_DOWN
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

NEAR_BYTES = 1 << 14
"""The most memory that a panel of the left operand may span to be multiplied in place: it fits a first-level cache."""

MOST_TOGETHER = 4
"""The most panels of rows that are multiplied with a panel of columns, one after the other: of its reads from the last
level of cache a quarter is left."""

DEPTH_BYTES = 8192
"""Bytes of each row of the left operand that are laid out at a time: a panel of them stays in a second-level cache."""

SPLIT_STEPS = 512
"""The most steps, which are pairs, that are laid out at a time of an operand of several pieces. As many are summed
before the sum is added to those in memory, so that fewer roundings are of large numbers."""


NEAR_SHARE = 4
"""The part of the second level of cache, a quarter, that a k-block takes if it is read only once: so it is still there
when it is multiplied, and the next one takes its place there."""

LEAST_SHORT_STEPS = 64
"""The least steps of such a k-block. Each k-block loads all sums and stores them again."""


@dataclass(frozen=True)
class KBlock:
    """A range of steps along the summed axis that are multiplied together.

    Fields:
        first: the first step of the left operand that is laid out.
        laid: the number of steps that are laid out. On tiles, the steps after them are zero.
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
    room: Int
    starts: V


class Blocking:
    """The sizes of the parts of a product, and the loops over its k-blocks and panels of columns.

    Fields:
        pairs: the operands. Further pairs are further steps along the summed axis.
        lhs, rhs: the first pair.
        word: the dtype of an element of the packed operands.
        joined: the number of neighbours along the summed axis in an element.
        span: the steps where an operand may be nonzero.
        depth: the number of steps along the summed axis, of all pairs.
        vectors: the vectors of a whole panel of columns.
        height: the rows of a whole panel of rows.
        steps: the steps of a k-block.
        in_place: the rows of each of several left operands that are multiplied in place; 0 if they are laid out.
        far: whether the packed columns do not fit the second level of cache beside rows.
        grouped: whether some panels of rows, and the rows after the last one, are laid out at a time: columns that are
            far are multiplied with all of them, panel by panel.
        together: the most panels of rows that are laid out at a time.
        pieces: the number of words of an element of the packed operands. The tiles of the pieces
            of the same steps follow each other.
        short_steps: the steps of a packed k-block that only one group of rows reads; 0 if there are none.
        read_once: whether k-blocks are read by one group only, if that is known when the kernel runs.
        on_tiles: whether panels are multiplied on tile registers. A k-block then has whole tiles of steps: an operand
            that ends before is zero from there on.
    """

    def __init__(
        self,
        e: Emitter,
        pairs: Sequence[Pair],
        sums: DType,
        joined: int,
        span: Range | None,
        on_tiles: bool = False,
        pieces: int = 1,
    ) -> None:
        self.e = e
        self.on_tiles = on_tiles
        self.pieces = pieces
        self.pairs = pairs
        self.lhs, self.rhs = lhs, rhs = pairs[0]
        self.joined = joined
        self.word = dtypes.INT32 if joined > 1 else sums
        self.span = span if lhs.columns % registers.LANES == 0 and rhs.transposed is None else None
        self.depth = lhs.columns * len(pairs)
        height, wide = host.current().sums
        # Lanes of a vector may take several registers, but each vector takes one at least.
        size = max(registers.LANES * sums.itemsize, host.current().vector_bytes)
        self.vectors = max(1, wide // size)
        tallest = height * wide // (self.vectors * size)
        if on_tiles:
            self.vectors, tallest = TILES_ACROSS, TILE * min(TILES_DOWN, -(-lhs.rows // TILE))
        self.in_place = _rows_in_place(pairs, tallest * sums.itemsize, tallest) if joined == 1 else 0
        if pieces > 1 and lhs.in_place is not None:
            self.in_place = lhs.in_place.shape[-2]
        together = self.in_place or lhs.rows
        panels = max(1, -(-together // tallest))
        # About equal heights, as low panels cost nearly as much; tiles cost as much as whole ones.
        self.height = tallest if on_tiles else max(1, -(-together // panels))
        whole = lhs.columns if len(pairs) > 1 else 1  # a k-block's steps are a multiple of this
        most = whole if self.in_place else max(1, DEPTH_BYTES // (whole * sums.itemsize)) * whole
        most = SPLIT_STEPS if pieces > 1 else most
        blocks = max(1, -(-self.depth // most))
        granule = max(whole, TILE) if on_tiles and blocks > 1 else whole
        self.steps = max(1, -(-self.depth // granule // blocks)) * granule
        self.far = self.depth * rhs.columns * self.element_bytes >= host.current().near_bytes
        single = len(pairs) == 1 and self.span is None and lhs.transposed is None
        self.short_steps = self._short_steps() if single and pieces > 1 else 0
        self.read_once: V | None = None
        self.grouped = single and (self.far or self.short_steps > 0)
        self.together = self._together() if self.far and single else 1

    def _together(self) -> int:
        """As many panels of rows as fit half of the second level of cache, beside a panel of columns and the next."""
        fitting = host.current().near_bytes // (2 * self.steps * self.element_bytes) - 2 * self.wide
        return max(1, min(fitting // self.height, MOST_TOGETHER, self.lhs.rows // self.height))

    def _short_steps(self) -> int:
        """As many steps as `NEAR_SHARE` has room for, unless all steps fit twice of that."""
        if self.rhs.changes is None or self.depth % TILE or self.depth > self.steps:
            return 0
        fitting = host.current().near_bytes // (NEAR_SHARE * self.rhs.columns * self.element_bytes)
        steps = max(LEAST_SHORT_STEPS, fitting // TILE * TILE)
        return steps if 2 * steps < self.depth else 0

    @property
    def together_now(self) -> Int:
        """The most panels of rows that are laid out at a time in this step."""
        if self.read_once is None:
            return self.together
        return self.e.select(self.read_once, i64(MOST_TOGETHER), i64(self.together))

    @property
    def element_bytes(self) -> int:
        """The bytes of an element of the packed operands."""
        return self.word.itemsize * self.pieces

    @property
    def wide(self) -> int:
        """The columns of a whole panel."""
        return registers.LANES * self.vectors

    def padded(self, steps: int) -> int:
        """The steps that a k-block has room for: whole tiles."""
        return -(-steps // TILE) * TILE if self.on_tiles else steps

    @property
    def packed_depth(self) -> int:
        """The steps of all k-blocks of a packed operand."""
        return self.depth // self.steps * self.padded(self.steps) + self.padded(self.depth % self.steps)

    @property
    def lower_heights(self) -> list[int]:
        """The heights of panels of the last rows, if their number is not known: powers of two, the tallest first."""
        return [1 << bit for bit in reversed(range((self.height - 1).bit_length()))]

    def each_height(self, height: Int) -> Iterator[int]:
        """The height of a panel; for one of `lower_heights`, emit the code of each as an alternative.

        On tiles, an unknown height is rounded up to whole tiles.
        """
        if isinstance(height, int):
            yield height
            return
        if self.on_tiles:
            for tall in range(TILE, self.height + 1, TILE):
                fits = self.e.compare("icmp ule", self.e.binary("sub", height, i64(tall - TILE + 1)), i64(TILE - 1))
                with self.e.when(fits):
                    yield tall
            return
        for each in self.lower_heights:
            with self.e.when(self.e.compare("icmp eq", height, i64(each))):
                yield each

    def lower_panels(self, rest: Int) -> Iterator[tuple[Int, Int]]:
        """The lower panels of some rows, the first row and the height of each; their code is emitted once."""
        heights, e = self.lower_heights, self.e
        if self.on_tiles and rest != 0:
            with e.when(e.compare("icmp ne", e.index(rest), i64(0))):
                yield 0, e.index(rest)
            return
        if not heights or rest == 0:
            return
        with e.loop(0, len(heights)) as n:
            height = e.binary("lshr", i64(heights[0]), e.index(n))
            with e.when(e.compare("icmp ne", e.binary("and", e.index(rest), height), i64(0))):
                yield e.binary("and", e.index(rest), e.index(e.mul(height, -2))), height

    @property
    def room(self) -> int:
        """The most rows of a group of panels."""
        together = MOST_TOGETHER if self.short_steps else self.together
        return together * self.height + (self.height if self.grouped else 0)

    @property
    def calls(self) -> int:
        """The number of panels of columns."""
        return sum(-(-(end - start) // (vectors * width)) for start, end, vectors, width in self.column_panels())

    def column_panels(self) -> Iterator[tuple[int, int, int, int]]:
        """Ranges of columns with equal panels: (first, end, vectors of a panel, lanes of a vector)."""
        for start, end, width in widths(self.rhs.columns):
            vectors = self.vectors if width == registers.LANES else 1
            for first, stop, size in cut(end - start, width * vectors):
                if size == width * vectors:
                    yield start + first, start + stop, vectors, width
                else:
                    yield start + first, start + stop, 1, width

    def k_blocks(self, packed: V) -> Iterator[KBlock]:
        """The k-blocks of the summed axis."""
        if self.span is not None:
            yield from self.k_blocks_of_span(self.span, packed)
            return
        if self.read_once is not None:
            yield from self.k_blocks_read_once(self.read_once, packed)
            return
        if len(self.pairs) > 1:
            for first in range(0, self.depth, self.steps):
                yield self.k_block(packed, first, min(self.steps, self.depth - first))
            return
        for first, stop, steps in cut(self.depth, self.steps):
            with self.e.loop(first, stop, steps) as k:
                yield self.k_block(packed, k, steps)

    def k_blocks_read_once(self, read_once: V, packed: V) -> Iterator[KBlock]:
        """The k-blocks. Those that are read once are shorter, and all in one place."""
        e = self.e
        steps = e.select(read_once, i64(self.short_steps), i64(self.steps))
        apart = e.select(read_once, i64(0), i64(self.rhs.columns))
        with e.loop(0, self.quotient(e.add(steps, self.depth - 1), steps)) as n:
            k = e.mul(n, steps)
            count = e.intrinsic("smin", I64, steps, e.index(e.sub(self.depth, k)))
            place = e.pointer(packed, e.mul(k, apart), self.element_bytes)
            yield KBlock(k, count, k, count, place, count, e.compare("icmp eq", e.index(n), i64(0)))

    def k_block(self, packed: V, k: Int, steps: int) -> KBlock:
        """A k-block of all steps in a range, packed after the steps before it."""
        place = self.e.pointer(packed, self.e.mul(k, self.rhs.columns), self.element_bytes)
        starts = self.e.compare("icmp eq", self.e.index(k), i64(0))
        return KBlock(k, steps, k, self.padded(steps), place, self.padded(steps), starts)

    @property
    def span_steps(self) -> int:
        """The steps of a k-block of a span: whole vectors of the left operand."""
        return -(-self.steps // registers.LANES) * registers.LANES

    def k_blocks_of_span(self, span: Range, packed: V) -> Iterator[KBlock]:
        """The k-blocks of a span, extended to whole vectors of the left operand unless that is read by columns."""
        e, steps = self.e, self.span_steps
        lanes = 1 if self.lhs.transposed and not self.on_tiles else registers.LANES
        low, high = map(e.index, span)
        aligned = e.binary("and", low, i64(-lanes))
        aligned_end = e.binary("and", e.index(e.add(high, lanes - 1)), i64(-lanes))
        some = e.compare("icmp slt", low, high)
        laid_end = high if self.on_tiles else aligned_end
        if self.on_tiles:  # both operands are zero beyond the span
            low, high = aligned, aligned_end
        with e.loop(aligned, e.select(some, high, aligned), steps) as k:
            begin = e.intrinsic("smax", I64, e.index(k), low)
            end = e.intrinsic("smin", I64, e.index(e.add(k, steps)), high)
            # Memory that is read by columns may end with the span.
            laid = e.intrinsic("smin", I64, i64(steps), e.index(e.sub(laid_end, k)))
            place = e.pointer(packed, e.mul(e.sub(k, aligned), self.rhs.columns), self.element_bytes)
            first = e.compare("icmp eq", e.index(k), aligned)
            count = e.sub(end, begin)
            # Panels follow each other: with room for all steps they would compete for the same few sets of a cache.
            yield KBlock(k, laid, begin, count, place, count, first)

    def parts(self, block: KBlock) -> Iterator[tuple[PackSource, PackSource, int, Int, Int]]:
        """The parts of a k-block by pair of operands: the pair, the first step in the k-block and in it, the steps."""
        if len(self.pairs) == 1:
            yield self.lhs, self.rhs, 0, block.first, block.laid
            return
        size, first, laid = self.lhs.columns, block.first, block.laid
        for n in range(first // size, (first + laid) // size):  # type: ignore[operator]
            yield *self.pairs[n], n * size - first, 0, size  # type: ignore[operator]

    def quotient(self, x: Int, y: Int) -> Int:
        """The quotient of two integers, rounded down."""
        known = isinstance(x, int) and isinstance(y, int)
        return x // y if known else self.e.binary("udiv", self.e.index(x), self.e.index(y))  # type: ignore[operator]


def _rows_in_place(pairs: Sequence[Pair], column_bytes: int, tallest: int) -> int:
    """The rows of each of several left operands, if they are evenly spaced and close together; else 0.

    If one operand is another one shifted, copies of them side by side would copy the same rows again and again.

    Args:
        column_bytes: the bytes of a column of the tallest panel.
    """
    found = [lhs.in_place for lhs, _ in pairs]
    lying = [array for array in found if array is not None and all(isinstance(n, int) for n in array.strides)]
    if len(pairs) < 2 or len(lying) < len(pairs):
        return 0
    forms = {(array.shape, array.strides) for array in lying}
    (*_, rows, _), (*_, between, step) = lying[0].shape, lying[0].strides
    near = 0 < column_bytes * between <= NEAR_BYTES  # type: ignore[operator]
    return rows if len(forms) == 1 and near and step == 1 and rows >= tallest // 2 else 0
