"""Memory that is used again: large outputs whose last reader is gone, and what threads work in.

Fresh pages cost more than many kernels: the system clears each when it is first touched.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from palladio.types.types import ArrayType

LEAST_BYTES = 1 << 18
"""Smaller arrays come from NumPy, whose allocator uses memory of that size again itself."""

KEPT_BYTES = 1 << 28
"""How much is kept at most while nobody uses it."""

ALIGNMENT = 64

PAGE_BYTES = 4096

Array = np.ndarray[Any, Any]


def aligned(size: int) -> Array:
    """`u8[size]` from the middle of a page on.

    Large arrays of others begin near the beginning of one. Processors hold back a load whose place in its page is that
    of a store under way: to go through two arrays, one of them a line behind the other there, takes twice the time.
    """
    whole = np.empty(size + PAGE_BYTES, np.uint8)
    start = (PAGE_BYTES // 2 - whole.ctypes.data) % PAGE_BYTES
    return whole[start : start + size]


class Pool:
    """Blocks of memory by size; those of sizes that nobody has given for the longest time make room for others."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """With nothing, whatever other threads of the process that this one was forked from were at."""
        # Giving may happen in the middle of taking, when the interpreter collects a lease there.
        self.lock = threading.RLock()
        self.free: OrderedDict[int, list[Array]] = OrderedDict()
        self.kept = 0

    def take(self, size: int) -> Array:
        """A block, used before or not."""
        with self.lock:
            blocks = self.free.get(size)
            if not blocks:
                return aligned(size)
            self.kept -= size
            return blocks.pop()

    def give(self, block: Array) -> None:
        """A block that nobody uses any more."""
        size = block.nbytes
        if size > KEPT_BYTES:
            return
        with self.lock:
            self.free.setdefault(size, []).append(block)
            self.free.move_to_end(size)
            self.kept += size
            while self.kept > KEPT_BYTES:
                oldest, blocks = next(iter(self.free.items()))
                if blocks:
                    blocks.pop()
                    self.kept -= oldest
                else:
                    del self.free[oldest]


class Lease:
    """A block of the pool's memory as long as arrays look at it: they refer to this object, and it gives it back."""

    def __init__(self, pool: Pool, size: int) -> None:
        self.pool = pool
        self.block = pool.take(size)
        self.__array_interface__ = self.block.__array_interface__

    def __del__(self) -> None:
        self.pool.give(self.block)


POOL = Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.begin_anew)


def output(type: ArrayType) -> Array:
    """An array for a result, of any elements."""
    size = type.size * type.dtype.itemsize
    if size < LEAST_BYTES:
        return np.empty(type.shape, type.dtype)
    return np.asarray(Lease(POOL, size)).view(type.dtype).reshape(type.shape)
