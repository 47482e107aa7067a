"""The other implementations. One that is not installed is a contender too, shown as missing in the table."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import Contender

RAGGED = "jax.lax.ragged_dot"
MEGABLOX = "Pallas megablox, interpret mode"
TRITON = "Triton interpreter"
PALLAS = "Pallas, interpret mode under jax.jit"
NUMPY = "NumPy, one product for each group"

Tiling = tuple[int, int, int]
Array = np.ndarray[Any, Any]


def _contender(name: str, make: Callable[[], Callable[[], Any]], rounds: int, calls: int = 1) -> Contender:
    """The contender made by `make`, which does its own imports; missing if an import fails."""
    try:
        return Contender(name, make(), rounds, calls)
    except ImportError as error:
        return Contender(name, None, missing=str(error))


def megablox_gmm(lhs: Array, rhs: Array, sizes: Array, tiling: Tiling, rounds: int) -> Contender:
    """Pallas' own grouped product: `f32[m, n]` from `dtype[m, k]`, `dtype[g, k, n]`, `i32[g]`."""

    def make() -> Callable[[], Any]:
        import jax
        from jax.experimental.pallas.ops.tpu.megablox import gmm

        arrays = jax.device_put((lhs, rhs, sizes))
        return lambda: jax.block_until_ready(
            gmm(*arrays, preferred_element_type=np.float32, tiling=tiling, interpret=True)
        )

    return _contender(MEGABLOX, make, rounds)


def ragged_dot(lhs: Array, rhs: Array, sizes: Array, rounds: int) -> Contender:
    """JAX's grouped product: `dtype[m, n]` from `dtype[m, k]`, `dtype[g, k, n]`, `i32[g]`, compiled by XLA."""

    def make() -> Callable[[], Any]:
        import jax

        arrays = jax.device_put((lhs, rhs, sizes))
        product = jax.jit(lambda x, y, rows: jax.lax.ragged_dot(x, y, rows, preferred_element_type=x.dtype))
        return lambda: jax.block_until_ready(product(*arrays))

    return _contender(RAGGED, make, rounds)


def triton_matmul(x: Array, y: Array, tiling: Tiling, rounds: int) -> Contender:
    """A Triton kernel with the same tiles, interpreted on NumPy: `f32[m, n]` from `f32[m, k]`, `f32[k, n]`."""

    def make() -> Callable[[], Any]:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
        import torch

        from benchmarks.triton_matmul import matmul

        x_tensor, y_tensor = torch.from_numpy(x), torch.from_numpy(y)

        def run() -> Any:
            # It multiplies its tiles with NumPy too, which is faster on one thread; we set that ourselves.
            with threadpool_limits(1, user_api="blas"):
                return matmul(x_tensor, y_tensor, tiling).numpy()

        return run

    return _contender(TRITON, make, rounds)


def pallas_add_one(x: Array, rounds: int, calls: int) -> Contender:
    """The smallest kernel, compiled by JAX from Pallas' interpret mode."""

    def make() -> Callable[[], Any]:
        import jax
        from jax.experimental import pallas as pl

        def kernel(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = x_ref[...] + 1

        call = jax.jit(pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True))
        array = jax.device_put(x)
        return lambda: jax.block_until_ready(call(array))

    return _contender(PALLAS, make, rounds, calls)


def numpy_gmm(lhs: Array, rhs: Array, sizes: Array, rounds: int) -> Contender:
    """One float32 product for each whole group, by NumPy."""
    ends = np.cumsum(sizes)

    def run() -> Array:
        out = np.zeros((lhs.shape[0], rhs.shape[2]), np.float32)
        for matrix, end, size in zip(rhs, ends, sizes, strict=True):
            rows = slice(end - size, end)
            np.matmul(lhs[rows].astype(np.float32), matrix.astype(np.float32), out=out[rows])
        return out

    return Contender(NUMPY, run, rounds)


def numpy_tgmm(lhs: Array, rhs: Array, sizes: Array, rounds: int) -> Contender:
    """One float32 product for each group: `f32[g, k, n]` from `f32[k, m]`, `f32[m, n]`."""
    ends = np.cumsum(sizes)

    def run() -> Array:
        parts = [lhs[:, end - size : end] @ rhs[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        return np.stack(parts)

    return Contender(NUMPY, run, rounds)
