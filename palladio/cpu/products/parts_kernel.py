"""Micro-kernels of a few rows that read a row of each part of a matrix at the same pace, as text of LLVM functions.

All their steps are straight code: after a loop over a few steps a processor begins to load the next columns too late.
"""

from __future__ import annotations

from collections.abc import Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.llvm_types import I64, PTR, vector
from palladio.cpu.products.micro_kernel import multiply_add, transposed
from palladio.cpu.products.row_order import PARTS
from palladio.cpu.rules.casts import converted
from palladio.cpu.runtime.machine_code import STRAIGHT
from palladio.types.dtypes import DType


@dataclass(frozen=True)
class PartsKernel:
    """A kernel that adds the product of some rows and some rows of a matrix to sums, a vector of columns at a time.

    Fields:
        sums, dtype: the dtypes of the sums and of the left operand, and of the matrix.
        height: the rows of the left operand that are multiplied at a time. A kernel of height 1 multiplies only one.
        steps: the number of rows of the matrix. The left operand has a stride of `PARTS` elements between its rows.
        apart: elements between the rows of sums.
    """

    sums: DType
    dtype: DType
    height: int
    steps: int
    apart: int

    @property
    def name(self) -> str:
        size = f"{self.height}x{self.steps}"
        return f"multiply_{self.sums}_{self.dtype}_{size}_{self.apart}_of_parts"

    @property
    def text(self) -> tuple[str, dict[str, str]]:
        """The function, and its declarations.

        Its arguments are the left operand, the matrix, the bytes between the rows of the matrix, the sums, the number
        of columns, and how many times `height` rows are multiplied.
        """
        e = Emitter()
        e.label("entry")
        rows = [e.pointer(V("%matrix", PTR), e.mul(V("%row", I64), step), 1) for step in range(self.steps)]
        held = None
        if self.height == 1:
            held = [[self.factor(e, V("%lhs", PTR), 0, step)] for step in range(self.steps)]
        with e.loop(0, V("%columns", I64), registers.LANES) as column:
            if held is not None:
                self.add(e, rows, column, 0, held)
            else:
                with e.loop(0, V("%times", I64)) as time:
                    self.add(e, rows, column, e.mul(time, self.height), None)
        parameters = "ptr noalias readonly %lhs, ptr noalias readonly %matrix, i64 %row, ptr noalias %sums, "
        parameters += "i64 %columns, i64 %times"
        head = f"define internal void @{self.name}({parameters}) noinline nounwind optsize {STRAIGHT}"
        return "\n".join([head + " {", *e.lines, "  ret void", "}"]), e.declared

    def add(self, e: Emitter, rows: list[V], column: V, first: Int, held: list[list[V]] | None) -> None:
        """Add the products of all steps to the sums of some columns.

        Args:
            rows: the addresses of the rows of the matrix.
            first: the first row of the left operand.
            held: its elements in all lanes, for each step, if they are in registers.
        """
        left = e.pointer(V("%lhs", PTR), e.mul(first, PARTS), self.sums.itemsize)
        start = e.pointer(V("%sums", PTR), e.add(column, e.mul(first, self.apart)), self.sums.itemsize)
        places = [e.pointer(start, r * self.apart, self.sums.itemsize) for r in range(self.height)]
        wide = vector(registers.register(self.sums), registers.LANES)
        totals = [e.load(wide, place, self.sums.itemsize) for place in places]
        for step, row in enumerate(rows):
            loaded = registers.load(e, e.pointer(row, column, self.dtype.itemsize), self.dtype, registers.LANES)
            value = converted(e, loaded, self.dtype, self.sums)
            factors = held[step] if held else [self.factor(e, left, r, step) for r in range(self.height)]
            totals = [multiply_add(e, value, factor, total) for factor, total in zip(factors, totals, strict=True)]
        for total, place in zip(totals, places, strict=True):
            e.store(total, place, self.sums.itemsize)

    def factor(self, e: Emitter, left: V, row: int, step: int) -> V:
        """An element of the left operand in all lanes.

        Args:
            left: the address of the first one.
        """
        place = e.pointer(left, row * PARTS + step, self.sums.itemsize)
        return e.splat(e.load(registers.register(self.sums), place, self.sums.itemsize), registers.LANES)


def transposed_parts(e: Emitter, parts: Sequence[V]) -> list[V]:
    """The elements of all parts at each step, from a vector of steps of each part."""
    squares, found = transposed(e, [*parts]), []  # side by side: `LANES` is a multiple of `PARTS`
    for start in range(0, registers.LANES, PARTS):
        lanes = ", ".join(f"i32 {lane}" for lane in range(start, start + PARTS))
        for each in squares:
            type = vector(each.type.element, PARTS)
            found.append(e.value(type, f"shufflevector {each}, {each.type} poison, <{PARTS} x i32> <{lanes}>"))
    return found
