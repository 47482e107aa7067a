"""Prefetches of a matrix product: the memory that micro-kernels prefetch, evenly, while they multiply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import StridedArray
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.products.blocking import Blocking, KBlock
from palladio.cpu.products.micro_kernel import LINE_BYTES
from palladio.cpu.products.operands import PrefetchRange, Range, RowGroup
from palladio.cpu.products.panels import RowPanel
from palladio.cpu.runtime import host

MOST_OUTSTANDING = 8
"""The most lines of a later span that are prefetched together: about as many loads may be outstanding."""


@dataclass(frozen=True)
class Ahead:
    """The memory that a micro-kernel prefetches, as its arguments.

    Fields:
        streams: the arguments of each stream.
        rows: the number of rows of the next panel.
        lines: the arguments for these and the next sums.
    """

    streams: Sequence[Sequence[V]] = ()
    rows: int = 0
    lines: Sequence[V] = ()

    @property
    def arguments(self) -> str:
        """The text of all arguments."""
        return "".join(f", {argument}" for each in (*self.streams, self.lines) for argument in each)


class Streams:
    """The ranges that the micro-kernels of a product prefetch.

    Fields:
        number: the number of the first panel of the current rows.
        pace: the lines of a later block that each step of a micro-kernel prefetches, from either end, in 1/65536.
        into: the buffer that the result ends up in.
    """

    def __init__(self, e: Emitter, blocking: Blocking, left: RowPanel) -> None:
        self.e = e
        self.blocking = blocking
        self.left = left
        self.prefetches = host.current().prefetches and not blocking.on_tiles
        self.number: Int = 0
        self.pace: Int = 0
        self.into: StridedArray | None = None

    def begin(self, rows: Range) -> None:
        """Set the pace for a range of rows."""
        e, blocking, later = self.e, self.blocking, self.blocking.rhs.later
        if later is None:
            self.pace = 0
            return
        count = blocking.quotient(e.sub(rows[1], rows[0]), blocking.height)
        panels = e.intrinsic("umax", I64, e.index(count), i64(1))
        lines = e.mul(e.mul(later.lines, later.rows), 32768)
        pace = blocking.quotient(lines, e.mul(panels, max(1, blocking.calls * blocking.depth)))
        self.pace = pace if later.there is None else e.select(later.there, e.index(pace), i64(0))

    def of(self, block: KBlock, group: RowGroup, n: Int, column: Int, height: int, left: StridedArray) -> Ahead:
        """The memory that the micro-kernel of a panel of rows and one of columns prefetches.

        Args:
            n: the number of the panel of rows in its group.
            left: a panel of rows as it is multiplied.
        """
        e, blocking, found = self.e, self.blocking, []
        if height != blocking.height or not self.prefetches:
            return Ahead()
        single, later = len(blocking.pairs) == 1, blocking.rhs.later
        after = e.add(group.row, e.mul(group.count, height))
        following = self.left.in_place(after, height, block) if blocking.in_place else None
        wide = blocking.wide
        panel = column // wide if isinstance(column, int) else e.binary("udiv", column, i64(wide))
        steps = blocking.calls * blocking.depth
        done = e.add(e.mul(panel, blocking.depth), block.first)
        if later is not None:
            found.append(self.stream(later, e.add(e.mul(e.add(self.number, n), steps), done), self.pace))
        if single and left.strides[1] == 1 and blocking.lhs.near is not None and self.into is not None:
            rows = -(-height // blocking.calls)
            call = e.add(e.mul(panel, group.count), n)
            lines = self.later_rows(blocking.lhs.near, e.add(after, e.mul(call, rows)), block)
            return Ahead(found, rows, [*lines, *self.later_sums(self.into, group, n, column)])
        if blocking.span is not None and blocking.rhs.near is not None:
            found.append(self.after_span(blocking.rhs.near, blocking.span, block, panel))
        if single and blocking.lhs.near is not None:
            near = blocking.lhs.near
            following = replace(near, base=near.address(e, (after, e.mul(block.first, blocking.joined))))
        if following is not None:
            found.append(self.next_rows(following, block, panel))
        if self.into is not None and (single or block.first == blocking.depth - blocking.lhs.columns):
            found.append(self.next_sums(self.into, block, group.row, panel))
        return Ahead(found)

    def later_rows(self, near: StridedArray, first: Int, block: KBlock) -> list[V]:
        """The arguments for the rows of the left operand from the first one on.

        Each call for a panel of rows prefetches its share of them.
        """
        e, blocking = self.e, self.blocking
        step_bytes = near.dtype.itemsize * blocking.joined
        start = near.address(e, (first, e.mul(block.first, blocking.joined)))
        between = e.index(e.mul(near.strides[0], near.dtype.itemsize))
        return [start, between, i64(LINE_BYTES // blocking.word.itemsize * step_bytes)]

    def later_sums(self, into: StridedArray, group: RowGroup, n: Int, column: Int) -> list[V]:
        """The arguments for the sums of the next call: of the group's next panel, or of its first one and the next
        columns, or of the first ones of the next group."""
        e, after = self.e, self.e.add(column, self.blocking.wide)
        end = e.add(group.row, e.mul(group.count, group.height))
        is_last = e.compare("icmp sge", e.index(after), e.index(self.blocking.rhs.columns))
        sums = e.select(is_last, into.address(e, (end, 0)), into.address(e, (group.row, after)))
        if group.count != 1:
            row = e.add(group.row, e.mul(e.add(n, 1), group.height))
            has_more = e.compare("icmp slt", e.index(row), e.index(end))
            sums = e.select(has_more, into.address(e, (row, column)), sums)
        return [sums, e.index(e.mul(into.strides[0], into.dtype.itemsize))]

    def stream(self, area: PrefetchRange, done: Int, pace: Int) -> list[V]:
        """The arguments of a micro-kernel that prefetches a part of a range.

        Args:
            done: the number of earlier micro-kernel steps that have prefetched from it.
            pace: the lines, in 1/65536, that each step prefetches from either end.
        """
        e = self.e
        end = e.index(e.mul(area.lines, 65536))
        until = e.pointer(
            area.base, e.add(e.mul(area.between, e.sub(area.rows, 1)), e.mul(e.sub(area.lines, 1), LINE_BYTES)), 1
        )
        pace = e.intrinsic("umin", I64, e.index(pace), end)
        position = e.binary("mul", e.index(done), pace)
        row = e.mul(e.binary("udiv", position, end), area.between)
        return [area.base, until, *map(e.index, (area.between, row, e.binary("urem", position, end), end, pace))]

    def next_rows(self, following: StridedArray, block: KBlock, panel: Int) -> list[V]:
        """Prefetch the same steps of the next panel of rows."""
        e, blocking = self.e, self.blocking
        step_bytes = following.dtype.itemsize * blocking.joined
        lines = e.add(blocking.quotient(e.mul(block.laid, step_bytes), LINE_BYTES), 1)
        between = e.mul(following.strides[0], following.dtype.itemsize)
        area = PrefetchRange(following.base, between, blocking.height, lines)
        pace = blocking.quotient(e.mul(lines, blocking.height * 32768), e.mul(block.count, blocking.calls))
        return self.stream(area, e.mul(panel, block.count), pace)

    def next_sums(self, into: StridedArray, block: KBlock, row: Int, panel: Int) -> list[V]:
        """Prefetch the memory that the next panel's sums will be written to."""
        e, blocking = self.e, self.blocking
        size = into.dtype.itemsize
        lines = max(1, blocking.rhs.columns * size // LINE_BYTES)
        start = into.address(e, (e.add(row, blocking.height), 0))
        area = PrefetchRange(start, e.mul(into.strides[0], size), blocking.height, lines)
        pace = blocking.quotient(lines * blocking.height * 32768, e.mul(block.count, blocking.calls))
        return self.stream(area, e.mul(panel, block.count), pace)

    def fetch_after_span(self, column: Int) -> None:
        """Prefetch a part of the rows after a span of the right operand: usually they are the span of the next step."""
        e, blocking, near = self.e, self.blocking, self.blocking.rhs.near
        if blocking.span is None or near is None or not self.prefetches:
            return
        row_bytes = blocking.rhs.columns * near.dtype.itemsize
        if near.strides != (blocking.rhs.columns, 1) or row_bytes % LINE_BYTES:
            return
        low, high = blocking.span
        panel = column // blocking.wide if isinstance(column, int) else e.binary("udiv", column, i64(blocking.wide))
        panels = max(1, blocking.lhs.rows // blocking.height) * blocking.calls
        lines = e.index(e.mul(e.sub(high, low), blocking.joined * row_bytes // LINE_BYTES))
        share = blocking.quotient(e.add(lines, panels - 1), panels)
        share = e.intrinsic("umin", I64, e.index(share), i64(MOST_OUTSTANDING))
        first = e.mul(e.add(e.mul(self.number, blocking.calls), panel), share)
        start = near.address(e, (e.mul(high, blocking.joined), 0))
        with e.loop(0, share) as n:
            e.prefetch(e.pointer(start, e.mul(e.add(first, n), LINE_BYTES), 1))

    def after_span(self, near: StridedArray, span: Range, block: KBlock, panel: Int) -> list[V]:
        """Prefetch the range after a span of the right operand, of the same size: usually the span of the next step."""
        e, blocking, words = self.e, self.blocking, self.blocking.joined
        low, high = span
        count = e.sub(high, low)
        lines = max(1, blocking.rhs.columns * near.dtype.itemsize // LINE_BYTES)
        between = e.mul(near.strides[0], near.dtype.itemsize)
        area = PrefetchRange(near.address(e, (e.mul(high, words), 0)), between, e.mul(count, words), lines)
        before = e.add(e.mul(e.add(e.mul(self.number, blocking.calls), panel), count), e.sub(block.begin, low))
        panels = max(1, blocking.lhs.rows // blocking.height)
        return self.stream(area, before, words * lines * 32768 // max(1, panels * blocking.calls))
