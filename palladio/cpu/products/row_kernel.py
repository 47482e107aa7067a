"""Micro-kernels of a few rows, as the text of LLVM functions: they read the right operand in place, and once.

Packed panels are for operands that are read again and again. A matrix that is read once arrives from memory at a pace
that leaves time for many multiplications, if these are done while the next lines are on their way. So each line is
multiplied with all rows in one pass, in the order in which the lines arrive: a second pass over lines that are already
in a cache would leave the memory idle.
"""

from __future__ import annotations

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.llvm_types import I64, PTR, vector
from palladio.cpu.products.micro_kernel import LINE_BYTES, Variable, in_a_register, multiply_add
from palladio.cpu.rules.casts import converted
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import STRAIGHT
from palladio.types.dtypes import DType

HEIGHTS = 1, 2, 4, 8, 16, 22, 28
"""Rows of the left operand that a kernel multiplies. Up to 8 rows take no longer than the matrix, so there are few."""

MOST_VECTORS = 2
"""The most vectors of each row that a kernel multiplies at a time."""


@dataclass(frozen=True)
class RowKernel:
    """A kernel that adds the product of some rows and some rows of a matrix to sums.

    Fields:
        sums, dtype: the dtypes of the sums and of the left operand, and of the matrix.
        height: the rows of the left operand.
        vectors: the vectors of each row of the matrix that are multiplied at a time.
        between: elements between the rows of the left operand.
        apart: elements between the rows of sums.
    """

    sums: DType
    dtype: DType
    height: int
    vectors: int
    between: int
    apart: int

    @property
    def name(self) -> str:
        size = f"{self.height}x{self.vectors}"
        return f"multiply_{self.sums}_{self.dtype}_{size}_{self.between}_{self.apart}_in_place"

    @property
    def text(self) -> tuple[str, dict[str, str]]:
        """The function, and its declarations.

        Its arguments are the left operand, the matrix, the bytes between the rows of the matrix, the sums, the number
        of columns, the number of steps, which is not known to LLVM, or it would unroll them all, the address of the
        rows that are read next, and the prefetch distance in bytes.
        """
        e, size = Emitter(), self.dtype.itemsize
        e.label("entry")
        whole = e.index(e.mul(V("%columns", I64), size))
        distance = e.intrinsic("smin", I64, V("%distance", I64), whole)
        after = e.pointer(V("%after", PTR), e.sub(0, whole), 1)  # past the end of a row is the start of a later one
        zero = V("zeroinitializer", vector(registers.register(self.sums), registers.LANES))
        totals = [[Variable.of(e, zero) for _ in range(self.vectors)] for _ in range(self.height)]
        with e.loop(0, V("%columns", I64), self.vectors * registers.LANES) as column:
            start = e.pointer(V("%sums", PTR), column, self.sums.itemsize)
            places = [
                [
                    e.pointer(start, r * self.apart + n * registers.LANES, self.sums.itemsize)
                    for n in range(self.vectors)
                ]
                for r in range(self.height)
            ]
            for row, mine in zip(totals, places, strict=True):
                for total, place in zip(row, mine, strict=True):
                    total.set(e.load(total.type, place, self.sums.itemsize))
            ahead = e.add(e.mul(column, size), distance)
            here = e.select(e.compare("icmp slt", e.index(ahead), whole), V("%matrix", PTR), after)
            here = e.pointer(here, distance, 1)
            with e.loop(0, V("%steps", I64)) as step:
                offset = e.add(e.mul(step, V("%row", I64)), e.mul(column, size))
                self.step(e, totals, e.mul(step, self.sums.itemsize), offset, here)
            for row, mine in zip(totals, places, strict=True):
                for total, place in zip(row, mine, strict=True):
                    e.store(total.get(), place, self.sums.itemsize)
        parameters = "ptr noalias readonly %lhs, ptr noalias readonly %matrix, i64 %row, ptr noalias %sums, "
        parameters += "i64 %columns, i64 %steps, ptr %after, i64 %distance"
        head = f"define internal void @{self.name}({parameters}) noinline nounwind optsize {STRAIGHT}"
        return "\n".join([head + " {", *e.lines, "  ret void", "}"]), e.declared

    def step(self, e: Emitter, totals: list[list[Variable]], left: V, offset: V, ahead: V) -> None:
        """Multiply a part of a row of the matrix with an element of each row of the left operand.

        Args:
            left, offset: byte offsets of the elements, and of the part.
            ahead: the base of the part to prefetch.
        """
        size = registers.LANES * self.dtype.itemsize
        ahead, place = (e.pointer(base, offset, 1) for base in (ahead, V("%matrix", PTR)))
        for line in range(0, self.vectors * size, LINE_BYTES):
            e.prefetch(e.pointer(ahead, line, 1), level=1)
        loaded = [
            registers.load(e, e.pointer(place, n * size, 1), self.dtype, registers.LANES) for n in range(self.vectors)
        ]
        values = [converted(e, value, self.dtype, self.sums) for value in loaded]
        first = in_a_register(e, e.pointer(V("%lhs", PTR), left, 1))
        for r, row in enumerate(totals):
            element = e.pointer(first, r * self.between, self.sums.itemsize)
            factor = e.load(registers.register(self.sums), element, self.sums.itemsize)
            for value, total in zip(values, row, strict=True):
                total.set(multiply_add(e, value, e.splat(factor, registers.LANES), total.get()))


def most_sums(sums: DType, lanes: int = registers.LANES) -> int:
    """The vectors of sums, of some lanes each, that the registers hold."""
    height, wide = host.current().sums
    return height * wide // max(lanes * sums.itemsize, host.current().vector_bytes)


def heights(sums: DType) -> list[int]:
    """The rows of the kernels that a processor has registers for."""
    return [height for height in HEIGHTS if height <= max(1, most_sums(sums))]


def vectors_of(height: int, sums: DType) -> int:
    """The vectors of each row that a kernel of some rows multiplies at a time: a power of two."""
    fitting = min(MOST_VECTORS, max(1, most_sums(sums) // height))
    return 1 << fitting.bit_length() - 1
