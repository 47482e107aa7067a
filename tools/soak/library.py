"""Random calls of the library's functions, against float64 and on different numbers of threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import palladio as pl
from palladio.library import attention, gmm, matmul, softmax, tgmm
from tests.library.references import FLOATS, TOLERANCE, gmm_reference, tgmm_reference
from tools.soak.frame import Soak

CALLS = 20
"""Calls in each round, of one function with arrays of equal shapes and dtypes, which is compiled once."""

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Any], Callable[..., Array], Callable[[], tuple[Array, ...]]]
"""A function that takes arrays and `tiles`, its reference in float64, and a function that makes the arrays."""


def library(soak: Soak) -> None:
    """Each round, some calls of one function with the same shapes, each on one thread and on several.

    Both are bitwise equal if the tiles are the same: if none are given, the library chooses them by the number of
    threads, and other tiles may round differently.
    """
    choices = (_matmul, _softmax, _attention, _gmm, _tgmm)
    with pl.executor("cpu"):
        for _ in soak.rounds():
            choose = choices[soak.rng.integers(len(choices))]
            dtype = FLOATS[soak.rng.integers(len(FLOATS))]
            function, reference, draw = choose(soak.rng, dtype)
            tiles = tuple(_size(soak.rng, 128) for _ in range(3)) if soak.rng.random() < 0.5 else None
            for _ in range(CALLS):
                _call(soak, f"{choose.__name__[1:]} of {dtype}", partial(function, tiles=tiles), reference, draw())


def _call(soak: Soak, name: str, function: partial[Any], reference: Any, arguments: tuple[Array, ...]) -> None:
    name += f" {' '.join(str(argument.shape) for argument in arguments)}"
    with soak.faults(name):
        found = []
        for threads in (1, int(soak.rng.integers(2, 6))):
            os.environ["PALLADIO_NUM_THREADS"] = str(threads)
            found.append(function(*arguments))
        if function.keywords["tiles"] is not None:
            soak.check(f"{name}, on other threads", found[1], found[0])
        wide = [argument.astype(np.float64) if argument.dtype.kind != "i" else argument for argument in arguments]
        for each in found:
            soak.near(name, each, reference(*wide), 4 * TOLERANCE[each.dtype])


def _normal(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Random normal numbers, times a power of two; float16 can hold sums of some hundred of their products."""
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4)).astype(dtype)


def _size(rng: np.random.Generator, most: int) -> int:
    """A random size, log-uniform."""
    return int(2 ** rng.uniform(0, np.log2(most)))


def _matmul(rng: np.random.Generator, dtype: Any) -> Case:
    m, k, n = (_size(rng, 300) for _ in range(3))
    return (
        lambda x, y, tiles: matmul(x, y, tiling=tiles),
        lambda x, y: x @ y,
        lambda: (_normal(rng, dtype, m, k), _normal(rng, dtype, k, n)),
    )


def _softmax(rng: np.random.Generator, dtype: Any) -> Case:
    shape = (_size(rng, 200), _size(rng, 2000))
    return (
        lambda x, tiles: softmax(x, block_rows=tiles and tiles[0]),
        _softmax_reference,
        lambda: (_normal(rng, dtype, *shape),),
    )


def _softmax_reference(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _attention(rng: np.random.Generator, dtype: Any) -> Case:
    heads, m, n, d = _size(rng, 4), _size(rng, 200), _size(rng, 200), _size(rng, 80)
    causal = bool(rng.random() < 0.5)

    def reference(q: Array, k: Array, v: Array) -> Array:
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(d)
        if causal:
            scores = np.where(np.tril(np.ones((m, n), bool)), scores, -np.inf)
        return np.asarray(_softmax_reference(scores) @ v)

    def draw() -> tuple[Array, ...]:
        q, k, v = (rng.standard_normal((heads, rows, d)).astype(dtype) for rows in (m, n, n))
        return q, k, v

    def function(q: Array, k: Array, v: Array, tiles: tuple[int, ...] | None) -> Any:
        blocks = {} if tiles is None else {"block_q": tiles[0], "block_k": tiles[1]}
        return attention(q, k, v, causal=causal, **blocks)  # type: ignore[arg-type]

    return function, reference, draw


def _groups(rng: np.random.Generator, m: int, groups: int) -> Array:
    """Sizes of groups, some of them empty, with at most m rows in total."""
    ends = np.sort(rng.integers(0, m + 1, groups))
    return np.diff(ends, prepend=0).astype(np.int32)


def _gmm(rng: np.random.Generator, dtype: Any) -> Case:
    m, k, n, groups = _size(rng, 300), _size(rng, 200), _size(rng, 200), _size(rng, 9)
    transposed = bool(rng.random() < 0.5)
    shape = (groups, n, k) if transposed else (groups, k, n)
    return (
        lambda lhs, rhs, sizes, tiles: gmm(lhs, rhs, sizes, tiling=tiles, transpose_rhs=transposed),
        lambda lhs, rhs, sizes: gmm_reference(lhs, rhs, sizes, transpose_rhs=transposed),
        lambda: (_normal(rng, dtype, m, k), _normal(rng, dtype, *shape), _groups(rng, m, groups)),
    )


def _tgmm(rng: np.random.Generator, dtype: Any) -> Case:
    m, k, n, groups = _size(rng, 300), _size(rng, 200), _size(rng, 200), _size(rng, 9)
    return (
        lambda lhs, rhs, sizes, tiles: tgmm(lhs, rhs, sizes, tiling=tiles),
        tgmm_reference,
        lambda: (_normal(rng, dtype, k, m), _normal(rng, dtype, m, n), _groups(rng, m, groups)),
    )
