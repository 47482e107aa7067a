"""Sorting on the CPU.

By one key of at most 32 bits, lines are sorted in vectors: each element becomes a 64-bit integer, its key above its
position, so that the sort is stable and all integers are different. 64 of them at a time are sorted in registers, by
networks of minima and maxima; then sorted runs are merged, 16 elements in each step (Chhugani et al., "Efficient
implementation of sorting on multi-core SIMD CPU architecture", VLDB 2008). Other keys are merged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from palladio.cpu.access.gather import one_by_one, settled
from palladio.cpu.emit.emitter import Emitter, Int, V, vector, width_of
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, widths
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.products.micro_kernel import transposed
from palladio.cpu.rules.top_k import greatest, is_nan, precedes
from palladio.types import dtypes
from palladio.types.dtypes import DType

LANES = 8
"""64-bit elements of a vector."""

BLOCK = LANES * LANES
"""Elements that are sorted in registers."""

STEP = 2 * LANES
"""Elements that a step of a merge writes."""

LAST = (1 << 63) - 1
"""The word that is sorted after all elements: it pads the last block."""

NETWORK = (
    ((0, 2), (1, 3), (4, 6), (5, 7)),
    ((0, 4), (1, 5), (2, 6), (3, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((2, 4), (3, 5)),
    ((1, 4), (3, 6)),
    ((1, 2), (3, 4), (5, 6)),
)
"""The 19 comparators that sort 8 (Knuth, The Art of Computer Programming, volume 3, 5.3.4)."""


def _sort(
    scope: Scope, *operands: LazyArray, axis: int, num_keys: int, stable: bool, last: int | None = None
) -> Sequence[LazyArray]:
    """The positions along each line are sorted, equal ones in their order, then the elements are moved.

    If only a few elements at the end are used, only these are sorted.
    """
    if last is not None and num_keys == 1 and axis == len(operands[0].shape) - 1:
        return greatest(scope, operands, last)
    e, shape = scope.e, operands[0].shape
    sources = [settled(scope, array) for array in operands]
    targets = [scope.arena.buffer(e, array.shape, array.dtype) for array in operands]
    in_vectors = num_keys == 1 and sources[0].dtype.itemsize <= 4 and shape[axis] > STEP
    order = (InVectors if in_vectors else OneByOne)(scope, sources[:num_keys], axis)

    def line(others: tuple[Int, ...]) -> None:
        order.sort(others)
        with e.loop(0, shape[axis]) as place:
            origin = order.origin(place)
            for source, target in zip(sources, targets, strict=True):
                target.put(e, _with(others, axis, place), source.at(_with(others, axis, origin), 1), 1)

    one_by_one(e, (*shape[:axis], *shape[axis + 1 :]), line)
    return [array_in(e, target) for target in targets]


def _with(index: Sequence[Int], axis: int, position: Int) -> tuple[Int, ...]:
    return (*index[:axis], position, *index[axis:])


class OneByOne:
    """The order of a line by several keys, or wide ones, by merging its positions."""

    def __init__(self, scope: Scope, keys: Sequence[LazyArray], axis: int) -> None:
        self.scope = scope
        self.e = scope.e
        self.keys = keys
        self.axis = axis
        self.extent = keys[0].shape[axis]
        self.levels = (self.extent - 1).bit_length() if self.extent else 0
        self.orders = [scope.arena.buffer(self.e, (self.extent,), dtypes.INT32) for _ in range(2)]

    def sort(self, others: tuple[Int, ...]) -> None:
        """Sort the line at an index along the other axes."""
        e = self.e
        with e.loop(0, self.extent) as place:
            self.orders[0].put(e, (place,), e.convert("trunc", e.index(place), "i32"), 1)
        with e.loop(0, self.levels) as level:
            first = lambda here, there: self.first(here, there, others)  # noqa: E731
            _merge(self.scope, self.orders, self.extent, e.index(level), first)

    def origin(self, place: Int) -> V:
        """The original position of the element at a sorted position."""
        return self.e.convert("zext", self.orders[self.levels % 2].at(self.e, (place,), 1), "i64")

    def first(self, here: V, there: V, others: Sequence[Int]) -> V:
        """True if the later element comes first, which it does not if they are equal."""
        e = self.e
        result: V = V("false", "i1")
        for key in reversed(self.keys):
            x, y = (key.at(_with(others, self.axis, place), 1) for place in (here, there))
            before, later = precedes(e, key.dtype, y, x), precedes(e, key.dtype, x, y)
            result = e.select(before, V("true", "i1"), e.select(later, V("false", "i1"), result))
        return result


def _merge(
    scope: Scope, orders: Sequence[StridedArray], extent: int, level: V, later_first: Callable[[V, V], V]
) -> None:
    """Merge pairs of runs of `2**level` positions: from the first order into the second, at odd levels back."""
    e = scope.e
    odd = e.compare("icmp ne", e.binary("and", level, V("1", "i64")), V("0", "i64"))
    bases = [orders[0].base, orders[1].base]
    before, after = (
        StridedArray(e.select(odd, *pair), (1,), (extent,), dtypes.INT32)
        for pair in ((bases[1], bases[0]), tuple(bases))
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
            # Only existing elements may be compared, and an exhausted run has none.
            some = e.compare("icmp slt", one, middle), e.compare("icmp slt", two, end)
            within = [e.select(has, at, e.index(start)) for has, at in zip(some, (one, two), strict=True)]
            origins = [order(at) for at in within]
            compared = e.binary("and", *some)
            later = e.select(compared, later_first(*origins), some[1])
            after.put(e, (place,), e.convert("trunc", e.select(later, origins[1], origins[0]), "i32"), 1)
            e.store(e.binary("add", one, e.convert("zext", e.binary("xor", later, V("true", "i1")), "i64")), left, 8)
            e.store(e.binary("add", two, e.convert("zext", later, "i64")), right, 8)


class InVectors:
    """The order of a line by one key of at most 32 bits."""

    def __init__(self, scope: Scope, keys: Sequence[LazyArray], axis: int) -> None:
        self.scope = scope
        self.e = scope.e
        (self.key,) = keys
        self.axis = axis
        self.extent = self.key.shape[axis]
        self.size = -(-self.extent // BLOCK) * BLOCK
        self.levels = (self.size // BLOCK - 1).bit_length()
        # A step of a merge reads elements after a run, without using them.
        self.runs = [scope.arena.buffer(self.e, (self.size + STEP,), dtypes.INT64) for _ in range(2)]

    def sort(self, others: tuple[Int, ...]) -> None:
        """Sort the line at an index along the other axes."""
        e = self.e
        self.read(others)
        with e.loop(0, self.size, BLOCK) as first:
            places = [(e.add(first, n * LANES),) for n in range(LANES)]
            block = sorted_block(e, [self.runs[0].at(e, place, LANES) for place in places])
            for place, value in zip(places, block, strict=True):
                self.runs[0].put(e, place, value, LANES)
        with e.loop(0, self.levels) as level:
            self.merge_level(e.index(level))

    def origin(self, place: Int) -> V:
        """The original position of the element at a sorted position."""
        e = self.e
        return e.binary("and", self.runs[self.levels % 2].at(e, (place,), 1), V(str((1 << 32) - 1), "i64"))

    def read(self, others: tuple[Int, ...]) -> None:
        """Write the elements of a line with their positions, and pad the last block."""
        e, runs = self.e, self.runs[0]
        along = self.axis == len(self.key.shape) - 1
        for start, end, width in widths(self.extent) if along else [(0, self.extent, 1)]:
            with e.loop(start, end, width) as place:
                key = _ordered(e, self.key.dtype, self.key.at(_with(others, self.axis, place), width))
                high = e.binary("shl", e.convert("sext", key, "i64"), e.constant(32, vector("i64", width)))
                low = e.splat(e.index(place), width)
                if width > 1:
                    low = e.binary("add", low, e.lanes(range(width)))
                runs.put(e, (place,), e.binary("or", high, low), width)
        with e.loop(self.extent, self.size) as place:
            runs.put(e, (place,), V(str(LAST), "i64"), 1)

    def merge_level(self, level: V) -> None:
        """Merge pairs of neighbouring runs of `BLOCK << level` elements, from one buffer into the other."""
        e, size = self.e, V(str(self.size), "i64")
        odd = e.compare("icmp ne", e.binary("and", level, V("1", "i64")), V("0", "i64"))
        bases = [run.base for run in self.runs]
        shape = self.size + STEP
        before, after = (
            StridedArray(e.select(odd, *pair), (1,), (shape,), dtypes.INT64)
            for pair in ((bases[1], bases[0]), tuple(bases))
        )
        width = e.binary("shl", V(str(BLOCK), "i64"), level)
        both = e.binary("shl", width, V("1", "i64"))
        count = e.binary("udiv", e.index(e.sub(e.add(both, self.size), 1)), both)
        with e.loop(0, count) as number:
            self.scope.function.poll()
            start = e.mul(number, both)
            middle, end = (e.intrinsic("smin", "i64", e.index(e.add(start, more)), size) for more in (width, both))
            self.merge(before, after, e.index(start), middle, end)

    def merge(self, before: StridedArray, after: StridedArray, start: V, middle: V, end: V) -> None:
        """Merge two runs: each step takes the next elements of the run with the smaller head."""
        e = self.e
        one, two = (self.scope.function.slot("i64") for _ in range(2))
        held = [self.scope.function.slot(vector("i64", LANES)) for _ in range(2)]
        e.store(e.index(e.add(start, STEP)), one, 8)
        e.store(middle, two, 8)
        for n, slot in enumerate(held):
            e.store(before.at(e, (e.add(start, n * LANES),), LANES), slot, 64)
        with e.loop(start, e.index(e.sub(end, STEP)), STEP) as place:
            places = left, right = e.load("i64", one, 8), e.load("i64", two, 8)
            some = e.compare("icmp slt", left, middle), e.compare("icmp slt", right, end)
            heads = [before.at(e, (at,), 1) for at in places]
            # An exhausted run has no head; the other one is then taken, whatever its head.
            smaller = e.binary("or", e.compare("icmp slt", *heads), e.binary("xor", some[1], V("true", "i1")))
            takes = e.binary("and", smaller, some[0])
            origin = e.select(takes, left, right)
            e.store(e.select(takes, e.index(e.add(left, STEP)), left), one, 8)
            e.store(e.select(takes, right, e.index(e.add(right, STEP))), two, 8)
            taken = [before.at(e, (e.add(origin, n * LANES),), LANES) for n in range(2)]
            low0, low1, *high = merged(e, [e.load(vector("i64", LANES), slot, 64) for slot in held], taken)
            for slot, value in zip(held, high, strict=True):
                e.store(value, slot, 64)
            after.put(e, (place,), low0, LANES)
            after.put(e, (e.add(place, LANES),), low1, LANES)
        for n, slot in enumerate(held):
            after.put(e, (e.add(end, (n - 2) * LANES),), e.load(vector("i64", LANES), slot, 64), LANES)


def _ordered(e: Emitter, dtype: DType, x: V) -> V:
    """Signed integers of 32 bits in the order of some elements; those of NaN are the greatest, and -0 equals 0."""
    if not dtypes.is_float(dtype):
        wide = e.convert("sext" if dtypes.is_signed(dtype) else "zext", x, "i32")
        flips = dtype.itemsize == 4 and not dtypes.is_signed(dtype)
        return e.binary("xor", wide, e.constant(-(1 << 31), wide.type)) if flips else wide
    bits = e.convert("bitcast", e.binary("fadd", x, e.constant(0, x.type)), "i32")
    sign = e.binary("ashr", bits, e.constant(31, bits.type))
    ordered = e.binary("xor", bits, e.binary("and", sign, e.constant((1 << 31) - 1, bits.type)))
    return e.select(is_nan(e, x), e.constant((1 << 31) - 1, bits.type), ordered)


def sorted_block(e: Emitter, rows: Sequence[V]) -> list[V]:
    """`LANES` vectors as one sorted run: sorted lane by lane, then transposed to runs, which are merged."""
    rows = list(rows)
    for x, y in (pair for stage in NETWORK for pair in stage):
        rows[x], rows[y] = compared(e, rows[x], rows[y])
    runs = [[row] for row in transposed(e, rows)]
    while len(runs) > 1:
        runs = [merged(e, *runs[n : n + 2]) for n in range(0, len(runs), 2)]
    return runs[0]


def compared(e: Emitter, x: V, y: V) -> tuple[V, V]:
    """The lesser and the greater, lane by lane."""
    return e.intrinsic("smin", x.type, x, y), e.intrinsic("smax", x.type, x, y)


def merged(e: Emitter, x: Sequence[V], y: Sequence[V]) -> list[V]:
    """Two sorted runs of equally many vectors as one run (Batcher's bitonic merge)."""
    flipped = [_shuffled(e, row, row, range(width_of(row.type) - 1, -1, -1)) for row in reversed(y)]
    return list(_ascending(e, [*x, *flipped]))


def _ascending(e: Emitter, rows: Sequence[V]) -> Iterator[V]:
    """A bitonic run, first ascending, then descending, as an ascending one."""
    half = len(rows) // 2
    if half:
        pairs = [compared(e, x, y) for x, y in zip(rows[:half], rows[half:], strict=True)]
        for part in zip(*pairs, strict=True):
            yield from _ascending(e, part)
        return
    (row,) = rows
    width = width_of(row.type)
    distance = width // 2
    while distance:
        low, high = compared(e, row, _shuffled(e, row, row, [lane ^ distance for lane in range(width)]))
        row = _shuffled(e, low, high, [lane + (width if lane & distance else 0) for lane in range(width)])
        distance //= 2
    yield row


def _shuffled(e: Emitter, x: V, y: V, lanes: Sequence[int]) -> V:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.value(x.type, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")


RULES: dict[str, Rule] = {"sort": _sort}
