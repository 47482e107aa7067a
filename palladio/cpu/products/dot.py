"""Matrix products on the CPU: the choice of operands, dtypes, loops and results.

`product` has the loops, `gemv` those for a matrix and a few vectors, and `few_rows` those for a few rows. `tiles` has
products on tile registers, and `tiles.split` float32 as pieces of bfloat16.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import TRUE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, Panel, StridedArray, array_in, merged, write
from palladio.cpu.emit.llvm_types import I32, I64, vector
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.products.blocking import DEPTH_BYTES, SPLIT_STEPS
from palladio.cpu.products.few_rows import FewRows
from palladio.cpu.products.gemv import Gemv
from palladio.cpu.products.micro_kernel import LINE_BYTES
from palladio.cpu.products.operands import Element, PackSource, PrefetchRange, Range
from palladio.cpu.products.product import Product, RowLimit
from palladio.cpu.products.row_kernel import most_sums
from palladio.cpu.products.row_order import parts_of_sums
from palladio.cpu.products.tiles import split
from palladio.cpu.products.tiles.kernel import TILE
from palladio.cpu.products.tiles.rows import PART, RowsOnTiles
from palladio.cpu.products.tiles.split_once import split_once
from palladio.cpu.rules.casts import converted
from palladio.cpu.runtime import host
from palladio.lower.fusion.products import is_matrix_product, sums_in
from palladio.lower.refused import Refused
from palladio.ops.arrays import casts
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape
from palladio.types.views import row_major

FEW_ALONG, FEW_ACROSS, FEW_JOINED = 32, 16, 8
"""The number of rows beyond which packing the right operand pays: if it is contiguous along the summed axis, if it is
contiguous across it, and if it would be packed into pairs that cannot be read in place."""

FEW_OF_PARTS = 24
"""As `FEW_ACROSS`, where the rows of several parts of the matrix are read side by side."""

FEW_BEFORE_SPLIT = 40
"""As `FEW_ACROSS`, where packing splits the numbers."""

LEAST_DEPTH_SPLIT = 64
"""As `LEAST_DEPTH_ON_TILES`, for products of split numbers, whose sums are checked and written once more."""

LEAST_SUM_SPLIT, LEAST_ROWS_OF_SUM = 512, 64
"""As `LEAST_DEPTH_SPLIT`, for several products that are summed, of all of them, and their least rows: otherwise
splitting takes most of what is gained."""

LEAST_SPAN_SPLIT = 512
"""As `LEAST_DEPTH_SPLIT`, where a mask selects a part of the summed axis when the kernel runs."""

FEW_ON_TILES, FEW_BEFORE_TILES = 48, 4
"""As these, where pairs are multiplied on tile registers in place, and the rows up to which vectors take less time."""

LEAST_DEPTH_ON_TILES = 64
"""The smallest summed axis of a product on tile registers. Configuring these takes 0.1 µs for each product, as long as
vectors take for 16 rows, half as many steps and 32 columns."""

Axes = tuple[tuple[int, ...], tuple[int, ...]]


class Matrix:
    """An array as a matrix [rows, depth] or [depth, columns], whatever the order of its axes."""

    def __init__(self, array: LazyArray, first: Sequence[int], second: Sequence[int]) -> None:
        if len(first) > 1 or len(second) > 1:
            raise Refused("a product over several axes at once is not compiled for the CPU")
        self.array = array
        self.axes = (*first, *second)
        self.first = array.shape[first[0]] if first else 1
        self.second = array.shape[second[0]] if second else 1
        self.has = (bool(first), bool(second))
        last = self.neighbours()
        self.along = bool(second) and second[0] == last
        self.across = bool(first) and first[0] == last

    def neighbours(self) -> int:
        """The axis along which elements are neighbours in memory; the last one, if the array is not in memory."""
        buffer = self.array.buffer
        last = len(self.array.shape) - 1
        if buffer is None or buffer.strides[-1:] == (1,):
            return last
        return next((axis for axis, stride in enumerate(buffer.strides) if stride == 1), last)

    def index(self, i: Int, j: Int) -> list[Int]:
        """The array's index of an element."""
        index: list[Int] = [0] * len(self.array.shape)
        positions = [position for position, has in zip((i, j), self.has, strict=True) if has]
        for axis, position in zip(self.axes, positions, strict=True):
            index[axis] = position
        return index

    def at(self, scope: Scope, i: Int, j: Int, width: int) -> V:
        """Elements [i, j], [i, j + 1], …"""
        e, array = scope.e, self.array
        if width == 1 or (self.along and self.axes[-1] == len(array.shape) - 1):
            return array.at(self.index(i, j), width)
        if self.along and array.buffer is not None:
            return registers.load(e, array.buffer.address(e, self.index(i, j)), array.dtype, width)
        return e.gathered([self.at(scope, i, e.add(j, lane), 1) for lane in range(width)])

    def across_at(self, scope: Scope, i: Int, j: Int, width: int) -> V:
        """Elements [i, j], [i + 1, j], …, which are neighbours in memory."""
        e, array = scope.e, self.array
        if width > 1 and array.buffer is not None and self.axes[0] != len(array.shape) - 1:
            return registers.load(e, array.buffer.address(e, self.index(i, j)), array.dtype, width)
        return array.at(self.index(i, j), width)

    def operand(self, scope: Scope, sums: DType, later: PrefetchRange | None = None) -> PackSource:
        """The matrix as an operand of `Product`."""

        def element(i: Int, j: Int, width: int) -> V:
            return converted(scope.e, self.at(scope, i, j, width), self.array.dtype, sums)

        def across(i: Int, j: Int, width: int) -> V:
            return converted(scope.e, self.across_at(scope, i, j, width), self.array.dtype, sums)

        plain = self.rows(self.array.buffer) if self.array.dtype == sums else None
        found = self.operand_of(element, across, (self.first, self.second), later, plain)
        regrouped = self.array.dtype == sums and self.axes == (0, 1) and self.array.rows is not None
        return replace(found, in_place=self.array.rows if regrouped else plain)

    def later(self, scope: Scope) -> PrefetchRange | None:
        """The block of the next step, or of the step after that if the next one has the same block."""
        e, buffer = scope.e, self.array.buffer
        later = [scope.function.later[memory] for memory in self.array.reads if memory in scope.function.later]
        if (
            buffer is None
            or not self.along
            or not self.has[0]
            or len(later) != len(self.array.reads)
            or len(later) != 1
        ):
            return None
        ((now, at),) = later
        row = e.mul(buffer.strides[self.axes[0]], buffer.dtype.itemsize)
        here, moved = (e.value(I64, f"ptrtoint {base} to i64") for base in (now.base, buffer.base))
        nexts = [at(distance) for distance in (1, 2)]
        there = e.select(e.compare("icmp ne", nexts[0], now.base), *nexts)
        other = e.compare("icmp ne", there, now.base)
        lines = max(1, self.second * buffer.dtype.itemsize // LINE_BYTES)
        return PrefetchRange(e.pointer(there, e.sub(moved, here), 1), row, self.first, lines, other)

    def read_later(self, scope: Scope) -> PrefetchRange | None:
        """As `later`, for a matrix with contiguous columns that is read in place: the block that is read next.

        Blocks of the same size are read in the order of the kernel's arguments, then those of the next step.
        """
        e, buffer, blocks = scope.e, self.array.buffer, scope.function.later
        if buffer is None or not self.across or not all(self.has) or len(self.array.reads) != 1:
            return None
        (memory,) = self.array.reads
        if memory not in blocks:
            return None
        now, _ = blocks[memory]
        alike = [name for name, (block, _) in blocks.items() if block.type == now.type]
        after = alike[alike.index(memory) + 1 :]
        there = blocks[after[0]][0].base if after else blocks[alike[0]][1](1)
        here, moved = (e.value(I64, f"ptrtoint {base} to i64") for base in (now.base, buffer.base))
        between = e.mul(buffer.strides[self.axes[1]], buffer.dtype.itemsize)
        lines = max(1, self.first * buffer.dtype.itemsize // LINE_BYTES)
        return PrefetchRange(e.pointer(there, e.sub(moved, here), 1), between, self.second, lines)

    def joined(
        self, scope: Scope, axis: int, count: int, later: PrefetchRange | None = None, flips: bool = False
    ) -> PackSource:
        """The operand with neighbours along an axis joined: two of bfloat16 or four of 8-bit integers as one int32.

        Args:
            flips: whether the highest bit of each is flipped: int8 becomes the uint8 that is greater by 128.
        """
        e, dtype = scope.e, self.array.dtype
        bits, steps = 32 // count, [1] * 2
        steps[axis] = count

        def flipped(word: V) -> V:
            highest = sum(1 << bits * n + bits - 1 for n in range(count)) - (1 << 32)
            return e.binary("xor", word, e.constant(highest, word.type)) if flips else word

        def side_by_side(at: Callable[..., V], i: Int, j: Int, width: int) -> V:
            found = registers.to_memory(e, at(scope, i, j, count * width), dtype)
            type = vector(I32, width)
            return flipped(e.value(type, f"bitcast {found} to {type}"))

        def interleaved(at: Callable[..., V], i: Int, j: Int, width: int) -> V:
            places = [(e.add(i, n), j) if axis == 0 else (i, e.add(j, n)) for n in range(count)]
            parts = [registers.to_memory(e, at(scope, *ij, width), dtype) for ij in places]
            word, *others = [e.convert("zext", part, I32) for part in parts]
            for n, part in enumerate(others, 1):
                word = e.binary("or", word, e.binary("shl", part, e.constant(bits * n, word.type)))
            return flipped(word)

        def place(i: Int, j: Int) -> tuple[Int, Int]:
            return e.mul(i, steps[0]), e.mul(j, steps[1])

        along, across = (interleaved, side_by_side) if axis == 0 else (side_by_side, interleaved)
        return self.operand_of(
            lambda i, j, width: along(self.at, *place(i, j), width),
            lambda i, j, width: across(self.across_at, *place(i, j), width),
            (self.first // steps[0], self.second // steps[1]),
            later,
            None if flips else self.rows(self.array.buffer),
        )

    def rows(self, buffer: StridedArray | None) -> StridedArray | None:
        """A buffer of the array's shape as a matrix with contiguous rows; None if its rows are not contiguous.

        The strides decide, not `along`, which also holds for a reversed, strided or repeated last axis.
        """
        found = self.matrix(buffer)
        return found if found is not None and found.strides[1] == 1 else None

    def columns(self, buffer: StridedArray | None) -> StridedArray | None:
        """A buffer of the array's shape as a matrix with contiguous columns; None if its columns are not contiguous."""
        found = self.matrix(buffer)
        return found if found is not None and found.strides[0] == 1 else None

    def matrix(self, buffer: StridedArray | None) -> StridedArray | None:
        """A buffer of the array's shape as a matrix."""
        if buffer is None or not all(self.has):
            return None
        strides = tuple(buffer.strides[axis] for axis in self.axes)
        return StridedArray(buffer.base, strides, (self.first, self.second), buffer.dtype)

    def split(self, scope: Scope, axis: int, later: PrefetchRange | None = None) -> PackSource:
        """The operand, as float32, in pieces of bfloat16, with pairs of neighbours along an axis joined.

        An odd number of elements is padded with zero, as `SplitSource.end` says.
        """
        _, end = self.array.zero_ranges.get(self.axes[-axis], (0, None))
        numbers = replace(self.operand(scope, dtypes.FLOAT32, later), changes=None if axis else self.changes(scope))
        return split.source(numbers, axis, end)

    def changes(self, scope: Scope) -> V | None:
        """True if the next step has another block of the matrix; None if that is not known."""
        if not self.array.reads or not all(memory.steady for memory in self.array.reads):
            return TRUE
        blocks = scope.function.following
        found: V | None = None
        for memory in self.array.reads:
            if memory in blocks:
                now, at = blocks[memory]
                moved = scope.e.compare("icmp ne", at(), now.base)
                found = moved if found is None else scope.e.binary("or", found, moved)
        return found

    def operand_of(
        self,
        element: Element,
        across: Element,
        size: tuple[int, int],
        later: PrefetchRange | None = None,
        plain: StridedArray | None = None,
    ) -> PackSource:
        reads, near = self.array.reads, self.array.near or self.array.buffer
        steady = self.array.buffer if reads and all(memory.steady for memory in reads) else None
        return PackSource(
            *size,
            element,
            across if self.across else None,
            steady,
            reads,
            self.rows(near),
            later if steady else None,
            plain,
            near_columns=self.columns(near) if self.across else None,
        )


def _dot(
    scope: Scope, lhs: LazyArray, rhs: LazyArray, *, contracting: Axes, batch: Axes, dtype: DType
) -> Sequence[LazyArray]:
    free = [
        [axis for axis in range(len(array.shape)) if axis not in (*summed, *shared)]
        for array, summed, shared in zip((lhs, rhs), contracting, batch, strict=True)
    ]
    if batch[0] or any(len(axes) > 1 for axes in (*free, *contracting)):
        return _batched(scope, (lhs, rhs), free, contracting, batch, dtype)
    return _single(scope, lhs, rhs, contracting, dtype)


def _dot_accumulate(
    scope: Scope, acc: LazyArray, lhs: LazyArray, rhs: LazyArray, *more: LazyArray, contracting: Axes, batch: Axes
) -> Sequence[LazyArray]:
    """Sums that begin with the accumulator, if the product is computed by the loops of `product`; else an addition."""
    shapes = lhs.shape, rhs.shape
    if is_matrix_product(shapes, contracting, batch) and sums_in(lhs.dtype, rhs.dtype, acc.dtype) == acc.dtype:
        further = list(zip(more[::2], more[1::2], strict=True))
        if all(_joins((lhs, rhs), pair, contracting, acc.dtype) for pair in further):
            return (_matrix_product(scope, lhs, rhs, contracting, acc.dtype, acc, further),)
        total = _matrix_product(scope, lhs, rhs, contracting, acc.dtype, acc)
        for pair in further:
            total = _matrix_product(scope, *pair, contracting, acc.dtype, scope.keep(total))
        return (total,)
    total, operands = acc, (lhs, rhs, *more)
    for pair in zip(operands[::2], operands[1::2], strict=True):
        (product,) = _dot(scope, *pair, contracting=contracting, batch=batch, dtype=acc.dtype)
        product = scope.keep(product) if product.fill is not None else product
        (total,) = scope.function.rules["add"](scope, total, product)
    return (total,)


def _joins(first: Sequence[LazyArray], pair: Sequence[LazyArray], contracting: Axes, sums: DType) -> bool:
    """True if two products can be one, of operands side by side: these have the same memory order, and are short."""
    lefts = [_matrices(*each, contracting)[0] for each in (first, pair)]
    return lefts[0].second * sums.itemsize <= DEPTH_BYTES and lefts[0].across == lefts[1].across


def _batched(
    scope: Scope,
    arrays: Sequence[LazyArray],
    free: Sequence[Sequence[int]],
    contracting: Axes,
    batch: Axes,
    dtype: DType,
) -> Sequence[LazyArray]:
    """Products of matrices, one for each index along the batch axes; the other axes of each kind are merged."""
    e = scope.e
    stacks: list[StridedArray] = []
    sizes = [math.prod(array.shape[axis] for axis in axes) for array, axes in zip(arrays, free, strict=True)]
    depth = math.prod(arrays[0].shape[axis] for axis in contracting[0])
    count = math.prod(arrays[0].shape[axis] for axis in batch[0])
    for array, mine, summed, shared, size in zip(arrays, free, contracting, batch, sizes, strict=True):
        (moved,) = scope.function.rules["transpose"](scope, array, permutation=(*shared, *mine, *summed))
        target = scope.arena.buffer(e, moved.shape, moved.dtype)
        write(e, moved, target)
        stacks.append(StridedArray(target.base, row_major((count, size, depth)), (count, size, depth), moved.dtype))
    shape = [arrays[0].shape[axis] for axis in (*batch[0], *free[0])] + [arrays[1].shape[axis] for axis in free[1]]
    result = scope.arena.buffer(e, tuple(shape), dtype)
    with e.loop(0, count) as place:
        left, right = (_at_place(scope, stack, place) for stack in stacks)
        (product,) = _single(scope, left, right, ((1,), (1,)), dtype)
        base = e.pointer(result.base, e.mul(place, sizes[0] * sizes[1]), dtype.itemsize)
        write(e, product, StridedArray(base, (sizes[1], 1), (sizes[0], sizes[1]), dtype))
    found = array_in(e, result)
    return (found if shape else scope.keep(found),)


def _at_place(scope: Scope, stack: StridedArray, place: Int) -> LazyArray:
    base = scope.e.pointer(stack.base, scope.e.mul(place, math.prod(stack.shape[1:])), stack.dtype.itemsize)
    return array_in(scope.e, StridedArray(base, stack.strides[1:], stack.shape[1:], stack.dtype))


def _single(scope: Scope, lhs: LazyArray, rhs: LazyArray, contracting: Axes, dtype: DType) -> Sequence[LazyArray]:
    if is_matrix_product((lhs.shape, rhs.shape), contracting, ((), ())):
        return (_matrix_product(scope, lhs, rhs, contracting, dtype),)
    left, right, shape = _matrices(lhs, rhs, contracting)
    sums = sums_in(lhs.dtype, rhs.dtype, dtype)
    return scope.function.rules["convert"](scope, _gemv_product(scope, left, right, sums, shape), dtype=dtype)


def _matrices(lhs: LazyArray, rhs: LazyArray, contracting: Axes) -> tuple[Matrix, Matrix, Shape]:
    """Both sides of a product of at most one contracted axis, and its shape."""
    free = [[a for a in range(len(t.shape)) if a not in c] for t, c in zip((lhs, rhs), contracting, strict=True)]
    shape = tuple(lhs.shape[a] for a in free[0]) + tuple(rhs.shape[a] for a in free[1])
    return Matrix(lhs, free[0], contracting[0]), Matrix(rhs, contracting[1], free[1]), shape


def _matrix_product(
    scope: Scope,
    lhs: LazyArray,
    rhs: LazyArray,
    contracting: Axes,
    dtype: DType,
    init: LazyArray | None = None,
    more: Sequence[tuple[LazyArray, LazyArray]] = (),
) -> LazyArray:
    """A product by the loops of `product`, computed a few rows at a time.

    Args:
        init: the initial sums.
        more: further pairs of operands, whose products are added.
    """
    left, right, shape = _matrices(lhs, rhs, contracting)
    sums = sums_in(lhs.dtype, rhs.dtype, dtype)
    init = None if init is not None and init.zero else init
    reads = merged([lhs, rhs, *itertools.chain(*more)], aligned=False)
    if init is not None:
        reads = {**reads, **{memory: same and reads.get(memory, True) for memory, same in init.reads.items()}}
    further = [_matrices(*pair, contracting)[:2] for pair in more]
    make = functools.partial(_product, scope, left, right, sums, further)
    found = _product_array(scope, make, ArrayType(shape, sums), init, reads)
    if dtype == sums:
        return found
    whole = scope.row_by_row(casts.convert, [found], dtype=dtype)
    if whole is None:
        (whole,) = scope.function.rules["convert"](scope, found, dtype=dtype)
    elif dtype == dtypes.BFLOAT16 and _takes_pairs(left, right, sums) and left.second * 2 <= DEPTH_BYTES:
        whole.fill = lambda target: _write_rounded(scope, left, right, sums, target)
    return whole


def _write_rounded(scope: Scope, left: Matrix, right: Matrix, sums: DType, target: StridedArray) -> None:
    """Write a product of pairs of bfloat16, each sum rounded to bfloat16 by the micro-kernel."""
    there = target if target.strides[1] == 1 else scope.arena.buffer(scope.e, target.shape, target.dtype)
    _product(scope, left, right, sums).run(there, None)
    if there is not target:
        write(scope.e, array_in(scope.e, there), target)


def _gemv_product(scope: Scope, left: Matrix, right: Matrix, sums: DType, shape: tuple[int, ...]) -> LazyArray:
    """The product with a few vectors, computed now."""
    found = Gemv(scope, left.operand(scope, sums), right.operand(scope, sums), sums).run()
    strides = tuple(stride for stride, has in zip(found.strides, (left.has[0], right.has[1]), strict=True) if has)
    array = array_in(scope.e, StridedArray(found.base, strides, shape, sums))
    return array if shape else scope.keep(array)


def _lower(e: Emitter, sums: StridedArray, type: ArrayType, row: Int) -> LazyArray:
    """A matrix with some rows in a buffer, from the given one on."""
    return LazyArray(type, lambda index, width: sums.at(e, (e.sub(index[0], row), index[1]), width))


def _product_array(
    scope: Scope, make: Callable[[], Product], type: ArrayType, init: LazyArray | None, reads: dict[Allocation, bool]
) -> LazyArray:
    """The array of the product that `make` creates."""

    def fill(target: StridedArray) -> None:
        product = make()
        size = product.lhs.rows, product.rhs.columns
        rows, column = target.strides
        if column == 1 and target.dtype == type.dtype:
            product.run(StridedArray(target.base, (rows, 1), size, type.dtype), init)
            return
        kept = scope.arena.buffer(scope.e, target.shape, type.dtype)
        product.run(StridedArray(kept.base, (size[1], 1), size, type.dtype), init)
        write(scope.e, array_in(scope.e, kept), target)

    def panels(use: Panel, rows: Range | None, into: StridedArray | None) -> None:
        product = make()

        def part(found: StridedArray, row: Int, height: int) -> None:
            rows_here = _lower(scope.e, found, type, row)
            # Sums of pairs of bfloat16 are never subnormal: the instruction gives 0 instead.
            rows_here.normal = product.joined == 2 and product.blocking.pieces == 1 and init is None
            use(rows_here, row, height)

        product.by_panels(part, init, rows, into)

    def at(index: Sequence[Int], width: int) -> V:
        raise Refused("a product is computed as a whole")

    return LazyArray(type, at, reads, fill=fill, panels=panels)


def _takes_pairs(left: Matrix, right: Matrix, sums: DType) -> bool:
    """True if pairs of bfloat16 are multiplied."""
    narrow = left.array.dtype == right.array.dtype == dtypes.BFLOAT16 and sums == dtypes.FLOAT32
    whole = left.second % 2 == 0 and right.second % registers.LANES == 0
    return narrow and whole and host.current().multiplies_pairs


def _takes_quads(left: Matrix, right: Matrix, sums: DType) -> bool:
    """True if quads of 8-bit integers are multiplied."""
    narrow = left.array.dtype in (dtypes.INT8, dtypes.UINT8) and right.array.dtype == dtypes.INT8
    whole = left.second % 4 == 0 and right.second % registers.LANES == 0
    return narrow and sums == dtypes.INT32 and whole and host.current().multiplies_quads


def _takes_pieces(left: Matrix, right: Matrix, sums: DType, count: int = 1) -> bool:
    """True if float32 numbers are multiplied as pieces of bfloat16.

    Args:
        count: the number of products of these sizes that are summed. Several need rows enough too: those are of a
            kernel that sums several products, and do not depend on the number of threads.
    """
    whole = left.second % 2 == 0 and right.second % registers.LANES == 0
    deep = left.second * count >= (LEAST_DEPTH_SPLIT if count == 1 else LEAST_SUM_SPLIT)
    fits = count == 1 or (left.first >= LEAST_ROWS_OF_SUM and left.second <= 2 * SPLIT_STEPS)
    return sums == dtypes.FLOAT32 and whole and deep and fits and _fit_tiles(left, 2, count > 1)


def _halved(scope: Scope, span: Range | None) -> Range | None:
    """The pairs of steps in a range."""
    if span is None:
        return None
    bounds = (scope.e.index(bound) for bound in (span[0], scope.e.add(span[1], 1)))
    low, high = (scope.e.binary("ashr", bound, i64(1)) for bound in bounds)
    return low, high


def _fit_tiles(left: Matrix, joined: int, one_of_several: bool = False) -> bool:
    """True if a product of pairs or quads runs on tile registers.

    Several products that are summed must each have a multiple of 16 steps. The numbers of rows and columns have no part
    in it: those of a tile of the library depend on the number of threads, and sums must not.
    """
    whole = left.second % (TILE * joined) == 0 or not one_of_several
    return host.current().multiplies_tiles and whole and left.second >= LEAST_DEPTH_ON_TILES


def _product(
    scope: Scope, left: Matrix, right: Matrix, sums: DType, more: Sequence[tuple[Matrix, Matrix]] = ()
) -> Product:
    span, later = (None, None) if more else (_span(scope, left, right), right.later(scope))
    few = None if more else _few_rows(scope, left, right, sums, later)
    if _takes_pairs(left, right, sums):
        lhs, rhs = left.joined(scope, 1, 2), right.joined(scope, 0, 2, later)
        further = [(x.joined(scope, 1, 2), y.joined(scope, 0, 2)) for x, y in more]
        instruction = "tdpbf16ps" if _fit_tiles(left, 2, bool(more)) else ""
        return Product(scope, lhs, rhs, sums, 2, _halved(scope, span), few=few, more=further, instruction=instruction)
    if span is None and _takes_quads(left, right, sums):
        signed = left.array.dtype == dtypes.INT8
        instruction = ("tdpbssd" if signed else "tdpbusd") if _fit_tiles(left, 4, bool(more)) else ""
        offset = 128 if signed and not instruction else 0
        lhs, rhs = left.joined(scope, 1, 4, flips=offset > 0), right.joined(scope, 0, 4, later)
        further = [(x.joined(scope, 1, 4, flips=offset > 0), y.joined(scope, 0, 4)) for x, y in more]
        return Product(scope, lhs, rhs, sums, 4, offset=offset, more=further, instruction=instruction)
    further = [(x.operand(scope, sums), y.operand(scope, sums)) for x, y in more]
    lhs, rhs = left.operand(scope, sums), right.operand(scope, sums, later)
    vectors = functools.partial(Product, scope, lhs, rhs, sums, span=span, few=few, more=further)
    if not _takes_pieces(left, right, sums, 1 + len(more)):
        return vectors()
    shallow = None if span is None else (vectors(), LEAST_SPAN_SPLIT)
    lefts = [left, *(x for x, _ in more)]
    once = split_once(scope, [x.operand(scope, sums) for x in lefts])
    split_lefts, places = once or ([x.split(scope, 1) for x in lefts], None)
    return Product(
        scope,
        split_lefts[0],
        right.split(scope, 0, later),
        sums,
        2,
        _halved(scope, span),
        few=few,
        more=[(x, y.split(scope, 0)) for x, (_, y) in zip(split_lefts[1:], more, strict=True)],
        instruction="tdpbf16ps",
        pieces=split.PIECES,
        shallow=shallow if shallow and shallow[0].blocking.span else None,
        places=places,
    )


def _few_rows(scope: Scope, left: Matrix, right: Matrix, sums: DType, later: PrefetchRange | None) -> RowLimit | None:
    """The product of a few rows with a matrix of floats in memory, which needs no packing.

    None in float64 if it would sum in another order than a packed product: a group's float64 sums must not depend on
    which of its rows are in one tile.
    """
    buffer = right.array.buffer
    if buffer is None or not all((*left.has, *right.has)) or not dtypes.is_float(sums):
        return None
    if right.across and sums == dtypes.FLOAT64:
        return None
    strides = tuple(buffer.strides[axis] for axis in right.axes)
    matrix = StridedArray(buffer.base, strides, (right.first, right.second), buffer.dtype)
    pairs = _takes_pairs(left, right, sums)
    joins = right.across and pairs and right.first % (2 * registers.LANES) == 0
    on_tiles = pairs and _fit_rows_on_tiles(left, right, matrix)
    most = FEW_JOINED if pairs else FEW_ALONG if right.across else _few_across(sums)
    if not right.across and _takes_pieces(left, right, sums):
        most = FEW_BEFORE_SPLIT

    def product() -> FewRows:
        following = later or right.read_later(scope)
        if joins:
            operands = left.joined(scope, 1, 2), right.joined(scope, 0, 2, following)
            return FewRows(scope, *operands, sums, matrix, FEW_ALONG, pairs=True)
        operands = left.operand(scope, sums), right.operand(scope, sums, following)
        tallest = FEW_BEFORE_TILES if on_tiles else None
        return FewRows(scope, *operands, sums, matrix, FEW_BEFORE_TILES if on_tiles else most, tallest=tallest)

    def product_on_tiles() -> RowsOnTiles:
        return RowsOnTiles(scope, left.joined(scope, 1, 2), right.joined(scope, 0, 2, later), matrix, FEW_ON_TILES)

    if on_tiles:
        return RowLimit(FEW_ON_TILES, product_on_tiles, RowLimit(FEW_BEFORE_TILES, product))
    return RowLimit(FEW_ALONG if joins else most, product)


def _fit_rows_on_tiles(left: Matrix, right: Matrix, matrix: StridedArray) -> bool:
    """True if pairs of a matrix in memory, whose rows are contiguous, are multiplied on tile registers in place."""
    whole = right.first % PART == 0 and right.second >= PART and matrix.strides[1] == 1
    return whole and _fit_tiles(left, 2)


def _few_across(sums: DType) -> int:
    """`FEW_ACROSS`, or two passes of a kernel of as many rows, where the registers hold its sums."""
    if parts_of_sums(sums):
        return FEW_OF_PARTS
    return FEW_ACROSS * (2 if most_sums(sums) >= FEW_ACROSS else 1)


def _span(scope: Scope, left: Matrix, right: Matrix) -> Range | None:
    """The steps along the summed axis outside of which both sides are zero. One side is not enough: 0 * inf is NaN."""
    if not (left.has[1] and right.has[0]):
        return None
    sides = [side.array.zero_ranges.get(axis) for side, axis in ((left, left.axes[-1]), (right, right.axes[0]))]
    if None in sides:
        return None
    e = scope.e
    first, last = ([e.index(bound) for bound in bounds] for bounds in zip(*sides, strict=True))  # type: ignore[arg-type]
    return e.intrinsic("smin", I64, *first), e.intrinsic("smax", I64, *last)


RULES: dict[str, Rule] = {"dot_general": _dot, "dot_accumulate": _dot_accumulate}
