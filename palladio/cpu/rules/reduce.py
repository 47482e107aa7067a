"""Reductions on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, widths
from palladio.cpu.emit.llvm_types import LlvmType, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules import arithmetic
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

Combine = Callable[[Emitter, DType, Sequence[V]], V]
Meanwhile = Callable[[Int, int], None]


def _sum(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fadd" if dtypes.is_float(dtype) else "add", *values)


def _product(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fmul" if dtypes.is_float(dtype) else "mul", *values)


def _extreme(better: str, otherwise: Combine) -> Combine:
    """The larger or smaller of numbers. Either of 0 and -0 may be the result: the test would be the largest cost."""

    def combine(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        if not dtypes.is_float(dtype):
            return otherwise(e, dtype, values)
        old, new = values
        return e.select(e.compare(f"fcmp {better}", old, new), old, new)

    return combine


LARGER = _extreme("ogt", arithmetic.maximum)
SMALLER = _extreme("olt", arithmetic.minimum)


def _bitwise(op: str) -> Combine:
    return lambda e, dtype, values: e.binary(op, *values)


_ALL_BITS = -1


LEAST_ROW, MOST_ROW = 1 << 10, 1 << 13
"""The least and the most bytes of results that rows are combined with in turn. More leave a first-level cache."""

MANY_ROWS = 64
"""The least number of rows that are combined so if their ends are not whole vectors."""

CHAINS = 4
"""Accumulators along the last axis: each depends only on its own last result, so several are faster than one."""


def combines_rows(type: ArrayType, axes: Sequence[int]) -> bool:
    """True if rows that are reduced to one are combined one after the other."""
    if tuple(axes) != (len(type.shape) - 2,) or type.dtype.itemsize < 4:
        return False
    columns, rows = type.shape[-1], type.shape[axes[0]]
    long = rows >= (MANY_ROWS if columns % registers.LANES else 2)
    return long and LEAST_ROW <= columns * type.dtype.itemsize <= MOST_ROW


class Reducer:
    """Combines the elements of an array over some axes into a buffer.

    `ordered`: elements are combined by comparison, in which NaNs are unordered. NaNs are recorded beside the
    accumulators with one comparison for two vectors: a test at each comparison of numbers would cost more.
    """

    def __init__(
        self, scope: Scope, x: LazyArray, axes: Sequence[int], combine: Combine, start: object, ordered: bool = False
    ) -> None:
        self.e = scope.e
        self.x = x
        self.axes = tuple(axes)
        self.combine = combine
        self.start = start
        self.kept = [axis for axis in range(len(x.shape)) if axis not in self.axes]
        shape = tuple(x.shape[axis] for axis in self.kept)
        self.target = scope.arena.buffer(self.e, shape, x.dtype)
        self.slots = {
            (width, chain): scope.function.slot(vector(registers.register(x.dtype), width))
            for width in self.lanes()
            for chain in range(CHAINS)
        }
        self.nans = {
            width: scope.function.slot(vector(registers.register(x.dtype), width)) for width in self.lanes() if ordered
        }

    def lanes(self) -> set[int]:
        """The widths that an accumulator may have."""
        return {1, *(width for _, _, width in widths(self.x.shape[-1]))} if self.x.shape else {1}

    def run(self) -> StridedArray:
        """Emit the loops."""
        outer = self.kept if len(self.x.shape) - 1 in self.axes else self.kept[:-1]
        with ExitStack() as stack:
            index = tuple(stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in outer)
            if outer is self.kept:
                self.across(index)
            elif self.combines_rows:
                self.in_rows(index)
            else:
                self.side_by_side(index)
        return self.target

    @property
    def combines_rows(self) -> bool:
        """True if rows are combined one after the other: elements are read in the order of memory.

        The results of a row stay in a first-level cache. Narrow floats would be rounded in each row.
        """
        return not self.nans and combines_rows(self.x.type, self.axes)

    def in_rows(self, others: Sequence[Int]) -> None:
        """A row of results side by side, in memory: the rows of the operand are combined with all of them in turn."""
        e, (axis,) = self.e, self.axes
        pieces = [*widths(self.target.shape[-1])]

        def combine_rows(first: int, last: int) -> None:
            with e.loop(first, last) as row:
                for start, end, lanes in pieces:
                    with e.loop(start, end, lanes) as at:
                        index = (*others, at)
                        new = self.x.at(self.place(index, (row,)), lanes)
                        start_of_all = registers.constant(e, self.start, self.x.dtype, lanes)
                        before = self.target.at(e, index, lanes) if first else start_of_all
                        self.target.put(e, index, self.combine(e, self.x.dtype, (before, new)), lanes)

        combine_rows(0, 1)
        combine_rows(1, self.x.shape[axis])

    def place(self, index: Sequence[Int], inner: Sequence[Int]) -> list[Int]:
        """The index of an element from those along the kept and the reduced axes."""
        found: list[Int] = [0] * len(self.x.shape)
        for axis, position in zip(self.kept, index, strict=True):
            found[axis] = position
        for axis, position in zip(self.axes, inner, strict=True):
            found[axis] = position
        return found

    def begin(self, width: int, chain: int = 0) -> V:
        slot = self.slots[width, chain]
        first = registers.constant(self.e, self.start, self.x.dtype, width)
        self.e.line(f"store {first}, ptr {slot.text}")
        if width in self.nans:
            self.e.line(f"store {self.e.constant(0, first.type)}, ptr {self.nans[width].text}")
        return slot

    def combined(self, before: V, new: V) -> V:
        """Two vectors of elements combined."""
        return self.combine(self.e, self.x.dtype, (before, new))

    def take(self, slot: V, value: V) -> None:
        """Combine a value with the accumulator."""
        new = self.combine(self.e, self.x.dtype, (self.held(slot, value.type), value))
        self.e.line(f"store {new}, ptr {slot.text}")

    def take_all(self, slots: Sequence[V], values: Sequence[V]) -> None:
        """Combine values with the accumulators, one with each."""
        for slot, value in zip(slots, values, strict=True):
            self.take(slot, value)
        if values[0].type.width in self.nans:
            for n in range(0, len(values), 2):
                pair = values[n : n + 2]
                self.note(self.e.compare("fcmp uno", pair[0], pair[-1]))

    def note(self, is_nan: V) -> None:
        """Record NaNs."""
        nan, type = self.nans[is_nan.type.width], vector(registers.register(self.x.dtype), is_nan.type.width)
        seen = self.e.select(is_nan, self.e.constant(math.nan, type), self.held(nan, type))
        self.e.line(f"store {seen}, ptr {nan.text}")

    def any(self, seen: V) -> V:
        """True if a lane is NaN."""
        lanes = self.e.mask(self.e.compare("fcmp uno", seen, seen))
        return self.e.compare("icmp ne", lanes, self.e.constant(0, lanes.type))

    def held(self, slot: V, type: LlvmType) -> V:
        return self.e.value(type, f"load {type}, ptr {slot.text}")

    def noted(self, total: V) -> V:
        """A total, or NaN in the lanes that had one."""
        nan = self.nans.get(total.type.width)
        if nan is None:
            return total
        seen = self.held(nan, total.type)
        return self.e.select(self.e.compare("fcmp uno", seen, seen), seen, total)

    def side_by_side(self, others: Sequence[Int]) -> None:
        """Several vectors of neighbouring results side by side, so that reads are contiguous."""
        for start, end, lanes in widths(self.target.shape[-1]):
            chains = 1 if self.nans else CHAINS  # NaNs are recorded for one vector
            stride = lanes * chains
            middle = start + (end - start) // stride * stride
            if start < middle:
                with self.e.loop(start, middle, stride) as first:
                    self.down(others, [self.e.add(first, chain * lanes) for chain in range(chains)], lanes)
            if middle < end:
                with self.e.loop(middle, end, lanes) as first:
                    self.down(others, [first], lanes)

    def down(self, others: Sequence[Int], places: Sequence[Int], lanes: int) -> None:
        """The results at some places along the last axis, a vector at each."""
        slots = [self.begin(lanes, chain) for chain in range(len(places))]
        with ExitStack() as stack:
            inner = [stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in self.axes]
            self.take_all(slots, [self.x.at(self.place((*others, at), inner), lanes) for at in places])
        for at, slot in zip(places, slots, strict=True):
            self.finish((*others, at), slot, lanes)

    def across(self, index: Sequence[Int], beside: Sequence[Reducer] = (), meanwhile: Meanwhile | None = None) -> None:
        """One result from whole vectors along the last axis, and that of other reductions of arrays of this shape.

        Args:
            meanwhile: emits other work for a range of the last axis, in the loop that combines its elements.
        """
        reducers = (self, *beside)
        whole = [each.begin(1) for each in reducers]
        for start, end, lanes in widths(self.x.shape[self.axes[-1]]):
            if lanes == 1:
                self.along(index, start, end, 1, [[slot] for slot in whole], beside, meanwhile)
                continue
            chains = range(min(CHAINS, (end - start) // lanes))
            slots = [[each.begin(lanes, chain) for chain in chains] for each in reducers]
            self.along(index, start, end, lanes, slots, beside, meanwhile)
            for each, mine, slot in zip(reducers, slots, whole, strict=True):
                each.fold(mine, slot, lanes)
        for each, slot in zip(reducers, whole, strict=True):
            each.finish(index, slot, 1)

    def fold(self, slots: Sequence[V], whole: V, lanes: int) -> None:
        """Combine the lanes of accumulators with the accumulator of one lane."""
        type = vector(registers.register(self.x.dtype), lanes)
        for slot in slots[1:]:
            self.take(slots[0], self.held(slot, type))
        self.take(whole, self.e.folded(self.held(slots[0], type), self.combined))
        if lanes in self.nans:
            self.note(self.any(self.held(self.nans[lanes], type)))

    def along(
        self,
        index: Sequence[Int],
        start: int,
        end: int,
        lanes: int,
        slots: Sequence[Sequence[V]],
        beside: Sequence[Reducer],
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Combine vectors from `start` to `end` with the accumulators in turn; `slots` has those of each reduction."""
        reducers, chains = (self, *beside), len(slots[0])
        stride = lanes * chains
        middle = start + (end - start) // stride * stride
        with ExitStack() as stack:
            inner = [stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in self.axes[:-1]]
            with self.e.loop(start, middle, stride) as first:
                positions = [self.e.add(first, chain * lanes) for chain in range(chains)]
                for each, mine in zip(reducers, slots, strict=True):
                    each.take_all(mine, [each.x.at(each.place(index, (*inner, at)), lanes) for at in positions])
                if meanwhile is not None:
                    meanwhile(first, stride)
            if middle < end:
                with self.e.loop(middle, end, lanes) as position:
                    for each, mine in zip(reducers, slots, strict=True):
                        each.take_all(mine[:1], [each.x.at(each.place(index, (*inner, position)), lanes)])
                    if meanwhile is not None:
                        meanwhile(position, lanes)

    def finish(self, index: Sequence[Int], slot: V, width: int) -> None:
        total = self.noted(self.held(slot, vector(registers.register(self.x.dtype), width)))
        self.target.put(self.e, index, registers.rounded(self.e, total, self.x.dtype), width)


@dataclass(frozen=True)
class Reduction:
    """A way to combine elements, and its start value.

    Fields:
        ordered: whether floats are combined by comparison, in which NaNs are unordered.
    """

    combine: Combine
    start: Callable[[DType], object]
    ordered: bool = False

    def of(self, scope: Scope, x: LazyArray, axes: Sequence[int]) -> Reducer:
        """The loops for an array."""
        return Reducer(scope, x, axes, self.combine, self.start(x.dtype), self.records_nans(x.dtype))

    def records_nans(self, dtype: DType) -> bool:
        """True if NaNs are recorded beside the accumulators."""
        return self.ordered and dtypes.is_float(dtype)

    def combines_rows(self, type: ArrayType, axes: Sequence[int]) -> bool:
        """True if rows that are reduced to one are combined one after the other."""
        return not self.records_nans(type.dtype) and combines_rows(type, axes)


def reduction(kind: Reduction) -> Rule:
    """A reduction over the axes in `axes`."""

    def rule(
        scope: Scope, x: LazyArray, *, axes: tuple[int, ...], accumulator_ilp: int | None = None
    ) -> Sequence[LazyArray]:
        # The advice is for threads of a GPU: here the processor's vectors determine the number of chains.
        if not axes or not x.shape:
            return (x,)
        array = array_in(scope.e, kind.of(scope, x, axes).run())
        return (array if array.shape else scope.keep(array),)

    return rule


REDUCTIONS: dict[str, Reduction] = {
    "reduce_sum": Reduction(_sum, lambda dtype: 0),
    "reduce_prod": Reduction(_product, lambda dtype: 1),
    "reduce_max": Reduction(LARGER, dtypes.least, True),
    "reduce_min": Reduction(SMALLER, dtypes.greatest, True),
    "reduce_and": Reduction(_bitwise("and"), lambda dtype: 1 if dtype == dtypes.BOOL else _ALL_BITS),
    "reduce_or": Reduction(_bitwise("or"), lambda dtype: 0),
    "reduce_xor": Reduction(_bitwise("xor"), lambda dtype: 0),
}
RULES: dict[str, Rule] = {name: reduction(kind) for name, kind in REDUCTIONS.items()}
