"""The loops of a matrix product: packing, blocking for the caches, and micro-kernels.

The right operand is packed into panels as wide as a micro-kernel's sums, in the order in which they are read. A block
of an array that nothing writes stays packed for later steps that show the same one. The rows of the left operand are
laid out a panel at a time, for as many steps along the summed axis as the first-level cache holds; then every panel of
the right operand is multiplied with them. A micro-kernel is a function of its own, so that its code is there once,
whoever calls it; it adds to a block of sums that stay in registers throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from palladio.cpu import host, registers
from palladio.cpu.emit import Emitter, Index, V, element_of, vector
from palladio.cpu.scope import Scope
from palladio.cpu.tiles import Buffer, Memory, Tile, widths, write
from palladio.types import dtypes
from palladio.types.dtypes import DType

DEPTH_BYTES = 1536
"""Bytes of each row of the left operand that are laid out at a time: a panel of them takes half a first-level cache."""

KEPT_BYTES = 8 << 20
"""How much of packed blocks a thread keeps for one product."""

# Rows a multiple of the page size apart would evict each other from the cache.
_APART = 16

LINE_BYTES = 64

TOGETHER = 8
"""Rows of the right operand that are packed together."""

LONG = 1 << 30
"""Products of single numbers in a matrix product that takes long enough for somebody to want it to stop."""

Element = Callable[[Index, Index, int], V]

Span = tuple[Index, Index]
"""The first of some positions along an axis, and the one behind the last."""


@dataclass(frozen=True)
class Line:
    """Memory that will be read: what is at `base + column * itemsize + row * stride`, strides in bytes."""

    base: V
    itemsize: int
    stride: Index


@dataclass(frozen=True)
class Operand:
    """A matrix of the dtype of the sums, by how its elements are computed.

    Fields:
        element: from (i, j, width) the elements [i, j], [i, j + 1], …
        transposed: from (i, j, width) the elements [i, j], [i + 1, j], …, where that is the way they lie in memory.
        steady: where it is, if that is a block of an array that nothing writes.
        reads: the memory that computing an element reads.
        lines: where the cache lines of a panel's row are that later steps will pack; for the right operand.
    """

    rows: int
    columns: int
    element: Element
    transposed: Element | None
    steady: Buffer | None
    reads: Collection[Memory]
    lines: Sequence[Line] = ()


def cut(extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """An axis in whole pieces and a rest: (first, end, size of each)."""
    whole = extent // size * size
    if whole:
        yield 0, whole, size
    if extent > whole:
        yield whole, extent, extent - whole


@dataclass(frozen=True)
class Piece:
    """Steps along the summed axis that are multiplied together.

    Fields:
        first: the first step that is laid out of the left operand.
        laid: how many of it are.
        begin, count: the first step that is multiplied, and how many are.
        packed: where these steps of the right operand are packed.
        room: the steps of each panel there.
    """

    first: Index
    laid: Index
    begin: Index
    count: Index
    packed: V
    room: int


class Product:
    """One matrix product while it is emitted: `target[rows, columns] = init + lhs @ rhs`.

    Args:
        pairs: an element of the operands is a pair of bfloat16, neighbours along the summed axis, as an int32.
        span: the steps along the summed axis outside of which both operands are zero, if that is known.
    """

    def __init__(
        self, scope: Scope, lhs: Operand, rhs: Operand, sums: DType, pairs: bool = False, span: Span | None = None
    ) -> None:
        self.scope = scope
        self.pairs = pairs
        self.span = span if lhs.columns % registers.LANES == 0 and rhs.transposed is None else None
        # What one element of the packed operands is.
        self.word = dtypes.INT32 if pairs else sums
        self.e = scope.e
        self.lhs = lhs
        self.rhs = rhs
        self.sums = sums
        self.depth = lhs.columns
        height, wide = host.current().sums
        # Lanes of a vector may take several registers, but each vector takes one at least.
        size = max(registers.LANES * sums.itemsize, host.current().vector_bytes)
        self.vectors = max(1, wide // size)
        panels = max(1, -(-lhs.rows // (height * wide // (self.vectors * size))))
        self.height = max(1, -(-lhs.rows // panels))  # all about as high: low ones cost nearly as much
        pieces = max(1, -(-self.depth * sums.itemsize // DEPTH_BYTES))
        self.steps = max(1, -(-self.depth // pieces))
        self.left = self.left_room()

    def run(self, target: Buffer, init: Tile | None) -> None:
        """Emit it. The target has the dtype of the sums, and its columns are neighbours in memory."""
        self.start(target, init)
        if self.span is not None:
            self.run_span(target, self.span)
            return
        packed = self.packed()
        for first, stop, steps in cut(self.depth, self.steps):
            with self.e.loop(first, stop, steps) as k:
                self.run_piece(target, self.whole_piece(packed, k, steps))

    def whole_piece(self, packed: V, k: Index, steps: int) -> Piece:
        """All of some steps, packed behind those before them."""
        place = self.e.pointer(packed, self.e.mul(k, self.rhs.columns), self.word.itemsize)
        return Piece(k, steps, k, steps, place, steps)

    def run_piece(self, target: Buffer, piece: Piece) -> None:
        """Add the product of some steps."""
        for top, bottom, height in cut(self.lhs.rows, self.height):
            with self.e.loop(top, bottom, height) as row:
                if self.lhs.rows * self.depth * self.rhs.columns > LONG:
                    self.scope.function.look()
                self.lay_out(row, height, piece)
                self.multiply(target, piece, row, height)

    def run_span(self, target: Buffer, span: Span) -> None:
        """Add the product of the steps of a span, from whole vectors of the left operand around them."""
        e, lanes = self.e, registers.LANES
        low, high = map(e.index, span)
        steps = -(-self.steps // lanes) * lanes
        aligned = e.binary("and", low, V(str(-lanes), "i64"))
        behind = e.binary("and", e.index(e.add(high, lanes - 1)), V(str(-lanes), "i64"))
        some = e.compare("icmp slt", low, high)
        room = self.scope.arena.buffer(e, (steps * self.rhs.columns,), self.word)
        with e.loop(aligned, e.select(some, high, aligned), steps) as k:
            begin = e.intrinsic("smax", "i64", e.index(k), low)
            end = e.intrinsic("smin", "i64", e.index(e.add(k, steps)), high)
            laid = e.intrinsic("smin", "i64", V(str(steps), "i64"), e.index(e.sub(behind, k)))
            piece = Piece(k, laid, begin, e.sub(end, begin), room.base, steps)
            count = e.index(piece.count)
            whole = e.binary("and", count, V(str(-TOGETHER), "i64"))
            self.pack_steps(piece, 0, whole, TOGETHER)
            self.pack_steps(piece, whole, count, 1)
            self.run_piece(target, piece)

    def start(self, target: Buffer, init: Tile | None) -> None:
        """Write what the product is added to, zero if there is nothing."""
        if init is None:
            register = registers.register(self.sums)
            write(self.e, Tile(target.type, lambda index, width: self.e.constant(0, vector(register, width))), target)
        elif not init.shape:
            write(self.e, Tile(target.type, lambda index, width: init.at((), width)), target)
        elif init.buffer is None or (init.buffer.base, init.buffer.strides) != (target.base, target.strides):
            write(self.e, init, target)

    def column_panels(self) -> Iterator[tuple[int, int, int, int]]:
        """How the columns are cut: (first, end, vectors of a panel, lanes of a vector)."""
        for start, end, width in widths(self.rhs.columns):
            vectors = self.vectors if width == registers.LANES else 1
            for first, stop, size in cut(end - start, width * vectors):
                if size == width * vectors:
                    yield start + first, start + stop, vectors, width
                else:
                    yield start + first, start + stop, 1, width

    # The right operand.

    def packed(self) -> V:
        """The address of the packed right operand, packed unless it still is."""
        size = max(1, self.depth * self.rhs.columns)
        steady, notes = self.rhs.steady, self.scope.function.notes
        slot, slots = self.scope.function.innermost
        if steady is None or slots * size * self.sums.itemsize > KEPT_BYTES:
            slot, slots = 0, 1
        room = self.scope.arena.buffer(self.e, (slots, size), self.word)
        place = room.address(self.e, (slot, 0))
        noted = notes.take(slots) if steady is not None and notes is not None else None
        if steady is None or noted is None:
            self.pack(place)
        else:
            self.scope.function.packed.update(self.rhs.reads)
            self.pack_once(place, steady, noted.address(self.e, (slot,)))
        return place

    def pack_once(self, place: V, steady: Buffer, note: V) -> None:
        """Pack unless the note says that this block is what was packed here last.

        A block that reaches past the edge of its array is a copy in the arena and changes: it is never noted.
        """
        e = self.e
        key = e.value("i64", f"ptrtoint {steady.base} to i64")
        arena = e.value("i64", f"ptrtoint {self.scope.arena.base} to i64")
        size = e.load("i64", V("@arena_size", "ptr"), 8)
        elsewhere = e.compare("icmp uge", e.binary("sub", key, arena), size)
        same = e.compare("icmp eq", key, e.load("i64", note, 8))
        kept = e.binary("and", same, elsewhere)
        with e.when(e.binary("xor", kept, V("true", "i1"))):
            self.pack(place)
            e.store(e.select(elsewhere, key, V("0", "i64")), note, 8)

    def pack(self, place: V) -> None:
        """Compute the right operand into panels: for each piece of the depth, panel by panel, step by step.

        It is read some whole rows at a time: of one panel after the other, there would be a page for every few bytes.
        """
        e = self.e
        together = TOGETHER if self.rhs.transposed is None else registers.LANES
        for first, stop, steps in cut(self.depth, self.steps):
            for top, bottom, size in cut(steps, together):
                with e.loop(first, stop, steps) as k:
                    self.pack_steps(self.whole_piece(place, k, steps), top, bottom, size)

    def pack_steps(self, piece: Piece, top: Index, bottom: Index, size: int) -> None:
        """Pack steps of a piece, from the one below the other, so many at a time."""
        e = self.e
        with e.loop(top, bottom, size) as step:
            for start, end, vectors, width in self.column_panels():
                with e.loop(start, end, vectors * width) as column:
                    base = e.pointer(self.panel(piece, column), e.mul(step, vectors * width), self.word.itemsize)
                    rows = Buffer(base, (vectors * width, 1), (size, vectors * width), self.word)
                    self.pack_panel(rows, e.add(piece.begin, step), column, vectors, width)

    def panel(self, piece: Piece, column: Index) -> V:
        """Where the panel of some columns is."""
        return self.e.pointer(piece.packed, self.e.mul(column, piece.room), self.word.itemsize)

    def pack_panel(self, panel: Buffer, k: Index, column: Index, vectors: int, width: int) -> None:
        e, steps = self.e, panel.shape[0]
        if self.rhs.transposed is not None and width > 1:
            for n in range(vectors):
                for first, stop, size in cut(steps, width):
                    with e.loop(first, stop, size) as step:
                        self.pack_square(panel, (k, step), (column, n * width), size, width)
            return
        with e.loop(0, steps) as step:
            for n in range(vectors):
                value = self.rhs.element(e.add(k, step), e.add(column, n * width), width)
                panel.put(e, (step, n * width), value, width)

    def pack_square(
        self, panel: Buffer, step: tuple[Index, Index], column: tuple[Index, int], size: int, width: int
    ) -> None:
        """`size` steps of one vector of columns, read along the steps and transposed in registers."""
        e = self.e
        k = e.add(*step)
        at = self.rhs.transposed or self.rhs.element
        if size < width:
            rows = [self.rhs.element(e.add(k, s), e.add(*column), width) for s in range(size)]
        else:
            rows = transposed(e, [at(k, e.add(e.add(*column), lane), width) for lane in range(width)])
        for s, row in enumerate(rows):
            panel.put(e, (e.add(step[1], s), column[1]), row, width)

    # The left operand.

    def left_room(self) -> Buffer:
        """Where a panel of the left operand is laid out: by rows, or by columns if it lies in memory so."""
        size = self.height * (self.steps + _APART)
        room = self.scope.arena.buffer(self.e, (size,), self.word)
        strides = (1, self.height) if self.lhs.transposed else (self.steps + _APART, 1)
        return Buffer(room.base, strides, (self.height, self.steps), self.word)

    def lay_out(self, row: Index, height: int, piece: Piece) -> None:
        e, k = self.e, piece.first
        if self.lhs.transposed is not None:
            flipped = Buffer(self.left.base, self.left.strides[::-1], self.left.shape[::-1], self.word)
            with e.loop(0, piece.laid) as step:
                for start, end, width in widths(height):
                    for r in range(start, end, width):
                        value = self.lhs.transposed(e.add(row, r), e.add(k, step), width)
                        flipped.put(e, (step, r), value, width)
            return
        # A number that is not known is one of whole vectors.
        known = isinstance(piece.laid, int)
        for start, end, width in widths(piece.laid) if known else ((0, piece.laid, registers.LANES),):
            with e.loop(start, end, width) as step:
                for r in range(height):
                    self.left.put(e, (r, step), self.lhs.element(e.add(row, r), e.add(k, step), width), width)

    # The product of a panel with all panels.

    def multiply(self, target: Buffer, piece: Piece, row: Index, height: int) -> None:
        e = self.e
        skipped = e.mul(e.sub(piece.begin, piece.first) if piece.begin is not piece.first else 0, self.left.strides[1])
        left = e.pointer(self.left.base, skipped, self.word.itemsize)
        for start, end, vectors, width in self.column_panels():
            name = self.kernel(height, vectors, width)
            with e.loop(start, end, vectors * width) as column:
                ahead = self.ahead(piece, row, column)
                panel = self.panel(piece, column)
                place = target.address(e, (row, column))
                stride = e.index(e.mul(target.strides[0], self.sums.itemsize))
                e.line(f"call void @{name}({left}, {panel}, {place}, {stride}, {e.index(piece.count)}{ahead})")

    def ahead(self, piece: Piece, row: Index, column: Index) -> str:
        """The arguments of a micro-kernel that say what it asks memory for: once for all rows, else nothing far."""
        e, arguments = self.e, ""
        for line in self.rhs.lines:
            place = e.add(e.mul(column, line.itemsize), e.mul(piece.first, line.stride))
            address, stride = e.pointer(line.base, place, 1), line.stride
            if not isinstance(row, int):
                first = e.compare("icmp eq", row, V("0", "i64"))
                address, stride = e.select(first, address, self.left.base), e.choose(first, stride, 0)
            elif row > 0:
                address, stride = self.left.base, 0
            arguments += f", {address}, {e.index(stride)}"
        return arguments

    def kernel(self, height: int, vectors: int, width: int) -> str:
        """The micro-kernel for blocks of `height` rows of `vectors` vectors, by name."""
        strides: tuple[int, int] = self.left.strides  # type: ignore[assignment]
        name = f"multiply_{'pairs' if self.pairs else self.sums}_{height}x{vectors}x{width}_{strides[0]}_{strides[1]}"
        name += f"_ahead{len(self.rhs.lines)}" if self.rhs.lines else ""
        declared = self.e.declared
        if name not in declared:
            text, needed = micro_kernel(
                name, self.sums, self.word, (height, vectors, width), strides, len(self.rhs.lines)
            )
            declared.update(needed)
            declared[name] = text
        return name


def micro_kernel(
    name: str, sums: DType, word: DType, size: tuple[int, int, int], strides: tuple[int, int], lines: int = 0
) -> tuple[str, dict[str, str]]:
    """A function that adds a panel of rows times a panel of columns to a block of sums, and what it declares.

    Its arguments are the two panels, the sums, the bytes between rows of sums, and the number of steps, at least 1;
    then addresses, and bytes between them for each step, for which memory is asked meanwhile.

    Args:
        word: the dtype of the elements of the panels: that of the sums, or int32 for pairs of bfloat16.
        size: (rows, vectors of each row, lanes of each vector).
        strides: elements between the rows, and between the steps, of the left panel.
        lines: how many addresses memory is asked for in each step.
    """
    e = Emitter()
    height, vectors, width = size
    type, itemsize = vector(registers.register(sums), width), sums.itemsize
    multiply = multiply_add if word == sums else multiply_pairs
    targets = []
    row = V("%sums", "ptr")
    for r in range(height):
        row = e.value("ptr", f"getelementptr i8, ptr {row.text}, i64 %stride") if r else row
        targets += [e.pointer(row, n * width, itemsize) for n in range(vectors)]
    start = [e.load(type, target, itemsize) for target in targets]
    totals = [V(f"%total{n}", type) for n in range(len(targets))]
    e.jump("steps")
    e.label("steps")
    patch = len(e.lines)
    e.lines += [""] * (len(targets) + 3 + lines)
    left, right, k = V("%left", "ptr"), V("%right", "ptr"), V("%k", "i64")
    words = vector(registers.register(word), width)
    asked = [V(f"%ahead{n}", "ptr") for n in range(lines)]
    for address in asked:
        e.prefetch(address)
    columns = [e.load(words, e.pointer(right, n * width, itemsize), itemsize) for n in range(vectors)]
    sums_now = []
    for r in range(height):
        element = e.load(registers.register(word), e.pointer(left, r * strides[0], itemsize), itemsize)
        spread = e.splat(element, width)
        sums_now += [multiply(e, spread, columns[n], totals[r * vectors + n]) for n in range(vectors)]
    moves = {
        left: ("%lhs", e.pointer(left, strides[1], itemsize)),
        right: ("%rhs", e.pointer(right, vectors * width, itemsize)),
        k: ("%count", e.value("i64", "sub nuw nsw i64 %k, 1")),
    }
    for n, address in enumerate(asked):
        after = e.value("ptr", f"getelementptr i8, ptr {address.text}, i64 %stride{n}")
        moves[address] = (f"%from{n}", after)
    more = e.compare("icmp ne", moves[k][1], V("0", "i64"))
    e.branch(more, "steps", "done")
    phis = [(var, before, after.text) for var, (before, after) in moves.items()]
    phis += [(t, s.text, now.text) for t, s, now in zip(totals, start, sums_now, strict=True)]
    e.lines[patch : patch + len(phis)] = [
        f"  {var.text} = phi {var.type} [ {before}, %entry ], [ {after}, %steps ]" for var, before, after in phis
    ]
    e.label("done")
    for total, target in zip(sums_now, targets, strict=True):
        e.store(total, target, itemsize)
    head = (
        f"define internal void @{name}(ptr noalias readonly %lhs, ptr noalias readonly %rhs, ptr noalias %sums, "
        "i64 %stride, i64 %count" + "".join(f", ptr %from{n}, i64 %stride{n}" for n in range(lines)) + ") "
        "noinline nounwind"
    )
    return "\n".join([head + " {", "entry:", *e.lines, "  ret void", "}"]), e.declared


def multiply_add(e: Emitter, x: V, y: V, total: V) -> V:
    """`x * y + total`."""
    if element_of(total.type) in ("float", "double"):
        return registers.multiply_add(e, x, y, total)
    return e.binary("add", total, e.binary("mul", x, y))


def multiply_pairs(e: Emitter, x: V, y: V, total: V) -> V:
    """`x[0] * y[0] + x[1] * y[1] + total` of pairs of bfloat16, in float32 (VDPBF16PS; it takes subnormals for 0)."""
    pairs = [e.value("<32 x bfloat>", f"bitcast {value} to <32 x bfloat>") for value in (x, y)]
    return e.intrinsic("x86.avx512bf16.dpbf16ps", total.type, total, *pairs, suffix="512")


def transposed(e: Emitter, rows: list[V]) -> list[V]:
    """A square of vectors, a power of two of them, transposed: pairs of halves change places, ever smaller ones."""
    count = len(rows)
    half = count // 2
    while half:
        for first in range(0, count, 2 * half):
            for n in range(first, first + half):
                upper, lower = rows[n], rows[n + half]
                low = [i for i in range(count) if not i & half]
                rows[n] = _shuffled(e, upper, lower, {i: i for i in low} | {i + half: count + i for i in low})
                rows[n + half] = _shuffled(
                    e, upper, lower, {i: i + half for i in low} | {i + half: count + i + half for i in low}
                )
        half //= 2
    return rows


def _shuffled(e: Emitter, x: V, y: V, lanes: dict[int, int]) -> V:
    """A vector with lane i from lane `lanes[i]` of both vectors side by side."""
    mask = ", ".join(f"i32 {lanes[lane]}" for lane in range(len(lanes)))
    return e.value(x.type, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")
