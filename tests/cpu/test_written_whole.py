"""Arrays that are put together from parts, and gathered ones, are written where they are stored."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax

NUMBERS = np.array([3, 0, 3, 11, -1, 4, 100, 3, 7, 2, 12, 5], np.int32)
X = np.arange(12 * 37, dtype=np.float32).reshape(12, 37)


Made = Callable[[Any, Any], Any]


def rolled(x: Any, numbers: Any) -> Any:
    return jnp.roll(x[...], 5, axis=1)


def beside(x: Any, numbers: Any) -> Any:
    return jnp.concatenate([x[:, 20:] * 2, x[:, :10], jnp.exp(x[:, 10:20] / 500)], axis=1)


def below(x: Any, numbers: Any) -> Any:
    return jnp.concatenate([x[7:], x[:7]], axis=0)


def padded(x: Any, numbers: Any) -> Any:
    return jnp.pad(x[2:9, 3:30] + 1, ((2, 3), (4, 6)), constant_values=7)


def gathered(x: Any, numbers: Any) -> Any:
    return x[numbers[...]]


def of_a_value(x: Any, numbers: Any) -> Any:
    return jnp.take(x[...], numbers[...] % 12, axis=0)


def nested(x: Any, numbers: Any) -> Any:
    return jnp.concatenate([jnp.pad(x[:, :10], ((0, 0), (3, 0))), jnp.roll(x[:, 10:34], 1, 0)], axis=1)


MADE = (rolled, beside, below, padded, gathered, of_a_value, nested)
ALONE = (rolled, below, padded, gathered, of_a_value)
"""Those whose parts need no buffer either."""


def stored(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        out[...] = make(x, numbers)

    return kernel


def in_place(make: Made) -> Callable[..., None]:
    """The parts are read from where the array is written."""

    def kernel(x: Any, numbers: Any, out: Any) -> None:
        out[...] = x[...] - 1
        out[...] = make(out, numbers)

    return kernel


def used_twice(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        found = make(x, numbers)
        out[...] = found + jnp.sum(found, axis=1, keepdims=True)

    return kernel


def stored_later(make: Made) -> Callable[..., None]:
    """Its source changes before the store."""

    def kernel(x: Any, numbers: Any, out: Any) -> None:
        out[...] = x[...]
        found = make(out, numbers)
        out[3] = x[4]
        out[...] = found

    return kernel


def transposed(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        out.reshape(12, 37).T[...] = make(x, numbers).T

    return kernel


def into_a_part(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        out[...] = jnp.zeros(out.shape, out.dtype)
        out[1:, 2:] = make(x, numbers)[1:, 2:]

    return kernel


def in_a_branch(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        found = make(x, numbers)

        @pl.when(numbers[0] == 3)
        def chosen() -> None:
            out[...] = found

        @pl.when(numbers[0] != 3)
        def otherwise() -> None:
            out[...] = found + 1

    return kernel


def in_steps(make: Made) -> Callable[..., None]:
    def kernel(x: Any, numbers: Any, out: Any) -> None:
        found = make(x, numbers)
        out[...] = lax.fori_loop(0, 3, lambda step, total: total + found, jnp.zeros(out.shape, out.dtype))

    return kernel


STORES = (stored, in_place, used_twice, stored_later, transposed, into_a_part, in_a_branch, in_steps)


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("store", STORES)
def test_such_an_array_is_the_evaluators(store: Callable[[Made], Callable[..., None]], make: Made) -> None:
    out = pl.ShapeDtypeStruct(X.shape, X.dtype)
    compiled, defined = (
        np.asarray(pl.pallas_call(store(make), out, interpret=name)(X, NUMBERS)) for name in ("cpu", "reference")
    )
    np.testing.assert_allclose(compiled, defined, rtol=2e-6)


@pytest.mark.parametrize("make", ALONE)
def test_it_is_kept_for_two_uses_alone(make: Made, texts: list[str]) -> None:
    out = pl.ShapeDtypeStruct(X.shape, X.dtype)
    for store in (stored, used_twice):
        pl.pallas_call(store(make), out, interpret="cpu")(X, NUMBERS)
    once, twice = (int(re.findall(r"@arena_size = internal constant i64 (\d+)", text)[0]) for text in texts)
    assert twice >= once + X.nbytes


def test_blocks_past_an_edge_are_put_together() -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = jnp.concatenate([x[:, 4:], x[:, :4]], axis=1)

    spec = pl.BlockSpec((8, 16), lambda i, j: (i, j))
    out = pl.ShapeDtypeStruct(X.shape, X.dtype)
    compiled, defined = (
        pl.pallas_call(kernel, out, grid=(2, 3), in_specs=[spec], out_specs=spec, interpret=name)(X)
        for name in ("cpu", "reference")
    )
    np.testing.assert_array_equal(compiled, defined)


WIDTHS = (-3, -1, 0, 1, 4)
ROWS = [each for each in itertools.product(WIDTHS, WIDTHS) if sum(each) >= -5]
COLUMNS = ((0, 0), (2, -1), (-2, 3), (-1, -2), (1, 1))
BETWEEN = ((0, 0), (2, 0), (0, 1), (1, 3))


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_any_padding_is_the_evaluators(number: int) -> None:
    """Also a negative one, which cuts, and one that leaves nothing."""
    x = X[:5, :3]
    for n in (number, number + 2):
        between = BETWEEN[n % len(BETWEEN)]
        padding = ((*ROWS[number], between[0]), (*COLUMNS[n % len(COLUMNS)], between[1]))

        def kernel(x: Any, out: Any, padding: Any = padding) -> None:
            out[...] = lax.pad(x[...], np.float32(9), padding)

        sizes = [n + (n - 1) * axis[2] + axis[0] + axis[1] for n, axis in zip(x.shape, padding, strict=True)]
        out = pl.ShapeDtypeStruct((max(sizes[0], 0), max(sizes[1], 0)), x.dtype)
        found, defined = (pl.pallas_call(kernel, out, interpret=name)(x) for name in ("cpu", "reference"))
        np.testing.assert_array_equal(found, defined)
