"""The operands of a matrix product as micro-kernels read them: panels of rows, and packed panels of columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from palladio.cpu.access.views import renumbered
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import StridedArray, cut, fill, widths
from palladio.cpu.emit.llvm_types import I32, I64, PTR, vector
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.blocking import MOST_TOGETHER, Blocking, KBlock
from palladio.cpu.products.micro_kernel import LINE_BYTES, transposed
from palladio.cpu.products.operands import PackSource, Range
from palladio.cpu.products.tiles.kernel import TILE, divided
from palladio.types.dtypes import DType

KEPT_BYTES = 8 << 20
"""Bytes of packed blocks that a thread keeps for one product."""

# Rows a multiple of the page size apart would evict each other from the cache.
_APART = 16

COLUMNS_AHEAD = 8
"""The prefetch distance, in steps, of columns that are laid out."""

TOGETHER = 8
"""Rows of the right operand that are packed together, while those of the next turn are prefetched."""


class RowPanel:
    """Panels of rows of the left operand, in a buffer or in place."""

    def __init__(self, scope: Scope, blocking: Blocking) -> None:
        self.e = scope.e
        self.blocking = blocking
        # By rows, or by columns if the operand is read by columns, or by tiles, one after the other along the rows.
        height, steps = blocking.height, blocking.steps
        apart = blocking.padded(steps) if blocking.on_tiles else steps + _APART
        apart *= blocking.pieces
        room = scope.arena.buffer(self.e, (blocking.room * apart,), blocking.word)
        by_columns = blocking.lhs.transposed is not None and not blocking.on_tiles
        strides = (1, height) if by_columns else (apart, 1)
        self.buffer = StridedArray(room.base, strides, (height, steps), blocking.word)

    def put(self, row: Int, step: Int, values: Sequence[V], width: int) -> None:
        """Write the pieces of a row at a step, or at several steps, which do not reach into the next tile."""
        if self.blocking.on_tiles:
            place = self.by_tiles(0).address(self.e, self.tile_index(row, step))
            _put_pieces(self.e, place, TILE**2, values, self.buffer.dtype, width)
        else:
            (value,) = values
            self.buffer.put(self.e, (row, step), value, width)

    def by_tiles(self, piece: int) -> StridedArray:
        """The buffer of a piece by tiles: rows of tiles, tiles along the rows, rows in a tile, words."""
        e, pieces, dtype = self.e, self.blocking.pieces, self.buffer.dtype
        base = e.pointer(self.buffer.base, piece * TILE**2, dtype.itemsize)
        strides = e.mul(TILE, self.buffer.strides[0]), pieces * TILE**2, TILE, 1
        return StridedArray(base, strides, (1, 1, TILE, TILE), dtype)

    def tile_index(self, row: Int, step: Int) -> tuple[Int, Int, Int, Int]:
        """The index among the tiles of the word of a row at a step; one that is not known is a multiple of 16."""
        e = self.e
        above, inside = divided(e, row)
        before, word = divided(e, step)
        return above, before, inside, word if isinstance(step, int) else 0

    def in_place(self, row: Int, height: int, block: KBlock) -> StridedArray | None:
        """Some rows of a left operand, in place."""
        lhs = self.blocking.lhs
        array = self.blocking.pairs[block.first // lhs.columns][0].in_place  # type: ignore[operator]
        if array is None:
            return None
        *_, between, step = array.strides
        index = renumbered(self.e, [row], (lhs.rows,), array.shape[:-1])
        return StridedArray(array.address(self.e, (*index, 0)), (between, step), (height, array.shape[-1]), array.dtype)

    def lay_out(self, row: Int, height: Int, block: KBlock) -> None:
        """Copy the rows, of one panel or of several, to the buffer."""
        for lhs, _, place, k, count in self.blocking.parts(block):
            self.lay_out_part(lhs, row, height, place, k, count)
        rest = self.blocking.padded(block.laid) - block.laid if isinstance(block.laid, int) else 0
        if rest:
            e = self.e
            with e.loop(0, height) as r:
                for piece in range(self.blocking.pieces):
                    place = self.by_tiles(piece).address(e, self.tile_index(r, block.laid))
                    fill(e, StridedArray(place, (rest, 1), (1, rest), self.blocking.word), 0)

    def lay_out_part(self, lhs: PackSource, row: Int, height: Int, place: int, k: Int, count: Int) -> None:
        """Lay out `count` steps of a left operand from `k` on, at `place`."""
        e = self.e
        if lhs.transposed is not None and self.blocking.on_tiles:
            if isinstance(height, int):
                self.lay_out_squares(lhs, row, height, place, k, count)
                return
        elif lhs.transposed is not None:
            for each in self.blocking.each_height(height):
                self.lay_out_columns(lhs, row, each, place, k, count)
            return
        # The last vector of an unknown count may reach past it: there are whole vectors in each row.
        known = isinstance(count, int)
        for start, end, width in widths(count) if known else ((0, count, registers.LANES),):  # type: ignore[arg-type]
            with e.loop(0, height) as r, e.loop(start, end, width) as step:
                values = lhs.words(e, e.add(row, r), e.add(k, step), width)
                self.put(r, e.add(step, place), values, width)

    def lay_out_columns(self, lhs: PackSource, row: Int, height: int, place: int, k: Int, count: Int) -> None:
        """Lay out `count` steps of a left operand that is read by columns."""
        e, buffer, at = self.e, self.buffer, lhs.transposed or lhs.element
        flipped = StridedArray(buffer.base, buffer.strides[::-1], buffer.shape[::-1], buffer.dtype)
        with e.loop(0, count) as step:
            self.prefetch_columns(lhs, row, height, e.add(e.add(k, step), COLUMNS_AHEAD))
            for start, end, width in widths(height):
                for r in range(start, end, width):
                    flipped.put(e, (e.add(step, place), r), at(e.add(row, r), e.add(k, step), width), width)

    def lay_out_squares(self, lhs: PackSource, row: Int, height: int, before: int, k: Int, count: Int) -> None:
        """Lay out `count` steps of a left operand that is read by columns, which are transposed in registers."""
        e = self.e
        if isinstance(count, V):
            whole = e.binary("and", count, i64(-TILE))
            self.lay_out_rest(lhs, row, height, k, (whole, count))
        for start, end, size in cut(count, TILE) if isinstance(count, int) else ((0, whole, TILE),):
            with e.loop(start, end, size) as step:
                for top, bottom, width in widths(height):
                    with e.loop(top, bottom, width) as r:
                        first, at = e.add(row, r), e.add(k, step)
                        columns = [lhs.words_across(e, first, e.add(at, s), width) for s in range(size)]
                        for piece, words in enumerate(zip(*columns, strict=True)):
                            self.put_columns(piece, list(words), r, e.add(step, before), width)

    def lay_out_rest(self, lhs: PackSource, row: Int, height: int, k: Int, steps: tuple[V, V]) -> None:
        """Lay out the steps of the last tile of a range, if they are fewer than a tile has, and zeros after them.

        Args:
            steps: the first one, a multiple of 16, and the end.
        """
        e, (first, end) = self.e, steps
        with e.when(e.compare("icmp ne", first, end)):
            with e.loop(0, height) as r:
                self.put(r, first, [e.constant(0, vector(I32, TILE))] * self.blocking.pieces, TILE)
            with e.loop(first, end) as step:
                for top, bottom, width in widths(height):
                    with e.loop(top, bottom, width) as r:
                        words = lhs.words_across(e, e.add(row, r), e.add(k, step), width)
                        for n, piece in itertools.product(range(width), range(len(words))):
                            above, before, inside, _ = self.tile_index(e.add(r, n), first)
                            place = above, before, inside, e.sub(step, first)
                            self.by_tiles(piece).put(e, place, e.lane(words[piece], n), 1)

    def put_columns(self, piece: int, columns: list[V], row: Int, step: Int, width: int) -> None:
        """Write a piece of some steps of some rows, whose words at each step are in a vector."""
        e, size, to = self.e, len(columns), self.by_tiles(piece)
        if size == width == TILE:
            for n, value in enumerate(transposed(e, columns)):
                to.put(e, self.tile_index(e.add(row, n), step), value, width)
            return
        for n in range(width):
            above, before, inside, word = self.tile_index(e.add(row, n), step)
            for s, value in enumerate(columns):
                to.put(e, (above, before, inside, e.add(word, s)), e.lane(value, n), 1)

    def prefetch_columns(self, lhs: PackSource, row: Int, height: int, step: Int) -> None:
        """Prefetch a step of some rows that are neighbours in memory, in which each step is on a page of its own."""
        if lhs.near_columns is None:
            return
        for n in range(self.blocking.joined):
            for r in {0, height - 1}:
                k = self.e.add(self.e.mul(step, self.blocking.joined), n)
                self.e.prefetch(lhs.near_columns.address(self.e, (self.e.add(row, r), k)), level=1)


class ColumnPanels:
    """The right operand, packed into panels of columns: for each k-block, panel by panel, step by step.

    A block of an array that nothing writes stays packed for later steps with the same block.
    """

    def __init__(self, scope: Scope, blocking: Blocking, sums: DType) -> None:
        self.scope = scope
        self.e = scope.e
        self.blocking = blocking
        self.sums = sums

    @property
    def packs_while_multiplying(self) -> bool:
        """True if a panel of rows can pack the right operand while it is multiplied.

        That takes the time of the longer one of both. But it reads a few columns of each row at a time, which is slow
        from memory.
        """
        blocking = self.blocking
        return (
            len(blocking.pairs) == 1
            and not blocking.on_tiles
            and not (self.is_far(blocking.rhs) and blocking.joined == 1)
            and blocking.rhs.plain is not None
            and blocking.rhs.columns % blocking.wide == 0
            and blocking.lhs.rows >= blocking.height
        )

    def is_far(self, rhs: PackSource) -> bool:
        """True if the rows of a right operand are read from memory, or from the last level of cache."""
        return rhs.near is not None and (self.blocking.far or any(memory.large for memory in rhs.reads))

    def is_read_once(self, rows: Range) -> V | None:
        """True if one group of rows, and no later step, reads the right operand if it is packed now; None if that is
        not known."""
        e, blocking, (low, high) = self.e, self.blocking, rows
        most = (MOST_TOGETHER + 1) * blocking.height
        if not blocking.short_steps or blocking.rhs.changes is None:
            return None
        if isinstance(low, int) and isinstance(high, int):  # the rows after whole panels are a group of their own
            count = high - low
            is_one_group = count <= blocking.height or (count % blocking.height == 0 and count < most)
            return blocking.rhs.changes if is_one_group else None
        fits = e.compare("icmp slt", e.index(e.sub(high, low)), i64(most))
        return e.binary("and", fits, blocking.rhs.changes)

    def packed(self, unless: V | None = None) -> tuple[V, V]:
        """The address of the packed right operand, and whether it must be packed, which is false if it still is: then
        its k-blocks are not in one place.

        Args:
            unless: a condition of the running kernel under which it will not be packed.
        """
        blocking = self.blocking
        size = max(1, blocking.packed_depth * blocking.rhs.columns * blocking.pieces)
        steady, notes = [rhs.steady for _, rhs in blocking.pairs if rhs.steady is not None], self.scope.function.notes
        is_steady = len(steady) == len(blocking.pairs)
        slot, slots = self.scope.function.innermost
        if not is_steady or slots * size * self.sums.itemsize > KEPT_BYTES:
            slot, slots = 0, 1
        if slots > 1:
            blocking.read_once = None
        room = self.scope.arena.buffer(self.e, (slots, size), blocking.word)
        place = room.address(self.e, (slot, 0))
        noted = notes.take(slots * len(steady)) if is_steady and notes is not None else None
        if noted is None:
            return place, TRUE
        needed: V | None = None
        for n, ((_, rhs), source) in enumerate(zip(blocking.pairs, steady, strict=True)):
            self.scope.function.packed.update(rhs.reads)
            address = noted.address(self.e, (self.e.add(self.e.mul(slot, len(steady)), n),))
            mine = self.noted(source, address, unless)
            needed = mine if needed is None else self.e.binary("or", needed, mine)
        return place, needed or TRUE

    def noted(self, steady: StridedArray, note: V, unless: V | None = None) -> V:
        """Record that a block is packed now; returns whether it differs from the block recorded last.

        A block that reaches past the edge of its array is a copy in the arena and changes: it is never recorded. Nor is
        one that is read once, as its k-blocks take each other's place.
        """
        e = self.e
        key = e.value(I64, f"ptrtoint {steady.base} to i64")
        arena = e.value(I64, f"ptrtoint {self.scope.arena.base} to i64")
        size = e.load(I64, V("@arena_size", PTR), 8)
        elsewhere = e.compare("icmp uge", e.binary("sub", key, arena), size)
        before = e.load(I64, note, 8)
        same = e.compare("icmp eq", key, before)
        kept = e.binary("and", same, elsewhere)
        read_once = self.blocking.read_once
        if read_once is not None:
            self.blocking.read_once = read_once = e.binary("and", read_once, e.negated(kept))
        stays = elsewhere if read_once is None else e.binary("and", elsewhere, e.negated(read_once))
        after = e.select(stays, key, i64(0))
        e.store(after if unless is None else e.select(unless, before, after), note, 8)
        return e.negated(kept)

    def packed_span(self, span: Range) -> V:
        """Pack the steps of a span of the right operand; returns their address."""
        blocking, rhs = self.blocking, self.blocking.rhs
        blocks = -(-blocking.depth // blocking.span_steps)
        size = blocks * blocking.span_steps * rhs.columns * blocking.pieces
        room = self.scope.arena.buffer(self.e, (size,), blocking.word)
        for block in blocking.k_blocks_of_span(span, room.base):
            steps = self.e.index(block.laid if blocking.on_tiles else block.count)
            whole = self.e.binary("and", steps, i64(-TOGETHER))
            self.pack_steps(block, rhs, 0, whole, TOGETHER)
            self.pack_steps(block, rhs, whole, steps, 1)
            if blocking.on_tiles:
                self.clear_rest(block)
        return room.base

    def pack(self, place: V) -> None:
        """Pack the right operand.

        Contiguous rows are read several whole ones at a time: read panel by panel, every few bytes would be on another
        page. Contiguous columns are read panel by panel, for the same reason.
        """
        e, blocking = self.e, self.blocking
        if len(blocking.pairs) > 1:
            for block in blocking.k_blocks(place):
                for _, rhs, first, k, count in blocking.parts(block):
                    for top, bottom, size in cut(count, _together(rhs)):  # type: ignore[arg-type]
                        self.pack_steps(block, rhs, first + top, first + bottom, size, e.sub(k, first))
                self.clear_rest(block)
            return
        for first, stop, steps in cut(blocking.depth, blocking.steps):
            for top, bottom, size in cut(steps, _together(blocking.rhs)):
                with e.loop(first, stop, steps) as k:
                    self.pack_steps(blocking.k_block(place, k, steps), blocking.rhs, top, bottom, size)
            if blocking.padded(steps) != steps:
                with e.loop(first, stop, steps) as k:
                    self.clear_rest(blocking.k_block(place, k, steps))

    def pack_block(self, block: KBlock) -> None:
        """Pack a k-block of whole tiles."""
        rhs = self.blocking.rhs
        self.pack_steps(block, rhs, 0, block.laid, _together(rhs))

    def clear_rest(self, block: KBlock) -> None:
        """Clear the steps of a k-block after those that are laid out, which fill up whole tiles."""
        e = self.e
        if block.laid == block.count:
            return
        for start, end, vectors, width in self.blocking.column_panels():
            zeros = [e.constant(0, vector(I32, width))] * self.blocking.pieces
            with e.loop(start, end, vectors * width) as column, e.loop(block.laid, block.count) as step:
                place = self.step(self.panel(block, column), step, vectors * width)
                rows = StridedArray(place, (vectors * width, 1), (1, vectors * width), self.blocking.word)
                for n in range(vectors):
                    self.put(rows, (0, n * width), zeros, width)

    def pack_steps(
        self, block: KBlock, rhs: PackSource, top: Int, bottom: Int, size: int, begin: Int | None = None
    ) -> None:
        """Pack steps of a k-block, from `top` below `bottom`, `size` at a time.

        Args:
            begin: the operand's step at the first step of the k-block; `block.begin` by default.
        """
        e, word = self.e, self.blocking.word

        def pack(step: Int, column: Int, vectors: int, width: int) -> None:
            base = self.step(self.panel(block, column), step, vectors * width)
            rows = StridedArray(base, (vectors * width, 1), (size, vectors * width), word)
            k = e.add(block.begin if begin is None else begin, step)
            self.pack_panel(rhs, rows, k, column, vectors, width)

        if rhs.transposed is None:
            with e.loop(top, bottom, size) as step:
                for start, end, vectors, width in self.blocking.column_panels():
                    with e.loop(start, end, vectors * width) as column:
                        pack(step, column, vectors, width)
            return
        for start, end, vectors, width in self.blocking.column_panels():
            with e.loop(start, end, vectors * width) as column, e.loop(top, bottom, size) as step:
                pack(step, column, vectors, width)

    def panel(self, block: KBlock, column: Int) -> V:
        """The address of the panel of some columns."""
        return self.e.pointer(block.packed, self.e.mul(column, block.room), self.blocking.element_bytes)

    def step(self, panel: V, step: Int, columns: int) -> V:
        """The address of the first piece of a step of a panel of some columns."""
        e, more = self.e, self.blocking.pieces - 1
        before = e.mul(divided(e, step)[0], more * TILE) if more else 0
        return e.pointer(panel, e.mul(e.add(step, before), columns), self.blocking.word.itemsize)

    def pack_panel(self, rhs: PackSource, panel: StridedArray, k: Int, column: Int, vectors: int, width: int) -> None:
        """Pack some steps of a panel."""
        e, steps = self.e, panel.shape[0]
        if rhs.transposed is not None and width > 1:
            for n in range(vectors):
                for first, stop, size in cut(steps, width):
                    with e.loop(first, stop, size) as step:
                        self.pack_square(rhs, panel, (k, step), (column, n * width), size, width)
            return
        with e.loop(0, steps) as step:
            if self.is_far(rhs) and steps == TOGETHER:
                self.prefetch_row(rhs, e.add(k, e.add(step, TOGETHER)), column, vectors * width)
            for n in range(vectors):
                values = rhs.words(e, e.add(k, step), e.add(column, n * width), width)
                self.put(panel, (step, n * width), values, width)

    def put(self, panel: StridedArray, index: tuple[Int, int], values: Sequence[V], width: int) -> None:
        """Write the pieces of some columns of a panel at a step."""
        _put_pieces(self.e, panel.address(self.e, index), TILE * panel.shape[1], values, panel.dtype, width)

    def prefetch_row(self, rhs: PackSource, k: Int, column: Int, columns: int) -> None:
        """Prefetch some columns of a step."""
        if rhs.near is None:
            return
        row, itemsize = self.e.mul(k, self.blocking.joined), rhs.near.dtype.itemsize
        for first in range(0, columns, LINE_BYTES // itemsize):
            for n in range(self.blocking.joined):
                place = rhs.near.address(self.e, (self.e.add(row, n), self.e.add(column, first)))
                self.e.prefetch(place, level=1)

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
        k, first = e.add(*step), e.add(*column)
        rows = (
            (rhs.words(e, e.add(k, s), first, width) for s in range(size))
            if size < width
            else rhs.square(e, k, first, width)
        )
        for s, row in enumerate(rows):
            self.put(panel, (e.add(step[1], s), column[1]), row, width)

    def unpacked(self, block: KBlock, column: Int) -> str:
        """The arguments of a micro-kernel for the unpacked rows of a panel that it packs."""
        e, plain = self.e, self.blocking.rhs.plain
        if plain is None:
            return ""
        row = e.mul(block.begin, self.blocking.joined)
        return f", {plain.address(e, (row, column))}, {e.index(e.mul(plain.strides[0], plain.dtype.itemsize))}"


def _put_pieces(e: Emitter, place: V, apart: int, values: Sequence[V], dtype: DType, width: int) -> None:
    """Write vectors, the second and later ones at a distance of some elements from the one before."""
    for piece, value in enumerate(values):
        base = e.pointer(place, piece * apart, dtype.itemsize)
        StridedArray(base, (1,), (width,), dtype).put(e, (0,), value, width)


def _together(rhs: PackSource) -> int:
    """The steps of a right operand that are packed together."""
    return TOGETHER if rhs.transposed is None else registers.LANES
