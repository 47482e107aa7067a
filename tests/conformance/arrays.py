"""Rows: reductions, scans, sorting, shapes and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes
from tests.conformance.elementwise import applied
from tests.conformance.rows import (
    ALL,
    BITS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Array,
    Case,
    Row,
    bits,
    draw,
    row,
    wide,
    wrapped,
)

Function = Callable[..., Any]


def reduction(
    name: str,
    function: Function,
    reference: Function,
    accepted: tuple[np.dtype, ...],
    axes: Any,
    low: float = -3,
    high: float = 3,
) -> Row:
    """A reduction of a three-dimensional array over some axes."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, (3, 5, 4), low, high)
        expected = wrapped(np.asarray(reference(wide(x), axes)), dtype)
        return applied(lambda x: function(x, axes), x, expected=expected, dtype=dtype, slack=2)

    return Row("reduce", name, accepted, make)


def _folded(ufunc: np.ufunc) -> Function:
    return lambda x, axes: ufunc.reduce(x, axis=axes)


REDUCTIONS = [
    reduction("sum_of_rows", lax.reduce_sum, _folded(np.add), NUMBERS, (2,), 0.5),
    reduction("sum_of_two_axes", lax.reduce_sum, _folded(np.add), NUMBERS, (0, 2), 0.5),
    reduction("sum_of_all", lax.reduce_sum, _folded(np.add), NUMBERS, (0, 1, 2), 0.5),
    reduction("prod", lax.reduce_prod, _folded(np.multiply), NUMBERS, (1,), 0.5, 2),
    reduction("max", lambda x, axes: jnp.max(x, axis=axes), _folded(np.maximum), ALL, (1,)),
    reduction("min", lambda x, axes: jnp.min(x, axis=axes), _folded(np.minimum), ALL, (0, 1)),
    reduction("mean", lambda x, axes: jnp.mean(x, axis=axes), lambda x, axes: x.mean(axes), FLOATS, (1,), 0.5),
]


def joined(name: str, function: Function, ufunc: np.ufunc) -> Row:
    """A reduction of bits along the last axis."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = bits(rng, dtype, (6, 3))
        return applied(lambda x: function(x, (1,)), x, expected=ufunc.reduce(x, axis=1), dtype=dtype)

    return Row("reduce", name, BITS, make)


JOINED = [
    joined("and", lax.reduce_and, np.bitwise_and),
    joined("or", lax.reduce_or, np.bitwise_or),
    joined("xor", lax.reduce_xor, np.bitwise_xor),
]


@row("reduce", ALL)
def any_and_all(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (6, 3), 0, 1.9)

    def kernel(x_ref: Any, any_ref: Any, all_ref: Any) -> None:
        any_ref[...] = jnp.any(x_ref[...] > 0, axis=0) if dtype != dtypes.BOOL else jnp.any(x_ref[...], axis=0)
        all_ref[...] = jnp.all(x_ref[...] > 0, axis=0) if dtype != dtypes.BOOL else jnp.all(x_ref[...], axis=0)

    positive = wide(x) > 0
    return Case(kernel, [x], [positive.any(0), positive.all(0)], [dtypes.BOOL] * 2)


def position(name: str, function: Function, first: Callable[[list[Any]], Any]) -> Row:
    """The first place of an extreme element; there are equal ones."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, (5, 7), -2, 2)
        rows = [list(values) for values in wide(x)]
        expected = np.array([values.index(first(values)) for values in rows], np.int64)
        return applied(lambda x: function(x, axis=1), x, expected=expected, dtype=np.dtype(np.int32))

    return Row("reduce", name, ALL, make)


POSITIONS = [position("argmax", jnp.argmax, max), position("argmin", jnp.argmin, min)]


def scan(
    name: str,
    function: Function,
    step: Callable[[Any, Any], Any],
    accepted: tuple[np.dtype, ...],
    low: float = 0.5,
    high: float = 2,
) -> Row:
    """A scan along the first axis, from its end, by a loop over the elements."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, (6, 4), low, high)
        expected = wide(x)
        for n in reversed(range(5)):
            expected[n] = wrapped(step(expected[n], expected[n + 1]), dtype)
        return applied(lambda x: function(x, axis=0, reverse=True), x, expected=expected, dtype=dtype, slack=2)

    return Row("scan", name, accepted, make)


SCANS = [
    scan("cumsum", lax.cumsum, lambda x, y: x + y, NUMBERS),
    scan("cumprod", lax.cumprod, lambda x, y: x * y, NUMBERS),
    scan("cummax", lax.cummax, np.maximum, NUMBERS, -3),
    scan("cummin", lax.cummin, np.minimum, NUMBERS, -3),
    scan("cumlogsumexp", lax.cumlogsumexp, lambda x, y: np.log(np.exp(x) + np.exp(y)), FLOATS),
]


@row("scan", NUMBERS)
def cumsum_from_the_start(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 6), 0.5, 2)
    return applied(lambda x: jnp.cumsum(x, axis=1), x, expected=np.cumsum(wide(x), axis=1), dtype=dtype, slack=2)


@row("sort", ALL)
def sort(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 9))
    expected = np.array([sorted(values) for values in wide(x).tolist()])
    return applied(lambda x: jnp.sort(x, axis=1), x, expected=expected, dtype=dtype)


@row("sort", ALL)
def sort_along_the_first_axis(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (9, 3))
    expected = np.array([sorted(values) for values in wide(x).T.tolist()]).T
    return applied(lambda x: lax.sort(x, dimension=0), x, expected=expected, dtype=dtype)


@row("sort", ALL)
def keys_bring_their_values_along(rng: np.random.Generator, dtype: np.dtype) -> Case:
    keys, values = draw(rng, dtype, (12,)), np.arange(12, dtype=np.int32)

    def kernel(keys_ref: Any, values_ref: Any, keys_out_ref: Any, values_out_ref: Any) -> None:
        keys_out_ref[...], values_out_ref[...] = lax.sort((keys_ref[...], values_ref[...]), num_keys=1, is_stable=True)

    pairs = sorted(zip(wide(keys).tolist(), range(12)), key=lambda pair: pair[0])
    expected = [np.array([pair[part] for pair in pairs]) for part in (0, 1)]
    return Case(kernel, [keys, values], expected, [dtype, values.dtype])


@row("sort", ALL)
def argsort(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (12,))
    expected = np.array(sorted(range(12), key=wide(x).tolist().__getitem__))
    return applied(jnp.argsort, x, expected=expected, dtype=np.dtype(np.int32))


def shaped(name: str, function: Function, reference: Function | None = None, shape: tuple[int, ...] = (4, 6)) -> Row:
    """A function that only moves elements; NumPy does the same by default."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, shape)
        return applied(function, x, expected=(reference or function)(wide(x)), dtype=dtype, slack=0)

    return Row("shape", name, ALL, make)


SHAPES = [
    shaped("reshape", lambda x: x.reshape(3, 8)),
    shaped("transpose", lambda x: x.T),
    shaped("permute", lambda x: x.transpose(2, 0, 1), shape=(2, 3, 4)),
    shaped("broadcast", lambda x: jnp.broadcast_to(x, (3, 4, 6)), lambda x: np.broadcast_to(x, (3, 4, 6))),
    shaped(
        "broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (4, 5, 6), (0, 2)), lambda x: np.repeat(x[:, None], 5, 1)
    ),
    shaped("reverse", lambda x: jnp.flip(x, 0), lambda x: x[::-1]),
    shaped("concatenate", lambda x: jnp.concatenate([x, x[:2]], 0), lambda x: np.vstack([x, x[:2]])),
    shaped("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3))), lambda x: np.pad(x, ((1, 2), (0, 3)))),
    shaped("static_slice", lambda x: x[1:3, ::2]),
    shaped("single_element", lambda x: x[2, 3]),
    shaped("negative_index", lambda x: x[-1]),
    shaped("reversing_slice", lambda x: x[::-1, 1:]),
    shaped("new_axis", lambda x: x[:, None]),
    shaped("squeeze", lambda x: x.squeeze(1), shape=(4, 1, 3)),
    shaped("repeat", lambda x: jnp.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, axis=1)),
    shaped("tile", lambda x: jnp.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1))),
    shaped("stack", lambda x: jnp.stack([x, x], 1), lambda x: np.stack([x, x], 1)),
    shaped("roll", lambda x: jnp.roll(x, 2, 1), lambda x: np.roll(x, 2, 1)),
    shaped("no_elements", lambda x: x[2:2], shape=(4, 6)),
]


@row("shape", NUMBERS)
def iota(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 6))
    expected = np.broadcast_to(np.arange(6), (4, 6))
    return applied(lambda x: lax.broadcasted_iota(dtype, (4, 6), 1) + x * 0, x, expected=expected, dtype=dtype)


@row("shape", ALL)
def dynamic_slice(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """A start after the last one that fits is brought back to it."""
    x, start = draw(rng, dtype, (9, 4)), np.array([2, 8], np.int32)

    def kernel(x_ref: Any, start_ref: Any, inner_ref: Any, last_ref: Any) -> None:
        inner_ref[...] = lax.dynamic_slice(x_ref[...], (start_ref[0], 1), (3, 2))
        last_ref[...] = lax.dynamic_slice_in_dim(x_ref[...], start_ref[1], 3, axis=0)

    return Case(kernel, [x, start], [wide(x)[2:5, 1:3], wide(x)[6:9]], [dtype] * 2)


@row("shape", ALL)
def dynamic_update_slice(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, part, start = draw(rng, dtype, (9, 4)), draw(rng, dtype, (2, 3)), np.array([5, 1], np.int32)
    expected = wide(x)
    expected[5:7, 1:4] = wide(part)

    def update(x: Any, part: Any, start: Any) -> Any:
        return lax.dynamic_update_slice(x, part, (start[0], start[1]))

    return applied(update, x, part, start, expected=expected, dtype=dtype)


@row("shape", ALL)
def take(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (7, 4)), rng.integers(0, 7, (5,)).astype(np.int32)
    return applied(lambda x, at: jnp.take(x, at, axis=0), x, at, expected=wide(x)[at], dtype=dtype)


@row("shape", ALL)
def take_along_axis(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (4, 7)), rng.integers(0, 7, (4, 3)).astype(np.int32)
    expected = np.array([[wide(x)[i, j] for j in at[i]] for i in range(4)])
    return applied(lambda x, at: jnp.take_along_axis(x, at, axis=1), x, at, expected=expected, dtype=dtype)


@row("shape", NUMBERS)
def updates_of_a_value(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """An index that stands twice is added to twice."""
    x, at = draw(rng, dtype, (6,)), np.array([1, 4, 1], np.int32)
    expected = wide(x)
    for index in at:
        expected[index] += 1
    expected = wrapped(expected, dtype)

    def update(x: Any, at: Any) -> Any:
        return x.at[at].add(jnp.ones((3,), dtype))

    return applied(update, x, at, expected=expected, dtype=dtype, slack=2)


def product(name: str, function: Function, shapes: tuple[tuple[int, ...], tuple[int, ...]], equation: str) -> Row:
    """A product of two arrays in their own dtype, by the sums of an equation."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x, y = draw(rng, dtype, shapes[0], 0.25, 1.5), draw(rng, dtype, shapes[1], 0.25, 1.5)
        expected = wrapped(_summed(equation, wide(x), wide(y)), dtype)
        return applied(function, x, y, expected=expected, dtype=dtype, slack=2)

    return Row("dot", name, NUMBERS, make)


def _summed(equation: str, x: Array, y: Array) -> Array:
    """The sums of an einsum equation of two operands, by elementwise products only."""
    inputs, output = equation.split("->")
    first, second = inputs.split(",")
    every = output + "".join(sorted({*first, *second} - {*output}))

    def spread(array: Array, letters: str) -> Array:
        order = sorted(letters, key=every.index)
        moved = array.transpose([letters.index(letter) for letter in order])
        return moved.reshape([moved.shape[order.index(letter)] if letter in order else 1 for letter in every])

    return (spread(x, first) * spread(y, second)).sum(tuple(range(len(output), len(every))))


DOT = [
    product("matmul", lambda x, y: x @ y, ((5, 7), (7, 4)), "mk,kn->mn"),
    product("batched", jnp.matmul, ((2, 3, 4), (2, 4, 5)), "bmk,bkn->bmn"),
    product("vector", lambda x, y: x @ y, ((5, 7), (7,)), "mk,k->m"),
    product("dot_general", lambda x, y: lax.dot_general(x, y, (((0,), (1,)), ((), ()))), ((7, 3), (4, 7)), "km,nk->mn"),
    product("einsum", lambda x, y: jnp.einsum("bkm,bnk->bmn", x, y), ((2, 4, 3), (2, 5, 4)), "bkm,bnk->bmn"),
]


@row("dot", tuple(dtype for dtype in FLOATS if dtype.itemsize <= 4))
def accumulated_in_float32(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (4, 64), -1, 1), draw(rng, dtype, (64, 5), -1, 1)
    return applied(
        lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32),
        x,
        y,
        expected=_summed("mk,kn->mn", wide(x), wide(y)),
        dtype=np.dtype(np.float32),
        slack=2,
    )


@row("reduce", (np.dtype(np.float32), np.dtype(np.float64)))
def over_the_sum_of_its_row(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """An array that a reduction goes through, and that is used again."""
    x = draw(rng, dtype, (5, 8), 0, 1)
    powers = np.exp(wide(x))

    def normalised(x: Any) -> Any:
        found = jnp.exp(x)
        return found / jnp.sum(found, axis=1, keepdims=True)

    return applied(normalised, x, expected=powers / powers.sum(1, keepdims=True), dtype=dtype, slack=2)


@row("dot", INTEGERS)
def integers_accumulate_in_int32(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (4, 9), 0, 99), draw(rng, dtype, (9, 5), 0, 99)
    wanted = np.dtype(np.int32)
    expected = wrapped(_summed("mk,kn->mn", wide(x), wide(y)), wanted)
    return applied(lambda x, y: jnp.dot(x, y, preferred_element_type=wanted), x, y, expected=expected, dtype=wanted)


@row("dot", tuple(dtype for dtype in FLOATS if dtype.itemsize <= 4))
def added_to_an_array(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (6, 64), -1, 1), draw(rng, dtype, (64, 7), -1, 1)
    c = draw(rng, np.dtype(np.float32), (6, 7), -8, 8)
    return applied(
        lambda c, x, y: c + jnp.dot(x, y, preferred_element_type=jnp.float32),
        c,
        x,
        y,
        expected=wide(c) + _summed("mk,kn->mn", wide(x), wide(y)),
        dtype=np.dtype(np.float32),
        slack=2,
    )


@row("dot", tuple(dtype for dtype in FLOATS if dtype.itemsize <= 4))
def sides_that_a_mask_makes_zero(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (6, 64), -1, 1), draw(rng, dtype, (64, 7), -1, 1)

    def masked(x: Any, y: Any) -> Any:
        inside = (jnp.arange(64) >= 9) & (jnp.arange(64) + 3 < 50)
        left, right = jnp.where(inside, x, 0), jnp.where(inside[:, None], y, 0)
        return jnp.dot(left, right, preferred_element_type=jnp.float32)

    expected = _summed("mk,kn->mn", wide(x)[:, 9:47], wide(y)[9:47])
    return applied(masked, x, y, expected=expected, dtype=np.dtype(np.float32), slack=2)
