"""Memoised products: the values of accumulators are kept for the next run with the same products.

The schedules of a check multiply the same blocks repeatedly, and only the last value of an accumulator is read. So
a product keeps its operands, which are multiplied when the accumulator is read, unless an earlier run has added
the same products, of the same bytes and in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.ops.threads.wgmma import multiplied
from palladio.types import dtypes

MOST_KEPT = 32 << 20
"""The maximum number of bytes of kept accumulators; further ones are computed in every run."""

MOST_WIDENED = 32 << 20
"""The maximum number of bytes of widened operands of a launch that are kept, with the operands themselves."""

MARK = 64
"""The number of bytes by which an operand is looked up."""

MOST_AT_ONCE = 4
"""The maximum number of pending products of one accumulator."""

Array = Any


class Products:
    """The values of accumulators, by the products that made them."""

    def __init__(self) -> None:
        self._kept: dict[int, Array] = {}
        self._left = MOST_KEPT

    def find(self, key: int) -> Array | None:
        """The value with this key."""
        return self._kept.get(key)

    def keep(self, key: int, value: Array) -> None:
        """Keep a value, if there is room."""
        if value.nbytes <= self._left:
            self._left -= value.nbytes
            self._kept[key] = value.copy()


class Sum:
    """Pending products of an array.

    Args:
        array: the array to which they are added.
        known: the values of earlier runs.
    """

    __slots__ = ("_array", "_key", "_known", "_products")

    def __init__(self, array: Array, known: Products) -> None:
        self._array = array
        self._known = known
        self._products: list[tuple[Array, Array]] = []
        self._key = _key_of(array)

    def add(self, lhs: Array, rhs: Array) -> None:
        """Add a product of these values, which are copied."""
        product = np.array(lhs), np.array(rhs)
        self._key = hash((self._key, *map(_key_of, product)))
        self._products.append(product)
        if len(self._products) == MOST_AT_ONCE:
            self.carry_out()

    def carry_out(self) -> None:
        """Add the pending products to the array."""
        if not self._products:
            return
        found = self._known.find(self._key)
        if found is not None:
            self._array[...] = found
        else:
            for lhs, rhs in self._products:
                self._array[...] = multiplied(self._array, lhs, rhs)
            self._known.keep(self._key, self._array)
        self._products.clear()


class Widened:
    """float16 operands as float32. The blocks of a launch multiply the same tiles again and again.

    A tile is found by its first bytes, and counts as the same if all of its bytes are equal.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[bytes, Array]] = {}
        self._left = MOST_WIDENED

    def of(self, array: Array) -> Array:
        """An operand to multiply; arrays of other dtypes and layouts as they are."""
        if array.dtype != dtypes.FLOAT16 or array.ndim != 2 or not array.flags.c_contiguous:
            return array
        content = array.tobytes()
        key = content[:MARK], array.shape
        found = self._kept.get(key)
        if found is not None and found[0] == content:
            return found[1]
        wide = dtypes.widened(array, dtypes.FLOAT32)
        if found is None:
            self._left -= len(content) + wide.nbytes
        if self._left >= 0:
            self._kept[key] = content, wide
        return wide


def _key_of(array: Array) -> int:
    """A 64-bit key of a contiguous array: Python's hash of its layout and bytes in memory."""
    return hash((array.shape, array.strides, array.dtype.num, array.tobytes("A")))


__all__ = ["Products", "Sum", "Widened"]
