"""Random words as JAX's default generator draws them, and the permutations that it makes of them.

The generator is Threefry-2x32 with 20 rounds, a keyed hash of counters: J. Salmon, M. Moraes, R. Dror and D. Shaw,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011. A key is a uint32[2]. Counters are 64-bit positions in the
result, as with `jax_threefry_partitionable`, which is JAX's default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_PIECE = 1 << 14
"""Positions that are computed together: their words stay in the cache over all rounds."""


def rounds(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 of counters, given as their upper and lower words. Everything may be traced."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    high, low = high + keys[0], low + keys[1]
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            high = high + low
            low = high ^ (low << np.uint32(distance) | low >> np.uint32(32 - distance))
        high = high + keys[(block + 1) % 3]
        low = low + keys[(block + 2) % 3] + np.uint32(block + 1)
    return high, low


def words(key: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Two random words for each position of a shape."""
    size = math.prod(shape)
    found = np.empty((2, size), np.uint32)
    with np.errstate(over="ignore"):
        for start in range(0, size, _PIECE):
            positions = np.arange(start, min(start + _PIECE, size), dtype=np.uint64)
            high, low = (positions >> np.uint64(32)).astype(np.uint32), positions.astype(np.uint32)
            found[:, start : start + _PIECE] = rounds(key, high, low)
    high, low = found.reshape(2, *shape)
    return high, low


def key_of(seed: int) -> Any:
    """The key of an integer seed."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def split(key: Any) -> tuple[Any, Any]:
    """Two new keys."""
    first, second = np.stack(words(key, (2,)), axis=1)
    return first, second


def sorts(size: int) -> int:
    """The number of sorts by random words after which equal words of two elements are unlikely in all of them."""
    return math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))


def permutation(key: Any, size: int) -> Any:
    """The integers below `size` in a random order, as `jax.random.permutation(key, size)` gives them."""
    found = np.arange(size, dtype=np.int32)
    for _ in range(sorts(size)):
        key, drawn = split(key)
        high, low = words(drawn, (size,))
        found = found[np.argsort(high ^ low, kind="stable")]
    return found
