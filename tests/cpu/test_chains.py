"""Operations one behind the other: as many as a kernel has, whatever Python's own stack holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp

X = np.arange(24, dtype=np.float32).reshape(2, 12) / 8
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "arithmetic": lambda x, n: x * 0.5 + np.float32(n % 3),
    "choices": lambda x, n: jnp.where(x > n % 5, x - 1, x + 1),
    "shapes": lambda x, n: x.reshape(3, 8).reshape(2, 12) + np.float32(n % 2),
    "scalars": lambda x, n: x[0, 0] * 0.5 + np.float32(n % 3) + x * 0,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_chain_may_be_longer_than_the_stack_of_python(name: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        value = x[...]
        for n in range(sys.getrecursionlimit() // 2):
            value = STEPS[name](value, n)
        out[...] = value

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(X.shape, X.dtype))
    with pl.executor("reference"):
        expected = call(X)
    with pl.executor("cpu"):
        np.testing.assert_allclose(call(X), expected, rtol=1e-6)
