"""GEMV: products of a matrix with one vector or a few; each matrix element is read once, in place, without packing.

If the matrix is contiguous along the summed axis, several rows at a time are multiplied with the vectors, each into
separate sums. If it is contiguous across that axis, a few rows at a time, each scaled by its elements of the vectors,
are added to the sums, in the order of `row_order`, and the sums stay in the first-level cache.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from palladio.cpu.analysis.work import PRODUCTS
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Int, V
from palladio.cpu.emit.lazy_array import StridedArray, fill, for_each, widths
from palladio.cpu.emit.llvm_types import vector
from palladio.cpu.emit.scope import Scope
from palladio.cpu.products.micro_kernel import multiply_add
from palladio.cpu.products.operands import Element, PackSource
from palladio.cpu.products.product import LONG
from palladio.cpu.products.row_order import hardware_prefetches, parts_of_sums, row_order
from palladio.cpu.products.rows_ahead import RowsAhead
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

ROWS = 4
"""Rows of the matrix that are multiplied at a time."""

CHAINS = 8
"""Independent sums, at most."""

STEPS = 16
"""The most rows across the summed axis that are added at a time where each must be prefetched: each sum is loaded and
stored once for them. Contiguous rows are added `ROWS` at a time: with more, these were slower."""


def lanes_of(sums: DType) -> int:
    """The elements of a vector that takes one register, where registers must hold the sums of several vectors."""
    return min(registers.LANES, host.current().vector_bytes // sums.itemsize)


class Gemv:
    """A GEMV while it is emitted: `sums[vectors, free]`.

    Args:
        lhs, rhs: as in `Product`; the vectors are the rows of `lhs` or the columns of `rhs`, whichever are fewer.

    Fields:
        lanes: the most elements along the summed axis that are multiplied at a time.
    """

    def __init__(self, scope: Scope, lhs: PackSource, rhs: PackSource, sums: DType) -> None:
        self.read(scope, lhs, rhs, sums, swapped=rhs.columns <= lhs.rows)
        self.lanes = lanes_of(sums) if self.vectors > 1 else registers.LANES
        self.few = self.vectors_of(rhs if self.swapped else lhs)
        self.result = scope.arena.buffer(self.e, (self.vectors, self.free), sums)

    def read(self, scope: Scope, lhs: PackSource, rhs: PackSource, sums: DType, swapped: bool) -> None:
        """Set the sizes, and the functions that read the matrix."""
        self.scope = scope
        self.e = scope.e
        self.sums = sums
        self.depth = lhs.columns
        self.swapped = swapped
        self.vectors, self.free = (rhs.columns, lhs.rows) if self.swapped else (lhs.rows, rhs.columns)
        # From (position along the free axis, position along the summed axis, width): neighbours along the summed axis
        # (`along`) or along the free one (`across`).
        self.along: Element | None = None
        self.across: Element | None = None
        if self.swapped:
            if lhs.transposed is None:
                self.along = lhs.element
            else:
                self.across = lhs.transposed
        elif rhs.transposed is not None:
            at = rhs.transposed
            self.along = lambda i, k, width: at(k, i, width)
        else:
            self.across = lambda i, k, width: rhs.element(k, i, width)
        # The matrix, if there are gaps between its contiguous rows, which the hardware does not prefetch across.
        near = None if self.swapped else rhs.near
        self.apart = near if near is not None and near.strides[0] != near.shape[1] else None
        registers_held = host.current().sums[0] * host.current().sums[1]
        self.chains = max(1, min(CHAINS, registers_held // (registers.LANES * sums.itemsize)))

    def vectors_of(self, operand: PackSource) -> Element:
        """Elements of the vectors, from (vector, step, width): of a copy, if they are used more often than copied."""
        e = self.e
        whole = (operand.transposed is None) != self.swapped  # each vector is contiguous in memory
        element = operand.transposed if self.swapped and operand.transposed is not None else operand.element

        def at(n: Int, k: Int, width: int) -> V:
            return element(k, n, width) if self.swapped else element(n, k, width)

        if whole and self.free <= self.vectors:
            return at
        room = self.scope.arena.buffer(e, (self.vectors, self.depth), self.sums)
        if whole:
            for_each(e, room.shape, lambda index, width: room.put(e, index, at(*index, width), width))
        else:
            with e.loop(0, self.depth) as k:
                for n in range(self.vectors):
                    room.put(e, (n, k), at(n, k, 1), 1)
        return lambda n, k, width: room.at(e, (n, k), width)

    def run(self) -> StridedArray:
        """Emit the product; returns `sums[rows of lhs, columns of rhs]`."""
        if self.along is not None:
            for rows in row_order(self.free, ROWS, ROWS if hardware_prefetches() else 0):
                with self.e.loop(rows.first, rows.stop, rows.step) as row:
                    self.multiply_rows(self.along, rows.places(self.e, row))
                    self.poll(rows.count * self.depth)
        elif self.across is not None:
            fill(self.e, self.result, 0)
            # At most half of the registers hold the factors.
            held = host.current().vectors // (2 * max(1, self.vectors))
            together = max(ROWS, min(STEPS, held)) if self.apart else ROWS
            for rows in row_order(self.depth, together, parts_of_sums(self.sums)):
                with self.e.loop(rows.first, rows.stop, rows.step) as k:
                    self.add_rows(self.across, rows.places(self.e, k))
                    self.poll(rows.count * self.free)
        base = self.result.base
        if self.swapped:
            strides = (1, self.free) if self.vectors > 1 else (1, 1)
            return StridedArray(base, strides, (self.free, self.vectors), self.sums)
        return self.result

    def poll(self, work: int) -> None:
        if self.vectors * self.depth * self.free > LONG:
            self.scope.function.poll(self.vectors * work // PRODUCTS)

    def plus(self, x: V, y: V) -> V:
        return self.e.binary("fadd" if dtypes.is_float(self.sums) else "add", x, y)

    # Rows along the summed axis.

    def multiply_rows(self, along: Element, rows: Sequence[Int]) -> None:
        """The sums of some rows with all vectors."""
        e, register = self.e, registers.register(self.sums)
        places = [(n, r) for n in range(self.vectors) for r in range(len(rows))]
        total: V | None = None
        if not places:
            return
        for start, end, width in widths(self.depth, self.lanes):
            # The same number for the last rows as for all others, so that a sum does not depend on where a tile ends.
            together = max(1, min(ROWS, self.free) * self.vectors)
            chains = max(1, min(self.chains // together, (end - start) // width)) if width > 1 else 1
            slots = {
                (*place, chain): self.scope.function.slot(vector(register, width))
                for place in places
                for chain in range(chains)
            }
            for slot in slots.values():
                e.line(f"store {e.constant(0, vector(register, width))}, ptr {slot.text}")
            middle = start + (end - start) // (width * chains) * width * chains
            for first, stop, count in ((start, middle, chains), (middle, end, 1)):
                if first < stop:
                    with e.loop(first, stop, width * count) as k:
                        for chain in range(count):
                            self.step(along, rows, e.add(k, chain * width), width, chain, slots)
            parts = [
                self.summed([self.held(slots[*place, chain], width) for chain in range(chains)]) for place in places
            ]
            found = self.lanes_summed(parts)
            total = found if total is None else self.plus(total, found)
        total = e.constant(0, vector(register, len(places))) if total is None else total
        for place, (n, r) in enumerate(places):
            self.result.put(e, (n, rows[r]), e.lane(total, place), 1)

    def step(
        self,
        along: Element,
        rows: Sequence[Int],
        k: Int,
        width: int,
        chain: int,
        slots: dict[tuple[int, int, int], V],
    ) -> None:
        """Multiply a vector of each row with one of each of the few vectors."""
        few = [self.few(n, k, width) for n in range(self.vectors)]
        for r, row in enumerate(rows):
            value = along(row, k, width)
            for n, factor in enumerate(few):
                slot = slots[n, r, chain]
                self.e.line(f"store {self.multiplied(value, factor, self.held(slot, width))}, ptr {slot.text}")

    def multiplied(self, x: V, y: V, total: V) -> V:
        """`x * y + total`."""
        return multiply_add(self.e, x, y, total)

    def held(self, slot: V, width: int) -> V:
        type = vector(registers.register(self.sums), width)
        return self.e.value(type, f"load {type}, ptr {slot.text}")

    def summed(self, parts: Sequence[V]) -> V:
        """The sum of some vectors."""
        return functools.reduce(self.plus, parts)

    def lanes_summed(self, parts: Sequence[V]) -> V:
        """The sum of the lanes of each vector, as the lanes of one."""
        count = len(parts)
        if count & (count - 1) == 0 and count <= parts[0].type.width:
            return self.e.folded_together(parts, self.plus)
        return self.e.gathered([self.e.folded(part, self.plus) for part in parts])

    # Rows across it.

    def add_rows(self, across: Element, rows: Sequence[Int]) -> None:
        """Add some rows to all sums."""
        e = self.e
        factors = [[self.few(n, row, 1) for row in rows] for n in range(self.vectors)]
        ahead = None if parts_of_sums(self.sums) else self.rows_ahead(rows[0], len(rows))
        for start, end, width in widths(self.free):
            with e.loop(start, end, width) as place:
                totals = [self.result.at(e, (n, place), width) for n in range(self.vectors)]
                if ahead is not None and width == registers.LANES:
                    ahead.prefetch(place, width)
                for number, row in enumerate(rows):
                    value = across(place, row, width)
                    totals = [
                        multiply_add(e, value, e.splat(mine[number], width), total)
                        for mine, total in zip(factors, totals, strict=True)
                    ]
                for n, total in enumerate(totals):
                    self.result.put(e, (n, place), total, width)

    def rows_ahead(self, k: Int, steps: int) -> RowsAhead | None:
        """The prefetches while some rows are read; None if the hardware does that."""
        return None if self.apart is None else RowsAhead(self.e, self.apart, (k, steps), None)
