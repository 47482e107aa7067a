"""Micro-kernels of matrix products, as the text of LLVM functions, and their multiply instructions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import FALSE, Emitter, V, i64
from palladio.cpu.emit.llvm_types import BFLOAT, I1, I8, I16, I64, PTR, LlvmType, integer, vector
from palladio.cpu.runtime import host
from palladio.types.dtypes import DType

LINE_BYTES = 64

STEPS_AHEAD = 16
"""The prefetch distance, in steps, of packed columns, which come from a second-level or last-level cache."""

STEPS_TOGETHER = 2
"""The steps of a turn of the innermost loop. A processor with two multiplications a cycle executes 56 to 84
instructions in the 14 cycles of a step with 28 sums, which has 40. Advancing the addresses and ending the loop takes
four for each turn. With four steps, kernels that alternate between several short loops were slower."""

SUMS_TOGETHER = 4
"""The rows of the next block of sums that are prefetched together, in each line of steps: 8 lines of the cache, which
arrive in the 224 cycles of these. More would be waited for, with fewer a short group ends before all are prefetched."""

ROWS_AHEAD = 24
"""The prefetch distance of rows that are packed: multiplying them takes as long as the latency of memory."""


def micro_kernel(
    name: str,
    sums: DType,
    word: DType,
    size: tuple[int, int, int],
    strides: tuple[int, int],
    streams: int = 0,
    packs: bool = False,
    rounds: bool = False,
    joined: int = 1,
    begins: bool = False,
    rows: int = 0,
) -> tuple[str, dict[str, str]]:
    """A function that adds a panel of rows times a panel of columns to a block of sums, and its declarations.

    Its arguments are the two panels, the sums, the bytes between rows of sums, the number of steps, at least 1, and
    whether the sums begin at zero, or at given values, instead of those in memory. Then, for each stream of memory to
    prefetch: its first row, the last line of its last row, and the bytes between rows; the start of this call, as bytes
    from the first row and a position in 1/65536 of a line; the position at which a row ends; and the increment of the
    position in each step. Whenever the position has moved by a line, that line is prefetched, and the one at the same
    distance from the end.

    Then, with `rows`, the first row of a later left panel to prefetch, the bytes between its rows, and those that a
    line of steps takes there; the sums of the next call, and the bytes between their rows. Before each line of steps, a
    part of each of `rows` rows is prefetched, and some rows of the sums until all are.

    Args:
        word: the dtype of the elements of the panels: that of the sums, or int32 for pairs and quads.
        size: (rows, vectors of each row, lanes of each vector).
        strides: elements between the rows, and between the steps, of the left panel.
        streams: their number.
        packs: whether the right panel is packed by this call. Further arguments are the address of its unpacked rows
            and the bytes between them; `joined` rows make one row of words.
        rounds: whether the sums, which begin at zero, are written rounded to bfloat16.
        joined: neighbours along the summed axis in a word: 1, a pair of bfloat16, or a quad of 8-bit integers.
        begins: whether the sums of each row begin at given values. A last argument is their address.
        rows: the number of rows of a later left panel that are prefetched. Steps of both are neighbours in memory.
    """
    e = Emitter()
    kernel = _MicroKernel(e, sums, word, size, strides, packs, rounds, joined, begins, rows)
    found = [Stream(e, n) for n in range(streams)]
    if not rounds:
        with e.when(e.negated(V("%fresh", I1))):
            kernel.load_sums()
    if rows:
        kernel.prefetching_lines(found)
    elif streams:
        kernel.prefetching(found)
    else:
        kernel.until(i64(0), together=1 if packs else STEPS_TOGETHER)
    kernel.store_sums()
    return "\n".join([_head(name, streams, packs, begins, rows > 0) + " {", *e.lines, "  ret void", "}"]), e.declared


class _MicroKernel:
    """A micro-kernel while it is emitted; the arguments are those of `micro_kernel`.

    Fields:
        targets: the addresses of the sums, vector by vector.
        totals: the sums.
        left, right, source: the addresses of the current step in both panels, and in the unpacked rows.
        remaining: the number of steps that are still to be multiplied.
        far: the address in the left panel to prefetch next.
        following, next: those in rows of a later left panel, and in the sums of the next call.
        missing: the rows of these sums that are still to be prefetched.
    """

    def __init__(
        self,
        e: Emitter,
        sums: DType,
        word: DType,
        size: tuple[int, int, int],
        strides: tuple[int, int],
        packs: bool,
        rounds: bool,
        joined: int,
        begins: bool,
        rows: int,
    ) -> None:
        self.e = e
        self.sums = sums
        self.word = word
        self.height, self.vectors, self.width = size
        self.strides = strides
        self.packs = packs
        self.rounds = rounds
        self.joined = joined
        self.rows = rows
        e.label("entry")
        self.targets = _sums_at(e, self.height, self.vectors, self.width * self.stored)
        register = vector(registers.register(sums), self.width)
        first = [V("zeroinitializer", register)] * self.vectors
        if begins:
            places = (e.pointer(V("%begin", PTR), n * self.width, sums.itemsize) for n in range(self.vectors))
            first = [e.load(register, place, sums.itemsize) for place in places]
        self.totals = [Variable.of(e, value) for _ in range(self.height) for value in first]
        self.left, self.right = (Variable.of(e, V(panel, PTR)) for panel in ("%lhs", "%rhs"))
        self.remaining = Variable.of(e, V("%count", I64))
        self.far = Variable.of(e, V("%lhs", PTR))
        if rows:
            self.following, self.next = (Variable.of(e, V(name, PTR)) for name in ("%following", "%next"))
            self.missing = Variable.of(e, i64(self.height))
        if packs:
            self.source = Variable.of(e, V("%unpacked", PTR))
            e.line(f"%rows = shl i64 %row, {joined.bit_length() - 1}")
            e.line(f"%far = mul i64 %rows, {ROWS_AHEAD}")

    @property
    def stored(self) -> int:
        """The bytes of a sum in memory."""
        return 2 if self.rounds else self.sums.itemsize

    def load_sums(self) -> None:
        """Begin with the values in memory."""
        for total, target in zip(self.totals, self.targets, strict=True):
            total.set(self.e.load(total.type, target, self.sums.itemsize))

    def store_sums(self) -> None:
        e = self.e
        for total, target in zip(self.totals, self.targets, strict=True):
            value = rounded_pairs(e, [total.get()]) if self.rounds else total.get()
            e.store(value, target, self.stored)

    def prefetching(self, streams: Sequence[Stream]) -> None:
        """All steps, and prefetches from streams."""
        e = self.e
        interval = _interval(e, streams)
        for stream in streams:
            stream.begin(interval)
        with e.repeat(lambda: e.compare("icmp ne", self.remaining.get(), i64(0))):
            for stream in streams:
                stream.advance()
            last = self.after(interval)
            if self.strides[1] != 1:
                self.until(last, self.prefetch_steps)
            else:
                self.lines_until(last)

    def prefetching_lines(self, streams: Sequence[Stream]) -> None:
        """All steps, and prefetches, also from streams, between lines of them."""
        for stream in streams:
            stream.begin(i64(self.line_steps))

        def prefetch() -> None:
            for stream in streams:
                stream.advance()
            self.prefetch_next()

        self.lines_until(i64(0), prefetch)

    def lines_until(self, last: V, prefetch: Callable[[], None] = lambda: None) -> None:
        """Steps until only `last` remain, a line of each row of the left panel at a time, with prefetches from it."""
        e, steps = self.e, self.line_steps
        with e.repeat(functools.partial(self.remain, last, steps)):
            prefetch()
            self.far.set(e.pointer(self.left.get(), 2 * LINE_BYTES, 1))
            together = 1 if self.packs else STEPS_TOGETHER
            end = e.pointer(self.left.get(), steps * self.strides[1], self.word.itemsize)
            with e.repeat(functools.partial(self.before, end)):
                self.steps(together, self.prefetch_rows)
            self.remaining.set(e.binary("sub nuw nsw", self.remaining.get(), i64(steps)))
        self.far.set(e.pointer(self.left.get(), 2 * LINE_BYTES, 1))
        self.until(last, self.prefetch_rows)

    def remain(self, last: V, steps: int) -> V:
        """True if at least some steps remain before the last ones."""
        return self.e.compare("icmp ugt", self.remaining.get(), self.e.index(self.e.add(last, steps - 1)))

    def before(self, end: V) -> V:
        """True if the current step in the left panel is not yet at an address."""
        return self.e.compare("icmp ne", self.left.get(), end)

    def after(self, steps: V) -> V:
        """The number of steps that remain after some."""
        return self.e.intrinsic("usub.sat", I64, self.remaining.get(), steps)

    @property
    def line_steps(self) -> int:
        """The steps of a row of the left panel in a line of the cache."""
        return LINE_BYTES // self.word.itemsize

    def prefetch_steps(self) -> None:
        """Prefetch a later step of a left panel whose steps are neighbours in memory."""
        self.e.prefetch(self.e.pointer(self.left.get(), STEPS_AHEAD * self.strides[1], self.word.itemsize), level=1)

    def prefetch_next(self) -> None:
        """Prefetch a line of each row of a later left panel, and some rows of the next sums."""
        e, row = self.e, self.following.get()
        self.following.set(e.value(PTR, f"getelementptr i8, {row}, i64 %line"))
        for n in range(self.rows):
            row = e.value(PTR, f"getelementptr i8, {row}, i64 %between") if n else row
            e.prefetch(row)
        with e.when(e.compare("icmp sgt", self.missing.get(), i64(0))):
            place = self.next.get()
            for _ in range(SUMS_TOGETHER):
                for offset in range(0, self.vectors * self.width * self.stored, LINE_BYTES):
                    e.prefetch(e.pointer(place, offset, 1))
                place = e.value(PTR, f"getelementptr i8, {place}, i64 %apart")
            self.next.set(place)
            self.missing.set(e.binary("sub", self.missing.get(), i64(SUMS_TOGETHER)))

    def prefetch_rows(self) -> None:
        """Prefetch lines of a left panel whose rows are far apart: in each step of a line those of other rows."""
        for _ in range(-(-self.height // self.line_steps)):
            self.e.prefetch(self.far.get(), level=1)
            self.far.set(self.e.pointer(self.far.get(), self.strides[0], self.word.itemsize))

    def until(self, last: V, prefetch: Callable[[], None] = lambda: None, together: int = 1) -> None:
        """Steps until only `last` remain, some together while there are as many, with prefetches from the left."""
        e = self.e
        for count in sorted({1, together}, reverse=True):
            with e.repeat(functools.partial(self.remain, last, count)):
                self.steps(count, prefetch)
                self.remaining.set(e.binary("sub nuw nsw", self.remaining.get(), i64(count)))

    def steps(self, count: int, prefetch: Callable[[], None]) -> None:
        """Some steps one after the other, with prefetches in each."""
        self.left.set(in_a_register(self.e, self.left.get()))
        totals = [total.get() for total in self.totals]
        for _ in range(count):
            prefetch()
            totals = self.step(totals)
        for total, value in zip(self.totals, totals, strict=True):
            total.set(value)

    def step(self, totals: Sequence[V]) -> list[V]:
        """The sums, plus a step of the left panel times one of the right panel."""
        e, size = self.e, self.vectors * self.width * self.sums.itemsize
        place = self.right.get()
        columns = self.packed(place) if self.packs else self.columns(place, size)
        lefts = [e.pointer(self.left.get(), r * self.strides[0], self.word.itemsize) for r in range(self.height)]
        found = _multiplied(e, lefts, self.word, columns, totals, self.joined)
        self.left.set(e.pointer(self.left.get(), self.strides[1], self.word.itemsize))
        self.right.set(e.pointer(place, size, 1))
        return found

    def columns(self, place: V, size: int) -> list[V]:
        """A step of the packed right panel; that of a later step is prefetched if there is time."""
        e = self.e
        for offset in range(0, size if host.current().prefetches else 0, LINE_BYTES):
            e.prefetch(e.pointer(place, STEPS_AHEAD * size + offset, 1), level=1)
        return [e.load(self.words, each, self.word.itemsize) for each in self.places(place)]

    def packed(self, place: V) -> list[V]:
        """A step of the right panel, read from its unpacked rows, and packed."""
        e = self.e
        columns = unpacked(e, self.source.get(), self.words, self.vectors, self.joined)
        for value, each in zip(columns, self.places(place), strict=True):
            e.store(value, each, self.word.itemsize)
        self.source.set(e.value(PTR, f"getelementptr i8, {self.source.get()}, i64 %rows"))
        return columns

    @property
    def words(self) -> LlvmType:
        """A vector of the right panel."""
        return vector(registers.register(self.word), self.width)

    def places(self, place: V) -> list[V]:
        """The addresses of the vectors of a step of the right panel."""
        return [self.e.pointer(place, n * self.width, self.word.itemsize) for n in range(self.vectors)]


@dataclass(frozen=True)
class Variable:
    """A variable of a function, which LLVM keeps in a register."""

    e: Emitter
    place: V
    type: LlvmType

    @staticmethod
    def of(e: Emitter, start: V) -> Variable:
        """A variable with its first value. It must be made in the first block of a function."""
        found = Variable(e, e.value(PTR, f"alloca {start.type}"), start.type)
        found.set(start)
        return found

    def get(self) -> V:
        return self.e.value(self.type, f"load {self.type}, {self.place}")

    def set(self, value: V) -> None:
        self.e.line(f"store {value}, {self.place}")


def _head(name: str, streams: int, packs: bool, begins: bool, prefetches: bool) -> str:
    """The function with its parameters."""
    parameters = ["ptr noalias readonly %lhs", f"ptr noalias {'' if packs else 'readonly '}%rhs", "ptr noalias %sums"]
    parameters += ["i64 %stride", "i64 %count", "i1 %fresh"]
    for n in range(streams):
        parameters += [f"ptr %from{n}", f"ptr %until{n}", f"i64 %between{n}", f"i64 %row{n}", f"i64 %position{n}"]
        parameters += [f"i64 %end{n}", f"i64 %step{n}"]
    if prefetches:
        parameters += ["ptr %following", "i64 %between", "i64 %line", "ptr %next", "i64 %apart"]
    if packs:
        parameters += ["ptr noalias readonly %unpacked", "i64 %row"]
    parameters += ["ptr noalias readonly %begin"] if begins else []
    return f"define internal void @{name}({', '.join(parameters)}) noinline nounwind"


def _sums_at(e: Emitter, height: int, vectors: int, bytes: int) -> list[V]:
    """The addresses of a block of sums, vector by vector."""
    found, row = [], V("%sums", PTR)
    for r in range(height):
        row = e.value(PTR, f"getelementptr i8, ptr {row.text}, i64 %stride") if r else row
        found += [e.pointer(row, n * bytes, 1) for n in range(vectors)]
    return found


def _multiplied(
    e: Emitter, lefts: Sequence[V], word: DType, columns: Sequence[V], totals: Sequence[V], joined: int
) -> list[V]:
    """The sums, plus each element of a step of the left panel, given by address, times the vectors of the right one."""
    found: list[V] = []
    multiply = {1: multiply_add, 2: multiply_pairs, 4: multiply_quads}[joined]
    instruction = _instruction_with_memory(columns[0].type) if joined == 1 else ""
    for row, place in enumerate(lefts):
        mine = zip(columns, totals[row * len(columns) : (row + 1) * len(columns)], strict=True)
        if instruction and row % 2:
            found += [_multiply_in_memory(e, instruction, place, column, total) for column, total in mine]
            continue
        element = e.load(registers.register(word), place, word.itemsize)
        spread = e.splat(element, columns[0].type.width)
        found += [multiply(e, spread, column, total) for column, total in mine]
    return found


def _instruction_with_memory(columns: LlvmType) -> str:
    """The instruction that multiplies a vector by an element in memory and adds the product; empty if there is none."""
    if not host.current().multiplies_elements or columns.width * columns.bits != 512:
        return ""
    return {"float": "vfmadd231ps", "double": "vfmadd231pd"}.get(columns.scalar, "")


def _multiply_in_memory(e: Emitter, instruction: str, place: V, column: V, total: V) -> V:
    """The sums plus an element in memory times a vector, by one instruction that reads the element.

    A load that several multiplications share takes an instruction of its own, so LLVM never forms these.
    """
    words = column.type
    text = f'"{instruction} $1{{1to{words.width}}}, $2, $0", "=v,*m,v,0"'
    given = f"ptr elementtype({words.scalar}) {place.text}, {column}, {total}"
    return e.value(total.type, f"call {total.type} asm {text}({given})")


def in_a_register(e: Emitter, address: V) -> V:
    """The same address, from which LLVM addresses memory by one register.

    A multiplication with memory that is addressed by two registers counts as two instructions. LLVM forms such
    addresses where it knows how one changes in a loop; this hides it.
    """
    if not host.current().multiplies_elements:
        return address
    return e.value(PTR, f'call ptr asm "", "=r,0"({address})')


class Stream:
    """The state of a stream in a micro-kernel: its position, and the row that it is in.

    A step of multiplications takes some ten cycles, in which a processor executes few other instructions. So the state
    advances once in 16 to 128 steps. There are no branches to mispredict: a line is prefetched again until the position
    has passed it, and a faster stream advances in several turns, whose number is the same throughout a call.
    """

    def __init__(self, e: Emitter, n: int) -> None:
        self.e = e
        self.n = n
        self.position = Variable.of(e, V(f"%position{n}", I64))
        self.row = Variable.of(e, V(f"%row{n}", I64))
        self.pace = e.intrinsic("umin", I64, V(f"%step{n}", I64), i64(65536))
        self.turns = i64(1)

    def begin(self, steps: V) -> None:
        """Set the number of turns that the state advances in, and the pace of one, for each interval of some steps."""
        e = self.e
        pace = e.binary("mul", self.pace, e.intrinsic("umin", I64, V("%count", I64), steps))
        doublings = _bits(e, e.binary("lshr", e.intrinsic("usub.sat", I64, pace, i64(1)), i64(16)))
        self.turns = e.binary("shl", i64(1), doublings)
        self.pace = e.binary("lshr", pace, doublings)

    def advance(self) -> None:
        """Move by some steps, and prefetch the lines that are passed."""
        with self.e.loop(0, self.turns):
            self.turn()

    def turn(self) -> None:
        """Prefetch a line from either end, and move by at most a line."""
        e, n = self.e, self.n
        position, row, end = self.position.get(), self.row.get(), V(f"%end{n}", I64)
        line = e.binary("and", e.binary("lshr", position, i64(10)), i64(-LINE_BYTES))
        offset = e.index(e.add(row, line))
        e.prefetch(e.value(PTR, f"getelementptr i8, ptr %from{n}, {offset}"))
        back = e.binary("sub", i64(0), offset)
        e.prefetch(e.value(PTR, f"getelementptr i8, ptr %until{n}, {back}"))
        moved = e.binary("add", position, self.pace)
        over = e.compare("icmp sge", moved, end)
        self.position.set(e.select(over, e.binary("sub", moved, end), moved))
        self.row.set(e.select(over, e.binary("add", row, V(f"%between{n}", I64)), row))


def _bits(e: Emitter, value: V) -> V:
    """The bits of a number without its leading zeros."""
    return e.binary("sub", i64(64), e.intrinsic("ctlz", I64, value, FALSE, suffix="i64"))


def _interval(e: Emitter, streams: Sequence[Stream]) -> V:
    """The number of steps after which the fastest of some streams has moved by half a line or more: a power of two."""
    fastest = functools.reduce(lambda x, y: e.intrinsic("umax", I64, x, y), [each.pace for each in streams])
    bits = e.intrinsic("usub.sat", I64, i64(16), _bits(e, e.intrinsic("usub.sat", I64, fastest, i64(1))))
    clamped = e.intrinsic("umin", I64, e.intrinsic("umax", I64, bits, i64(4)), i64(7))
    return e.binary("shl", i64(1), clamped)


def unpacked(e: Emitter, source: V, words: LlvmType, vectors: int, joined: int) -> list[V]:
    """One step of a right panel, read from its unpacked rows; that of a later step is prefetched."""
    width, itemsize = words.width, words.bits // 8
    rows = [source]
    while len(rows) < joined:
        rows.append(e.value(PTR, f"getelementptr i8, {rows[-1]}, i64 %row"))
    size = vectors * width * itemsize // joined
    for row in rows:
        far = e.value(PTR, f"getelementptr i8, {row}, i64 %far")
        # Rows seldom begin with a line, so the last byte is in one more line.
        for offset in (*range(0, size, LINE_BYTES), size - 1):
            e.prefetch(e.pointer(far, offset, 1))
    if joined == 1:
        return [e.load(words, e.pointer(source, n * width, itemsize), itemsize) for n in range(vectors)]
    found = []
    for n in range(vectors):
        part = itemsize // joined
        parts = [e.load(vector(integer(8 * part), width), e.pointer(row, n * width, part), part) for row in rows]
        found.append(interleaved(e, parts))
    return found


def interleaved(e: Emitter, parts: Sequence[V]) -> V:
    """Some vectors joined element by element into words, with the first vector in the lowest bits."""
    parts = list(parts)
    while len(parts) > 1:
        width, bits = parts[0].type.width, parts[0].type.bits
        lanes = ", ".join(f"i32 {lane}, i32 {width + lane}" for lane in range(width))
        for n in range(len(parts) // 2):
            x, y = parts[n : n + 2]
            both = e.value(vector(x.type, 2 * width), f"shufflevector {x}, {y}, <{2 * width} x i32> <{lanes}>")
            wide = vector(integer(2 * bits), width)
            parts[n : n + 2] = [e.value(wide, f"bitcast {both} to {wide}")]
    return parts[0]


def multiply_add(e: Emitter, x: V, y: V, total: V) -> V:
    """`x * y + total`."""
    if total.type.is_float:
        return registers.multiply_add(e, x, y, total)
    return e.binary("add", total, e.binary("mul", x, y))


def rounded_pairs(e: Emitter, parts: Sequence[V]) -> V:
    """One or two vectors of sixteen float32, side by side, rounded to bfloat16.

    None is subnormal: VCVTNEPS2BF16 and VCVTNE2PS2BF16 flush those to 0.
    """
    name, width = ("cvtneps2bf16", "cvtne2ps2bf16")[len(parts) - 1], 16 * len(parts)
    type = vector(BFLOAT, width)
    taken = ", ".join([str(parts[0].type)] * len(parts))
    e.declared[name] = f"declare {type} @llvm.x86.avx512bf16.{name}.512({taken})"
    given = ", ".join(map(str, reversed(parts)))  # the second operand has the lower lanes
    found = e.value(type, f"call {type} @llvm.x86.avx512bf16.{name}.512({given})")
    return e.convert("bitcast", found, I16)


def multiply_pairs(e: Emitter, x: V, y: V, total: V) -> V:
    """`x[0] * y[0] + x[1] * y[1] + total` of pairs of bfloat16, in float32 (VDPBF16PS; it flushes subnormals to 0)."""
    pairs = [e.value(vector(BFLOAT, 32), f"bitcast {value} to <32 x bfloat>") for value in (x, y)]
    return e.intrinsic("x86.avx512bf16.dpbf16ps", total.type, total, *pairs, suffix="512")


def multiply_quads(e: Emitter, x: V, y: V, total: V) -> V:
    """`x[0] * y[0] + … + x[3] * y[3] + total` of quads of uint8 and int8, in int32, which wraps around (VPDPBUSD)."""
    quads = [e.value(vector(I8, 64), f"bitcast {value} to <64 x i8>") for value in (x, y)]
    return e.intrinsic("x86.avx512.vpdpbusd", total.type, total, *quads, suffix="512")


def transposed(e: Emitter, rows: list[V]) -> list[V]:
    """A power of two of vectors, as squares side by side, each transposed: ever smaller halves are swapped in pairs."""
    count, lanes = len(rows), rows[0].type.width
    half = count // 2
    while half:
        for first in range(0, count, 2 * half):
            for n in range(first, first + half):
                upper, lower = rows[n], rows[n + half]
                low = [i for i in range(lanes) if not i & half]
                rows[n] = _shuffled(e, upper, lower, {i: i for i in low} | {i + half: lanes + i for i in low})
                rows[n + half] = _shuffled(
                    e, upper, lower, {i: i + half for i in low} | {i + half: lanes + i + half for i in low}
                )
        half //= 2
    return rows


def _shuffled(e: Emitter, x: V, y: V, lanes: dict[int, int]) -> V:
    """A vector with lane i from lane `lanes[i]` of both vectors side by side."""
    mask = ", ".join(f"i32 {lanes[lane]}" for lane in range(len(lanes)))
    return e.value(x.type, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")
