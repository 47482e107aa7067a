"""Register layouts: the thread and register of a warpgroup that hold each element of an array.

A layout is a list of digits. The number of a thread, 0 to 127, is read in mixed radix, the first digit fastest; so is
the number of a register. Each digit moves along one axis of the array by its stride, or along none: then all its values
hold the same elements. All layouts of the tensor cores, their reductions, and plain layouts have this form, and every
property that an operation needs is computed from the digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.layouts.integers import Index, bracketed

THREADS = 128
LANES = 32


@dataclass(frozen=True)
class Digit:
    """One digit of the number of a thread or register.

    Fields:
        size: the number of its values.
        axis: the axis of the array that it moves along; None for none.
        stride: the elements between its values along this axis.
    """

    size: int
    axis: int | None = None
    stride: int = 1


@dataclass(frozen=True)
class Layout:
    """A layout for arrays of one shape.

    If the digits reach beyond the shape, the registers of elements outside it are unused.

    Fields:
        shape: the shape of the array.
        threads, registers: their digits, the fastest first. The product of the threads' sizes is 128.
        name: its name in errors.
    """

    shape: tuple[int, ...]
    threads: tuple[Digit, ...]
    registers: tuple[Digit, ...]
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def count(self) -> int:
        """The registers of each thread."""
        return math.prod(digit.size for digit in self.registers)

    def same(self, other: Layout) -> bool:
        """True if both map every element to the same registers of the same threads; names are ignored."""
        mine = self.shape, _plain(self.threads), _plain(self.registers)
        return mine == (other.shape, _plain(other.threads), _plain(other.registers))

    def coordinate(self, axis: int, register: str, thread: str) -> Index:
        """The index along an axis of the element in a register of a thread, from C expressions of their numbers."""
        terms = [*_terms(self.registers, axis, register), *_terms(self.threads, axis, thread)]
        return " + ".join(terms) or 0

    def reach(self, axis: int) -> int:
        """One more than the greatest index of a register along an axis, in the shape or beyond."""
        digits = [digit for digit in (*self.registers, *self.threads) if digit.axis == axis]
        return 1 + sum((digit.size - 1) * digit.stride for digit in digits)

    def guard(self, register: str, thread: str) -> str | None:
        """True if a register holds an element of the array, as a C expression; None if every register does."""
        tests = [
            f"{self.coordinate(axis, register, thread)} < {extent}"
            for axis, extent in enumerate(self.shape)
            if self.reach(axis) > extent
        ]
        return " && ".join(tests) or None

    def elements(self) -> np.ndarray[Any, Any]:
        """The element of each register of each thread: `i64[128, count, axes]`. For tests and pictures."""
        found = np.zeros((THREADS, self.count, len(self.shape)), np.int64)
        for axis in range(len(self.shape)):
            found[:, :, axis] += _values(self.threads, THREADS, axis)[:, None]
            found[:, :, axis] += _values(self.registers, self.count, axis)[None, :]
        return found

    def reduced(self, axes: Iterable[int], keep: bool = False) -> Layout:
        """The layout of a reduction's result along axes, before any exchange; with `keep`, the axes have size 1.

        Threads that differ only along these axes hold the same elements.
        """
        gone = set(axes)
        if keep:
            place: dict[int, int] = {axis: axis for axis in range(len(self.shape)) if axis not in gone}
            shape = tuple(1 if axis in gone else extent for axis, extent in enumerate(self.shape))
        else:
            kept = [axis for axis in range(len(self.shape)) if axis not in gone]
            place = {axis: n for n, axis in enumerate(kept)}
            shape = tuple(self.shape[axis] for axis in kept)
        threads = tuple(
            replace(digit, axis=place[digit.axis]) if digit.axis in place else Digit(digit.size)
            for digit in self.threads
        )
        registers = tuple(replace(digit, axis=place[digit.axis]) for digit in self.registers if digit.axis in place)
        listed = ", ".join(map(str, sorted(gone)))
        return Layout(shape, threads, registers, f"{self.name}.reduce({listed})")

    def transposed(self) -> Layout:
        """The layout of a matrix with its axes exchanged."""

        def exchanged(digits: Sequence[Digit]) -> tuple[Digit, ...]:
            return tuple(digit if digit.axis is None else replace(digit, axis=1 - digit.axis) for digit in digits)

        name = f"{self.name}_TRANSPOSED"
        return Layout(self.shape[::-1], exchanged(self.threads), exchanged(self.registers), name)

    def projected(self, axes: Iterable[int], register: str) -> str:
        """The register, in the layout reduced along axes, into which a register of this layout is reduced."""
        gone = set(axes)
        terms, place, weight = [], 1, 1
        for digit in self.registers:
            if digit.axis not in gone:
                terms.append(_term(register, place, digit.size, self.count, weight))
                weight *= digit.size
            place *= digit.size
        return " + ".join(term for term in terms if term) or "0"

    def owners(self, axes: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """The digits of the threads that move along axes: (weight in the thread's number, size) of each."""
        wanted = set(axes)
        weights = _weights(self.threads)
        return tuple((w, d.size) for w, d in zip(weights, self.threads, strict=True) if d.axis in wanted and d.size > 1)

    def first_holder(self, thread: str) -> str | None:
        """True if a thread is the first of those that hold its elements, as a C expression; None if all are."""
        weights = _weights(self.threads)
        tests = [
            f"{thread} / {weight} % {digit.size} == 0"
            for weight, digit in zip(weights, self.threads, strict=True)
            if digit.axis is None and digit.size > 1
        ]
        return " && ".join(tests) or None

    def vector(self) -> int:
        """The number of consecutive registers with neighbours along the last axis, from an index that it divides."""
        last, size = len(self.shape) - 1, 1
        for digit in self.registers:
            if digit.axis != last or digit.stride != size:
                break
            size *= digit.size
        others = [d.stride for d in (*self.registers, *self.threads) if d.axis == last and d.stride >= size]
        return math.gcd(size, *others) if size > 1 else 1


def _plain(digits: Sequence[Digit]) -> tuple[Digit, ...]:
    """The normal form: without digits of one value, and with contiguous digits along one axis merged."""
    found: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        before = found[-1] if found else None
        if (
            before is not None
            and before.axis == digit.axis
            and (digit.axis is None or digit.stride == before.size * before.stride)
        ):
            found[-1] = replace(before, size=before.size * digit.size)
        else:
            found.append(digit if digit.axis is not None else Digit(digit.size))
    return tuple(found)


def _weights(digits: Sequence[Digit]) -> list[int]:
    """The place value of each digit."""
    return list(accumulate((digit.size for digit in digits), lambda a, b: a * b, initial=1))[:-1]


def _values(digits: Sequence[Digit], count: int, axis: int) -> np.ndarray[Any, Any]:
    numbers = np.arange(count)
    found = np.zeros(count, np.int64)
    for weight, digit in zip(_weights(digits), digits, strict=True):
        if digit.axis == axis:
            found += numbers // weight % digit.size * digit.stride
    return found


def _terms(digits: Sequence[Digit], axis: int, number: str) -> list[str]:
    total = math.prod(digit.size for digit in digits)
    found = [
        _term(number, weight, digit.size, total, digit.stride)
        for weight, digit in zip(_weights(digits), digits, strict=True)
        if digit.axis == axis
    ]
    return [term for term in found if term]


def _term(number: str, weight: int, size: int, total: int, factor: int) -> str:
    """`number / weight % size * factor`, shortened."""
    if size == 1:
        return ""
    text = bracketed(number)
    if weight > 1:
        text += f" / {weight}"
    if weight * size < total:
        text += f" % {size}"
    return text if factor == 1 else f"{text} * {factor}"


# The layouts of the tensor cores (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16" and its neighbours).


def wgmma(rows: int, columns: int) -> Layout:
    """A product's accumulator `[rows, columns]`, or its left operand with 16-bit elements, in tiles of 64 rows."""
    threads = (Digit(4, 1, 2), Digit(8, 0, 1), Digit(4, 0, 16))
    registers = (Digit(2, 1, 1), Digit(2, 0, 8), Digit(columns // 8, 1, 8), Digit(rows // 64, 0, 64))
    return Layout((rows, columns), threads, registers, "WGMMA")


def wgmma_left_8bit(rows: int, depth: int) -> Layout:
    """The left operand of a product in registers, with 8-bit elements."""
    threads = (Digit(4, 1, 4), Digit(8, 0, 1), Digit(4, 0, 16))
    registers = (Digit(4, 1, 1), Digit(2, 0, 8), Digit(depth // 16, 1, 16), Digit(rows // 64, 0, 64))
    return Layout((rows, depth), threads, registers, "WGMMA_8BIT")


def wgmma_left_32bit(rows: int, depth: int) -> Layout:
    """The left operand of a product in registers, with 32-bit elements (tf32)."""
    threads = (Digit(4, 1, 1), Digit(8, 0, 1), Digit(4, 0, 16))
    registers = (Digit(2, 0, 8), Digit(depth // 4, 1, 4), Digit(rows // 64, 0, 64))
    return Layout((rows, depth), threads, registers, "WGMMA left operand of 32 bits")


def mma_right(depth: int, columns: int, packed: int) -> Layout:
    """The right operand `[depth, columns]` of `mma`, which each warp holds whole (PTX ISA, "Matrix Fragments for mma").

    Args:
        packed: its elements in 32 bits.
    """
    threads = (Digit(4, 0, packed), Digit(8, 1, 1), Digit(THREADS // LANES))
    registers = (Digit(packed, 0, 1), Digit(depth // (4 * packed), 0, 4 * packed), Digit(columns // 8, 1, 8))
    return Layout((depth, columns), threads, registers, "MMA_RHS")


# Plain layouts.


def splat(shape: tuple[int, ...]) -> Layout:
    """All elements are equal, and every thread holds the value in one register."""
    return Layout(shape, (Digit(THREADS),), (), "WG_SPLAT")


def warp(shape: tuple[int, ...]) -> Layout:
    """Every warp holds the whole array, with lanes along its last axis: small arrays then need no barrier."""
    *outer, last = shape or (1,)
    # All lanes hold an axis of one element, as in all other layouts, so that no thread is without elements.
    threads = (Digit(LANES, len(shape) - 1 if last > 1 else None), Digit(THREADS // LANES))
    registers = [Digit(-(-last // LANES), len(shape) - 1, LANES)] if shape else []
    registers += [Digit(extent, axis) for axis, extent in reversed(list(enumerate(outer)))] if shape else []
    return Layout(shape, threads, tuple(registers), "each warp")


def strided(shape: tuple[int, ...], vector: int = 1) -> Layout:
    """Neighbouring threads hold neighbouring vectors of elements, along the last axis first.

    Args:
        vector: elements of a vector along the last axis.
    """
    threads: list[Digit] = []
    registers: list[Digit] = []
    left = THREADS
    later: list[Digit] = []
    for axis in reversed(range(len(shape))):
        extent, stride = shape[axis], 1
        if axis == len(shape) - 1 and vector > 1:
            registers.append(Digit(vector, axis, 1))
            extent, stride = -(-extent // vector), vector
        use = min(left, 1 << max(0, extent - 1).bit_length())
        threads.append(Digit(use, axis, stride))
        left //= use
        later.append(Digit(-(-extent // use), axis, stride * use))
    threads.append(Digit(left))
    return Layout(shape, tuple(threads), (*registers, *later), f"WG_STRIDED({shape}, vec_size={vector})")


def registers_of_each(shape: tuple[int, ...]) -> Layout:
    """A layout for accesses to single elements: neighbouring threads hold neighbours."""
    return strided(shape) if shape else splat(())
