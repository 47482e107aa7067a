"""The functions of `palladio.interop.torch` with small arguments of each, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from palladio.interop.torch import attention, gmm, matmul, moe_mlp, softmax, tgmm

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOATS_OF_8_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gmm": lambda sizes, x, w: gmm(x, w, sizes),
    "tgmm": lambda sizes, x, y: tgmm(x.T, y, sizes),
    "matmul": lambda _, x, y: matmul(x, y),
    "softmax": lambda _, x: softmax(x),
    "attention": lambda _, q, k, v: attention(q, k, v),
    "moe_mlp": lambda ids, tokens, weights, up, down: moe_mlp(tokens, ids, weights, up, down),
}
"""Each function of its integers and its float tensors."""

Shapes = dict[str, Callable[[int], tuple[tuple[int, ...], ...]]]
SHAPES: Shapes = {
    "gmm": lambda m: ((m, 8), (4, 8, 6)),
    "tgmm": lambda m: ((m, 8), (m, 6)),
    "matmul": lambda m: ((m, 8), (8, 6)),
    "softmax": lambda m: ((m, 8),),
    "attention": lambda m: ((2, m, 8), (2, 5, 8), (2, 5, 3)),
    "moe_mlp": lambda m: ((m, 8), (m, 2), (4, 8, 12), (4, 6, 8)),
}
"""The shapes of the tensors for a number of tokens."""

NARROW: Shapes = {
    "gmm": lambda m: ((m, 3), (4, 3, 2)),
    "tgmm": lambda m: ((m, 3), (m, 2)),
    "matmul": lambda m: ((m, 3), (3, 2)),
    "softmax": lambda m: ((m, 3),),
    "attention": lambda m: ((2, m // 2, 3), (2, 5, 3), (2, 5, 2)),
    "moe_mlp": lambda m: ((m, 3), (m, 2), (4, 3, 4), (4, 2, 3)),
}
"""Shapes of fewer elements, for what is called again for each element."""


def sized(name: str, m: int, dtype: Any = torch.float32, shapes: Shapes = SHAPES) -> tuple[torch.Tensor, ...]:
    """The integers and tensors of a call for a number of tokens."""
    generator = torch.Generator().manual_seed(0)
    integers = torch.tensor([m - 7, 0, 4, 2], dtype=torch.int32)
    if name == "moe_mlp":
        integers = torch.arange(2 * m).reshape(m, 2) % 5  # expert 4 is elsewhere
    tensors = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes[name](m))
    return integers, *(tensor.to(dtype) for tensor in tensors)


def case(name: str, dtype: Any, shapes: Shapes = SHAPES) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """A function of its float tensors, and these."""
    integers, *tensors = sized(name, 9, dtype, shapes)
    return lambda *given: FUNCTIONS[name](integers, *given), tuple(tensors)


each = pytest.mark.parametrize("name", FUNCTIONS)


def leaves(tensors: Any) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone().requires_grad_() for tensor in tensors)
