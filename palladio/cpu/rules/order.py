"""Scans, positions of extremes, and sorting on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from palladio.cpu.access.gather import one_by_one, settled
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.cpu.emit.lazy_array import Buffer, LazyArray, array_in, cut, fill, for_each
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.rules import arithmetic
from palladio.cpu.rules.reduce import LARGER, SMALLER, Reducer
from palladio.cpu.rules.top_k import greatest, is_nan, precedes
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType


def _with(index: Sequence[Index], axis: int, position: Index) -> tuple[Index, ...]:
    return (*index[:axis], position, *index[axis:])


def _add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fadd" if dtypes.is_float(dtype) else "add", *values)


def _multiply(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fmul" if dtypes.is_float(dtype) else "mul", *values)


def _log_add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """The greater plus log1p(exp(-difference)); equal ones, infinities among them, have no difference."""
    x, y = values
    apart = e.binary("fsub", x, y)
    apart = e.select(e.compare("fcmp oeq", x, y), e.constant(0, x.type), apart)
    size = e.value(x.type, f"fneg {e.intrinsic('fabs', x.type, apart)}")
    name = "log1p" if x.type == "double" else "log1pf"
    e.declared[name] = f"declare {x.type} @{name}({x.type})"
    more = e.value(x.type, f"call {x.type} @{name}({e.intrinsic('exp', x.type, size)})")
    return e.binary("fadd", arithmetic.maximum(e, dtype, (x, y)), more)


SCANNED = 1024
"""Columns that are scanned together along another axis than the last: their totals stay in a first-level cache."""

BESIDE = 4
"""Lines that are scanned together along the last axis: each element of a line waits for the one before it."""


@dataclass(frozen=True)
class Scan:
    """A scan of an array into another while it is emitted: each element combined with those before it.

    Fields:
        start: what the first element is combined with.
        lanes: the widest vectors that `combine` takes.
    """

    e: Emitter
    x: LazyArray
    target: Buffer
    axis: int
    reverse: bool
    combine: arithmetic.Combine
    start: object
    lanes: int

    def take(self, total: V, index: Sequence[Index], width: int) -> V:
        """The total with the elements at an index, which is the result there."""
        new = self.combine(self.e, self.x.dtype, (total, self.x.at(index, width)))
        self.target.put(self.e, index, registers.rounded(self.e, new, self.x.dtype), width)
        return new

    def steps(self) -> AbstractContextManager[Index]:
        """The loop along the axis that is scanned."""
        return self.e.loop(0, self.x.shape[self.axis])

    def position(self, step: Index) -> Index:
        """The position of a step along the axis."""
        return self.e.sub(self.x.shape[self.axis] - 1, step) if self.reverse else step

    def columns(self, scope: Scope, lead: Sequence[Index]) -> None:
        """Scan matrices along another axis than the last, a row at a time, with the totals in memory."""
        e, extent, dtype = self.e, self.x.shape[-1], self.x.dtype
        narrow = dtypes.is_float(dtype) and dtype != dtypes.FLOAT64
        kept = scope.arena.buffer(e, (min(SCANNED, extent),), dtypes.FLOAT32 if narrow else dtype)
        for low, high, size in cut(extent, SCANNED):
            totals = replace(kept, shape=(size,))
            with e.loop(low, high, size) as first:
                fill(e, totals, self.start)
                with self.steps() as step:
                    self.row(totals, _with(lead, self.axis, self.position(step)), first)

    def row(self, totals: Buffer, lead: Sequence[Index], first: Index) -> None:
        """Take some columns of a row to their totals."""
        e = self.e

        def some(index: tuple[Index, ...], width: int) -> None:
            place = (*lead, e.add(first, index[0]))
            totals.put(e, index, self.take(totals.at(e, index, width), place, width), width)

        if self.lanes > 1:
            for_each(e, totals.shape, some)
        else:
            one_by_one(e, totals.shape, lambda index: some(index, 1))

    def lines(self, scope: Scope, lead: Sequence[Index]) -> None:
        """Scan lines along the last axis, a few of them beside each other."""
        e, register = self.e, registers.register(self.x.dtype)
        slots = [scope.function.slot(register) for _ in range(BESIDE)]
        constant = registers.constant(e, self.start, self.x.dtype)
        rows = self.x.shape[self.axis - 1] if self.axis else 1
        for low, high, size in cut(rows, BESIDE):
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
    """Vectors find the extreme first, and then the first place at which it, or a NaN, stands."""
    combine, start = (LARGER, dtypes.least) if greatest else (SMALLER, dtypes.greatest)

    def rule(scope: Scope, x: LazyArray, *, axis: int, dtype: DType) -> Sequence[LazyArray]:
        e, extent, along_lanes = scope.e, x.shape[axis], axis == len(x.shape) - 1
        x = x if x.cheap and x.fill is None else scope.keep(x)
        ordered = dtypes.is_float(x.dtype)
        extreme = Reducer(scope, x, (axis,), combine, start(x.dtype), ordered).run()

        def place(index: Sequence[Index], width: int) -> V:
            value, others = x.at(index, width), (*index[:axis], *index[axis + 1 :])
            best = e.splat(extreme.at(e, others, 1), width) if along_lanes else extreme.at(e, others, width)
            here = e.compare("fcmp oeq" if ordered else "icmp eq", value, best)
            if ordered:
                here = e.binary("or", here, is_nan(e, value))
            counted = e.splat(e.convert("trunc", e.index(index[axis]), "i32"), width)
            if along_lanes and width > 1:
                counted = e.binary("add", counted, e.lanes(range(width), "i32"))
            return e.select(here, counted, e.constant(extent, counted.type))

        places = LazyArray(ArrayType(x.shape, dtypes.INT32), place, x.reads)
        found = Reducer(scope, places, (axis,), SMALLER, extent).run()

        def converted(index: Sequence[Index], width: int) -> V:
            position, wanted = found.at(e, index, width), registers.register(dtype)
            return e.convert("zext" if wanted == "i64" else "trunc", position, wanted)

        tile = (
            array_in(e, found)
            if dtype == dtypes.INT32
            else LazyArray(ArrayType(found.shape, dtype), converted, {}, True)
        )
        return (tile if tile.shape else scope.keep(tile),)

    return rule


def _sort(
    scope: Scope, *operands: LazyArray, axis: int, num_keys: int, stable: bool, last: int | None = None
) -> Sequence[LazyArray]:
    """By merging, which keeps the order of equals: the places along each line are sorted, then the elements moved.

    Where only a few elements at the end are used, nothing is sorted but these.
    """
    if last is not None and num_keys == 1 and axis == len(operands[0].shape) - 1:
        return greatest(scope, operands, last)
    e = scope.e
    sources = [settled(scope, tile) for tile in operands]
    targets = [scope.arena.buffer(e, tile.shape, tile.dtype) for tile in operands]
    extent = operands[0].shape[axis]
    orders = [scope.arena.buffer(e, (extent,), dtypes.INT32) for _ in range(2)]

    def first(here: V, there: V, others: Sequence[Index]) -> V:
        """True if what is behind comes first: of equals, it does not."""
        result: V = V("false", "i1")
        for key in reversed(sources[:num_keys]):
            x, y = (key.at(_with(others, axis, place), 1) for place in (here, there))
            before, behind = precedes(e, key.dtype, y, x), precedes(e, key.dtype, x, y)
            result = e.select(before, V("true", "i1"), e.select(behind, V("false", "i1"), result))
        return result

    def line(others: tuple[Index, ...]) -> None:
        with e.loop(0, extent) as place:
            orders[0].put(e, (place,), e.convert("trunc", e.index(place), "i32"), 1)
        levels = (extent - 1).bit_length() if extent else 0
        with e.loop(0, levels) as level:
            _merge(scope, orders, extent, e.index(level), lambda here, there: first(here, there, others))
        with e.loop(0, extent) as place:
            origin = e.convert("zext", orders[levels % 2].at(e, (place,), 1), "i64")
            for source, target in zip(sources, targets, strict=True):
                target.put(e, _with(others, axis, place), source.at(_with(others, axis, origin), 1), 1)

    shape = operands[0].shape
    one_by_one(e, (*shape[:axis], *shape[axis + 1 :]), line)
    return [array_in(e, target) for target in targets]


def _merge(scope: Scope, orders: Sequence[Buffer], extent: int, level: V, behind_first: Callable[[V, V], V]) -> None:
    """Merge each two neighbouring runs of `2**level` places: from the first order into the second, and back again."""
    e = scope.e
    odd = e.compare("icmp ne", e.binary("and", level, V("1", "i64")), V("0", "i64"))
    bases = [orders[0].base, orders[1].base]
    before, after = (
        Buffer(e.select(odd, *pair), (1,), (extent,), dtypes.INT32) for pair in ((bases[1], bases[0]), tuple(bases))
    )
    width = e.binary("shl", V("1", "i64"), level)
    both = e.binary("shl", width, V("1", "i64"))
    runs = e.binary("lshr", e.index(e.add(e.sub(both, 1), extent)), e.index(e.add(level, 1)))
    left, right = (scope.function.slot("i64") for _ in range(2))

    def order(place: V) -> V:
        return e.convert("zext", before.at(e, (place,), 1), "i64")

    with e.loop(0, runs) as run:
        start = e.mul(run, both)
        middle, end = (
            e.intrinsic("smin", "i64", e.index(e.add(start, more)), V(str(extent), "i64")) for more in (width, both)
        )
        scope.function.poll()
        e.store(e.index(start), left, 8)
        e.store(middle, right, 8)
        with e.loop(start, end) as place:
            one, two = e.load("i64", left, 8), e.load("i64", right, 8)
            # Only what is there may be compared, and of a run that is used up nothing is there.
            some = e.compare("icmp slt", one, middle), e.compare("icmp slt", two, end)
            within = [e.select(has, at, e.index(start)) for has, at in zip(some, (one, two), strict=True)]
            origins = [order(at) for at in within]
            compared = e.binary("and", *some)
            behind = e.select(compared, behind_first(*origins), some[1])
            after.put(e, (place,), e.convert("trunc", e.select(behind, origins[1], origins[0]), "i32"), 1)
            e.store(e.binary("add", one, e.convert("zext", e.binary("xor", behind, V("true", "i1")), "i64")), left, 8)
            e.store(e.binary("add", two, e.convert("zext", behind, "i64")), right, 8)


RULES: dict[str, Rule] = {
    "cumsum": _scan(_add, lambda dtype: -0.0 if dtypes.is_float(dtype) else 0),
    "cumprod": _scan(_multiply, 1),
    "cummax": _scan(arithmetic.maximum, dtypes.least),
    "cummin": _scan(arithmetic.minimum, dtypes.greatest),
    "cumlogsumexp": _scan(_log_add, -math.inf, lanes=1),
    "argmax": _position(True),
    "argmin": _position(False),
    "sort": _sort,
}
