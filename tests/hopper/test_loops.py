"""Values that a loop carries: all of a step are computed from those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax

I32 = np.dtype(np.int32)
SIZE = 16
X = np.arange(SIZE, dtype=np.int32).reshape(SIZE, 1)


def converted(x: Any, out: Any) -> None:
    """A truth value of the step before, as a number."""

    def step(i: Any, carried: Any) -> Any:
        odd, number = carried
        return i % 2 == 1, odd.astype(np.int32) + 0 * number

    out[...] = jnp.zeros((SIZE,), np.int32) + lax.fori_loop(0, 6, step, (False, np.int32(5)))[1]


def converted_alone(x: Any, out: Any) -> None:
    out[...] = (
        jnp.zeros((SIZE,), np.int32)
        + lax.fori_loop(0, 6, lambda i, carried: (i % 2 == 1, carried[0].astype(np.int32)), (False, np.int32(5)))[1]
    )


def spread(x: Any, out: Any) -> None:
    """An array of one number."""
    start = np.int32(1), jnp.zeros((SIZE,), np.int32)
    out[...] = lax.fori_loop(0, 3, lambda i, c: (c[0] * 3, jnp.broadcast_to(c[0], (SIZE,))), start)[1]


def positions(x: Any, out: Any) -> None:
    """An array computed from positions and a number."""
    start = np.int32(1), jnp.zeros((SIZE,), np.int32)
    out[...] = lax.fori_loop(0, 3, lambda i, c: (c[0] * 3, jnp.arange(SIZE, dtype=np.int32) * c[0]), start)[1]


def reshaped(x: Any, out: Any) -> None:
    """The registers of another array."""
    start = x[...], jnp.zeros((SIZE,), np.int32)
    out[...] = lax.fori_loop(0, 3, lambda i, c: (c[0] * 3, c[0].reshape(SIZE)), start)[1]


def in_turn(x: Any, out: Any) -> None:
    start = x[:, 0], x[:, 0] * 2, x[:, 0] * 5
    out[...] = lax.fori_loop(0, 5, lambda i, c: (c[2], c[0], c[1] + c[0]), start)[1]


def while_some_are_left(x: Any, out: Any) -> None:
    start = np.int32(1), jnp.zeros((SIZE,), np.int32)
    step = lambda c: (c[0] * 3, jnp.broadcast_to(c[0], (SIZE,)))
    out[...] = lax.while_loop(lambda c: c[0] < 100, step, start)[1]


@pytest.mark.parametrize(
    "body", [converted, converted_alone, spread, positions, reshaped, in_turn, while_some_are_left]
)
def test_a_step_takes_the_values_before_it(body: Callable[..., None]) -> None:
    def call(executor: str) -> Any:
        return pl.pallas_call(body, pl.ShapeDtypeStruct((SIZE,), I32), interpret=executor)(X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))
