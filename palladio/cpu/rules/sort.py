"""Sorting on the CPU.

Lines are sorted by one key of at most 32 bits in vectors of integers that are in the order of the keys: a square of
them at a time is sorted in registers, by networks of minima and maxima; then sorted runs are merged, two vectors in
each step (Chhugani et al., "Efficient implementation of sorting on multi-core SIMD CPU architecture", VLDB 2008). If
other arrays move with the key, an integer has 64 bits, the key above the position, so that the sort is stable and all
integers are different. A key alone has 32 bits. Other keys are merged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from palladio.cpu.access.gather import one_by_one, settled
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import FALSE, TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, widths
from palladio.cpu.emit.llvm_types import FLOAT, I32, I64, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.products.micro_kernel import transposed
from palladio.cpu.rules.top_k import greatest, is_nan, precedes
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

LANES = 8
"""The fewest elements of a vector, of 64 bits or of 32."""

LONG = 128
"""The most elements of a line of 32 bits that is sorted in vectors of 8: blocks of longer ones have 16 times 16."""


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
    in_vectors = num_keys == 1 and sources[0].dtype.itemsize <= 4 and shape[axis] > 2 * LANES
    if in_vectors and len(operands) == 1:
        alone = KeyAlone(scope, sources[0], axis)
        one_by_one(e, (*shape[:axis], *shape[axis + 1 :]), lambda others: alone.sort(others, targets[0]))
        return [array_in(e, targets[0])]
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
            self.orders[0].put(e, (place,), e.convert("trunc", e.index(place), I32), 1)
        with e.loop(0, self.levels) as level:
            first = lambda here, there: self.first(here, there, others)  # noqa: E731
            _merge(self.scope, self.orders, self.extent, e.index(level), first)

    def origin(self, place: Int) -> V:
        """The original position of the element at a sorted position."""
        return self.e.convert("zext", self.orders[self.levels % 2].at(self.e, (place,), 1), I64)

    def first(self, here: V, there: V, others: Sequence[Int]) -> V:
        """True if the later element comes first, which it does not if they are equal."""
        e = self.e
        result: V = FALSE
        for key in reversed(self.keys):
            x, y = (key.at(_with(others, self.axis, place), 1) for place in (here, there))
            before, later = precedes(e, key.dtype, y, x), precedes(e, key.dtype, x, y)
            result = e.select(before, TRUE, e.select(later, FALSE, result))
        return result


def _merge(
    scope: Scope, orders: Sequence[StridedArray], extent: int, level: V, later_first: Callable[[V, V], V]
) -> None:
    """Merge pairs of runs of `2**level` positions: from the first order into the second, at odd levels back."""
    e = scope.e
    odd = e.compare("icmp ne", e.binary("and", level, i64(1)), i64(0))
    bases = [orders[0].base, orders[1].base]
    before, after = (
        StridedArray(e.select(odd, *pair), (1,), (extent,), dtypes.INT32)
        for pair in ((bases[1], bases[0]), tuple(bases))
    )
    width = e.binary("shl", i64(1), level)
    both = e.binary("shl", width, i64(1))
    runs = e.binary("lshr", e.index(e.add(e.sub(both, 1), extent)), e.index(e.add(level, 1)))
    left, right = (scope.function.slot(I64) for _ in range(2))

    def order(place: V) -> V:
        return e.convert("zext", before.at(e, (place,), 1), I64)

    with e.loop(0, runs) as run:
        start = e.mul(run, both)
        middle, end = (e.intrinsic("smin", I64, e.index(e.add(start, more)), i64(extent)) for more in (width, both))
        scope.function.poll()
        e.store(e.index(start), left, 8)
        e.store(middle, right, 8)
        with e.loop(start, end) as place:
            one, two = e.load(I64, left, 8), e.load(I64, right, 8)
            # Only existing elements may be compared, and an exhausted run has none.
            some = e.compare("icmp slt", one, middle), e.compare("icmp slt", two, end)
            within = [e.select(has, at, e.index(start)) for has, at in zip(some, (one, two), strict=True)]
            origins = [order(at) for at in within]
            compared = e.binary("and", *some)
            later = e.select(compared, later_first(*origins), some[1])
            after.put(e, (place,), e.convert("trunc", e.select(later, origins[1], origins[0]), I32), 1)
            e.store(e.binary("add", one, e.convert("zext", e.negated(later), I64)), left, 8)
            e.store(e.binary("add", two, e.convert("zext", later, I64)), right, 8)


class Runs:
    """A line of integers that is sorted in vectors: runs in one of two buffers, merged into the other.

    Fields:
        last: the integer that pads the last block; none is sorted after it.
    """

    def __init__(self, scope: Scope, dtype: DType, lanes: int, extent: int) -> None:
        self.scope = scope
        self.e = scope.e
        self.dtype = dtype
        self.lanes = lanes
        self.step = 2 * lanes
        self.block = lanes * lanes
        self.extent = extent
        self.size = -(-extent // self.block) * self.block
        self.levels = (self.size // self.block - 1).bit_length()
        self.type = registers.register(dtype)
        self.last = (1 << (8 * dtype.itemsize - 1)) - 1
        # A step of a merge reads elements after a run, without using them.
        self.buffers = [scope.arena.buffer(self.e, (self.size + self.step,), dtype) for _ in range(2)]
        self.unsorted, self.sorted = self.buffers[0], self.buffers[self.levels % 2]

    def sort(self) -> None:
        """Sort the integers of `unsorted`; the result is in `sorted`."""
        e, lanes = self.e, self.lanes
        with e.loop(self.extent, self.size) as place:
            self.unsorted.put(e, (place,), V(str(self.last), self.type), 1)
        with e.loop(0, self.size, self.block) as first:
            places = [(e.add(first, n * lanes),) for n in range(lanes)]
            block = sorted_block(e, [self.unsorted.at(e, place, lanes) for place in places])
            for place, value in zip(places, block, strict=True):
                self.unsorted.put(e, place, value, lanes)
        with e.loop(0, self.levels) as level:
            self.merge_level(e.index(level))

    def merge_level(self, level: V) -> None:
        """Merge pairs of neighbouring runs of `block << level` elements, from one buffer into the other."""
        e, size = self.e, i64(self.size)
        odd = e.compare("icmp ne", e.binary("and", level, i64(1)), i64(0))
        bases = [run.base for run in self.buffers]
        shape = self.size + self.step
        before, after = (
            StridedArray(e.select(odd, *pair), (1,), (shape,), self.dtype)
            for pair in ((bases[1], bases[0]), tuple(bases))
        )
        width = e.binary("shl", i64(self.block), level)
        both = e.binary("shl", width, i64(1))
        count = e.binary("udiv", e.index(e.sub(e.add(both, self.size), 1)), both)
        with e.loop(0, count) as number:
            self.scope.function.poll()
            start = e.mul(number, both)
            middle, end = (e.intrinsic("smin", I64, e.index(e.add(start, more)), size) for more in (width, both))
            self.merge(before, after, e.index(start), middle, end)

    def merge(self, before: StridedArray, after: StridedArray, start: V, middle: V, end: V) -> None:
        """Merge two runs: each step takes the next elements of the run with the smaller head."""
        e, lanes, step = self.e, self.lanes, self.step
        one, two = (self.scope.function.slot(I64) for _ in range(2))
        kind, aligned = vector(self.type, lanes), lanes * self.dtype.itemsize
        held = [self.scope.function.slot(kind) for _ in range(2)]
        e.store(e.index(e.add(start, step)), one, 8)
        e.store(middle, two, 8)
        for n, slot in enumerate(held):
            e.store(before.at(e, (e.add(start, n * lanes),), lanes), slot, aligned)
        with e.loop(start, e.index(e.sub(end, step)), step) as place:
            places = left, right = e.load(I64, one, 8), e.load(I64, two, 8)
            some = e.compare("icmp slt", left, middle), e.compare("icmp slt", right, end)
            heads = [before.at(e, (at,), 1) for at in places]
            # An exhausted run has no head; the other one is then taken, whatever its head.
            smaller = e.binary("or", e.compare("icmp slt", *heads), e.negated(some[1]))
            takes = e.binary("and", smaller, some[0])
            origin = e.select(takes, left, right)
            e.store(e.select(takes, e.index(e.add(left, step)), left), one, 8)
            e.store(e.select(takes, right, e.index(e.add(right, step))), two, 8)
            taken = [before.at(e, (e.add(origin, n * lanes),), lanes) for n in range(2)]
            low0, low1, *high = merged(e, [e.load(kind, slot, aligned) for slot in held], taken)
            for slot, value in zip(held, high, strict=True):
                e.store(value, slot, aligned)
            after.put(e, (place,), low0, lanes)
            after.put(e, (e.add(place, lanes),), low1, lanes)
        for n, slot in enumerate(held):
            place = e.add(end, (n - 2) * lanes)
            after.put(e, (place,), e.load(kind, slot, aligned), lanes)


class InVectors:
    """The order of a line by one key of at most 32 bits."""

    def __init__(self, scope: Scope, keys: Sequence[LazyArray], axis: int) -> None:
        self.e = scope.e
        (self.key,) = keys
        self.axis = axis
        self.runs = Runs(scope, dtypes.INT64, LANES, self.key.shape[axis])

    def sort(self, others: tuple[Int, ...]) -> None:
        """Sort the line at an index along the other axes."""
        e = self.e
        for place, key, width in _keys(e, self.key, others, self.axis):
            high = e.binary("shl", e.convert("sext", key, I64), e.constant(32, vector(I64, width)))
            low = e.splat(e.index(place), width)
            if width > 1:
                low = e.binary("add", low, e.lanes(range(width)))
            self.runs.unsorted.put(e, (place,), e.binary("or", high, low), width)
        self.runs.sort()

    def origin(self, place: Int) -> V:
        """The original position of the element at a sorted position."""
        e = self.e
        return e.binary("and", self.runs.sorted.at(e, (place,), 1), i64((1 << 32) - 1))


class KeyAlone:
    """A line of at most 32 bits an element that is sorted by itself.

    The key gives the bits of its element, unless that is -0 or NaN. If a line has one of these, all that are zero or
    NaN are written again, in their original order.
    """

    def __init__(self, scope: Scope, key: LazyArray, axis: int) -> None:
        self.scope = scope
        self.e = scope.e
        self.key = key
        self.axis = axis
        self.extent = key.shape[axis]
        wide = host.current().vector_bytes >= 64 and self.extent > LONG
        self.runs = Runs(scope, dtypes.INT32, 2 * LANES if wide else LANES, self.extent)
        self.lost = scope.function.slot(I64) if dtypes.is_float(key.dtype) else None

    def sort(self, others: tuple[Int, ...], target: StridedArray) -> None:
        """Write the sorted line at an index along the other axes."""
        e, dtype = self.e, self.key.dtype
        if self.lost is not None:
            e.store(i64(0), self.lost, 8)
        for place, key, width in _keys(e, self.key, others, self.axis):
            self.runs.unsorted.put(e, (place,), key, width)
            if self.lost is not None:
                given = e.convert("bitcast", self.key.at(_with(others, self.axis, place), width), I32)
                found = e.convert("bitcast", _element(e, dtype, key), I32)
                mask = e.compare("icmp ne", given, found)
                bits = e.convert("zext", e.mask(mask), I64)
                e.store(e.binary("or", e.load(I64, self.lost, 8), bits), self.lost, 8)
        self.runs.sort()
        for place, width in _along(e, self.key, self.axis):
            key = self.runs.sorted.at(e, (place,), width)
            target.put(e, _with(others, self.axis, place), _element(e, dtype, key), width)
        if self.lost is not None:
            with e.when(e.compare("icmp ne", e.load(I64, self.lost, 8), i64(0))):
                self.write_again(others, target)

    def write_again(self, others: tuple[Int, ...], target: StridedArray) -> None:
        """Write zeros and NaNs of a line in their original order."""
        e, zero = self.e, V("0", I32)
        nan = V(str(self.runs.last), I32)
        kinds = [(self.scope.function.slot(I64), "icmp slt", key) for key in (zero, nan)]
        for slot, _, _ in kinds:
            e.store(i64(0), slot, 8)

        def key_at(place: Int) -> tuple[V, V]:
            value = self.key.at(_with(others, self.axis, place), 1)
            return value, _ordered(e, self.key.dtype, value)

        def advance(slot: V, condition: V) -> None:
            e.store(e.binary("add", e.load(I64, slot, 8), e.convert("zext", condition, I64)), slot, 8)

        with e.loop(0, self.extent) as place:  # the number of lesser elements is the first position
            _, key = key_at(place)
            for slot, less, of_kind in kinds:
                advance(slot, e.compare(less, key, of_kind))
        with e.loop(0, self.extent) as place:
            value, key = key_at(place)
            for slot, _, of_kind in kinds:
                is_one = e.compare("icmp eq", key, of_kind)
                with e.when(is_one):
                    target.put(e, _with(others, self.axis, e.load(I64, slot, 8)), value, 1)
                advance(slot, is_one)


def _along(e: Emitter, array: LazyArray, axis: int) -> Iterator[tuple[Int, int]]:
    """Loops along an axis, the position and width of each step: vectors along the last axis, else single elements."""
    extent = array.shape[axis]
    for start, end, width in widths(extent) if axis == len(array.shape) - 1 else [(0, extent, 1)]:
        with e.loop(start, end, width) as place:
            yield place, width


def _keys(e: Emitter, array: LazyArray, others: tuple[Int, ...], axis: int) -> Iterator[tuple[Int, V, int]]:
    """Loops along a line: the position, the elements as integers in their order, and the width of each step."""
    for place, width in _along(e, array, axis):
        yield place, _ordered(e, array.dtype, array.at(_with(others, axis, place), width)), width


def _ordered(e: Emitter, dtype: DType, x: V) -> V:
    """Signed integers of 32 bits in the order of some elements; those of NaN are the greatest, and -0 equals 0."""
    if not dtypes.is_float(dtype):
        wide = e.convert("sext" if dtypes.is_signed(dtype) else "zext", x, I32)
        flips = dtype.itemsize == 4 and not dtypes.is_signed(dtype)
        return e.binary("xor", wide, e.constant(-(1 << 31), wide.type)) if flips else wide
    bits = e.convert("bitcast", e.binary("fadd", x, e.constant(0, x.type)), I32)
    sign = e.binary("ashr", bits, e.constant(31, bits.type))
    ordered = e.binary("xor", bits, e.binary("and", sign, e.constant((1 << 31) - 1, bits.type)))
    return e.select(is_nan(e, x), e.constant((1 << 31) - 1, bits.type), ordered)


def _element(e: Emitter, dtype: DType, key: V) -> V:
    """The elements with some keys: 0 for -0, and one NaN for all of them."""
    if dtypes.is_float(dtype):
        sign = e.binary("ashr", key, e.constant(31, key.type))
        bits = e.binary("xor", key, e.binary("and", sign, e.constant((1 << 31) - 1, key.type)))
        return e.convert("bitcast", bits, FLOAT)
    if dtype.itemsize == 4 and not dtypes.is_signed(dtype):
        return e.binary("xor", key, e.constant(-(1 << 31), key.type))
    return e.convert("trunc", key, registers.register(dtype))


def sorted_block(e: Emitter, rows: Sequence[V]) -> list[V]:
    """A square of vectors as one sorted run: sorted lane by lane, then transposed to runs, which are merged."""
    rows = list(rows)
    for x, y in network(len(rows)):
        rows[x], rows[y] = compared(e, rows[x], rows[y])
    runs = [[row] for row in transposed(e, rows)]
    while len(runs) > 1:
        runs = [merged(e, *runs[n : n + 2]) for n in range(0, len(runs), 2)]
    return runs[0]


def network(count: int) -> Iterator[tuple[int, int]]:
    """Comparators that sort a power of two (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M)."""
    p = count // 2
    while p:
        q, r, d = count // 2, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2


def compared(e: Emitter, x: V, y: V) -> tuple[V, V]:
    """The lesser and the greater, lane by lane."""
    return e.intrinsic("smin", x.type, x, y), e.intrinsic("smax", x.type, x, y)


def merged(e: Emitter, x: Sequence[V], y: Sequence[V]) -> list[V]:
    """Two sorted runs of equally many vectors as one run (Batcher's bitonic merge)."""
    flipped = [_shuffled(e, row, row, range(row.type.width - 1, -1, -1)) for row in reversed(y)]
    return _ascending(e, [*x, *flipped])


def _ascending(e: Emitter, rows: Sequence[V]) -> list[V]:
    """A bitonic run, first ascending, then descending, as an ascending one."""
    half = len(rows) // 2
    pairs = [compared(e, x, y) for x, y in zip(rows[:half], rows[half:], strict=True)]
    if half > 1:
        return [row for part in zip(*pairs, strict=True) for row in _ascending(e, part)]
    return _both_ascending(e, *pairs[0])


def _both_ascending(e: Emitter, x: V, y: V) -> list[V]:
    """Two vectors, each a bitonic run, each as an ascending one.

    Each step exchanges a bit of the lane with the number of the vector, so that elements to be compared are in the same
    lane: of the elements with that bit 0 in the first vector, and of those with that bit 1 in the second.
    """
    lanes = range(x.type.width)
    distance = len(lanes) // 2
    while distance:
        clear = [len(lanes) + lane - distance if lane & distance else lane for lane in lanes]
        x, y = compared(e, _shuffled(e, x, y, clear), _shuffled(e, x, y, [lane + distance for lane in clear]))
        distance //= 2
    # The number of the vector has become the highest bit of the lane, the lowest bit of the lane that of the vector.
    first = [len(lanes) * (lane % 2) + lane // 2 for lane in lanes]
    return [_shuffled(e, x, y, first), _shuffled(e, x, y, [lane + len(lanes) // 2 for lane in first])]


def _shuffled(e: Emitter, x: V, y: V, lanes: Sequence[int]) -> V:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.value(x.type, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")


RULES: dict[str, Rule] = {"sort": _sort}
