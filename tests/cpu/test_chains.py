"""Operations one after the other: as many as a kernel has, whatever Python's own stack holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.lower.fusion.keep_arrays import DEEPEST

X = np.arange(24, dtype=np.float32).reshape(2, 12) / 8
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "arithmetic": lambda x, n: x * 0.5 + np.float32(n % 3),
    "choices": lambda x, n: jnp.where(x > n % 5, x - 1, x + 1),
    "shapes": lambda x, n: x.reshape(3, 8).reshape(2, 12) + np.float32(n % 2),
    "scalars": lambda x, n: x[0, 0] * 0.5 + np.float32(n % 3) + x * 0,
}


@pytest.fixture
def small_stack() -> Iterator[None]:
    """Python's stack has less room than usual: a chain that is longer than it takes less time."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    yield
    sys.setrecursionlimit(usual)


@pytest.mark.usefixtures("small_stack")
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


@pytest.mark.parametrize("length", [DEEPEST - 1, DEEPEST, DEEPEST + 1])
def test_what_a_choice_after_a_chain_leaves_is_uninitialised(length: int) -> None:
    def kernel(x: Any, out: Any) -> None:
        value = x[...]
        for n in range(length):
            value = value * 0.5 if n % 2 else value + 1
        rows = jnp.broadcast_to(jnp.arange(2)[:, None] < 1, X.shape)
        out[...] = jnp.where(rows, value, out[...])

    out = np.ones_like(X)
    with pl.executor("cpu"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct(X.shape, X.dtype))(X, out=out)
    np.testing.assert_array_equal(np.isnan(out), [[False] * 12, [True] * 12])
