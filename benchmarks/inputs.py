"""The operands: standard normal numbers of one seed; groups of uneven sizes, one of them empty."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SEED = 0
M, K, N = 4096, 1024, 1024
GROUP_SIZES = (700, 300, 0, 900, 513, 127, 1044, 512)


def normal(*shapes: tuple[int, ...]) -> list[Array]:
    """Float32 arrays of these shapes, standard normal."""
    generator = np.random.default_rng(SEED)
    return [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]


def grouped() -> tuple[Array, Array, Array]:
    """`lhs: f32[m, k]`, `rhs: f32[g, k, n]`, `group_sizes: i32[g]`."""
    lhs, rhs = normal((M, K), (len(GROUP_SIZES), K, N))
    return lhs, rhs, np.array(GROUP_SIZES, np.int32)
