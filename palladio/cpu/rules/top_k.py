"""`top_k`: the greatest few elements of each line of an array, without sorting the others.

They are kept in order in a short buffer. A few vectors of elements at a time are compared with the least of them, and
usually none is greater.
"""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.access.gather import one_by_one
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, widths
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import Scope
from palladio.cpu.rules import arithmetic
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.views import row_major

TOGETHER = 4
"""Vectors that are compared before the results are tested."""


def is_nan(e: Emitter, x: V) -> V:
    """True in lanes that are NaN."""
    return e.compare("fcmp uno", x, x)


def precedes(e: Emitter, dtype: DType, x: V, y: V) -> V:
    """True if x is sorted before y: NaN comes last."""
    less = arithmetic.less(e, dtype, x, y)
    if not dtypes.is_float(dtype):
        return less
    return e.binary("or", less, e.binary("and", is_nan(e, y), e.compare("fcmp ord", x, x)))


def greatest(scope: Scope, operands: Sequence[LazyArray], count: int) -> Sequence[LazyArray]:
    """The result of a sort along the last axis by the first array; only the end of each line is computed.

    It is stored in reverse, so that reversing it costs nothing.
    """
    e, shape = scope.e, operands[0].shape
    extent = shape[-1]
    found = [scope.arena.buffer(e, (*shape[:-1], count), array.dtype) for array in operands]
    flipped = [scope.function.rules["reverse"](scope, array, axes=(len(shape) - 1,))[0] for array in operands]
    lines = Lines(
        scope, [array if array.cheap and array.fill is None else scope.keep(array) for array in flipped], count
    )
    one_by_one(e, shape[:-1], lambda line: lines.run(line, found))
    results = []
    for buffer in found:
        strides = (*(stride * count for stride in row_major((*shape[:-1], 1))[:-1]), -1)
        end = e.pointer(buffer.base, extent - 1, buffer.dtype.itemsize)
        results.append(array_in(e, StridedArray(end, strides, shape, buffer.dtype)))
    return results


class Lines:
    """Finds the greatest elements of a line, greatest first; of equal ones the first.

    Args:
        arrays: the keys, and the arrays whose elements move with them.
    """

    def __init__(self, scope: Scope, arrays: Sequence[LazyArray], count: int) -> None:
        self.scope = scope
        self.e = scope.e
        self.arrays = arrays
        self.key = arrays[0]
        self.count = count
        self.values = scope.arena.buffer(self.e, (count,), self.key.dtype)
        self.places = scope.arena.buffer(self.e, (count,), dtypes.INT64)
        self.hole = scope.function.slot(I64)
        self.bits = scope.function.slot(I64)

    def run(self, line: tuple[Int, ...], found: Sequence[StridedArray]) -> None:
        """Write the greatest elements of a line, and the elements that move with them."""
        e, extent = self.e, self.key.shape[-1]
        with e.loop(0, self.count) as place:
            self.insert(self.key.at((*line, place), 1), place, place)
        for start, end, width in widths(extent - self.count):
            start, end = start + self.count, end + self.count
            middle = start + (end - start) // (width * TOGETHER) * width * TOGETHER
            for first, stop, vectors in ((start, middle, TOGETHER), (middle, end, 1)):
                if first < stop:
                    with e.loop(first, stop, width * vectors) as place:
                        self.insert_greater(line, place, width, vectors)
        with e.loop(0, self.count) as rank:
            origin = self.places.at(e, (rank,), 1)
            for array, target in zip(self.arrays, found, strict=True):
                target.put(e, (*line, rank), array.at((*line, origin), 1), 1)
        self.scope.function.poll(extent)

    def greater(self, value: V, width: int) -> V:
        """True for elements that are greater than the least one kept."""
        least = self.values.at(self.e, (self.count - 1,), 1)
        return precedes(self.e, self.key.dtype, self.e.splat(least, width), value)

    def insert_greater(self, line: tuple[Int, ...], place: Int, width: int, vectors: int) -> None:
        """Insert the greater elements of some vectors."""
        e = self.e
        bits: V | None = None
        for n in range(vectors):
            mask = self.greater(self.key.at((*line, e.add(place, n * width)), width), width)
            lanes = e.convert("zext", e.mask(mask), I64)
            lanes = e.binary("shl", lanes, i64(n * width))
            bits = lanes if bits is None else e.binary("or", bits, lanes)
        if bits is None:
            return
        e.store(bits, self.bits, 8)
        with e.repeat(lambda: e.compare("icmp ne", e.load(I64, self.bits, 8), i64(0))):
            left = e.load(I64, self.bits, 8)
            lowest = e.intrinsic("cttz", I64, left, TRUE)
            e.store(e.binary("and", left, e.binary("sub", left, i64(1))), self.bits, 8)
            at = e.add(place, lowest)
            value = self.key.at((*line, at), 1)
            with e.when(self.greater(value, 1)):
                self.insert(value, at, self.count - 1)

    def insert(self, value: V, place: Int, hole: Int) -> None:
        """Insert an element in order: lesser ones move towards the hole after them."""
        e = self.e
        again, some, move, done = (e.fresh(name) for name in ("again", "some", "move", "done"))
        e.store(e.index(hole), self.hole, 8)
        e.jump(again)
        e.label(again)
        here = e.load(I64, self.hole, 8)
        e.branch(e.compare("icmp sgt", here, i64(0)), some, done)
        e.label(some)
        above = e.sub(here, 1)
        held = self.values.at(e, (above,), 1)
        e.branch(precedes(e, self.key.dtype, held, value), move, done)
        e.label(move)
        self.values.put(e, (here,), held, 1)
        self.places.put(e, (here,), self.places.at(e, (above,), 1), 1)
        e.store(e.index(above), self.hole, 8)
        e.jump(again)
        e.label(done)
        self.values.put(e, (here,), value, 1)
        self.places.put(e, (here,), e.index(place), 1)
