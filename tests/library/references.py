"""What the library's functions mean, in float64 NumPy, and how close a result has to come."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]
TOLERANCE = {FLOATS[0]: 5e-4, FLOATS[1]: 4e-3, FLOATS[2]: 1e-6, FLOATS[3]: 1e-14}
"""Relative error norm that rounding the result alone, and sums in float32 or better, stay below."""


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_close(found: Any, expected: np.ndarray, tolerance: float | None = None) -> None:
    """The relative error norm is within the tolerance of the dtype of what was found, and zeros are exact."""
    found = np.asarray(found)
    assert found.shape == expected.shape
    wide = found.astype(np.float64)
    error, size = np.linalg.norm(wide - expected), np.linalg.norm(expected)
    limit = TOLERANCE[found.dtype] if tolerance is None else tolerance
    assert error <= limit * size, f"relative error {error / size if size else error}"


def bounds(sizes: Any, offset: int, groups: int) -> list[tuple[int, int]]:
    """First row and end of each of `groups` groups from `offset` on."""
    ends = np.cumsum(sizes)
    return [(int(ends[g] - sizes[g]), int(ends[g])) for g in range(offset, offset + groups)]


def gmm_reference(
    lhs: Any, rhs: Any, sizes: Any, offset: int = 0, existing: Any = None, transpose_rhs: bool = False
) -> np.ndarray:
    lhs, rhs = np.asarray(lhs).astype(np.float64), np.asarray(rhs).astype(np.float64)
    rhs = rhs.swapaxes(1, 2) if transpose_rhs else rhs
    shape = (lhs.shape[0], rhs.shape[2])
    out = np.zeros(shape) if existing is None else np.asarray(existing).astype(np.float64)
    for matrix, (start, end) in zip(rhs, bounds(sizes, offset, len(rhs)), strict=True):
        out[start:end] = lhs[start:end] @ matrix
    return out


def tgmm_reference(
    lhs: Any, rhs: Any, sizes: Any, offset: int = 0, groups: int | None = None, existing: Any = None
) -> np.ndarray:
    lhs, rhs = np.asarray(lhs).astype(np.float64), np.asarray(rhs).astype(np.float64)
    groups = len(sizes) - offset if groups is None else groups
    products = [lhs[:, start:end] @ rhs[start:end] for start, end in bounds(sizes, offset, groups)]
    return np.stack(products) + (0 if existing is None else np.asarray(existing).astype(np.float64))


def attention_reference(
    q: Any, k: Any, v: Any, grad: Any, causal: bool, scale: float | None = None
) -> tuple[np.ndarray, ...]:
    """Attention, the logarithms of its sums, and the gradients of q, k and v; heads of k and v may be shared."""
    group = q.shape[0] // k.shape[0]
    q, grad = (np.asarray(x).astype(np.float64) for x in (q, grad))
    k, v = (np.repeat(np.asarray(x).astype(np.float64), group, axis=0) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.swapaxes(1, 2) * scale
    if causal:
        scores = np.where(np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None], scores, -np.inf)
    lse = np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1)) + scores.max(-1)
    weights = np.exp(scores - lse[..., None])
    out = weights @ v
    slopes = weights * (grad @ v.swapaxes(1, 2) - (grad * out).sum(-1, keepdims=True))

    def shared(x: np.ndarray) -> np.ndarray:
        return x.reshape(-1, group, *x.shape[1:]).sum(1)

    dk, dv = slopes.swapaxes(1, 2) @ q * scale, weights.swapaxes(1, 2) @ grad
    return out, lse, slopes @ k * scale, shared(dk), shared(dv)
