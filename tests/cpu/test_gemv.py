"""Products of a matrix with a few vectors: of any dtype, either way round, of parts of arrays, as the evaluator's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from tests.pairs import every_pair

Array = Any
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
DTYPES = [*FLOATS, np.int32, np.int8, np.uint8]


def numbers(seed: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Whole numbers small enough for all sums to be exact, so that results do not depend on their order."""
    low = 0 if dtype == np.uint8 else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype)


def both(kernel: Callable[..., None], shape: tuple[int, ...], dtype: Any, *given: Array) -> tuple[Array, Array]:
    """What the compiled kernel gives, and what the evaluator does."""
    out = pl.ShapeDtypeStruct(shape, dtype)
    compiled, defined = (pl.pallas_call(kernel, out, interpret=each)(*given) for each in ("cpu", "reference"))
    return compiled, defined


def turned(ref: Any, flip: bool) -> Any:
    return ref[...].T if flip else ref[...]


SHAPES = [(1, 1), (1, 37), (37, 1), (3, 21), (2, 2), (70, 4), (0, 9), (9, 0)]
FLIPS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(
    ("form", "depth", "dtype"),
    every_pair(list(product(SHAPES, FLIPS)), [1, 23, 161], [np.float32, ml_dtypes.bfloat16, np.int8]),
    ids=str,
)
def test_few_rows_or_columns(form: tuple[tuple[int, int], tuple[bool, bool]], depth: int, dtype: Any) -> None:
    (rows, columns), flips = form
    sums = np.int32 if dtype == np.int8 else np.float32

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(turned(x, flips[0]), turned(y, flips[1]), preferred_element_type=sums)

    x, y = numbers(0, (rows, depth), dtype), numbers(1, (depth, columns), dtype)
    given = [a.T.copy() if flip else a for a, flip in zip((x, y), flips, strict=True)]
    found, expected = both(kernel, (rows, columns), sums, *given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("depth", [0, 1, 40])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors(depth: int, dtype: Any) -> None:
    def kernel(x: Any, y: Any, m: Any, out: Any, left: Any, right: Any) -> None:
        out[...] = jnp.dot(x[...], y[...])[None]
        left[...] = x[...] @ m[...]
        right[...] = m[...].T @ y[...]

    x, y, m = numbers(0, (depth,), dtype), numbers(1, (depth,), dtype), numbers(2, (depth, 19), dtype)
    out = [pl.ShapeDtypeStruct((size,), dtype) for size in (1, 19, 19)]
    found, expected = (pl.pallas_call(kernel, out, interpret=each)(x, y, m) for each in ("cpu", "reference"))
    for mine, defined in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, defined)


@pytest.mark.parametrize("where", [0, 5, 36])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", ["matrix @ vector", "vector @ matrix", "matrix.T @ vector"])
def test_what_is_no_number_shows_where_it_should(form: str, special: float, where: int) -> None:
    forms = {
        "matrix @ vector": lambda m, v: m @ v,
        "vector @ matrix": lambda m, v: v @ m,
        "matrix.T @ vector": lambda m, v: m.T @ v,
    }

    def kernel(m: Any, v: Any, out: Any) -> None:
        out[...] = forms[form](m[...], v[...])

    m, v = numbers(0, (37, 37)), numbers(1, (37,))
    m[where, 3], m[11, where] = special, -special
    v[20] = 0
    m[20, 20] = special  # times 0
    with np.errstate(invalid="ignore"):
        found, expected = both(kernel, (37,), np.float32, m, v)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_parts_of_arrays_and_what_is_computed_meanwhile(rows: int) -> None:
    def kernel(x: Any, m: Any, scale: Any, out: Any) -> None:
        weights = m[2:45, 3:50].astype(np.float32) * scale[3:50]
        kept = jnp.where(jnp.arange(43)[:, None] < 30, weights, 0)
        out[...] = jnp.dot(x[:, 1:44], kept) + jnp.dot(kept.T, x[:, 1:44].T).T

    x, m, scale = numbers(0, (rows, 45)), numbers(1, (48, 52), np.int8), numbers(2, (52,))
    found, expected = both(kernel, (rows, 47), np.float32, x, m, scale)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_tiles_of_columns_that_reach_past_the_edge(dtype: Any) -> None:
    def kernel(x: Any, m: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], m[...], preferred_element_type=jnp.float32)

    def call(executor: str) -> Array:
        return pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct((1, 100), np.float32),
            grid=(4,),
            in_specs=[pl.BlockSpec((1, 80), lambda j: (0, 0)), pl.BlockSpec((80, 32), lambda j: (0, j))],
            out_specs=pl.BlockSpec((1, 32), lambda j: (0, j)),
            interpret=executor,
        )(numbers(0, (1, 80), dtype), numbers(1, (80, 100), dtype))

    np.testing.assert_array_equal(call("cpu"), call("reference"))


def test_the_output_may_be_an_operand() -> None:
    def kernel(v: Any, m: Any, out: Any) -> None:
        out[...] = v[...]
        for _ in range(2):
            out[...] = m[...] @ out[...]

    found, expected = both(kernel, (40,), np.float32, numbers(0, (40,)), numbers(1, (40, 40)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [1, 2])
def test_stacks_and_sums_that_go_on(rows: int) -> None:
    def kernel(x: Any, y: Any, out: Any) -> None:
        product = lax.dot_general(x[...], y[...], (((2,), (1,)), ((0,), (0,))))
        out[...] = out[...] * 0 + 1
        out[...] += product

    def call(executor: str) -> Array:
        out = pl.ShapeDtypeStruct((3, rows, 20), np.float32)
        given = numbers(0, (3, rows, 33)), numbers(1, (3, 33, 20)), np.ones((3, rows, 20), np.float32)

        def started(x: Any, y: Any, before: Any, out: Any) -> None:
            kernel(x, y, out)

        return pl.pallas_call(started, out, input_output_aliases={2: 0}, interpret=executor)(*given)

    np.testing.assert_array_equal(call("cpu"), call("reference"))
