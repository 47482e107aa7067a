"""Matrix products on the CPU.

The product of two tiles runs in blocks of ROWS x (COLUMNS vectors) accumulators that stay in registers: for each step
along the summed axis, one vector of the right operand per column block is multiplied with each row's element of the
left one. The right operand is packed panel by panel, so that a panel is read from the first-level cache in order;
packing computes the operand's elements, whatever they are computed from. The left operand is laid out in rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu import registers
from palladio.cpu.emit import Index, V, vector
from palladio.cpu.rules.casts import converted
from palladio.cpu.scope import Refused, Rule, Scope
from palladio.cpu.tiles import Buffer, Tile, merged, widths
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

ROWS = 12
COLUMNS = 2
DEPTH = 256
"""Steps along the summed axis for which the accumulators stay in registers.

A panel of that depth fits the first-level cache.
"""

Axes = tuple[tuple[int, ...], tuple[int, ...]]


class Matrix:
    """A tile as a matrix [rows, depth] or [depth, columns], whatever the order of its axes."""

    def __init__(self, tile: Tile, first: Sequence[int], second: Sequence[int]) -> None:
        if len(first) > 1 or len(second) > 1:
            raise Refused("a product over several axes at once is not compiled for the CPU")
        self.tile = tile
        self.axes = (*first, *second)
        self.first = tile.shape[first[0]] if first else 1
        self.second = tile.shape[second[0]] if second else 1
        self.has = (bool(first), bool(second))
        self.along = bool(second) and second[0] == len(tile.shape) - 1

    def at(self, scope: Scope, i: Index, j: Index, width: int) -> V:
        """Elements [i, j], [i, j + 1], …"""
        if width > 1 and not self.along:
            return scope.e.gathered([self.at(scope, i, scope.e.add(j, lane), 1) for lane in range(width)])
        index: list[Index] = [0] * len(self.tile.shape)
        positions = [position for position, has in zip((i, j), self.has, strict=True) if has]
        for axis, position in zip(self.axes, positions, strict=True):
            index[axis] = position
        return self.tile.at(index, width)


def accumulator(lhs: DType, rhs: DType, result: DType) -> DType:
    """The dtype in which products are summed."""
    if dtypes.is_float(lhs) or dtypes.is_float(rhs):
        return dtypes.FLOAT64 if dtypes.FLOAT64 in (lhs, rhs, result) else dtypes.FLOAT32
    if not dtypes.is_integer(result):
        raise Refused("a product of integers as floats is not compiled for the CPU")
    return result if result.itemsize >= 4 else dtypes.INT32


class Product:
    """One matrix product while it is emitted."""

    def __init__(self, scope: Scope, lhs: Matrix, rhs: Matrix, sums: DType, init: Tile | None) -> None:
        self.scope = scope
        self.e = scope.e
        self.lhs = lhs
        self.rhs = rhs
        self.sums = sums
        self.register = registers.register(sums)
        self.init = init
        self.depth = lhs.second

    def element(self, matrix: Matrix, i: Index, j: Index, width: int) -> V:
        return converted(self.e, matrix.at(self.scope, i, j, width), matrix.tile.dtype, self.sums)

    def run(self, target: Buffer) -> None:
        """Write the product, of accumulator dtype or one that sums are converted to, to a [rows, columns] buffer."""
        left = self.laid_out()
        pieces = list(widths(self.rhs.second))
        with_panels = [piece for piece in pieces if piece[2] == registers.LANES]
        for start, end, width in with_panels:
            whole = (end - start) // (width * COLUMNS) * width * COLUMNS
            with_loop = [(start, start + whole, COLUMNS)] if whole else []
            if start + whole < end:
                with_loop.append((start + whole, end, 1))
            for first, stop, columns in with_loop:
                with self.e.loop(first, stop, width * columns) as column:
                    self.panel(left, target, column, columns, width)
        for start, _, width in [piece for piece in pieces if piece[2] < registers.LANES]:
            self.panel(left, target, start, 1, width)

    def laid_out(self) -> Buffer:
        """The left operand in rows of its own, in the dtype of the sums."""
        buffer = self.scope.arena.buffer(self.e, (self.lhs.first, self.depth), self.sums)
        with self.e.loop(0, self.lhs.first) as row:
            for start, end, width in widths(self.depth):
                with self.e.loop(start, end, width) as step:
                    buffer.put(self.e, (row, step), self.element(self.lhs, row, step, width), width)
        return buffer

    def panel(self, left: Buffer, target: Buffer, column: Index, columns: int, width: int) -> None:
        """All rows of `columns` vectors from a column on."""
        for first in range(0, self.depth, DEPTH):
            steps = min(DEPTH, self.depth - first)
            packed = self.scope.arena.buffer(self.e, (steps, columns * width), self.sums)
            with self.e.loop(0, steps) as step:
                for n in range(columns):
                    place = self.e.add(column, n * width)
                    value = self.element(self.rhs, self.e.add(first, step), place, width)
                    packed.put(self.e, (step, n * width), value, width)
            rows = self.lhs.first
            whole = rows // ROWS * ROWS
            blocks = [(0, whole, ROWS)] if whole else []
            if rows - whole:
                blocks.append((whole, rows, rows - whole))
            for start, stop, height in blocks:
                with self.e.loop(start, stop, height) as row:
                    self.block(left, packed, target, (row, column), (height, columns, width), first, steps)

    def block(
        self,
        left: Buffer,
        packed: Buffer,
        target: Buffer,
        corner: tuple[Index, Index],
        size: tuple[int, int, int],
        first: int,
        steps: int,
    ) -> None:
        """One block of accumulators, through all steps."""
        e = self.e
        height, columns, width = size
        type = vector(self.register, width)
        start = self.starting(target, corner, size, first)
        head, body, end = e.fresh("head"), e.fresh("body"), e.fresh("end")
        before = e.block
        step, following = "%" + e.fresh("k"), "%" + e.fresh("k")
        names = [f"%{e.fresh('sum')}" for _ in start]
        e.jump(head)
        e.label(head)
        patch = len(e.lines)
        e.lines += [""] * (len(names) + 1)
        goes_on = e.compare("icmp slt", V(step, "i64"), V(str(steps), "i64"))
        e.branch(goes_on, body, end)
        e.label(body)
        right = [packed.at(e, (V(step, "i64"), n * width), width) for n in range(columns)]
        sums = []
        for r in range(height):
            element = left.at(e, (e.add(corner[0], r), e.add(first, V(step, "i64"))), 1)
            spread = e.splat(element, width)
            sums += [self.multiply_add(spread, right[n], V(names[r * columns + n], type)) for n in range(columns)]
        e.line(f"{following} = add nsw i64 {step}, 1")
        latch = e.block
        e.jump(head)
        e.lines[patch] = f"  {step} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]"
        for n, name in enumerate(names):
            e.lines[patch + 1 + n] = (
                f"  {name} = phi {type} [ {start[n].text}, %{before} ], [ {sums[n].text}, %{latch} ]"
            )
        e.label(end)
        for r in range(height):
            for n in range(columns):
                place = (e.add(corner[0], r), e.add(corner[1], n * width))
                self.put(target, place, V(names[r * columns + n], type), width, first + steps == self.depth)

    def multiply_add(self, x: V, y: V, total: V) -> V:
        if dtypes.is_float(self.sums):
            return self.e.intrinsic("fma", total.type, x, y, total)
        return self.e.binary("add", total, self.e.binary("mul", x, y))

    def starting(self, target: Buffer, corner: tuple[Index, Index], size: tuple[int, int, int], first: int) -> list[V]:
        """What the accumulators start from: zero, what the product is added to, or the sums so far."""
        e = self.e
        height, columns, width = size
        found = []
        for r in range(height):
            for n in range(columns):
                place = (e.add(corner[0], r), e.add(corner[1], n * width))
                if first:
                    found.append(target.at(e, place, width))
                elif self.init is not None:
                    index = place if self.init.shape else ()
                    found.append(self.init.at(index, width))
                else:
                    found.append(e.constant(0, vector(self.register, width)))
        return found

    def put(self, target: Buffer, place: tuple[Index, Index], value: V, width: int, last: bool) -> None:
        if last or target.dtype == self.sums:
            target.put(self.e, place, converted(self.e, value, self.sums, target.dtype), width)


def _dot(scope: Scope, lhs: Tile, rhs: Tile, *, contracting: Axes, batch: Axes, dtype: DType) -> Sequence[Tile]:
    if batch[0]:
        raise Refused("a batched product is not compiled for the CPU")
    free = [[a for a in range(len(t.shape)) if a not in c] for t, c in zip((lhs, rhs), contracting, strict=True)]
    left, right = Matrix(lhs, free[0], contracting[0]), Matrix(rhs, contracting[1], free[1])
    shape = tuple(lhs.shape[a] for a in free[0]) + tuple(rhs.shape[a] for a in free[1])
    sums = accumulator(lhs.dtype, rhs.dtype, dtype)
    lazily = _product_tile(scope, left, right, sums, shape, None, merged([lhs, rhs], aligned=False))
    if dtype == sums and len(shape) == 2:
        return (lazily,)
    kept = scope.keep(lazily)
    if dtype == sums:
        return (kept,)
    return scope.function.rules["convert"](scope, kept, dtype=dtype)


def _product_tile(
    scope: Scope, left: Matrix, right: Matrix, sums: DType, shape: tuple[int, ...], init: Tile | None, reads: dict
) -> Tile:
    def fill(target: Buffer) -> None:
        rows = Buffer(target.base, _as_matrix(target, left, right), (left.first, right.second), target.dtype)
        Product(scope, left, right, sums, init).run(rows)

    def plus(other: Tile) -> Tile:
        together = {**reads}
        for memory, same in other.reads.items():
            together[memory] = same and together.get(memory, True)
        return _product_tile(scope, left, right, sums, shape, other, together)

    def at(index: Sequence[Index], width: int) -> V:
        raise Refused("a product is computed as a whole")

    adds = plus if init is None and len(shape) == 2 else None
    return Tile(ArrayType(shape, sums), at, reads, False, None, fill, adds)


def _as_matrix(target: Buffer, left: Matrix, right: Matrix) -> tuple[Index, Index]:
    strides = iter(target.strides)
    row = next(strides) if left.has[0] else 0
    column = next(strides) if right.has[1] else 1
    return row, column


RULES: dict[str, Rule] = {"dot_general": _dot}
