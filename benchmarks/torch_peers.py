"""PyTorch's own functions, into existing outputs where it takes them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.measure import Contender

LOOP = "PyTorch, a loop of mm(out=)"
GROUPED = "PyTorch nn.functional.grouped_mm"
INNER_GROUPED = "PyTorch _grouped_mm"
MM = "torch.mm(out=)"
EAGER = "PyTorch eager"

Array = np.ndarray[Any, Any]
ROUNDS = 9


def _contender(name: str, make: Callable[[], Callable[[], Any]]) -> Contender:
    try:
        run = make()
        run()
        return Contender(name, run, ROUNDS)
    except (ImportError, AttributeError, NotImplementedError, RuntimeError) as error:
        return Contender(name, None, missing=str(error).splitlines()[0])


class Result:
    """A tensor as a NumPy array, converted only when it is read."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.tensor.double().numpy()


def tensor(array: Array) -> Any:
    """A tensor of the same elements; bfloat16 too, which NumPy's protocol lacks."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


SLOW_SHARE = 0.1
"""Products that run at a smaller share of float32's rate are not measured."""


@functools.cache
def slow_products(dtype: Any) -> str:
    """The reason not to measure PyTorch's products of a dtype: they are too slow; empty if they are measured.

    On processors without products of bfloat16, PyTorch multiplies such matrices at below a hundredth of float32's rate.
    """
    import torch

    rates = {}
    for of in (np.dtype(np.float32), np.dtype(dtype)):
        x = tensor(np.ones((256, 256), of))
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            torch.mm(x, x)
            seconds.append(time.perf_counter() - start)
        rates[of] = 2 * 256**3 / min(seconds) / 1e9
    rate = rates[np.dtype(dtype)]
    slow = rate < SLOW_SHARE * rates[np.dtype(np.float32)]
    return f"products of {np.dtype(dtype)} run at {rate:.1f} GFLOP/s in PyTorch here" if slow else ""


def _mm(x: Any, y: Any, out: Any) -> Any:
    import torch

    return torch.mm(x, y, out=out)


def _widened_mm(x: Any, y: Any, out: Any) -> Any:
    return out.copy_(x.float() @ y.float())


def _product(name: str, dtype: Any) -> tuple[str, Callable[[Any, Any, Any], Any]]:
    """The fastest product of PyTorch into an output, and the name of the contender that uses it."""
    return (f"{name}, converted to float32", _widened_mm) if slow_products(dtype) else (name, _mm)


def loop_of_mm(lhs: Array, rhs: Array, slices: Sequence[slice], groups: Sequence[int] | Array = ()) -> Contender:
    """One product for each group: `dtype[m, n]` from `dtype[m, k]`, `dtype[g, k, n]`.

    Args:
        groups: the groups of the rows, all of them by default.
    """

    name, multiply = _product(LOOP, lhs.dtype)

    def make() -> Callable[[], Any]:
        import torch

        x, y = tensor(lhs), tensor(rhs)
        out = torch.empty(x.shape[0], y.shape[2], dtype=x.dtype)
        matrices = [y[group] for group in groups] if len(groups) else y
        parts = [(x[rows], matrix, out[rows]) for rows, matrix in zip(slices, matrices, strict=True)]

        def run() -> Any:
            for rows, matrix, target in parts:
                multiply(rows, matrix, target)
            return Result(out)

        return run

    return _contender(name, make)


def loop_of_transposed_mm(lhs: Array, rhs: Array, slices: Sequence[slice]) -> Contender:
    """One product for each group: `dtype[g, k, n]` from `dtype[k, m]`, `dtype[m, n]`."""

    name, multiply = _product(LOOP, lhs.dtype)

    def make() -> Callable[[], Any]:
        import torch

        x, y = tensor(lhs), tensor(rhs)
        out = torch.empty(len(slices), x.shape[0], y.shape[1], dtype=x.dtype)
        parts = [(x[:, rows], y[rows], target) for rows, target in zip(slices, out, strict=True)]

        def run() -> Any:
            for columns, rows, target in parts:
                multiply(columns, rows, target)
            return Result(out)

        return run

    return _contender(name, make)


def grouped_mm(lhs: Array, rhs: Array, sizes: Array) -> list[Contender]:
    """PyTorch's own grouped product, and the function that it calls."""

    def make(name: str) -> Callable[[], Any]:
        import torch

        x, y = tensor(lhs), tensor(rhs)
        ends = torch.tensor(np.cumsum(sizes), dtype=torch.int32)
        function = torch.nn.functional.grouped_mm if name == GROUPED else torch._grouped_mm
        return lambda: Result(function(x, y, offs=ends))

    names = GROUPED, INNER_GROUPED
    if why := slow_products(lhs.dtype):
        return [Contender(name, None, missing=why) for name in names]
    return [_contender(name, functools.partial(make, name)) for name in names]


def mm(x: Array, y: Array) -> Contender:
    """The dense product."""

    name, multiply = _product(MM, x.dtype)

    def make() -> Callable[[], Any]:
        import torch

        left, right = tensor(x), tensor(y)
        out = torch.empty(x.shape[0], y.shape[1], dtype=left.dtype)
        return lambda: Result(multiply(left, right, out))

    return _contender(name, make)


def softmax(x: Array) -> Contender:
    """Softmax along the last axis."""

    def make() -> Callable[[], Any]:
        import torch

        array = tensor(x)
        out = torch.empty_like(array)
        return lambda: Result(torch.softmax(array, -1, out=out))

    return _contender(EAGER, make)


def attention(q: Array, k: Array, v: Array, causal: bool) -> Contender:
    """PyTorch's fused attention of `f32[heads, n, d]`."""

    def make() -> Callable[[], Any]:
        import torch

        # Its fused kernel takes four axes.
        tensors = [tensor(array)[None] for array in (q, k, v)]
        fused = torch.nn.functional.scaled_dot_product_attention
        return lambda: Result(fused(*tensors, is_causal=causal)[0])

    return _contender(EAGER, make)


def rms_norm(x: Array, scale: Array) -> Contender:
    """RMSNorm as written in models."""

    def make() -> Callable[[], Any]:
        import torch

        array, factors = tensor(x), tensor(scale)
        out = torch.empty_like(array)

        def run() -> Any:
            root = torch.rsqrt(array.pow(2).mean(-1, keepdim=True) + 1e-6)
            return Result(torch.mul(array * root, factors, out=out))

        return run

    return _contender(EAGER, make)


def gelu(x: Array, bias: Array) -> Contender:
    """GELU of a sum with a bias."""

    def make() -> Callable[[], Any]:
        import torch

        array, added = tensor(x), tensor(bias)
        return lambda: Result(torch.nn.functional.gelu(array + added, approximate="tanh"))

    return _contender(EAGER, make)


def of(function: Callable[..., Any], *arrays: Array) -> Contender:
    """A function of `torch` and some arrays as tensors that returns a tensor."""

    def make() -> Callable[[], Any]:
        import torch

        tensors = [tensor(array) for array in arrays]
        return lambda: Result(function(torch, *tensors))

    return _contender(EAGER, make)


def convolution(x: Array, weights: Array) -> Contender:
    """The convolution of `f32[1, h, w, c]`, already padded, with `f32[3, 3, c, d]`."""

    def convolved(torch: Any, x: Any, weights: Any) -> Any:
        return torch.nn.functional.conv2d(x, weights).permute(0, 2, 3, 1)

    # Channels are contiguous in memory, as oneDNN prefers.
    return of(
        convolved, x.transpose(0, 3, 1, 2), np.ascontiguousarray(weights.transpose(3, 0, 1, 2)).transpose(0, 3, 1, 2)
    )


def layer_norm_backward(x: Array, gradient: Array, weight: Array, mean: Array, scale: Array) -> Contender:
    """The gradients of layer normalisation for input, weight and bias; the first is compared."""

    def backward(torch: Any, x: Any, gradient: Any, weight: Any, mean: Any, scale: Any) -> Any:
        function = torch.ops.aten.native_layer_norm_backward
        return function(gradient, x, [x.shape[1]], mean, scale, weight, weight, [True, True, True])[0]

    return of(backward, x, gradient, weight, mean[:, None], scale[:, None])
