"""Recycled memory: large outputs that are no longer referenced, and the arenas of threads.

Fresh pages cost more than many kernels: the system clears each when it is first touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.types.types import ArrayType

LEAST_BYTES = 1 << 18
"""Smaller arrays come from NumPy, whose allocator recycles memory of that size itself."""

LEAST_KEPT_BYTES = 1 << 28
"""Bytes of unused memory that the process keeps on any machine."""

KEPT_SHARE = 16
"""The divisor of the machine's memory for the unused memory that the process keeps."""

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a Linux container, for both versions of control groups."""

KEPT_SIZES = 64
"""The number of block sizes that are kept, at most."""

ALIGNMENT = 64

PAGE_BYTES = 4096

Array = np.ndarray[Any, Any]


@functools.cache
def memory_bytes() -> int:
    """The memory of this machine or container; 0 if it is unknown."""
    found = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number: no limit
            found.append(int(Path(name).read_text()))
    return max(0, min(found, default=0))


def kept_bytes() -> int:
    """Bytes of unused memory that the process keeps, at most."""
    chosen = knobs.kept_memory.get()
    return max(LEAST_KEPT_BYTES, memory_bytes() // KEPT_SHARE) if chosen is None else chosen << 20


def aligned(size: int) -> Array:
    """`u8[size]` that begins in the middle of a page.

    Large arrays of other allocators begin near the beginning of a page. Processors delay a load with the same offset in
    its page as a store in flight: passes through two arrays whose offsets differ by a cache line take twice the time.
    """
    whole = np.empty(size + PAGE_BYTES, np.uint8)
    start = (PAGE_BYTES // 2 - whole.ctypes.data) % PAGE_BYTES
    return whole[start : start + size]


def size_class(size: int) -> int:
    """The size of the blocks for a number of bytes; there are four block sizes for each power of two."""
    step = max(1, (1 << (size - 1).bit_length()) // 8)
    return -(-size // step) * step


class Pool:
    """Blocks of memory by size; those of the least recently used sizes are evicted first.

    It has no lock, since an interrupt, a destructor or a fork could find one held: keeping a block and handing it out
    are each one step of C.

    Args:
        limit: returns the bytes of unused memory that are kept, at most.
    """

    def __init__(self, limit: Callable[[], int] = kept_bytes) -> None:
        self.limit = limit
        self.free: OrderedDict[int, deque[Array]] = OrderedDict()

    @property
    def kept(self) -> int:
        """The unused bytes."""
        return sum(size * len(blocks) for size, blocks in self.sizes())

    def sizes(self) -> list[tuple[int, deque[Array]]]:
        """The sizes with their free blocks, the least recently used first."""
        try:
            return list(self.free.items())
        except RuntimeError:  # a destructor has called a kernel meanwhile
            return []

    def blocks(self, size: int) -> deque[Array]:
        """The free blocks of a size, to take from and to append to."""
        try:
            self.free.move_to_end(size)
            return self.free[size]
        except KeyError:
            return self.free.setdefault(size, deque(maxlen=self.limit() // max(1, size)))

    def take(self, size: int) -> Array:
        """A block, recycled or fresh."""
        try:
            return self.blocks(size).pop()
        except IndexError:
            return aligned(size)

    def take_fitting(self, size: int) -> Array:
        """A block of a size or more: a free one of up to about twice the size, or else a fresh one.

        Results differ in size if their numbers of rows do. Pages that have been touched cost nothing, fresh ones more
        than many kernels.
        """
        own = larger = size_class(size)
        while larger <= 2 * own:
            try:
                return (self.blocks(own) if larger == own else self.free[larger]).pop()
            except (IndexError, KeyError):
                larger = size_class(larger + 1)
        return aligned(own)

    def give(self, block: Array) -> None:
        """Return a block to the pool."""
        self.blocks(block.nbytes).append(block)

    def trim(self) -> None:
        """Free the memory beyond the limit."""
        excess = self.kept - self.limit()
        for size, blocks in self.sizes():
            if excess <= 0 and len(self.free) <= KEPT_SIZES:
                return
            while blocks and excess > 0:
                with contextlib.suppress(IndexError):
                    blocks.pop()
                excess -= size
            if not blocks:
                self.free.pop(size, None)


class Lease:
    """A block of the pool for the life of the arrays in it: they refer to this object, whose destructor returns it.

    The destructor is a C function. Python would drop an exception that a signal handler raises in a Python destructor.
    """

    __slots__ = ("__array_interface__", "__del__")

    def __init__(self, pool: Pool, size: int) -> None:
        block = pool.take_fitting(size)
        self.__array_interface__ = block.__array_interface__ | {"shape": (size,)}
        self.__del__ = functools.partial(pool.blocks(block.nbytes).append, block)


POOL = Pool()


def address_of(array: Array) -> int:
    """The address of the elements: the first field of a NumPy array after the header of every Python object.

    `array.ctypes.data` gives the same in six times the time, which is most of the cost of calling a small kernel.
    """
    return pointer_at(id(array) + HEADER).value or 0


HEADER, pointer_at = object.__basicsize__, ctypes.c_void_p.from_address
"""The bytes before the fields of a Python object, and the pointer at an address."""


def of_own_dtype(array: Array, value: Any) -> tuple[Array, Any]:
    """An array and a value for it, the same bits in a dtype of NumPy itself: filling others takes many times longer."""
    if array.dtype.kind != "V":
        return array, value
    kind = np.dtype(f"u{array.dtype.itemsize}")
    return array.view(kind), np.asarray(value, array.dtype).view(kind)


def fill(array: Array, value: Any) -> None:
    """Give all elements one value."""
    array, value = of_own_dtype(array, value)
    array.fill(value)


def output(type: ArrayType) -> Array:
    """An array for a result, with arbitrary elements."""
    size = type.size * type.dtype.itemsize
    if size < LEAST_BYTES:
        return np.empty(type.shape, type.dtype)
    POOL.trim()
    return np.asarray(Lease(POOL, size)).view(type.dtype).reshape(type.shape)
