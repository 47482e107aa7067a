"""Kernels with known results, for the parts of the soak that test calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
from palladio.library import matmul, softmax

PARALLEL = pl.CompilerParams(dimension_semantics=["parallel"])


@dataclass(frozen=True)
class Subject:
    """A call and its result. `call` takes the keyword `out` if `writes` is set."""

    name: str
    call: Callable[..., Any]
    expected: np.ndarray[Any, Any]
    writes: bool = False


def rows(kernel: Callable[..., None], shape: tuple[int, int], block: int) -> Any:
    """A call of a kernel on blocks of some rows, in parallel."""
    spec = pl.BlockSpec((block, shape[1]), lambda i: (i, 0))
    out = pl.ShapeDtypeStruct(shape, np.float32)
    grid = (shape[0] // block,)
    return pl.pallas_call(
        kernel, out, grid=grid, in_specs=[spec], out_specs=spec, compiler_params=PARALLEL, interpret="cpu"
    )


def polynomial(steps: int) -> Callable[..., None]:
    """An element-wise kernel that takes a while."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = pl.fori_loop(0, steps, lambda _, value: value * 0.5 + 1.0, x[...])

    return kernel


def checked(x: Any, o: Any) -> None:
    """A kernel that calls Python in each step."""
    with pl.enable_debug_checks():
        pl.debug_check(x[0, 0] < 1e9, "too large")
    o[...] = x[...] * 2.0


def subjects(rng: np.random.Generator) -> list[Subject]:
    """Calls of about a millisecond each, and a few of some microseconds."""

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float32)

    def halved(x: np.ndarray[Any, Any], steps: int) -> np.ndarray[Any, Any]:
        for _ in range(steps):
            x = x * np.float32(0.5) + np.float32(1)  # exact: LLVM may fuse it, and the product has no rounding
        return x

    found = []
    for name, shape, block, steps in (
        ("a millisecond", (256, 1024), 16, 8),
        ("large", (1024, 1024), 64, 2),
        ("small", (8, 64), 2, 3),
    ):
        x, call = normal(*shape), rows(polynomial(steps), shape, block)
        expected = halved(x, steps)
        found.append(Subject(name, lambda out=None, call=call, x=x: call(x, out=out), expected, writes=True))
    x, call = normal(64, 256), rows(checked, (64, 256), 1)
    found.append(Subject("checked", lambda out=None, call=call, x=x: call(x, out=out), x * np.float32(2), writes=True))
    whole = rng.integers(-8, 8, (2, 192, 192)).astype(np.float32)  # sums without rounding
    found.append(Subject("product", lambda: matmul(*whole, tiling=(32, 64, 64)), whole[0] @ whole[1]))
    x = normal(512, 256)
    with pl.executor("cpu"):
        found.append(Subject("softmax", lambda: softmax(x, block_rows=16), softmax(x, block_rows=16)))
    return found
