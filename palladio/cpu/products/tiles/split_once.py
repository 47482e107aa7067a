"""Left operands of several products that are rows of the same memory, shifted, as those of a convolution: each row of
the memory is split into pieces once, and the tiles of all operands are loaded from there.

The operands begin at addresses that the running kernel computes. If they are whole rows apart and near each other, the
rows from the first to the last of them are split together; else those of each operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from palladio.base.dataclass import dataclass
from palladio.cpu.access.views import renumbered
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import StridedArray
from palladio.cpu.emit.llvm_types import I32, I64, vector
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.operands import PackSource
from palladio.cpu.products.tiles.kernel import ROW_BYTES, TILE, TILES_DOWN, WORD
from palladio.cpu.products.tiles.split import PIECES, neighbours_joined
from palladio.cpu.runtime import host
from palladio.types import dtypes

LEAST_OPERANDS = 3
"""The operands from which splitting all rows in their memory, once, costs less than splitting those of each."""

NEAR_BYTES = 1 << 15
"""The most bytes of the pieces of the rows of a panel, which stay in a first-level cache for the next operand."""

MOST_BETWEEN = 2
"""The most rows, for each row of an operand, from its first to its last one: those between are split too."""

LEAST_SHARE = 0.75
"""The least share of the rows of tiles that neighbouring rows fill: those that lie apart need tiles of their own."""


@dataclass(frozen=True)
class _InPieces(PackSource):
    """An operand whose pieces are in memory. They are multiplied in place, or copied where only some rows are.

    Fields:
        first: the words before its first row in the memory of `in_place`.
    """

    in_place: StridedArray = field(kw_only=True)
    first: Int = field(kw_only=True)

    def words(self, e: Emitter, i: Int, j: Int, width: int) -> Sequence[V]:
        row = renumbered(e, [i], (self.rows,), self.in_place.shape[:-1])
        place = self.in_place.address(e, (*row, e.add(self.first, j)))
        type = vector(I32, width)
        return [e.load(type, e.pointer(place, n * self.columns * WORD, 1), WORD) for n in range(PIECES)]


@dataclass(frozen=True)
class _Rows:
    """The rows of memory in which some operands of the same form lie.

    Fields:
        forms: the operands.
        between: the elements between neighbouring rows.
        depth: the elements of a row that are split.
        span: the rows from the first to the last one of an operand.
    """

    forms: Sequence[StridedArray]
    between: int
    depth: int
    span: int

    @property
    def room(self) -> int:
        """The most rows that are split: those of each operand on its own."""
        return len(self.forms) * self.span

    @property
    def words(self) -> int:
        """The words of the pieces of a row."""
        return PIECES * self.depth // 2


def split_once(scope: Scope, lefts: Sequence[PackSource]) -> tuple[list[PackSource], V] | None:
    """Some left operands of float32 with their rows split now, in pairs along the summed axis, and the address of the
    places of their tiles, as in `palladio.cpu.products.tiles.kernel.LeftTiles`.

    None if they are not of the same form and in the same memory, or too large for the second level of cache.
    """
    rows = _rows(lefts)
    if rows is None or rows.room * rows.words * WORD > host.current().near_bytes:
        return None
    pieces = scope.arena.buffer(scope.e, (rows.room + TILE, rows.words), dtypes.INT32)  # a last tile may reach past
    starts = _split(scope, rows, pieces)
    *shape, _ = rows.forms[0].shape
    *strides, _ = rows.forms[0].strides
    between = [stride // rows.between * rows.words for stride in strides]  # type: ignore[operator]
    there = StridedArray(pieces.base, (*between, 1), (*shape, rows.words), dtypes.INT32)
    found: list[PackSource] = [
        _InPieces(left.rows, left.columns // 2, left.element, None, None, left.reads, in_place=there, first=first)
        for left, first in zip(lefts, starts, strict=True)
    ]
    return found, _places(scope, rows, starts)


def _places(scope: Scope, rows: _Rows, starts: Sequence[Int]) -> V:
    """Write the place of each left tile, in bytes, and one more that is not used; returns their address."""
    e, tiles = scope.e, rows.depth // (2 * TILE)
    places = scope.arena.buffer(e, (len(starts) * tiles + 1,), dtypes.INT64)
    for n, first in enumerate(starts):
        begin = e.mul(first, WORD)
        for number in range(tiles):
            places.put(e, (n * tiles + number,), e.index(e.add(begin, number * ROW_BYTES)), 1)
    places.put(e, (len(starts) * tiles,), i64(0), 1)
    return places.base


def _rows(lefts: Sequence[PackSource]) -> _Rows | None:
    """The rows in which the operands lie; None if they are not shifted rows of one array."""
    forms = [left.in_place for left in lefts]
    arrays = [array for array in forms if array is not None and all(isinstance(n, int) for n in array.strides)]
    if len(lefts) < LEAST_OPERANDS or len(arrays) < len(lefts) or len({*map(tuple, (x.reads for x in lefts))}) > 1:
        return None
    (*strides, last), (*shape, depth) = arrays[0].strides, arrays[0].shape
    alike = len({(array.strides, array.shape) for array in arrays}) == 1 and len(lefts[0].reads) == 1
    if not alike or last != 1 or not strides or depth % (2 * TILE):
        return None
    between = min(strides)  # type: ignore[type-var]
    full, panel = -(-shape[-1] // TILE) * TILE, min(shape[-1], TILES_DOWN * TILE)
    if shape[-1] < LEAST_SHARE * full or panel * depth * PIECES * WORD // 2 > NEAR_BYTES:
        return None
    if between < depth or any(stride % between for stride in strides):  # type: ignore[operator]
        return None
    span = 1 + sum((n - 1) * stride // between for n, stride in zip(shape, strides, strict=True))  # type: ignore[operator]
    if span > MOST_BETWEEN * lefts[0].rows:
        return None
    return _Rows(arrays, between, depth, span)  # type: ignore[arg-type]


def _split(scope: Scope, rows: _Rows, pieces: StridedArray) -> list[Int]:
    """Split the rows; returns the number of words before the first row of each operand."""
    e, count, span = scope.e, len(rows.forms), rows.span
    row_bytes = i64(rows.between * WORD)
    addresses = [e.value(I64, f"ptrtoint {array.base} to i64") for array in rows.forms]
    lowest, highest = addresses[0], addresses[0]
    for address in addresses[1:]:
        lowest, highest = e.intrinsic("umin", I64, lowest, address), e.intrinsic("umax", I64, highest, address)
    distances = [e.binary("sub", address, lowest) for address in addresses]
    apart = [e.binary("udiv", distance, row_bytes) for distance in distances]
    whole = e.binary("add", e.binary("udiv", e.binary("sub", highest, lowest), row_bytes), i64(span))
    together = e.compare("icmp ule", whole, i64(rows.room))
    for distance, number in zip(distances, apart, strict=True):
        same = e.compare("icmp eq", e.binary("mul", number, row_bytes), distance)
        together = e.binary("and", together, same)
    begins = scope.arena.buffer(e, (count,), dtypes.INT64)
    for n, distance in enumerate(distances):
        begins.put(e, (n,), e.select(together, i64(0), distance), 1)
    low = e.pointer(rows.forms[0].base, e.binary("sub", lowest, addresses[0]), 1)
    height = e.select(together, whole, i64(span))
    with e.loop(0, e.select(together, i64(1), i64(count))) as part, e.loop(0, height) as row:
        there = e.pointer(low, begins.at(e, (part,), 1), 1)
        source = StridedArray(there, (rows.between, 1), (1, rows.depth), dtypes.FLOAT32)
        target = e.add(e.mul(part, span), row)
        with e.loop(0, rows.depth // 2, TILE) as word:
            numbers = source.at(e, (row, e.mul(word, 2)), 2 * TILE)
            for n, value in enumerate(neighbours_joined(e, numbers)):
                pieces.put(e, (target, e.add(word, n * rows.depth // 2)), value, TILE)
    firsts = [e.select(together, number, i64(n * span)) for n, number in enumerate(apart)]
    return [e.mul(first, rows.words) for first in firsts]
