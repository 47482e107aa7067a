"""Micro-kernels of matrix products, as the text of LLVM functions, and their multiply instructions."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, V, i64
from palladio.cpu.emit.llvm_types import BFLOAT, I1, I8, I16, I64, PTR, LlvmType, integer, vector
from palladio.types.dtypes import DType

LINE_BYTES = 64

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
) -> tuple[str, dict[str, str]]:
    """A function that adds a panel of rows times a panel of columns to a block of sums, and its declarations.

    Its arguments are the two panels, the sums, the bytes between rows of sums, the number of steps, at least 1, and
    whether the sums begin at zero instead of the values in memory. Then, for each stream of memory to prefetch: its
    first row, the last line of its last row, and the bytes between rows; the start of this call, as bytes from the
    first row and a position in 1/65536 of a line; the position at which a row ends; and the increment of the position
    in each step. Each step prefetches the line at that position, and the one at the same distance from the end.

    Args:
        word: the dtype of the elements of the panels: that of the sums, or int32 for pairs and quads.
        size: (rows, vectors of each row, lanes of each vector).
        strides: elements between the rows, and between the steps, of the left panel.
        streams: their number.
        packs: whether the right panel is packed by this call. Further arguments are the address of its unpacked rows
            and the bytes between them; `joined` rows make one row of words.
        rounds: whether the sums, which begin at zero, are written rounded to bfloat16.
        joined: neighbours along the summed axis in a word: 1, a pair of bfloat16, or a quad of 8-bit integers.
    """
    e = Emitter()
    height, vectors, width = size
    type, itemsize = vector(registers.register(sums), width), sums.itemsize
    e.label("entry")
    targets = _sums_at(e, height, vectors, width * (2 if rounds else itemsize))
    if packs:
        e.line(f"%rows = shl i64 %row, {max(1, joined.bit_length() - 1)}")
        e.line(f"%far = mul i64 %{'row' if joined == 1 else 'rows'}, {ROWS_AHEAD}")
    e.branch(V("%fresh", I1), "steps", "begun")
    e.label("begun")
    start = [V("zeroinitializer", type) if rounds else e.load(type, target, itemsize) for target in targets]
    totals = [V(f"%total{n}", type) for n in range(len(targets))]
    e.jump("steps")
    e.label("steps")
    patch = len(e.lines)
    e.lines += [""] * (len(targets) + 3 + 2 * streams + packs)
    left, right, k = V("%left", PTR), V("%right", PTR), V("%k", I64)
    words = vector(registers.register(word), width)
    prefetched = [prefetch_stream(e, n) for n in range(streams)]
    places = [e.pointer(right, n * width, itemsize) for n in range(vectors)]
    if packs:
        columns = unpacked(e, words, vectors, joined)
        for value, place in zip(columns, places, strict=True):
            e.store(value, place, itemsize)
    else:
        columns = [e.load(words, place, itemsize) for place in places]
    lefts = [e.pointer(left, r * strides[0], itemsize) for r in range(height)]
    sums_now = _multiplied(e, lefts, word, columns, totals, joined)
    moves = {
        left: ("%lhs", e.pointer(left, strides[1], itemsize)),
        right: ("%rhs", e.pointer(right, vectors * width, itemsize)),
        k: ("%count", e.value(I64, "sub nuw nsw i64 %k, 1")),
    }
    for pairs in prefetched:
        moves |= pairs
    if packs:
        source, stride = V("%source", PTR), V("%row" if joined == 1 else "%rows", I64)
        moves[source] = ("%unpacked", e.value(PTR, f"getelementptr i8, {source}, {stride}"))
    more = e.compare("icmp ne", moves[k][1], i64(0))
    e.branch(more, "steps", "done")
    zero = e.constant(0, type).text
    phis = [(var, before, before, after.text) for var, (before, after) in moves.items()]
    phis += [(t, zero, s.text, now.text) for t, s, now in zip(totals, start, sums_now, strict=True)]
    e.lines[patch : patch + len(phis)] = [
        f"  {var.text} = phi {var.type} [ {fresh}, %entry ], [ {begun}, %begun ], [ {after}, %steps ]"
        for var, fresh, begun, after in phis
    ]
    e.label("done")
    for total, target in zip(sums_now, targets, strict=True):
        e.store(rounded_pairs(e, total) if rounds else total, target, 2 if rounds else itemsize)
    return "\n".join([_head(name, streams, packs) + " {", *e.lines, "  ret void", "}"]), e.declared


def _head(name: str, streams: int, packs: bool) -> str:
    """The function with its parameters."""
    parameters = ["ptr noalias readonly %lhs", f"ptr noalias {'' if packs else 'readonly '}%rhs", "ptr noalias %sums"]
    parameters += ["i64 %stride", "i64 %count", "i1 %fresh"]
    for n in range(streams):
        parameters += [f"ptr %from{n}", f"ptr %until{n}", f"i64 %between{n}", f"i64 %row{n}", f"i64 %position{n}"]
        parameters += [f"i64 %end{n}", f"i64 %step{n}"]
    if packs:
        parameters += ["ptr noalias readonly %unpacked", "i64 %row"]
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
    for place in lefts:
        element = e.load(registers.register(word), place, word.itemsize)
        spread = e.splat(element, columns[0].type.width)
        found += [multiply(e, spread, column, totals[len(found) + n]) for n, column in enumerate(columns)]
    return found


def prefetch_stream(e: Emitter, n: int) -> dict[V, tuple[str, V]]:
    """Prefetch from a stream; returns the variables that this changes in each step: the first value, and the next."""
    row, position, end = V(f"%down{n}", I64), V(f"%ahead{n}", I64), V(f"%end{n}", I64)
    line = e.binary("and", e.binary("lshr", position, i64(10)), i64(-LINE_BYTES))
    offset = e.index(e.add(row, line))
    e.prefetch(e.value(PTR, f"getelementptr i8, ptr %from{n}, {offset}"))
    back = e.binary("sub", i64(0), offset)
    e.prefetch(e.value(PTR, f"getelementptr i8, ptr %until{n}, {back}"))
    moved = e.binary("add", position, V(f"%step{n}", I64))
    over = e.compare("icmp sge", moved, end)
    following = e.select(over, e.binary("sub", moved, end), moved)
    below = e.select(over, e.binary("add", row, V(f"%between{n}", I64)), row)
    return {row: (f"%row{n}", below), position: (f"%position{n}", following)}


def unpacked(e: Emitter, words: LlvmType, vectors: int, joined: int) -> list[V]:
    """One step of a right panel, read from its unpacked rows; that of a later step is prefetched."""
    width, itemsize = words.width, words.bits // 8
    source = V("%source", PTR)
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


def rounded_pairs(e: Emitter, x: V) -> V:
    """Sixteen numbers of float32 rounded to bfloat16, none of them subnormal (VCVTNEPS2BF16 flushes those to 0)."""
    e.declared["cvtneps2bf16"] = "declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)"
    found = e.value(vector(BFLOAT, 16), f"call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512({x})")
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
    """A square of vectors, a power of two of them, transposed: pairs of halves are swapped, ever smaller ones."""
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
