"""The comparisons: contenders, inputs and expected results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

import palladio as pl
from benchmarks import compiled, experts, inputs, irregular, models, peers, routed, simulated
from benchmarks.measure import OURS, Comparison, Contender, Floor
from palladio.library import gmm, matmul, tgmm

Array = np.ndarray[Any, Any]

TILING = (128, 128, 128)
DENSE_TILING = (128, 64, 128)  # along m, k and n
TOLERANCE = 1e-5  # of sums in float32; the inputs of narrower dtypes are rounded before the float64 result is computed


def _by_group(lhs: Array, rhs: Array, sizes: Array) -> Iterator[tuple[slice, Array]]:
    ends = np.cumsum(sizes)
    for matrix, end, size in zip(rhs, ends, sizes, strict=True):
        rows = slice(end - size, end)
        yield rows, lhs[rows].astype(np.float64) @ matrix.astype(np.float64)


def grouped_float32() -> Comparison:
    """The grouped product, beside Pallas' own."""
    return _grouped("gmm f32, 4096×1024 by 8 groups of 1024×1024, tiles 128³", np.float32, 2, Floor(peers.MEGABLOX, 20))


def grouped_bfloat16() -> Comparison:
    """The same with bfloat16 inputs and float32 results."""
    return _grouped("gmm bf16 to f32, the same sizes and tiles", ml_dtypes.bfloat16, 1, None)


def _grouped(name: str, dtype: Any, megablox_rounds: int, floor: Floor | None) -> Comparison:
    lhs, rhs, sizes = inputs.grouped()
    lhs, rhs = lhs.astype(dtype), rhs.astype(dtype)
    expected = np.zeros((inputs.M, inputs.N))
    for rows, product in _by_group(lhs, rhs, sizes):
        expected[rows] = product
    contenders = [
        Contender(OURS, lambda: gmm(lhs, rhs, sizes, np.float32, TILING, interpret=True)),
        peers.megablox_gmm(lhs, rhs, sizes, TILING, megablox_rounds),
        peers.numpy_gmm(lhs, rhs, sizes, 7),
    ]
    return Comparison(name, contenders, expected, TOLERANCE, 2 * inputs.M * inputs.K * inputs.N, floor)


def transposed_grouped() -> Comparison:
    """The gradient of the matrices."""
    lhs, rhs = inputs.normal((inputs.K, inputs.M), (inputs.M, inputs.N))
    sizes = np.array(inputs.GROUP_SIZES, np.int32)
    ends = np.cumsum(sizes)
    wide = lhs.astype(np.float64), rhs.astype(np.float64)
    parts = [wide[0][:, end - size : end] @ wide[1][end - size : end] for end, size in zip(ends, sizes, strict=True)]
    contenders = [
        Contender(OURS, lambda: tgmm(lhs, rhs, sizes, tiling=TILING, interpret=True)),
        peers.numpy_tgmm(lhs, rhs, sizes, 7),
    ]
    operations = 2 * inputs.M * inputs.K * inputs.N
    return Comparison("tgmm f32, the same sizes and tiles", contenders, np.stack(parts), TOLERANCE, operations)


def dense() -> Comparison:
    """A dense product, beside the Triton interpreter with the same tiles."""
    x, y = inputs.normal((1024, 1024), (1024, 1024))
    contenders = [
        Contender(OURS, lambda: matmul(x, y, tiling=DENSE_TILING, interpret=True), rounds=9),
        peers.triton_matmul(x, y, DENSE_TILING, 9),
    ]
    expected = x.astype(np.float64) @ y.astype(np.float64)
    name = "matmul f32, 1024³, tiles 128×128×64"
    return Comparison(name, contenders, expected, TOLERANCE, 2 * 1024**3, Floor(peers.TRITON, 10))


def smallest_call() -> Comparison:
    """The overhead of a call of a prepared, nearly empty kernel."""
    (x,) = inputs.normal((8, 128))

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + 1

    add_one = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)
    contenders = [Contender(OURS, lambda: add_one(x), calls=300), peers.pallas_add_one(x, 7, 300)]
    return Comparison("x + 1, f32[8, 128]: one call", contenders, x.astype(np.float64) + 1, TOLERANCE)


CASES: dict[str, Callable[[], Comparison]] = {
    "gmm": grouped_float32,
    "matmul": dense,
    "gmm-bf16": grouped_bfloat16,
    "tgmm": transposed_grouped,
    "call": smallest_call,
    **compiled.CASES,
    **irregular.CASES,
    **routed.CASES,
    **experts.CASES,
    **models.CASES,
    **simulated.CASES,
}
