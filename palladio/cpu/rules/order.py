"""Scans and positions of extremes on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.cpu.access.gather import one_by_one, settled
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, cut, fill, for_each
from palladio.cpu.emit.llvm_types import DOUBLE, I32, I64
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules import arithmetic
from palladio.cpu.rules.reduce import LARGER, SMALLER, Reducer
from palladio.cpu.rules.top_k import is_nan
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType


def _with(index: Sequence[Int], axis: int, position: Int) -> tuple[Int, ...]:
    return (*index[:axis], position, *index[axis:])


def _add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fadd" if dtypes.is_float(dtype) else "add", *values)


def _multiply(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fmul" if dtypes.is_float(dtype) else "mul", *values)


def _log_add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """The greater plus log1p(exp(-difference)); the difference of equal values is 0, also of infinities."""
    x, y = values
    apart = e.binary("fsub", x, y)
    apart = e.select(e.compare("fcmp oeq", x, y), e.constant(0, x.type), apart)
    size = e.value(x.type, f"fneg {e.intrinsic('fabs', x.type, apart)}")
    name = "log1p" if x.type == DOUBLE else "log1pf"
    e.declared[name] = f"declare {x.type} @{name}({x.type})"
    more = e.value(x.type, f"call {x.type} @{name}({e.intrinsic('exp', x.type, size)})")
    return e.binary("fadd", arithmetic.maximum(e, dtype, (x, y)), more)


SCANNED = 1024
"""Columns that are scanned together along an axis other than the last: their totals stay in a first-level cache."""

SCANNED_LINES = 4
"""Lines that are scanned together along the last axis: each element of a line depends on the one before it."""


@dataclass(frozen=True)
class Scan:
    """A scan of an array into another, while it is emitted: each element is combined with those before it.

    Fields:
        start: the value that the first element is combined with.
        lanes: the widest vectors that `combine` takes.
    """

    e: Emitter
    x: LazyArray
    target: StridedArray
    axis: int
    reverse: bool
    combine: arithmetic.Combine
    start: object
    lanes: int

    def take(self, total: V, index: Sequence[Int], width: int) -> V:
        """The total with the elements at an index, which is the result there."""
        new = self.combine(self.e, self.x.dtype, (total, self.x.at(index, width)))
        self.target.put(self.e, index, registers.rounded(self.e, new, self.x.dtype), width)
        return new

    def steps(self) -> AbstractContextManager[Int]:
        """The loop along the axis that is scanned."""
        return self.e.loop(0, self.x.shape[self.axis])

    def position(self, step: Int) -> Int:
        """The position of a step along the axis."""
        return self.e.sub(self.x.shape[self.axis] - 1, step) if self.reverse else step

    def columns(self, scope: Scope, lead: Sequence[Int]) -> None:
        """Scan matrices along an axis other than the last, a row at a time, with the totals in memory."""
        e, extent, dtype = self.e, self.x.shape[-1], self.x.dtype
        narrow = dtypes.is_float(dtype) and dtype != dtypes.FLOAT64
        kept = scope.arena.buffer(e, (min(SCANNED, extent),), dtypes.FLOAT32 if narrow else dtype)
        for low, high, size in cut(extent, SCANNED):
            totals = replace(kept, shape=(size,))
            with e.loop(low, high, size) as first:
                fill(e, totals, self.start)
                with self.steps() as step:
                    self.row(totals, _with(lead, self.axis, self.position(step)), first)

    def row(self, totals: StridedArray, lead: Sequence[Int], first: Int) -> None:
        """Combine some columns of a row with their totals."""
        e = self.e

        def some(index: tuple[Int, ...], width: int) -> None:
            place = (*lead, e.add(first, index[0]))
            totals.put(e, index, self.take(totals.at(e, index, width), place, width), width)

        if self.lanes > 1:
            for_each(e, totals.shape, some)
        else:
            one_by_one(e, totals.shape, lambda index: some(index, 1))

    def lines(self, scope: Scope, lead: Sequence[Int]) -> None:
        """Scan lines along the last axis, a few of them side by side."""
        e, register = self.e, registers.register(self.x.dtype)
        slots = [scope.function.slot(register) for _ in range(SCANNED_LINES)]
        constant = registers.constant(e, self.start, self.x.dtype)
        rows = self.x.shape[self.axis - 1] if self.axis else 1
        for low, high, size in cut(rows, SCANNED_LINES):
            with e.loop(low, high, size) as first:
                for slot in slots[:size]:
                    e.line(f"store {constant}, ptr {slot.text}")
                with self.steps() as step:
                    for beside, slot in enumerate(slots[:size]):
                        row = [e.add(first, beside)] if self.axis else []
                        total = e.value(register, f"load {register}, ptr {slot.text}")
                        new = self.take(total, (*lead, *row, self.position(step)), 1)
                        e.line(f"store {new}, ptr {slot.text}")


def _scan(combine: arithmetic.Combine, start: object, lanes: int = registers.LANES) -> Rule:
    def rule(scope: Scope, x: LazyArray, *, axis: int, reverse: bool) -> Sequence[LazyArray]:
        e, shape = scope.e, x.shape
        x = settled(scope, x)
        target = scope.arena.buffer(e, shape, x.dtype)
        first = start(x.dtype) if callable(start) else start
        scan = Scan(e, x, target, axis, reverse, combine, first, lanes)
        if axis == len(shape) - 1:
            one_by_one(e, shape[: max(0, axis - 1)], functools.partial(scan.lines, scope))
        else:
            one_by_one(e, (*shape[:axis], *shape[axis + 1 : -1]), functools.partial(scan.columns, scope))
        return (array_in(e, target),)

    return rule


def _position(greatest: bool) -> Rule:
    """Find the extreme in vectors, and then the first position of it or of a NaN: of a row while it is in a cache."""

    def rule(scope: Scope, x: LazyArray, *, axis: int, dtype: DType) -> Sequence[LazyArray]:
        e, along_rows = scope.e, axis == len(x.shape) - 1
        if not along_rows or len(x.shape) == 1:
            found = array_in(e, _positions(scope, x, axis, greatest))
        else:
            places = scope.arena.buffer(e, x.shape[:-1], dtypes.INT32)

            def of_row(lead: tuple[Int, ...]) -> None:
                type = ArrayType(x.shape[-1:], x.dtype)
                row = LazyArray(type, lambda index, width: x.at((*lead, *index), width), x.reads, x.cheap)
                places.put(e, lead, _positions(scope, row, 0, greatest).at(e, (), 1), 1)

            x = x if x.fill is None else scope.keep(x)
            one_by_one(e, places.shape, of_row)
            found = array_in(e, places)

        def converted(index: Sequence[Int], width: int) -> V:
            position, wanted = found.at(index, width), registers.register(dtype)
            return e.convert("zext" if wanted == I64 else "trunc", position, wanted)

        array = found if dtype == dtypes.INT32 else LazyArray(ArrayType(found.shape, dtype), converted, {}, True)
        return (array if array.shape else scope.keep(array),)

    return rule


def _positions(scope: Scope, x: LazyArray, axis: int, greatest: bool) -> StridedArray:
    """The positions along an axis of the extremes, as int32."""
    e, extent, along_lanes = scope.e, x.shape[axis], axis == len(x.shape) - 1
    combine, start = (LARGER, dtypes.least) if greatest else (SMALLER, dtypes.greatest)
    x = x if x.cheap and x.fill is None else scope.keep(x)
    ordered = dtypes.is_float(x.dtype)
    extreme = Reducer(scope, x, (axis,), combine, start(x.dtype), ordered).run()

    def place(index: Sequence[Int], width: int) -> V:
        value, others = x.at(index, width), (*index[:axis], *index[axis + 1 :])
        best = e.splat(extreme.at(e, others, 1), width) if along_lanes else extreme.at(e, others, width)
        here = e.compare("fcmp oeq" if ordered else "icmp eq", value, best)
        if ordered:
            here = e.binary("or", here, is_nan(e, value))
        counted = e.splat(e.convert("trunc", e.index(index[axis]), I32), width)
        if along_lanes and width > 1:
            counted = e.binary("add", counted, e.lanes(range(width), I32))
        return e.select(here, counted, e.constant(extent, counted.type))

    places = LazyArray(ArrayType(x.shape, dtypes.INT32), place, x.reads)
    return Reducer(scope, places, (axis,), SMALLER, extent).run()


RULES: dict[str, Rule] = {
    "cumsum": _scan(_add, lambda dtype: -0.0 if dtypes.is_float(dtype) else 0),
    "cumprod": _scan(_multiply, 1),
    "cummax": _scan(arithmetic.maximum, dtypes.least),
    "cummin": _scan(arithmetic.minimum, dtypes.greatest),
    "cumlogsumexp": _scan(_log_add, -math.inf, lanes=1),
    "argmax": _position(True),
    "argmin": _position(False),
}
