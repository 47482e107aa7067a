"""Compiled kernels touch nothing in front of an array and nothing after it, whatever its size.

Every array, and the memory that a kernel works in, lies beside protected pages. This runs in a process of
its own, which a wrong access ends.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.cpu import chain, engine
from palladio.cpu.runtime import host, memory, native
from palladio.library import gmm, tgmm
from palladio.types.types import ArrayType
from tests.pairs import every_pair

Array = Any

FOUND = host.available()[1:]
SETS = list(dict.fromkeys([*FOUND[:2], FOUND[-1]]))
"""The instruction sets that this host has: the narrow ones and the widest."""
ROOT = Path(__file__).resolve().parents[2]
PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)


def guarded(shape: tuple[int, ...], dtype: Any, after: bool) -> Array:
    """An array of zeros directly after a protected page, or directly in front of one."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = -(-size // PAGE) * PAGE
    area = mmap.mmap(-1, pages + 2 * PAGE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for page in (first, first + PAGE + pages):
        if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE if after else PAGE + pages - size
    return np.frombuffer(area, np.uint8, size, start).view(dtype).reshape(shape)


# The kernels: each a function of the references, the shapes of its inputs and of its output.


def product(turned: str, x: Any, y: Any, out: Any) -> None:
    left = x[...].T if turned[0] == "t" else x[...]
    right = y[...].T if turned[1] == "t" else y[...]
    out[...] = jnp.dot(left, right, preferred_element_type=jnp.float32).astype(out.dtype)


def elementwise(x: Any, out: Any) -> None:
    out[...] = (jnp.exp(x[...].astype(jnp.float32)) * 2 + jnp.where(x[...] > 1, 1.0, 0.5)).astype(out.dtype)


def copied(x: Any, out: Any) -> None:
    out[...] = x[...]


def inner(x: Any, out: Any) -> None:
    out[...] = x[1:, :-1]


def turned(x: Any, out: Any) -> None:
    out[...] = x[...].T


def flipped(x: Any, out: Any) -> None:
    out[...] = jnp.flip(x[...], 1)


def every_second(x: Any, out: Any) -> None:
    out[...] = x[:, ::2]


def reduced(axis: int, x: Any, out: Any) -> None:
    out[...] = jnp.sum(x[...], axis=axis)


def largest(axis: int, x: Any, out: Any) -> None:
    out[...] = jnp.max(x[...], axis=axis)


def summed_up(x: Any, out: Any) -> None:
    out[...] = jnp.cumsum(x[...], axis=1)


def greatest(x: Any, out: Any) -> None:
    out[...] = lax.top_k(x[...], 2)[0]


Run = tuple[Any, list[tuple[int, ...]], tuple[int, ...], Any, dict[str, Any]]

SIZES = [(1, 1, 1), (3, 7, 5), (17, 33, 31), (15, 70, 129), (1, 83, 67), (67, 83, 1), (35, 160, 48), (17, 132, 32)]
FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


def products(instructions: str) -> Iterator[Run]:
    """Each size with each order of the operands, by some of the instruction sets."""
    for size, how, chosen in every_pair(SIZES, ["..", ".t", "t.", "tt"], SETS):
        if chosen != instructions:
            continue
        rows, depth, columns = size
        x = (depth, rows) if how[0] == "t" else (rows, depth)
        y = (columns, depth) if how[1] == "t" else (depth, columns)
        dtype = (*FLOATS, np.int8)[(SIZES.index(size) + ("t" in how) + 2 * (how[0] == "t")) % 4]
        yield partial(product, how), [x, y], (rows, columns), np.dtype(dtype), {}
    # Blocks that reach past the edges of their arrays.
    specs = {
        "grid": (2, 3),
        "in_specs": [pl.BlockSpec((16, 33), lambda i, j: (i, 0)), pl.BlockSpec((33, 16), lambda i, j: (0, j))],
        "out_specs": pl.BlockSpec((16, 16), lambda i, j: (i, j)),
    }
    for dtype in FLOATS:
        yield partial(product, ".."), [(21, 33), (33, 39)], (21, 39), np.dtype(dtype), specs


def others() -> Iterator[Run]:
    for number, (rows, columns) in enumerate([(1, 1), (2, 7), (5, 17), (3, 31), (9, 65)]):
        x = (rows, columns)
        dtypes = [np.dtype(dtype) for dtype in (np.float32, np.int8, ml_dtypes.bfloat16, np.float64, np.bool_)]
        for kernel in (elementwise, copied, summed_up):
            if not (kernel is summed_up and dtypes[number % 5] == np.bool_):
                yield kernel, [x], x, dtypes[number % 5], {}
        yield inner, [(rows + 1, columns + 1)], x, dtypes[(number + 1) % 5], {}
        yield turned, [x], (columns, rows), dtypes[(number + 2) % 5], {}
        yield flipped, [x], x, dtypes[(number + 3) % 5], {}
        yield every_second, [x], (rows, -(-columns // 2)), dtypes[(number + 4) % 5], {}
        for axis in (0, 1):
            yield partial(reduced, axis), [x], (x[1 - axis],), np.dtype((np.float32, np.float16)[number % 2]), {}
            yield partial(largest, axis), [x], (x[1 - axis],), np.dtype((np.int8, np.float32)[number % 2]), {}
    for columns in (4, 18, 85):
        yield greatest, [(3, columns)], (3, 2), np.dtype(np.float32), {}
    ragged = {
        "grid": (2, 2),
        "in_specs": [pl.BlockSpec((8, 32), lambda i, j: (i, j))],
        "out_specs": pl.BlockSpec((8, 32), lambda i, j: (i, j)),
    }
    for dtype in (np.float32, np.int8):
        yield elementwise, [(11, 43)], (11, 43), np.dtype(dtype), ragged


class Guarded(memory.Pool):
    """Gives memory beside such pages, to kernels and to their results."""

    after = True

    def take(self, size: int) -> Array:
        return guarded((size,), np.uint8, self.after)

    def give(self, block: Array) -> None:
        pass

    def output(self, type: ArrayType) -> Array:
        return guarded(type.shape, type.dtype, self.after)


SOME_ROWS = [
    (24, 20, None),
    (24, 4, None),
    (3, 20, None),
    (34, 32, None),
    (24, 20, (8, 24, 10)),
    (24, 20, (16, 12, 20)),
]
"""Sizes of grouped products, and tiles of some rows and parts of the summed axis."""


def run_all() -> None:
    """Run the kernels of an instruction set with their arrays on either side of such pages."""
    instructions = os.environ["PALLADIO_CPU"]
    pool = engine.POOL = native.POOL = Guarded()
    engine.output = chain.output = pool.output
    rng = np.random.default_rng(0)
    for kernel, shapes, shape, dtype, options in [*products(instructions), *others()]:
        name = getattr(kernel, "func", kernel).__name__
        call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(shape, dtype), interpret="cpu", name=name, **options)
        results = []
        inputs = [rng.integers(0, 2, shape).astype(dtype) for shape in shapes]
        for pool.after in (True, False):
            print(name, dtype, shapes, "after" if pool.after else "in front", flush=True)
            given = [guarded(array.shape, dtype, pool.after) for array in inputs]
            for array, values in zip(given, inputs, strict=True):
                array[...] = values
            results.append(call(*given).tobytes())
        assert results[0] == results[1]
    for (k, n, tiling), dtype, chosen in every_pair(SOME_ROWS, FLOATS[::2], SETS):
        for pool.after in (True, False) if chosen == instructions else ():
            run_products_of_any_rows(rng, pool.after, np.dtype(dtype), k, n, tiling)


def run_products_of_any_rows(rng: np.random.Generator, after: bool, dtype: Any, k: int, n: int, tiling: Any) -> None:
    """Run products that one compiled kernel computes for all numbers of rows and groups."""
    for m in (5, 16, 33, 529) if n == 32 else (5, 16, 33):
        print("gmm, tgmm", dtype, (m, k, n), tiling, "after" if after else "in front", flush=True)
        x, y, out, matrices = (guarded(shape, dtype, after) for shape in ((m, k), (m, n), (m, n), (2, k, n)))
        for array in (x, y, matrices):
            array[...] = rng.standard_normal(array.shape).astype(dtype)
        sizes, every = [m - 4, 3], slice(0, m - 1)
        gmm(x, matrices, sizes, tiling=tiling, interpret="cpu", out=out)
        groups = slice(0, m - 4), slice(m - 4, m - 1)
        wanted = [x[group].astype(float) @ each.astype(float) for group, each in zip(groups, matrices, strict=True)]
        np.testing.assert_allclose(out[every].astype(float), np.concatenate(wanted), rtol=0.02, atol=0.05)
        assert (out[-1] == 0).all()
        if tiling is not None:
            continue
        sizes, groups = [3, m - 3], (slice(0, 3), slice(3, m))  # the last group ends with the arrays
        wanted = [x[group].T.astype(float) @ y[group].astype(float) for group in groups]
        np.testing.assert_allclose(tgmm(x.T, y, sizes, interpret="cpu").astype(float), wanted, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("instructions", SETS)
def test_nothing_beside_an_array_is_touched(instructions: str) -> None:
    environment = {**os.environ, "PALLADIO_CPU": instructions}
    command = [sys.executable, "-m", "tests.cpu.test_bounds"]
    found = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, f"ended by {found.returncode} in {found.stdout.splitlines()[-1:]}\n{found.stderr}"


def test_such_a_page_ends_the_process() -> None:
    text = "import numpy; from tests.cpu.test_bounds import guarded; x = guarded((3,), 'u1', {})"
    text += "; print(x.ctypes.data, flush=True)"
    text += "; import ctypes; print(ctypes.c_uint8.from_address(x.ctypes.data + {}).value)"
    for after, distance in ((True, -1), (False, 3)):
        command = [sys.executable, "-c", text.format(after, distance)]
        found = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert len(found.stdout.splitlines()) == 1 and found.returncode < 0


if __name__ == "__main__":
    run_all()
