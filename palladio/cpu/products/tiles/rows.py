"""Products of a few rows on tile registers: a matrix of bfloat16 is read in place, and once.

Packing a matrix that does not fit a cache takes longer than reading it. So a kernel reads 64 rows of it side by side,
32 columns at a time, joins them into pairs in a few KiB, and multiplies these with all rows of the left operand. The
sums of a block of columns are in memory as whole tiles, one after the other: rows apart would be on as many pages as
those of the matrix, more than the first level of the TLB has entries. While a block is multiplied, the next one is
joined: each instruction on tiles stands between those for two rows, or the memory would be idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import StridedArray
from palladio.cpu.emit.llvm_types import I16, I64, PTR, vector
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.operands import PackSource, RowReader
from palladio.cpu.products.tiles.kernel import LEFT, RIGHT, ROW_BYTES, TILE, configure, divided, release, tile
from palladio.types import dtypes

PART = 2 * TILE
"""The rows of a matrix that one instruction multiplies, and the columns of a block."""

AHEAD = 2
"""The prefetch distance in blocks: 8 KiB."""

_TILE = TILE * ROW_BYTES
"""The bytes of a whole tile."""


@dataclass(frozen=True)
class TileRowKernel:
    """A function that multiplies a few rows, laid out as tiles, with a matrix.

    Fields:
        tiles: the tiles along the rows of the left operand.
        parts: the parts of the matrix, of 32 rows each, that are multiplied before the sums are stored.
    """

    tiles: int
    parts: int

    @property
    def name(self) -> str:
        return f"multiply_rows_on_tiles_{self.tiles}x{self.parts}"

    @property
    def bytes_of_block(self) -> int:
        """The bytes of a block of the matrix, joined into pairs."""
        return self.parts * 2 * _TILE

    @property
    def text(self) -> tuple[str, dict[str, str]]:
        """The function, and its declarations.

        Its arguments are the left operand, the matrix, the bytes between the rows of the matrix, the address of the
        rows that are read next, the number of columns, at least 32, the number of times that `parts` are multiplied,
        the sums, and room for two blocks.
        """
        e = Emitter()
        e.declared["no_sums"] = f"@no_sums = internal constant [{_TILE} x i8] zeroinitializer, align {ROW_BYTES}"
        e.label("entry")
        _Body(e, self).emit()
        parameters = "ptr noalias readonly %lhs, ptr noalias readonly %matrix, i64 %row, ptr %after, i64 %columns, "
        parameters += "i64 %turns, ptr noalias %sums, ptr noalias %room"
        head = f"define internal void @{self.name}({parameters}) noinline nounwind"
        return "\n".join([head + " {", *e.lines, "  ret void", "}"]), e.declared


class _Body:
    """The instructions of a kernel."""

    def __init__(self, e: Emitter, kernel: TileRowKernel) -> None:
        self.e = e
        self.kernel = kernel
        self.row = V("%row", I64)
        self.whole = e.index(e.mul(V("%columns", I64), 2))

    def emit(self) -> None:
        e, kernel, matrix, room = self.e, self.kernel, V("%matrix", PTR), V("%room", PTR)
        blocks = e.binary("udiv", e.index(e.add(self.whole, ROW_BYTES - 1)), i64(ROW_BYTES))
        with e.loop(0, kernel.parts * TILE) as pair:
            self.join_rows(e.pointer(matrix, e.mul(pair, e.mul(self.row, 2)), 1), room, pair)
        with e.loop(0, V("%turns", I64)) as turn:
            here = e.pointer(matrix, e.mul(self.row, e.mul(turn, kernel.parts * PART)), 1)
            below = e.pointer(here, e.mul(self.row, kernel.parts * PART), 1)
            ends = e.compare("icmp eq", e.index(e.add(turn, 1)), V("%turns", I64))
            later, following = e.select(ends, V("%after", PTR), below), e.select(ends, here, below)
            left = e.pointer(V("%lhs", PTR), e.mul(turn, kernel.parts * kernel.tiles * _TILE), 1)
            starts = e.compare("icmp eq", e.index(turn), i64(0))
            with e.loop(0, blocks) as block:
                odd = e.binary("and", e.index(e.add(e.mul(turn, blocks), block)), i64(1))
                joined = e.pointer(room, e.mul(odd, kernel.bytes_of_block), 1)
                joins = e.pointer(room, e.mul(e.binary("xor", odd, i64(1)), kernel.bytes_of_block), 1)
                after = e.add(block, 1)
                source = self.choose(after, here, following, self.start_of(after))
                ahead = e.mul(e.add(block, AHEAD), ROW_BYTES)
                fetched = self.choose(e.add(block, AHEAD), here, e.pointer(later, e.sub(0, self.whole), 1), ahead, True)
                sums = e.pointer(V("%sums", PTR), e.mul(block, 2 * kernel.tiles * _TILE), 1)
                self.multiply(left, joined, sums, starts, self.join(source, joins, fetched))

    def start_of(self, block: Int) -> V:
        """The byte offset of a block of columns: the last one has some columns of the one before if it must."""
        e = self.e
        last = e.index(e.sub(self.whole, ROW_BYTES))
        return e.intrinsic("smin", I64, e.index(e.mul(block, ROW_BYTES)), last)

    def choose(self, block: Int, here: V, there: V, offset: Int, past: bool = False) -> V:
        """The address of a block of some rows, or past their end of other ones.

        Args:
            past: whether the offset counts on from the end.
        """
        e = self.e
        inside = e.compare("icmp slt", e.index(e.mul(block, ROW_BYTES)), self.whole)
        if past:
            return e.pointer(e.select(inside, here, there), offset, 1)
        return e.select(inside, e.pointer(here, offset, 1), there)

    def join(self, source: V, target: V, ahead: V) -> Iterator[None]:
        """Join a block of the matrix into pairs, two rows at a time, and prefetch another one."""
        e = self.e
        for pair in range(self.kernel.parts * TILE):
            self.join_rows(source, target, pair)
            source = e.pointer(source, e.mul(self.row, 2), 1)
            for _ in range(2):
                e.prefetch(ahead, level=2)
                ahead = e.pointer(ahead, self.row, 1)
            yield

    def join_rows(self, source: V, target: V, pair: Int) -> None:
        """Join two rows of a block into pairs."""
        e, type = self.e, vector(I16, PART)
        x, y = (e.load(type, place, 2) for place in (source, e.pointer(source, self.row, 1)))
        for half in range(2):
            lanes = ", ".join(f"i32 {half * TILE + n}, i32 {PART + half * TILE + n}" for n in range(TILE))
            both = e.value(type, f"shufflevector {x}, {y}, <{PART} x i32> <{lanes}>")
            e.store(both, e.pointer(target, e.mul(e.add(e.mul(pair, 2), half), ROW_BYTES), 1), ROW_BYTES)

    def multiply(self, left: V, joined: V, sums: V, starts: V, join: Iterator[None]) -> None:
        """Multiply a block with all rows, two tiles of these at a time, while another one is joined."""
        kernel = self.kernel
        pairs = -(-kernel.tiles // 2)
        for number in range(pairs):
            down = min(2, kernel.tiles - 2 * number)
            place = self.e.pointer(sums, 2 * number * _TILE, 1)
            for part in range(kernel.parts):
                rows = self.e.pointer(left, (part * kernel.tiles + 2 * number) * _TILE, 1)
                columns = self.e.pointer(joined, part * 2 * _TILE, 1)
                work = self.instructions(rows, columns, (place, starts), part, down)
                slots = TILE // pairs
                done = 0
                for slot in range(slots):
                    next(join, None)
                    while done * slots < (slot + 1) * len(work):
                        work[done]()
                        done += 1
        for _ in join:
            pass

    def instructions(self, rows: V, columns: V, sums: tuple[V, V], part: int, down: int) -> list[Callable[[], None]]:
        """The instructions that multiply a part of a block with up to two tiles of rows, in order.

        Args:
            sums: the address of the sums, and whether they begin at zero.
        """
        e, (place, starts), stride = self.e, sums, i64(ROW_BYTES)
        zeros, found = V("@no_sums", PTR), []

        def of_sums(r: int, n: int) -> V:
            return e.pointer(place, (n * self.kernel.tiles + r) * _TILE, 1)

        def load_sums(r: int, n: int) -> None:
            tile(e, "tileloadd64", 2 * r + n, e.select(starts, zeros, of_sums(r, n)), stride)

        def multiply(r: int, n: int) -> None:
            if r == 0:
                tile(e, "tileloadd64", RIGHT + n, e.pointer(columns, n * ROW_BYTES, 1), i64(2 * ROW_BYTES))
            tile(e, "tdpbf16ps", 2 * r + n, LEFT + r, RIGHT + n)

        each = [(r, n) for r in range(down) for n in range(2)]
        if part == 0:
            found += [partial(load_sums, r, n) for r, n in each]
        for r, n in each:
            if n == 0:
                found.append(partial(tile, e, "tileloadd64", LEFT + r, e.pointer(rows, r * _TILE, 1), stride))
            found.append(partial(multiply, r, n))
        if part == self.kernel.parts - 1:
            found += [partial(tile, e, "tilestored64", 2 * r + n, of_sums(r, n), stride) for r, n in each]
        return found


class RowsOnTiles:
    """The product of a few rows of pairs of bfloat16 with a matrix, while it is emitted.

    Args:
        lhs, rhs: the operands, joined into pairs; the summed axis has whole tiles of steps.
        matrix: the right operand in memory, with contiguous rows of at least 32 columns.
        most: the most rows.
    """

    def __init__(self, scope: Scope, lhs: PackSource, rhs: PackSource, matrix: StridedArray, most: int) -> None:
        self.e = scope.e
        self.lhs = lhs
        self.later = rhs.later
        self.matrix = matrix
        self.columns = rhs.columns
        self.parts = 1 if lhs.columns % PART else 2
        self.most = -(-most // TILE)
        buffer, blocks = scope.arena.buffer, -(-rhs.columns // PART)
        self.rows = buffer(self.e, (lhs.columns * self.most * TILE,), dtypes.INT32).base
        self.sums = buffer(self.e, (blocks * PART * self.most * TILE,), dtypes.FLOAT32).base
        self.room = buffer(self.e, (2 * self.parts * 2 * TILE * TILE,), dtypes.INT32).base

    def run_rows(self, low: Int, count: Int) -> Callable[[Int], RowReader]:
        """Emit the product for `count` rows from `low` on; returns the sums of each by its number."""
        e = self.e
        tiles = e.index(divided(e, e.add(count, TILE - 1))[0])
        self.lay_out(low, count, tiles)
        configure(e)
        for each in range(1, self.most + 1):
            with e.when(e.compare("icmp eq", tiles, i64(each)) if self.most > 1 else None):
                self.call(each)
        release(e)
        return lambda row: self.sums_of(row, tiles)

    def lay_out(self, low: Int, count: Int, tiles: V) -> None:
        """Lay the rows out as tiles. Rows that fill up the last one have sums of their own, which are not read."""
        e, (above, word) = self.e, (TILE * TILE, dtypes.INT32)
        room = StridedArray(self.rows, (e.mul(tiles, above), above, TILE, 1), (1, 1, TILE, TILE), word)
        with e.loop(0, count) as row, e.loop(0, self.lhs.columns, TILE) as step:
            value = self.lhs.element(e.add(low, row), step, TILE)
            room.put(e, (divided(e, step)[0], *divided(e, row), 0), value, TILE)

    def call(self, tiles: int) -> None:
        """Multiply the rows, which take some tiles."""
        e, kernel = self.e, TileRowKernel(tiles, self.parts)
        if kernel.name not in e.declared:
            text, needed = kernel.text
            e.declared.update({**needed, kernel.name: text})
        between = e.index(e.mul(self.matrix.strides[0], self.matrix.dtype.itemsize))
        start = self.matrix.address(e, (0, 0))
        after = start if self.later is None else self.later.base
        turns = i64(self.lhs.columns // (TILE * self.parts))
        given = [self.rows, start, between, after, i64(self.columns), turns, self.sums, self.room]
        e.line(f"call void @{kernel.name}({', '.join(map(str, given))})")

    def sums_of(self, row: Int, tiles: V) -> RowReader:
        """The sums of a row, from (column, width)."""
        e = self.e
        above, inside = divided(e, row)
        base = e.pointer(self.sums, e.add(e.mul(above, TILE * TILE), e.mul(inside, TILE)), 4)

        def at(column: Int, width: int) -> V:
            number, place = divided(e, column)
            if self.columns % PART:  # the last block begins with the last columns of the one before
                is_last = e.compare("icmp eq", e.index(number), i64(self.columns // TILE - 1))
                number = e.select(is_last, i64(self.columns // TILE), e.index(number))
            offset = e.add(e.mul(number, e.mul(tiles, TILE * TILE)), place)
            return registers.load(e, e.pointer(base, offset, 4), dtypes.FLOAT32, width)

        return at
