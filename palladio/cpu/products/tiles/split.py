"""Products of float32 on tile registers, whose instruction multiplies bfloat16.

The first 8 bits of a float32 are a bfloat16; those of what is left are a second one, and the rest is a third. So a
number is the sum of three pieces, exactly, and the product of two numbers that of nine products, each exact in float32.
The kernel sums the six large ones. The other three are at most 2**-22 of the product and have either sign; their size
is 2**-25 of it in the mean, less than a rounding. Pieces that would be subnormal count as 0, as the instruction has it:
numbers below 2**-110, and products below it, lose bits.

An infinity has no such pieces: its sums are NaN. Sums that are not finite are computed again, from the numbers, as the
sums of their pieces; infinity times a subnormal number may be NaN.

Sources: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations" (2019); Intel's Software Developer's Manual, volume 2, TDPBF16PS.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.llvm_types import FLOAT, I1, I16, I32, I64, PTR, integer, vector
from palladio.cpu.products.micro_kernel import Variable, transposed
from palladio.cpu.products.operands import Element, PackSource
from palladio.cpu.products.tiles.kernel import (
    PANEL,
    PLACE_BYTES,
    ROW_BYTES,
    TILE,
    WORD,
    LeftTiles,
    PanelBody,
    PanelKernel,
    divided,
    function,
)

PIECES = 3
"""The pieces of a number, the largest first."""

_PRODUCTS = ((1, 1), (1, 0), (2, 0), (0, 0), (0, 1), (0, 2))
"""The pieces that are multiplied with each other, so that each product but one shares a piece with the last."""

_INFINITY = -(1 << 24)
"""The bits of an infinity without its sign, as an unsigned number; those of NaN are larger."""

_QUIET = 1 << 22
"""The bit of a float32 that makes a number without other bits than those of an infinity a NaN."""

_PLACES = V("%places", PTR)
"""The address of the places of the left tiles."""

_UPPER = -(1 << 16)
"""The bits of a float32 that are a bfloat16."""


def pieces(e: Emitter, x: V) -> list[V]:
    """The pieces of float32 numbers, as the upper halves of words whose lower halves are 0."""
    word = vector(I32, x.type.width)
    found = []
    for piece in range(PIECES):
        bits = e.value(word, f"bitcast {x} to {word}")
        if piece == 0:  # a NaN may have all its bits below those
            is_nan = e.compare("fcmp uno", x, x)
            bits = e.select(is_nan, e.binary("or", bits, e.constant(_QUIET, word)), bits)
        if piece == 1:  # to the nearest: then what is left has either sign
            bits = e.binary("add", bits, e.constant(1 << 15, word))
        bits = e.binary("and", bits, e.constant(_UPPER, word))  # of a subnormal piece, more bits are set
        found.append(bits)
        x = e.binary("fsub", x, e.value(x.type, f"bitcast {bits} to {x.type}"))
    return found


def neighbours_joined(e: Emitter, x: V) -> list[V]:
    """The pieces of neighbouring numbers, as pairs."""
    half, type = vector(I16, x.type.width), vector(I32, x.type.width // 2)
    halves = vector(I16, 2 * x.type.width)
    odd = ", ".join(f"i32 {2 * lane + 1}" for lane in range(x.type.width))
    found = []
    for bits in pieces(e, x):
        both = e.value(halves, f"bitcast {bits} to {halves}")
        upper = e.value(half, f"shufflevector {both}, {both}, <{x.type.width} x i32> <{odd}>")
        found.append(e.value(type, f"bitcast {upper} to {type}"))
    return found


def joined(e: Emitter, first: V, second: V) -> list[V]:
    """The pieces of two vectors of numbers, each number of the first one in a pair with the one of the second."""
    both = zip(pieces(e, first), pieces(e, second), strict=True)
    return [e.binary("or", e.binary("lshr", x, e.constant(16, x.type)), y) for x, y in both]


@dataclass(frozen=True)
class SplitSource(PackSource):
    """An operand of pairs of numbers, neighbours along the summed axis, whose words are their pieces.

    The functions that compute elements compute the numbers: their arguments count numbers, not pairs.

    Fields:
        axis: the summed axis.
        end: where the numbers along it end, if a mask may leave an odd number of them. The last pair is then padded
            with zero, without a read past the end.
    """

    axis: int = 0
    end: Int | None = None

    def words(self, e: Emitter, i: Int, j: Int, width: int) -> Sequence[V]:
        if self.axis == 1:
            return neighbours_joined(e, self.element(i, e.mul(j, 2), 2 * width))
        return self.both(e, self.element, (e.mul(i, 2), j), width)

    def words_across(self, e: Emitter, i: Int, j: Int, width: int) -> Sequence[V]:
        at = self.transposed or self.element
        if self.axis == 0:
            return neighbours_joined(e, at(e.mul(i, 2), j, 2 * width))
        return self.both(e, at, (i, e.mul(j, 2)), width)

    def square(self, e: Emitter, i: Int, j: Int, width: int) -> Iterator[Sequence[V]]:
        """As in `PackSource`. Numbers are transposed before they are split: there are fewer of them than pieces."""
        at, i = self.transposed or self.element, e.mul(i, 2)
        for first in (0, width):
            numbers = transposed(e, [at(e.add(i, first), e.add(j, lane), width) for lane in range(width)])
            yield from (joined(e, *pair) for pair in zip(numbers[::2], numbers[1::2], strict=True))

    def both(self, e: Emitter, at: Element, place: tuple[Int, Int], width: int) -> Sequence[V]:
        """The pieces of pairs whose numbers are not neighbours in memory, the first pair at a place."""
        first, index = at(*place, width), list(place)
        index[self.axis] = after = e.add(place[self.axis], 1)
        if self.end is None:
            return joined(e, first, at(*index, width))
        inside = e.compare("icmp slt", e.index(after), e.index(self.end))
        index[self.axis] = e.choose(inside, after, place[self.axis])
        second = at(*index, width)
        return joined(e, first, e.select(inside, second, e.constant(0.0, second.type)))


def source(numbers: PackSource, axis: int, end: Int | None) -> SplitSource:
    """An operand of float32 in pieces, with pairs of neighbours along the summed axis joined."""
    size = {("rows", "columns")[axis]: (numbers.rows, numbers.columns)[axis] // 2}
    return SplitSource(**{**vars(numbers), **size, "plain": None, "in_place": None, "axis": axis, "end": end})


@dataclass(frozen=True)
class SplitKernel(PanelKernel):
    """A kernel of numbers that are split into pieces. In a panel a tile of each piece follows that of the last one.

    Its next argument is the number of rows. The sums in memory are added to those of the panels at the end. If the
    kernel may go on, its last argument tells whether those are the first summands instead: then a product in several
    calls has the bits of one in a single call.

    Rows in place (`split_once`) have their pieces one after the other, and `stride` words are between them. The last
    argument is then the address of the places of the left tiles, as in `LeftTiles`.

    Fields:
        goes_on: whether the sums may go on from those in memory.
        in_place: the words of a piece of a row, if the rows are in place; else 0.
    """

    goes_on: bool = False
    in_place: int = 0

    @property
    def name(self) -> str:
        return f"multiply_split_{self.size}{self.kind}"

    @property
    def kind(self) -> str:
        """The end of the names."""
        return ("_on" if self.goes_on else "") + (f"_in_place_{self.in_place}" if self.in_place else "")

    @property
    def slow_name(self) -> str:
        """The name of the function that computes sums which are not finite."""
        return f"multiply_split_numbers_{self.vectors}x{TILE}_{self.stride}{self.kind}"

    @property
    def text(self) -> tuple[str, dict[str, str]]:
        e, slow = Emitter(), Emitter()
        e.label("entry")
        slow.label("entry")
        _Body(e, self, V("%rows", I64)).emit(self)
        _multiply_numbers(slow, self)
        parameters = ["ptr noalias readonly %lhs", "ptr noalias readonly %rhs", "ptr noalias %sums"]
        parameters += ["i64 %count", "i64 %rows"]
        parameters += ["ptr noalias readonly %before", "i64 %stride"] if self.goes_on else []
        parameters += ["ptr noalias readonly %places"] if self.in_place else []
        e.declared |= {**slow.declared, self.slow_name: function(self.slow_name, parameters, slow, "cold ")}
        more = [V("%rows", I64), *([V("%goes_on", I1)] if self.goes_on else [])]
        return self.function(e, [*more, *([_PLACES] if self.in_place else [])]), e.declared

    @property
    def apart(self) -> int:
        """The bytes between the pieces of a left word."""
        return self.in_place * WORD or TILE * ROW_BYTES


class _Body(PanelBody):
    """The instructions of a kernel."""

    def emit(self, kernel: SplitKernel) -> None:
        e, fresh, goes_on = self.e, V("%fresh", I1), V("%goes_on", I1)
        largest = Variable.of(e, e.constant(0, vector(I32, TILE)))
        if kernel.goes_on:
            e.either(goes_on, self.load, self.clear)
        else:
            self.clear()
        in_place = LeftTiles(e.mul(kernel.stride, WORD), kernel.apart, _PLACES)
        self.multiply("tdpbf16ps", _PRODUCTS, PIECES, in_place if kernel.in_place else PANEL)
        self.store()
        self.write_and_check(kernel, fresh, largest)
        add = functools.partial(self.copy_rows, self.add_row)
        with e.when(e.negated(fresh)):
            if kernel.goes_on:
                e.either(goes_on, self.write_rows, add)
            else:
                add()

    def write_and_check(self, kernel: SplitKernel, fresh: V, largest: Variable) -> None:
        """Write the sums to memory if nothing there counts, and compute those again that are not finite.

        Args:
            largest: the size of the largest sum of each lane, zero at first.
        """
        e = self.e
        target = e.select(fresh, V("%sums", PTR), self.room)
        apart = e.select(fresh, V("%stride", I64), i64(self.wide))  # else each row is written where it is
        with e.loop(0, self.rows) as r:
            row = self.row(e.pointer(self.room, e.mul(r, self.wide), 1), I32)
            for bits in row:
                largest.set(e.intrinsic("umax", bits.type, largest.get(), _size(e, bits)))
            self.write_row(row, e.pointer(target, e.mul(apart, r), 1))
        lanes = e.compare("icmp uge", largest.get(), e.constant(_INFINITY, largest.type))
        word = integer(TILE)
        found = e.compare("icmp ne", e.value(word, f"bitcast {lanes} to {word}"), e.constant(0, word))
        with e.when(found):
            given = [*(V(name, PTR) for name in ("%lhs", "%rhs")), self.room]
            given += [V("%count", I64), e.index(self.rows)]
            if kernel.goes_on:
                given += [e.select(V("%goes_on", I1), V("%sums", PTR), V("null", PTR)), V("%stride", I64)]
            given += [_PLACES] if kernel.in_place else []
            e.line(f"call void @{kernel.slow_name}({', '.join(map(str, given))})")
            with e.when(fresh):
                self.write_rows()

    def write_rows(self) -> None:
        """Write the rows of sums to memory."""
        self.copy_rows(lambda there, room: self.write_row(self.row(room, FLOAT), there))

    def add_row(self, there: V, room: V) -> None:
        """Add a row of sums to that in memory."""
        both = zip(self.row(room, FLOAT), self.row(there, FLOAT), strict=True)
        self.write_row([self.e.binary("fadd", x, y) for x, y in both], there)


def _multiply_numbers(e: Emitter, kernel: SplitKernel) -> None:
    """The instructions of the function that computes the sums that are not finite from the numbers, row by row."""
    type = vector(FLOAT, TILE)
    totals = [Variable.of(e, e.constant(0.0, type)) for _ in range(kernel.vectors)]
    with e.loop(0, V("%rows", I64)) as r:
        above, inside = divided(e, r)
        start = e.add(
            e.mul(above, e.mul(kernel.stride, TILE)), e.mul(inside, kernel.stride if kernel.in_place else TILE)
        )
        for n, total in enumerate(totals):
            total.set(e.constant(0.0, type))
            if kernel.goes_on:
                with e.when(e.compare("icmp ne", V("%before", PTR), V("null", PTR))):
                    there = e.add(e.mul(V("%stride", I64), r), n * ROW_BYTES)
                    total.set(e.load(type, e.pointer(V("%before", PTR), there, 1), WORD))
        with e.loop(0, V("%count", I64)) as step:
            before, word = divided(e, step)
            place = e.pointer(V("%lhs", PTR), e.add(start, word), WORD)
            if kernel.in_place:
                further: Int = e.load(I64, e.pointer(_PLACES, before, PLACE_BYTES), PLACE_BYTES)
            else:
                further = e.mul(before, PIECES * TILE * ROW_BYTES)
            left = [e.splat(value, TILE) for value in _pair(e, e.pointer(place, further, 1), kernel.apart, 1)]
            for n, total in enumerate(totals):
                row = e.add(e.mul(before, PIECES * TILE), word)
                place = e.pointer(V("%rhs", PTR), e.add(e.mul(row, kernel.wide), n * ROW_BYTES), 1)
                for x, y in zip(left, _pair(e, place, TILE * kernel.wide, TILE), strict=True):
                    total.set(registers.multiply_add(e, x, y, total.get()))
        for n, total in enumerate(totals):
            there = e.pointer(V("%sums", PTR), e.add(e.mul(r, kernel.wide), n * ROW_BYTES), 1)
            bits = e.load(vector(I32, TILE), there, WORD)
            is_finite = e.compare("icmp ult", _size(e, bits), e.constant(_INFINITY, bits.type))
            found = e.value(type, f"bitcast {bits} to {type}")
            e.store(e.select(is_finite, found, total.get()), there, WORD)


def _size(e: Emitter, bits: V) -> V:
    """The bits of numbers without their signs, in the order of their sizes."""
    return e.binary("shl", bits, e.constant(1, bits.type))


def _pair(e: Emitter, place: V, apart: int, width: int) -> list[V]:
    """The first and the second number of pairs, each the sum of its pieces. The pieces of an infinity after it are
    NaN."""
    word, type = vector(I32, width), vector(FLOAT, width)
    words = [e.load(word, e.pointer(place, apart * piece, 1), WORD) for piece in range(PIECES)]
    found = []
    for upper in (False, True):
        parts = []
        for each in words:
            bits = (
                e.binary("and", each, e.constant(_UPPER, word))
                if upper
                else e.binary("shl", each, e.constant(16, word))
            )
            parts.append(e.value(type, f"bitcast {bits} to {type}"))
        size = e.intrinsic("fabs", type, parts[0])
        is_infinite = e.compare("fcmp oeq", size, e.constant(float("inf"), type))
        whole = e.binary("fadd", parts[0], e.binary("fadd", parts[1], parts[2]))
        found.append(e.select(is_infinite, parts[0], whole))
    return found
