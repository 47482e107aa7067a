"""Sorting on the CPU.

Lines are sorted in vectors of integers that are in the order of the keys: a block of them at a time is sorted in
registers, by networks of minima and maxima; then sorted runs are merged, from both ends at once, two vectors in each
step (Chhugani et al., "Efficient implementation of sorting on multi-core SIMD CPU architecture", VLDB 2008). An array
alone has integers of 32 or of 64 bits. If other arrays move with one key of at most 32 bits, an integer has 64, the key
above the position, so that the sort is stable and all integers are different. Other keys are merged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from palladio.cpu.access.gather import one_by_one, settled
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import FALSE, TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, array_in, widths, written_whole
from palladio.cpu.emit.llvm_types import DOUBLE, I32, I64, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.products.micro_kernel import transposed
from palladio.cpu.rules.top_k import greatest, is_nan, precedes
from palladio.cpu.runtime import host
from palladio.types import dtypes
from palladio.types.dtypes import DType

FEWEST = 2
"""The most elements of a line that is not sorted in vectors."""


def _sort(
    scope: Scope, *operands: LazyArray, axis: int, num_keys: int, stable: bool, last: int | None = None
) -> Sequence[LazyArray]:
    """The positions along each line are sorted, equal ones in their order, then the elements are moved.

    A key alone is sorted where the result is stored. If only a few elements at the end are used, only these are sorted.
    """
    if last is not None and num_keys == 1 and axis == len(operands[0].shape) - 1:
        return greatest(scope, operands, last)
    e, shape = scope.e, operands[0].shape
    if len(operands) == 1:
        return [_alone(scope, operands[0], axis)]
    sources = [settled(scope, array) for array in operands]
    targets = [scope.arena.buffer(e, array.shape, array.dtype) for array in operands]
    in_vectors = num_keys == 1 and sources[0].dtype.itemsize <= 4 and shape[axis] > FEWEST
    _in_order((InVectors if in_vectors else OneByOne)(scope, sources[:num_keys], axis), sources, targets)
    return [array_in(e, target) for target in targets]


def _alone(scope: Scope, x: LazyArray, axis: int) -> LazyArray:
    """A sorted array, which is written to memory as a whole."""
    e = scope.e

    def put(target: StridedArray) -> None:
        source = settled(scope, x)
        if x.shape[axis] > FEWEST:
            alone = KeyAlone(scope, source, axis, target)
            one_by_one(e, (*x.shape[:axis], *x.shape[axis + 1 :]), alone.sort)
        else:
            _in_order(OneByOne(scope, [source], axis), [source], [target])

    return written_whole(x.type, [x], put)


def _in_order(order: InVectors | OneByOne, sources: Sequence[LazyArray], targets: Sequence[StridedArray]) -> None:
    """Move the elements of each line to their places in an order."""
    e, axis, shape = order.e, order.axis, sources[0].shape

    def line(others: tuple[Int, ...]) -> None:
        order.sort(others)
        with e.loop(0, shape[axis]) as place:
            origin = order.origin(place)
            for source, target in zip(sources, targets, strict=True):
                target.put(e, _with(others, axis, place), source.at(_with(others, axis, origin), 1), 1)

    one_by_one(e, (*shape[:axis], *shape[axis + 1 :]), line)


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


Put = Callable[[Int, V], None]
"""Takes a vector, and the place of its first element in a line."""


class Runs:
    """A line of integers that is sorted in vectors: runs in one of two buffers, merged into the other.

    Fields:
        last: the integer that pads the last block; none is sorted after it.
    """

    def __init__(self, scope: Scope, dtype: DType, extent: int) -> None:
        self.scope = scope
        self.e = scope.e
        self.dtype = dtype
        self.rows, self.lanes = block_shape(extent, dtype.itemsize)
        self.step = 2 * self.lanes
        self.block = self.rows * self.lanes
        self.extent = extent
        self.size = -(-extent // self.block) * self.block
        self.levels = (self.size // self.block - 1).bit_length()
        self.type = registers.register(dtype)
        self.last = (1 << (8 * dtype.itemsize - 1)) - 1
        self.buffers = [self.buffer() for _ in range(2)]
        self.unsorted, self.sorted = self.buffers[0], self.buffers[self.levels % 2]

    def buffer(self) -> StridedArray:
        """Memory for the integers, between elements that a merge reads without using them."""
        padded = self.scope.arena.buffer(self.e, (self.size + 2 * self.step,), self.dtype)
        return StridedArray(padded.address(self.e, (self.step,)), (1,), (self.size,), self.dtype)

    def pad(self) -> None:
        """Write the integers after those of the line to `unsorted`, and to the rest of a vector before them."""
        e, lanes = self.e, self.lanes
        with e.loop(self.extent // lanes * lanes, self.size, lanes) as place:
            self.unsorted.put(e, (place,), e.constant(self.last, vector(self.type, lanes)), lanes)

    def sort(self, read: Callable[[Int], V] | None = None, write: Put | None = None) -> None:
        """Sort the integers of `unsorted`; the result is in `sorted`.

        Args:
            read: returns a vector of the integers at a place, instead of `unsorted`.
            write: takes the vectors of the result, instead of `sorted`.
        """
        e, lanes = self.e, self.lanes
        put = write if write is not None and not self.levels else _into(e, self.unsorted)
        with e.loop(0, self.size, self.block) as first:
            places = [e.add(first, n * lanes) for n in range(self.rows)]
            given = [self.unsorted.at(e, (place,), lanes) if read is None else read(place) for place in places]
            for place, value in zip(places, sorted_block(e, given), strict=True):
                put(place, value)
        with e.loop(0, self.levels if write is None else max(0, self.levels - 1)) as level:
            self.merge_level(e.index(level))
        if write is not None and self.levels:
            self.merge_level(i64(self.levels - 1), write)

    def merge_level(self, level: V, write: Put | None = None) -> None:
        """Merge pairs of neighbouring runs of `block << level` elements, from one buffer into the other."""
        e, size = self.e, i64(self.size)
        odd = e.compare("icmp ne", e.binary("and", level, i64(1)), i64(0))
        bases = [run.base for run in self.buffers]
        before, after = (
            StridedArray(e.select(odd, *pair), (1,), (self.size,), self.dtype)
            for pair in ((bases[1], bases[0]), tuple(bases))
        )
        put = write or _into(e, after)
        width = e.binary("shl", i64(self.block), level)
        both = e.binary("shl", width, i64(1))
        count = e.binary("udiv", e.index(e.sub(e.add(both, self.size), 1)), both)
        with e.loop(0, count) as number:
            self.scope.function.poll()
            start = e.index(e.mul(number, both))
            end = e.intrinsic("smin", I64, e.index(e.add(start, both)), size)
            middle = e.index(e.add(start, width))
            # A run without a neighbour is merged as its two halves.
            half = e.binary("lshr", e.binary("add", start, end), i64(1))
            middle = e.select(e.compare("icmp slt", middle, end), middle, half)
            self.merge(before, start, middle, end, put)

    def merge(self, before: StridedArray, start: V, middle: V, end: V, put: Put) -> None:
        """Merge two runs from both ends, which do not wait for each other: each gives half of the result."""
        e, lanes = self.e, self.lanes
        up, down = (Front(self, before, start, middle, end, upwards) for upwards in (True, False))
        half = e.binary("lshr", e.binary("sub", end, start), i64(1))
        with e.loop(0, half, self.step) as done:
            for first, values in ((e.add(start, done), up.next()), (e.sub(e.sub(end, done), self.step), down.next())):
                for n, value in enumerate(values):
                    put(e.add(first, n * lanes), value)


def _into(e: Emitter, buffer: StridedArray) -> Put:
    return lambda place, value: buffer.put(e, (place,), value, value.type.width)


class Front:
    """The least, or greatest, elements of two runs that are not merged yet.

    Each step takes the next elements of the run with the smaller head upwards, or the greater one downwards. They are
    loaded a step before they are merged: the choice of a run takes as long as a merge.

    Fields:
        places: for each run, the limit of its elements that were taken.
        stops: the other end of each run.
        held: elements that are in part in the result.
        taken: the elements that are merged with them next.
    """

    def __init__(self, runs: Runs, source: StridedArray, start: V, middle: V, end: V, upwards: bool) -> None:
        self.e = e = runs.e
        self.lanes = runs.lanes
        self.step = runs.step
        self.source = source
        self.upwards = upwards
        self.type, self.align = vector(runs.type, self.lanes), self.lanes * runs.dtype.itemsize
        self.stops = (middle, end) if upwards else (start, middle)
        self.places = [runs.scope.function.slot(I64) for _ in range(2)]
        self.held, self.taken = ([runs.scope.function.slot(self.type) for _ in range(2)] for _ in range(2))
        places = (e.add(start, self.step), middle) if upwards else (middle, e.sub(end, self.step))
        for place, slot in zip(places, self.places, strict=True):
            e.store(e.index(place), slot, 8)
        self.set(self.held, self.elements(start if upwards else places[1]))
        self.take()

    def elements(self, place: Int) -> list[V]:
        """The elements of a step."""
        return [self.source.at(self.e, (self.e.add(place, n * self.lanes),), self.lanes) for n in range(2)]

    def set(self, slots: Sequence[V], values: Sequence[V]) -> None:
        """Keep vectors for the next step."""
        for slot, value in zip(slots, values, strict=True):
            self.e.store(value, slot, self.align)

    def take(self) -> None:
        """Take elements of one run."""
        e, step, beyond = self.e, self.step, "icmp slt" if self.upwards else "icmp sgt"
        places = [e.load(I64, slot, 8) for slot in self.places]
        some = [e.compare(beyond, place, stop) for place, stop in zip(places, self.stops, strict=True)]
        heads = [self.source.at(e, (place if self.upwards else e.sub(place, 1),), 1) for place in places]
        # An exhausted run has no head; the other one is then taken, whatever its head.
        takes = e.binary("and", some[0], e.binary("or", e.compare(beyond, *heads), e.negated(some[1])))
        moved = [e.index(e.add(place, step) if self.upwards else e.sub(place, step)) for place in places]
        e.store(e.branchless(takes, moved[0], places[0]), self.places[0], 8)
        e.store(e.branchless(takes, places[1], moved[1]), self.places[1], 8)
        self.set(self.taken, self.elements(e.branchless(takes, *(places if self.upwards else moved))))

    def next(self) -> Sequence[V]:
        """The elements that come first of all that were taken."""
        held, taken = (
            [self.e.load(self.type, slot, self.align) for slot in slots] for slots in (self.held, self.taken)
        )
        self.take()
        values = merged_runs(self.e, held, taken)
        first, rest = (values[:2], values[2:]) if self.upwards else (values[2:], values[:2])
        self.set(self.held, rest)
        return first


class InVectors:
    """The order of a line by one key of at most 32 bits."""

    def __init__(self, scope: Scope, keys: Sequence[LazyArray], axis: int) -> None:
        self.e = scope.e
        (self.key,) = keys
        self.axis = axis
        self.runs = Runs(scope, dtypes.INT64, self.key.shape[axis])

    def sort(self, others: tuple[Int, ...]) -> None:
        """Sort the line at an index along the other axes."""
        e = self.e
        self.runs.pad()
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
    """The lines of an array, sorted by their elements.

    An integer gives the bits of its element, unless that is -0 or NaN. If a line has one of these, all that are zero or
    NaN are written again, in their original order.
    """

    def __init__(self, scope: Scope, key: LazyArray, axis: int, target: StridedArray) -> None:
        self.scope = scope
        self.e = scope.e
        self.key = key
        self.axis = axis
        self.target = target
        self.extent = key.shape[axis]
        self.type = I64 if key.dtype.itemsize == 8 else I32
        self.runs = Runs(scope, dtypes.INT64 if self.type == I64 else dtypes.INT32, self.extent)
        self.lost = scope.function.slot(I64) if dtypes.is_float(key.dtype) else None

    def sort(self, others: tuple[Int, ...]) -> None:
        """Write the sorted line at an index along the other axes."""
        e, runs = self.e, self.runs
        if self.lost is not None:
            e.store(i64(0), self.lost, 8)

        def read(place: Int) -> V:
            return self.read(_with(others, self.axis, place), runs.lanes)

        def write(place: Int, value: V) -> None:
            self.target.put(e, _with(others, self.axis, place), _element(e, self.key.dtype, value), value.type.width)

        if self.axis == len(self.key.shape) - 1 and runs.size == self.extent:
            runs.sort(read, write)
        else:
            runs.pad()
            for place, width in _along(e, self.key, self.axis):
                runs.unsorted.put(e, (place,), self.read(_with(others, self.axis, place), width), width)
            runs.sort()
            for place, width in _along(e, self.key, self.axis):
                write(place, runs.sorted.at(e, (place,), width))
        if self.lost is not None:
            with e.when(e.compare("icmp ne", e.load(I64, self.lost, 8), i64(0))):
                self.write_again(others)

    def read(self, index: Sequence[Int], width: int) -> V:
        """The integers of some elements, noting whether one of them is -0 or NaN; -0 is before 0 here."""
        e, value = self.e, self.key.at(index, width)
        if self.lost is None:
            return _ordered(e, self.key.dtype, value)
        ordered, greatest = _flipped(e, value), e.constant(self.runs.last, vector(self.type, width))
        nan = is_nan(e, value)
        found = e.binary("or", nan, e.compare("icmp eq", ordered, e.constant(-1, ordered.type)))
        bits = e.convert("zext", e.mask(found), I64)
        e.store(e.binary("or", e.load(I64, self.lost, 8), bits), self.lost, 8)
        return e.select(nan, greatest, ordered)

    def write_again(self, others: tuple[Int, ...]) -> None:
        """Write zeros and NaNs of a line in their original order."""
        e, zero, nan = self.e, V("0", self.type), V(str(self.runs.last), self.type)
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
                    self.target.put(e, _with(others, self.axis, e.load(I64, slot, 8)), value, 1)
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
    """Signed integers in the order of some elements; those of NaN are the greatest, and -0 equals 0.

    They have 64 bits for elements of 64 bits, else 32.
    """
    type = I64 if dtype.itemsize == 8 else I32
    least = -1 << (type.bits - 1)
    if not dtypes.is_float(dtype):
        wide = e.convert("sext" if dtypes.is_signed(dtype) else "zext", x, type)
        flips = type.bits == 8 * dtype.itemsize and not dtypes.is_signed(dtype)
        return e.binary("xor", wide, e.constant(least, wide.type)) if flips else wide
    ordered = _flipped(e, e.binary("fadd", x, e.constant(0, x.type)))
    return e.select(is_nan(e, x), e.constant(-1 - least, ordered.type), ordered)


def _flipped(e: Emitter, x: V) -> V:
    """Floats as signed integers in their order, -0 before 0."""
    return _back(e, e.convert("bitcast", x, I64 if x.type.element == DOUBLE else I32))


def _back(e: Emitter, bits: V) -> V:
    """The bits of floats as integers in their order, or such integers as the bits."""
    width = bits.type.bits
    sign = e.binary("ashr", bits, e.constant(width - 1, bits.type))
    return e.binary("xor", bits, e.binary("and", sign, e.constant((1 << (width - 1)) - 1, bits.type)))


def _element(e: Emitter, dtype: DType, key: V) -> V:
    """The elements with some keys: one NaN for all of them."""
    if dtypes.is_float(dtype):
        return e.convert("bitcast", _back(e, key), registers.register(dtype))
    if key.type.bits == 8 * dtype.itemsize and not dtypes.is_signed(dtype):
        return e.binary("xor", key, e.constant(-1 << (8 * dtype.itemsize - 1), key.type))
    return e.convert("trunc", key, registers.register(dtype))


def block_shape(extent: int, itemsize: int) -> tuple[int, int]:
    """The vectors of a block that is sorted in registers, and the elements of each, for lines of an extent.

    There are at least 8 vectors where a line has several blocks: a merge takes four steps of two vectors or more.
    """
    if extent <= 16:
        return 4, 4
    if host.current().vector_bytes < 64:
        return 8, 8
    if itemsize == 8:
        return (8, 8) if extent <= 64 else (16, 8)
    return (4 if extent <= 64 else 8 if extent <= 128 else 16), 16


def sorted_block(e: Emitter, rows: Sequence[V]) -> list[V]:
    """A block of vectors as one sorted run: sorted lane by lane, then transposed to runs, which are merged."""
    rows, lanes = list(rows), rows[0].type.width
    for x, y in network(len(rows)):
        rows[x], rows[y] = compared(e, rows[x], rows[y])
    square = min(len(rows), lanes)
    parts = [transposed(e, rows[n : n + square]) for n in range(0, len(rows), square)]
    if square < lanes:
        return _merged_all(e, [[row] for row in _lengthened(e, *parts)])
    return _merged_all(e, [list(run) for run in zip(*parts, strict=True)])


def _merged_all(e: Emitter, runs: Sequence[list[V]]) -> list[V]:
    while len(runs) > 1:
        runs = [merged_runs(e, *runs[n : n + 2]) for n in range(0, len(runs), 2)]
    return runs[0]


def _lengthened(e: Emitter, rows: Sequence[V]) -> Sequence[V]:
    """Vectors that are one run each, merged from vectors of shorter runs, which have one element for each vector."""
    length, lanes = len(rows), rows[0].type.width
    while length < lanes:
        back = [lane ^ (length - 1) for lane in range(lanes)]
        pairs = [(x, _shuffled(e, y, y, back)) for x, y in zip(rows[::2], rows[1::2], strict=True)]
        rows = [row for pair in pairs for row in _both_ascending(e, *compared(e, *pair), length)]
        length *= 2
    return rows


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


def merged_runs(e: Emitter, x: Sequence[V], y: Sequence[V]) -> list[V]:
    """Two sorted runs of equally many vectors as one run (Batcher's bitonic merge)."""
    flipped = [_shuffled(e, row, row, range(row.type.width - 1, -1, -1)) for row in reversed(y)]
    return _ascending(e, [*x, *flipped])


def _ascending(e: Emitter, rows: Sequence[V]) -> list[V]:
    """A bitonic run, first ascending, then descending, as an ascending one."""
    half = len(rows) // 2
    pairs = [compared(e, x, y) for x, y in zip(rows[:half], rows[half:], strict=True)]
    if half > 1:
        return [row for part in zip(*pairs, strict=True) for row in _ascending(e, part)]
    return _both_ascending(e, *pairs[0], rows[0].type.width)


def _both_ascending(e: Emitter, x: V, y: V, length: int) -> list[V]:
    """Two vectors of bitonic runs of a length, as ascending ones, in which those of x and y at the same lanes are one.

    Each step exchanges a bit of the lane with the number of the vector, so that elements to be compared are in the same
    lane: of the elements with that bit 0 in the first vector, and of those with that bit 1 in the second.
    """
    lanes = x.type.width
    distance = length // 2
    while distance:
        clear = [lanes + lane - distance if lane & distance else lane for lane in range(lanes)]
        x, y = compared(e, _shuffled(e, x, y, clear), _shuffled(e, x, y, [lane + distance for lane in clear]))
        distance //= 2
    # The number of the vector has become the highest bit of the lane, the lowest bit of the lane that of the vector.
    places = [divmod(n, 2 * length) for n in range(2 * lanes)]
    origins = [n % 2 * lanes + run * length + n // 2 for run, n in places]
    return [_shuffled(e, x, y, origins[:lanes]), _shuffled(e, x, y, origins[lanes:])]


def _shuffled(e: Emitter, x: V, y: V, lanes: Sequence[int]) -> V:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.value(x.type, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")


RULES: dict[str, Rule] = {"sort": _sort}
