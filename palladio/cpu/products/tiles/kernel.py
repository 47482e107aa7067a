"""Micro-kernels of matrix products on tile registers, as the text of LLVM functions.

A tile has 16 rows of 64 bytes: 16 sums in each row, or 16 words of a left panel, or, of a packed right panel, one step
of 16 columns. One instruction multiplies 16 steps of 16 rows with 16 steps of 16 columns. Sources: Intel's Software
Developer's Manual, volume 2, TDPBF16PS and TDPBUSD; volume 1, chapter 18.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.llvm_types import FLOAT, I1, I32, I64, PTR, LlvmType, vector
from palladio.cpu.products.micro_kernel import LINE_BYTES, Variable, rounded_pairs
from palladio.cpu.runtime.machine_code import STRAIGHT

TILE = 16
"""The rows of a tile, the words of each, and the steps that are multiplied together."""

WORD = 4
"""The bytes of a word: a pair of bfloat16, a quad of 8-bit integers, or a sum."""

ROW_BYTES = TILE * WORD
"""The bytes of a row of a tile."""

PLACE_BYTES = 8
"""The bytes of a place of a left tile."""

TILES_DOWN, TILES_ACROSS = 2, 2
"""The tiles of sums along the rows and along the columns of a kernel: four of the eight tile registers."""

TILES_AHEAD = 3
"""The prefetch distance, in tiles along the summed axis, of both panels."""

LEFT, RIGHT = 4, 6
"""The numbers of the first tile register of the left and of the right panel; those of sums begin at 0."""

_PALETTE = bytes([1, *[0] * 15, *[ROW_BYTES, 0] * 8, *[0] * 16, *[TILE] * 8, *[0] * 8])
"""The configuration of tile registers: all eight are whole tiles."""

_INTRINSICS = {
    "ldtilecfg": "ptr",
    "tilerelease": "",
    "tilezero": "i8 immarg",
    "tileloadd64": "i8 immarg, ptr, i64",
    "tilestored64": "i8 immarg, ptr, i64",
    "tdpbf16ps": "i8 immarg, i8 immarg, i8 immarg",
    "tdpbusd": "i8 immarg, i8 immarg, i8 immarg",
    "tdpbssd": "i8 immarg, i8 immarg, i8 immarg",
}


def tile(e: Emitter, name: str, *arguments: int | V) -> None:
    """Emit an instruction on tile registers, which are given by number."""
    full = f"llvm.x86.{name}"
    e.declared[full] = f"declare void @{full}({_INTRINSICS[name]})"
    e.line(
        f"call void @{full}({', '.join(f'i8 {each}' if isinstance(each, int) else str(each) for each in arguments)})"
    )


def configure(e: Emitter) -> None:
    """Give the tile registers of this thread their shapes; their values are zero."""
    text = "".join(f"\\{byte:02X}" for byte in _PALETTE)
    e.declared["tiles"] = f'@tiles = internal constant [{len(_PALETTE)} x i8] c"{text}", align 64'
    tile(e, "ldtilecfg", V("@tiles", PTR))


def release(e: Emitter) -> None:
    """Return the tile registers to their first state, which the system need not save."""
    tile(e, "tilerelease")


def divided(e: Emitter, position: Int) -> tuple[Int, Int]:
    """The number of the tile at a position, and the position in it."""
    if isinstance(position, int):
        return divmod(position, TILE)
    return e.binary("lshr", position, i64(TILE.bit_length() - 1)), e.binary("and", position, i64(TILE - 1))


@dataclass(frozen=True)
class LeftTiles:
    """The places of the tiles of a left panel.

    Fields:
        row: the bytes between the rows of a tile.
        piece: the bytes between the tiles of the pieces.
        places: the address of the place of each tile along the summed axis, in bytes from the panel's first, and of one
            more place; None if the tiles follow each other.
    """

    row: Int = ROW_BYTES
    piece: int = TILE * ROW_BYTES
    places: V | None = None


PANEL = LeftTiles()
"""Tiles that follow each other, as they are packed."""


@dataclass(frozen=True)
class TileLoop:
    """The loop of a kernel over the steps of two panels, sixteen at a time.

    As soon as a tile register has been read for the last time, the next tile is loaded into it, and the prefetches
    stand between the products. Loads right before their first use, with all prefetches behind them, take 1.3 times as
    long beside another thread of the core: then no register has a second copy that could be loaded before.

    Fields:
        multiply: the instruction that multiplies tiles.
        down, across: the tiles of sums along the rows and along the columns.
        between: the bytes between the tiles of rows of the left panel.
        products: the pieces of a left and a right number that are multiplied, in order.
        pieces: the number of pieces of each, whose tiles follow each other in the right panel.
        left: the places of the tiles of the left panel.
    """

    e: Emitter
    multiply: str
    down: int
    across: int
    between: Int
    products: Sequence[tuple[int, int]] = ((0, 0),)
    pieces: int = 1
    left: LeftTiles = PANEL

    @property
    def wide(self) -> int:
        """The bytes of a step of the right panel."""
        return self.across * ROW_BYTES

    def emit(self, panels: Sequence[Variable], remaining: Variable) -> None:
        """Multiply the remaining steps, a multiple of sixteen, of the panels; all of these are advanced."""
        e, (rows, columns) = self.e, panels
        if self.left.places is not None:
            base, next_place = rows.get(), Variable.of(e, self.left.places)
            rows.set(self.placed(base, next_place))
        left, right = rows.get(), columns.get()
        for r in range(self.down):
            self.load_left(left, self.products[0][0], r)
        for n in range(self.across):
            self.load_right(right, self.products[0][1], n)
        with e.repeat(lambda: e.compare("icmp ne", remaining.get(), i64(0))):
            here = rows.get(), columns.get()
            remaining.set(e.binary("sub nuw nsw", remaining.get(), i64(TILE)))
            if self.left.places is None:
                rows.set(e.pointer(here[0], self.pieces * TILE * ROW_BYTES, 1))
            else:
                rows.set(self.placed(base, next_place))
            columns.set(e.pointer(here[1], self.pieces * TILE * self.wide, 1))
            more = e.compare("icmp ne", remaining.get(), i64(0))  # else what is loaded is not used
            after = e.select(more, rows.get(), here[0]), e.select(more, columns.get(), here[1])
            self.multiply_tiles(here, after)

    def placed(self, base: V, place: Variable) -> V:
        """The address of the left tile at a place, which becomes the next one."""
        e, here = self.e, place.get()
        place.set(e.pointer(here, 1, PLACE_BYTES))
        return e.pointer(base, e.load(I64, here, PLACE_BYTES), 1)

    def multiply_tiles(self, here: tuple[V, V], after: tuple[V, V]) -> None:
        """Multiply sixteen steps, and load the first tiles of the next ones."""
        e, last, done = self.e, len(self.products) - 1, 0
        lines = list(self.lines_ahead(here, after))
        whole, total = len(lines), len(self.products) * self.down * self.across
        for number, product in enumerate(self.products):
            following, panels = (self.products[0], after) if number == last else (self.products[number + 1], here)
            changes = [number == last or x != y for x, y in zip(product, following, strict=True)]
            each = [(r, n) for r in range(self.down) for n in range(self.across)]
            if not changes[0]:
                each.sort(key=lambda place: place[1])
            for at, (r, n) in enumerate(each):
                tile(e, self.multiply, r * self.across + n, LEFT + r, RIGHT + n)
                if changes[0] and all(row != r for row, _ in each[at + 1 :]):
                    self.load_left(panels[0], following[0], r)
                if changes[1] and all(column != n for _, column in each[at + 1 :]):
                    self.load_right(panels[1], following[1], n)
                done += 1
                while len(lines) * total > (total - done) * whole:
                    e.prefetch(lines.pop(), level=1)

    def load_left(self, panel: V, piece: int, row: int) -> None:
        e = self.e
        place = e.pointer(panel, e.add(e.mul(self.between, row), piece * self.left.piece), 1)
        tile(e, "tileloadd64", LEFT + row, place, e.index(self.left.row))

    def load_right(self, panel: V, piece: int, column: int) -> None:
        place = self.e.pointer(panel, piece * TILE * self.wide + column * ROW_BYTES, 1)
        tile(self.e, "tileloadd64", RIGHT + column, place, i64(self.wide))

    def lines_ahead(self, here: tuple[V, V], after: tuple[V, V]) -> Iterator[V]:
        """The addresses of what is multiplied some turns later, line by line, the first one last."""
        e, step = self.e, self.pieces * TILE
        ahead = max(1, TILES_AHEAD // self.pieces) * step
        panel, skipped = (here[0], ahead * ROW_BYTES) if self.left.places is None else (after[0], 0)
        for line in reversed(range(step)):
            for n in range(self.across):
                yield e.pointer(here[1], ahead * self.wide + self.across * line * LINE_BYTES + n * LINE_BYTES, 1)
            piece, row = divmod(line, TILE)
            inside = e.add(e.mul(self.left.row, row), skipped + piece * self.left.piece)
            for r in range(self.down):
                yield e.pointer(panel, e.add(e.mul(self.between, r), inside), 1)


@dataclass(frozen=True)
class PanelKernel(ABC):
    """A function that adds a panel of rows times a panel of columns to a block of sums.

    Its arguments are the two panels, the sums, the bytes between rows of sums, the number of steps, a multiple of 16,
    and whether the sums begin at zero instead of those in memory; then those of the kind of kernel.

    Fields:
        height: the most rows; they fill whole tiles if their number is not known.
        vectors: the tiles along the columns.
        stride: words of a row of the left panel, whose tiles follow each other along the rows.
    """

    height: int
    vectors: int
    stride: Int

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the function."""

    @property
    @abstractmethod
    def text(self) -> tuple[str, dict[str, str]]:
        """The function, and its declarations."""

    @property
    def size(self) -> str:
        """The part of the name that says what is multiplied."""
        return f"{self.height}x{self.vectors}x{TILE}_{self.stride}"

    @property
    def wide(self) -> int:
        """The bytes of a row of the sums, and of a step of the packed right panel."""
        return self.vectors * ROW_BYTES

    def function(self, e: Emitter, more: Sequence[V]) -> str:
        """The function with some instructions, and more parameters than all kernels have."""
        parameters = ["ptr noalias readonly %lhs", "ptr noalias readonly %rhs", "ptr noalias %sums"]
        parameters += ["i64 %stride", "i64 %count", "i1 %fresh", *map(str, more)]
        return function(self.name, parameters, e)


def function(name: str, parameters: Sequence[str], e: Emitter, attributes: str = "") -> str:
    """A function of some instructions, with no result."""
    head = f"define internal void @{name}({', '.join(parameters)}) noinline nounwind {attributes}{STRAIGHT}"
    return "\n".join([head + " {", *e.lines, "  ret void", "}"])


class PanelBody:
    """The instructions of a kernel around its loop.

    Args:
        rows: the number of rows that have sums.
        direct: whether whole tiles of sums are in memory as they are in registers; else they go through whole tiles in
            `room`.
    """

    def __init__(self, e: Emitter, kernel: PanelKernel, rows: Int, direct: bool = False) -> None:
        self.e = e
        self.rows = rows
        self.direct = direct
        self.between = e.mul(kernel.stride, TILE * WORD)
        self.down, self.across, self.wide = -(-kernel.height // TILE), kernel.vectors, kernel.wide
        self.panels = [Variable.of(e, V(panel, PTR)) for panel in ("%lhs", "%rhs")]
        self.remaining = Variable.of(e, V("%count", I64))
        self.room, self.stride = V("%sums", PTR), V("%stride", I64)
        if not direct:
            self.room = e.value(PTR, f"alloca [{self.down * TILE * self.wide} x i8], align {ROW_BYTES}")
            self.stride = i64(self.wide)

    def multiply(
        self,
        instruction: str,
        products: Sequence[tuple[int, int]] = ((0, 0),),
        pieces: int = 1,
        left: LeftTiles = PANEL,
    ) -> None:
        """Add the products of all steps to the tiles of sums. The arguments are those of `TileLoop`."""
        loop = TileLoop(self.e, instruction, self.down, self.across, self.between, products, pieces, left)
        loop.emit(self.panels, self.remaining)

    def clear(self) -> None:
        """Begin at zero."""
        for number, _ in self.sums():
            tile(self.e, "tilezero", number)

    def load(self) -> None:
        """Begin with the sums in memory."""
        if not self.direct:
            self.copy_rows(self.read_row)
        for number, place in self.sums():
            tile(self.e, "tileloadd64", number, place, self.stride)

    def store(self) -> None:
        """Store the tiles of sums."""
        for number, place in self.sums():
            tile(self.e, "tilestored64", number, place, self.stride)

    def sums(self) -> list[tuple[int, V]]:
        """The number and the address of each tile of sums."""
        e, found = self.e, []
        for r in range(self.down):
            row = e.pointer(self.room, e.mul(self.stride if self.direct else self.wide, r * TILE), 1)
            found += [(r * self.across + n, e.pointer(row, n * ROW_BYTES, 1)) for n in range(self.across)]
        return found

    def copy_rows(self, copy: Callable[[V, V], None]) -> None:
        """Copy the rows that have sums, between memory and the room of whole tiles."""
        e = self.e
        with e.loop(0, self.rows) as r:
            there = e.pointer(V("%sums", PTR), e.mul(V("%stride", I64), r), 1)
            copy(there, e.pointer(self.room, e.mul(r, self.wide), 1))

    def read_row(self, there: V, room: V) -> None:
        """Copy a row of sums from memory."""
        self.write_row(self.row(there, I32), room)

    def row(self, place: V, element: LlvmType) -> list[V]:
        """A row of sums."""
        e = self.e
        return [e.load(vector(element, TILE), e.pointer(place, n * ROW_BYTES, 1), WORD) for n in range(self.across)]

    def write_row(self, sums: Sequence[V], place: V) -> None:
        """Write a row of sums."""
        for n, value in enumerate(sums):
            self.e.store(value, self.e.pointer(place, n * ROW_BYTES, 1), WORD)


@dataclass(frozen=True)
class TileKernel(PanelKernel):
    """A kernel of words. If its height is not known, its last argument is the number of rows.

    Fields:
        multiply: the instruction that multiplies tiles.
        some: whether the number of rows is an argument.
        rounds: whether the sums, which begin at zero, are written rounded to bfloat16.
    """

    multiply: str
    some: bool
    rounds: bool

    @property
    def name(self) -> str:
        ends = ("_some" if self.some else "") + ("_rounds" if self.rounds else "")
        return f"multiply_{self.multiply}_{self.size}{ends}"

    @property
    def text(self) -> tuple[str, dict[str, str]]:
        e = Emitter()
        e.label("entry")
        rows = V("%rows", I64)
        direct = self.height % TILE == 0 and not self.some and not self.rounds
        body = PanelBody(e, self, rows if self.some else self.height, direct)
        if self.rounds:
            body.clear()
        else:
            e.either(V("%fresh", I1), body.clear, body.load)
        body.multiply(self.multiply)
        body.store()
        if not direct:
            body.copy_rows(lambda there, room: self.write_row(body, there, room))
        return self.function(e, [rows] if self.some else []), e.declared

    def write_row(self, body: PanelBody, there: V, room: V) -> None:
        """Write a row of sums to memory."""
        if self.rounds:
            body.e.store(rounded_pairs(body.e, body.row(room, FLOAT)), there, 2)
        else:
            body.write_row(body.row(room, I32), there)
