"""Compiled kernels that are neither products of floats nor chains of element-by-element functions.

Scans, histograms, sums by segment, sorting, products of 8-bit integers, a convolution, the backward pass of layer
normalisation, functions of float64 and a grouped product of a thousand groups, each beside the fastest of PyTorch and
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from benchmarks import inputs, torch_peers
from benchmarks.measure import BEST, OURS, Comparison, Contender, goal
from palladio import library

NUMPY = "NumPy"
ROUNDS = 9

Array = np.ndarray[Any, Any]


def _ours(call: Callable[[], Any]) -> Contender:
    def run() -> Any:
        with pl.executor("cpu"):
            return call()

    return Contender(OURS, run, ROUNDS)


def _numpy(call: Callable[[], Any]) -> Contender:
    return Contender(NUMPY, call, ROUNDS)


def scanned() -> Comparison:
    """`cumsum` along the first axis."""
    (x,) = inputs.normal((256, 1024))

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.cumsum(x_ref[...], axis=0)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype))
    contenders = [
        _ours(lambda: call(x)),
        _numpy(lambda: np.cumsum(x, 0)),
        torch_peers.of(lambda torch, x: torch.cumsum(x, 0), x),
    ]
    return Comparison(
        "compiled cumsum of axis 0, 256×1024", contenders, np.cumsum(x.astype(np.float64), 0), 1e-5, 0, goal(BEST, 1)
    )


def counted() -> Comparison:
    """A histogram of 10⁷ numbers in 256 bins."""
    count, bins, block = 10_000_000, 256, 100_000
    numbers = np.random.default_rng(inputs.SEED).integers(0, bins, count).astype(np.int32)

    def kernel(numbers_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def start() -> None:
            out_ref[...] = jnp.zeros_like(out_ref)

        plgpu.atomic_add(out_ref, (numbers_ref[...],), jnp.ones((block,), np.int32))

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((bins,), np.int32),
        grid=(count // block,),
        in_specs=[pl.BlockSpec((block,), lambda i: (i,))],
        out_specs=pl.BlockSpec((bins,), lambda i: (0,)),
    )
    expected = np.bincount(numbers, minlength=bins)
    contenders = [
        _ours(lambda: call(numbers)),
        _numpy(lambda: np.bincount(numbers, minlength=bins)),
        torch_peers.of(lambda torch, numbers: torch.bincount(numbers, minlength=bins), numbers),
    ]
    return Comparison("compiled histogram of 10⁷ numbers", contenders, expected, 0, 0, goal(BEST, 1))


def summed_by_segment() -> Comparison:
    """Sums of 100,000 rows of 64 in 1000 segments."""
    segments = 1000
    (x,) = inputs.normal((100_000, 64))
    ids = np.sort(np.random.default_rng(inputs.SEED).integers(0, segments, len(x)))
    narrow = ids.astype(np.int32)

    def kernel(x_ref: Any, ids_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.zeros_like(out_ref).at[ids_ref[...]].add(x_ref[...])

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((segments, 64), np.float32))
    expected = np.zeros((segments, 64))
    np.add.at(expected, ids, x.astype(np.float64))
    contenders = [
        _ours(lambda: call(x, narrow)),
        torch_peers.of(lambda torch, x, ids: torch.zeros(segments, 64).index_add_(0, ids, x), x, ids),
    ]
    return Comparison(
        "compiled segment sum, 100,000×64 in 1000", contenders, expected, 1e-5, 0, goal(torch_peers.EAGER, 1)
    )


def ordered() -> Comparison:
    """Sorted lines."""
    (x,) = inputs.normal((64, 4096))

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.sort(x_ref[...], axis=-1)

    rows = pl.BlockSpec((8, 4096), lambda i: (i, 0))
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(8,), in_specs=[rows], out_specs=rows)
    contenders = [
        _ours(lambda: call(x)),
        _numpy(lambda: np.sort(x, -1)),
        torch_peers.of(lambda torch, x: torch.sort(x, -1)[0], x),
    ]
    return Comparison("compiled sort, 64×4096", contenders, np.sort(x, -1).astype(np.float64), 0, 0, goal(BEST, 1))


def of_bytes() -> Comparison:
    """A product of int8 summed in int32."""
    size = 2048
    x, y = (np.random.default_rng(seed).integers(-128, 128, (size, size)).astype(np.int8) for seed in (0, 1))

    def kernel(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=np.int32)

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((size, size), np.int32),
        grid=(2,),
        in_specs=[pl.BlockSpec((size, size), lambda i: (0, 0)), pl.BlockSpec((size, size // 2), lambda i: (0, i))],
        out_specs=pl.BlockSpec((size, size // 2), lambda i: (0, i)),
    )
    contenders = [_ours(lambda: call(x, y)), torch_peers.of(lambda torch, x, y: torch._int_mm(x, y), x, y)]
    expected = x.astype(np.float64) @ y.astype(np.float64)
    return Comparison("compiled int8 product, 2048³", contenders, expected, 0, 2 * size**3, goal(torch_peers.EAGER, 1))


def convolved() -> Comparison:
    """A 3×3 convolution of 56×56 points with 64 channels, as nine products."""
    extent, channels, rows = 56, 64, 4
    x, weights = inputs.normal((1, extent + 2, extent + 2, channels), (3, 3, channels, channels))

    def kernel(x_ref: Any, weights_ref: Any, out_ref: Any) -> None:
        first = pl.program_id(0) * rows
        total = jnp.zeros((rows * extent, channels), np.float32)
        for i in range(3):
            for j in range(3):
                part = x_ref[0, pl.ds(first + i, rows), pl.ds(j, extent)]
                total += jnp.dot(part.reshape(rows * extent, channels), weights_ref[i, j])
        out_ref[...] = total.reshape(1, rows, extent, channels)

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((1, extent, extent, channels), np.float32),
        grid=(extent // rows,),
        in_specs=[
            pl.BlockSpec(x.shape, lambda i: (0, 0, 0, 0)),
            pl.BlockSpec(weights.shape, lambda i: (0, 0, 0, 0)),
        ],
        out_specs=pl.BlockSpec((1, rows, extent, channels), lambda i: (0, i, 0, 0)),
    )
    wide = [array.astype(np.float64) for array in (x, weights)]
    expected = sum(wide[0][:, i : i + extent, j : j + extent] @ wide[1][i, j] for i in range(3) for j in range(3))
    contenders = [_ours(lambda: call(x, weights)), torch_peers.convolution(x, weights)]
    name, operations = "compiled 3×3 convolution, 56×56×64", 2 * 9 * extent**2 * channels**2
    return Comparison(name, contenders, np.asarray(expected), 1e-5, operations, goal(torch_peers.EAGER, 1))


def layer_norm_backward() -> Comparison:
    """The gradient of layer normalisation for its input; those of its weight and bias are computed too."""
    extent, columns, rows, parts = 4096, 1024, 16, 2
    x, gradient, weight = inputs.normal((extent, columns), (extent, columns), (columns,))
    mean = x.mean(1)
    scale = 1 / np.sqrt(x.var(1) + np.float32(1e-5))
    call = _layer_norm_backward(extent, columns, rows, parts)

    def ours() -> Any:
        dx, dweight, dbias = call(x, gradient, weight, mean, scale)
        return dx, dweight.sum(0), dbias.sum(0)

    wide = [array.astype(np.float64) for array in (x, gradient, weight, mean[:, None], scale[:, None])]
    normal = (wide[0] - wide[3]) * wide[4]
    given = wide[1] * wide[2]
    means = given.mean(1, keepdims=True), (given * normal).mean(1, keepdims=True)
    contenders = [_ours(lambda: ours()[0]), torch_peers.layer_norm_backward(x, gradient, weight, mean, scale)]
    return Comparison(
        "compiled backward pass of layer normalisation, 4096×1024",
        contenders,
        (given - means[0] - normal * means[1]) * wide[4],
        1e-5,
        0,
        goal(torch_peers.EAGER, 1),
    )


def _layer_norm_backward(extent: int, columns: int, rows: int, parts: int) -> Any:
    """The gradients for the input, and the partial ones for weight and bias of each part of the rows."""

    def kernel(
        x_ref: Any, gradient_ref: Any, weight_ref: Any, mean_ref: Any, scale_ref: Any, dx: Any, dweight: Any, dbias: Any
    ) -> None:
        @pl.when(pl.program_id(1) == 0)
        def start() -> None:
            dweight[...] = jnp.zeros_like(dweight)
            dbias[...] = jnp.zeros_like(dbias)

        gradient, scale = gradient_ref[...], scale_ref[...][:, None]
        normal = (x_ref[...] - mean_ref[...][:, None]) * scale
        given = gradient * weight_ref[...]
        mean, slope = (jnp.mean(each, axis=1, keepdims=True) for each in (given, given * normal))
        dx[...] = (given - mean - normal * slope) * scale
        dweight[0] += jnp.sum(gradient * normal, axis=0)
        dbias[0] += jnp.sum(gradient, axis=0)

    steps = extent // rows // parts
    block = pl.BlockSpec((rows, columns), lambda part, i: (part * steps + i, 0))
    row, sums = (
        pl.BlockSpec((rows,), lambda part, i: (part * steps + i,)),
        pl.BlockSpec((1, columns), lambda part, i: (part, 0)),
    )
    return pl.pallas_call(
        kernel,
        [pl.ShapeDtypeStruct((size, columns), np.float32) for size in (extent, parts, parts)],
        grid=(parts, steps),
        in_specs=[block, block, pl.BlockSpec((columns,), lambda part, i: (0,)), row, row],
        out_specs=[block, sums, sums],
    )


def functions_of_doubles() -> Comparison:
    """Exponentials, logarithms and sines of float64, added up."""
    x = np.random.default_rng(inputs.SEED).uniform(0.1, 20, 1 << 18)

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.exp(-x_ref[...]) + jnp.log(x_ref[...]) + jnp.sin(x_ref[...])

    block = pl.BlockSpec((1 << 14,), lambda i: (i,))
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(16,), in_specs=[block], out_specs=block)
    contenders = [
        _ours(lambda: call(x)),
        _numpy(lambda: np.exp(-x) + np.log(x) + np.sin(x)),
        torch_peers.of(lambda torch, x: torch.exp(-x) + torch.log(x) + torch.sin(x), x),
    ]
    wide = x.astype(np.longdouble)
    expected = (np.exp(-wide) + np.log(wide) + np.sin(wide)).astype(np.float64)
    return Comparison("compiled exp, log and sin of 2¹⁸ float64", contenders, expected, 1e-14, 0, goal(BEST, 1))


def many_groups() -> Comparison:
    """A grouped product of 1,024 groups of up to 8 rows."""
    sizes = np.random.default_rng(inputs.SEED).integers(0, 9, 1024).astype(np.int32)
    ends = np.cumsum(sizes)
    slices = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    x, matrices = inputs.normal((int(ends[-1]), 64), (len(sizes), 64, 64))
    expected = np.concatenate(
        [x[rows].astype(np.float64) @ matrix.astype(np.float64) for rows, matrix in zip(slices, matrices, strict=True)]
    )
    contenders = [
        _ours(lambda: library.gmm(x, matrices, sizes)),
        torch_peers.loop_of_mm(x, matrices, slices),
        *torch_peers.grouped_mm(x, matrices, sizes),
    ]
    operations = 2 * x.size * 64
    return Comparison(
        "compiled gmm float32 of 1,024 small groups", contenders, expected, 1e-5, operations, goal(BEST, 1)
    )


CASES: dict[str, Callable[[], Comparison]] = {
    "compiled-cumsum": scanned,
    "compiled-histogram": counted,
    "compiled-segment-sum": summed_by_segment,
    "compiled-sort": ordered,
    "compiled-int8": of_bytes,
    "compiled-convolution": convolved,
    "compiled-layer-norm-backward": layer_norm_backward,
    "compiled-functions-f64": functions_of_doubles,
    "compiled-many-groups": many_groups,
}
