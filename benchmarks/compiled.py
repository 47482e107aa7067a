"""Compiled kernels beside PyTorch's: products of several kinds, and chains of element-by-element functions.

The library chooses the tiles of its products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import palladio as pl
import palladio.numpy as jnp
from benchmarks import inputs, peers, torch_peers
from benchmarks.measure import BEST, OURS, Comparison, Contender, goal
from palladio.library import attention, gmm, matmul, softmax, tgmm

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

ROWS = 16

TOLERANCES = {np.dtype(np.float32): 1e-5, BFLOAT16: 4e-3}
EXTENT = 4096


def _compiled(call: Callable[[], Any]) -> Contender:
    def run() -> Any:
        with pl.executor("cpu"):
            return call()

    return Contender(OURS, run, 9)


def _products(dtype: Any, k: int, n: int, sizes: Sequence[int]) -> tuple[Array, Array, Array]:
    lhs, rhs = inputs.normal((inputs.M, k), (len(sizes), k, n))
    return lhs.astype(dtype), rhs.astype(dtype), np.array(sizes, np.int32)


def _skewed() -> list[int]:
    """64 groups, nine of them empty, with decreasing sizes like those of rarely chosen experts."""
    shares = np.array([0.0 if g % 7 == 6 else 1 / (1 + g % 13) for g in range(64)])
    sizes = np.floor(shares / shares.sum() * inputs.M).astype(int)
    sizes[0] += inputs.M - sizes.sum()
    return sizes.tolist()


def _slices(sizes: Array) -> list[slice]:
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def grouped(dtype: Any, skewed: bool, floor: float) -> Comparison:
    """`gmm` beside a loop of `mm(out=)`, and PyTorch's own grouped product."""
    dtype = np.dtype(dtype)
    k = n = 512 if skewed else 1024
    lhs, rhs, sizes = _products(dtype, k, n, _skewed() if skewed else inputs.GROUP_SIZES)
    expected = _grouped_product(lhs, rhs, sizes)
    contenders = [
        _compiled(lambda: gmm(lhs, rhs, sizes, preferred_element_type=dtype)),
        torch_peers.loop_of_mm(lhs, rhs, _slices(sizes)),
        *torch_peers.grouped_mm(lhs, rhs, sizes),
    ]
    name = f"compiled gmm {dtype}, {inputs.M}×{k} by {len(sizes)} groups of {k}×{n}"
    operations = 2 * inputs.M * k * n
    return Comparison(name, contenders, expected, TOLERANCES[dtype], operations, goal(BEST, floor), str(dtype))


def beside_jax(dtype: Any, floor: float) -> Comparison:
    """`gmm` beside JAX's grouped product, which is compiled too."""
    dtype = np.dtype(dtype)
    lhs, rhs, sizes = _products(dtype, 1024, 1024, inputs.GROUP_SIZES)
    contenders = [
        _compiled(lambda: gmm(lhs, rhs, sizes, preferred_element_type=dtype)),
        peers.ragged_dot(lhs, rhs, sizes, 7),
    ]
    name = f"compiled gmm {dtype}, the same, beside JAX"
    operations = 2 * inputs.M * 1024 * 1024
    expected, aim = _grouped_product(lhs, rhs, sizes), goal(peers.RAGGED, floor)
    return Comparison(name, contenders, expected, TOLERANCES[dtype], operations, aim, str(dtype))


def beside_megablox(floor: float) -> Comparison:
    """`gmm` with the tiles of Pallas' own grouped product, which JAX interprets."""
    lhs, rhs, sizes = _products(np.float32, 1024, 1024, inputs.GROUP_SIZES)
    tiles = (128, 128, 128)
    contenders = [
        _compiled(lambda: gmm(lhs, rhs, sizes, tiling=tiles)),
        peers.megablox_gmm(lhs, rhs, sizes, tiles, 7),
    ]
    name, operations = "compiled gmm float32, the same, tiles 128³", 2 * inputs.M * 1024 * 1024
    expected, aim = _grouped_product(lhs, rhs, sizes), goal(peers.MEGABLOX, floor)
    return Comparison(name, contenders, expected, 1e-5, operations, aim, "float32")


def _grouped_product(lhs: Array, rhs: Array, sizes: Array) -> Array:
    """In float64."""
    expected = np.zeros((lhs.shape[0], rhs.shape[2]))
    for rows, matrix in zip(_slices(sizes), rhs, strict=True):
        expected[rows] = lhs[rows].astype(np.float64) @ matrix.astype(np.float64)
    return expected


def transposed(dtype: Any, skewed: bool, floor: float) -> Comparison:
    """`tgmm` beside a loop of `mm(out=)`."""
    dtype = np.dtype(dtype)
    k = n = 512 if skewed else 1024
    sizes = np.array(_skewed() if skewed else inputs.GROUP_SIZES, np.int32)
    lhs, rhs = (array.astype(dtype) for array in inputs.normal((k, inputs.M), (inputs.M, n)))
    slices = _slices(sizes)
    expected = np.stack([lhs[:, rows].astype(np.float64) @ rhs[rows].astype(np.float64) for rows in slices])
    contenders = [
        _compiled(lambda: tgmm(lhs, rhs, sizes, preferred_element_type=dtype)),
        torch_peers.loop_of_transposed_mm(lhs, rhs, slices),
    ]
    name = f"compiled tgmm {dtype}, {k}×{inputs.M} by {inputs.M}×{n}, {len(sizes)} groups"
    operations = 2 * inputs.M * k * n
    aim = goal(BEST, floor)
    return Comparison(name, contenders, expected, TOLERANCES[dtype], operations, aim, str(dtype))


def dense(dtype: Any, sizes: tuple[int, int, int], floor: float) -> Comparison:
    """`matmul` beside `torch.mm`."""
    dtype, (m, k, n) = np.dtype(dtype), sizes
    x, y = (array.astype(dtype) for array in inputs.normal((m, k), (k, n)))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    contenders = [_compiled(lambda: matmul(x, y)), torch_peers.mm(x, y)]
    name = f"compiled matmul {dtype}, " + (f"{m}³" if m == k == n else f"{m}×{k} by {k}×{n}")
    aim = goal(BEST, floor)
    return Comparison(name, contenders, expected, TOLERANCES[dtype], 2 * m * k * n, aim, str(dtype))


def _rms_norm_kernel(x_ref: Any, scale_ref: Any, out_ref: Any) -> None:
    x = x_ref[...]
    root = jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    out_ref[...] = x / root * scale_ref[...]


def _gelu_kernel(x_ref: Any, bias_ref: Any, out_ref: Any) -> None:
    x = x_ref[...] + bias_ref[...]
    out_ref[...] = 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def by_rows(kernel: Callable[..., None]) -> Any:
    """A kernel of `(f32[r, n], f32[n]) -> f32[r, n]` over blocks of whole rows."""
    rows = pl.BlockSpec((ROWS, EXTENT), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((EXTENT, EXTENT), np.float32),
        grid=(EXTENT // ROWS,),
        in_specs=[rows, pl.BlockSpec((EXTENT,), lambda i: (0,))],
        out_specs=rows,
        compiler_params=pl.CompilerParams(dimension_semantics=("parallel",)),
    )


def normalised(floor: float) -> Comparison:
    """RMSNorm beside PyTorch's functions, one after the other."""
    x, scale = inputs.normal((EXTENT, EXTENT), (EXTENT,))
    call, out = by_rows(_rms_norm_kernel), np.empty_like(x)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * scale
    contenders = [_compiled(lambda: call(x, scale, out=out)), torch_peers.rms_norm(x, scale)]
    return Comparison("compiled RMSNorm, 4096×4096", contenders, expected, 1e-6, 0, goal(torch_peers.EAGER, floor))


def activated(floor: float) -> Comparison:
    """GELU (by tanh) of a sum with a bias beside PyTorch's functions, one after the other."""
    x, bias = inputs.normal((EXTENT, EXTENT), (EXTENT,))
    call, out = by_rows(_gelu_kernel), np.empty_like(x)
    wide = x.astype(np.float64) + bias
    expected = 0.5 * wide * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
    contenders = [_compiled(lambda: call(x, bias, out=out)), torch_peers.gelu(x, bias)]
    name = "compiled GELU of a bias sum, 4096×4096"
    return Comparison(name, contenders, expected, 1e-6, 0, goal(torch_peers.EAGER, floor))


def softmaxed(floor: float) -> Comparison:
    """`softmax` beside PyTorch's."""
    (x,) = inputs.normal((EXTENT, EXTENT))
    powers = np.exp(x.astype(np.float64))
    expected = powers / powers.sum(-1, keepdims=True)
    contenders = [_compiled(lambda: softmax(x)), torch_peers.softmax(x)]
    return Comparison("compiled softmax, 4096×4096", contenders, expected, 1e-6, 0, goal(torch_peers.EAGER, floor))


def attended(causal: bool, floor: float) -> Comparison:
    """`attention` of 8 heads beside PyTorch's."""
    q, k, v = inputs.normal((8, 1024, 64), (8, 1024, 64), (8, 1024, 64))
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / 8
    if causal:
        scores = np.where(np.tri(1024, dtype=bool), scores, -np.inf)
    powers = np.exp(scores)
    expected = powers / powers.sum(-1, keepdims=True) @ v.astype(np.float64)
    contenders = [_compiled(lambda: attention(q, k, v, causal=causal)), torch_peers.attention(q, k, v, causal)]
    name = f"compiled attention{', causal' if causal else ''}, 8 heads of 1024×64"
    return Comparison(name, contenders, expected, 1e-5, 0, goal(torch_peers.EAGER, floor))


CASES: dict[str, Callable[[], Comparison]] = {
    "compiled-gmm": lambda: grouped(np.float32, False, 1.10),
    "compiled-gmm-bf16": lambda: grouped(BFLOAT16, False, 1.03),
    "compiled-gmm-skewed": lambda: grouped(np.float32, True, 1.35),
    "compiled-gmm-skewed-bf16": lambda: grouped(BFLOAT16, True, 1.3),
    "compiled-gmm-jax": lambda: beside_jax(np.float32, 9),
    "compiled-gmm-jax-bf16": lambda: beside_jax(BFLOAT16, 20),
    "compiled-gmm-megablox": lambda: beside_megablox(200),
    "compiled-tgmm": lambda: transposed(np.float32, False, 1.05),
    "compiled-tgmm-bf16": lambda: transposed(BFLOAT16, False, 1.0),
    "compiled-tgmm-skewed": lambda: transposed(np.float32, True, 1.3),
    "compiled-tgmm-skewed-bf16": lambda: transposed(BFLOAT16, True, 1.2),
    "compiled-matmul": lambda: dense(np.float32, (2048, 2048, 2048), 1.10),
    "compiled-matmul-bf16": lambda: dense(BFLOAT16, (2048, 2048, 2048), 1.03),
    **{
        f"compiled-matmul-{name}{suffix}": (lambda sizes=sizes, dtype=dtype: dense(dtype, sizes, 1.0))
        for name, sizes in {"512": (512, 512, 512), "1024": (1024, 1024, 1024), "row": (1, 4096, 4096)}.items()
        for dtype, suffix in ((np.float32, ""), (BFLOAT16, "-bf16"))
    },
    "compiled-softmax": lambda: softmaxed(1.15),
    "compiled-rms-norm": lambda: normalised(2.5),
    "compiled-gelu": lambda: activated(3.5),
    "compiled-attention": lambda: attended(False, 1.0),
    "compiled-attention-causal": lambda: attended(True, 1.0),
}
