"""Operands and expected results of products on a card, and the error that a result may have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
E4M3, I8 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.int8)

ROUNDED = 4e-3
"""Allowed relative error of results that are rounded to bfloat16 once."""
SUMMED = 1e-5
"""Allowed relative error of sums in float32, in the order of the tensor cores."""
CUT = 1e-3
"""Allowed relative error of operands that are truncated to tf32."""
SUMMED_8_BIT = 2e-4
"""Allowed relative error of sums of products of 8-bit floats: Hopper's tensor cores add these with about 14 bits,
although the sums are float32 (DeepSeek-V3 technical report, section 3.3.2). On an H200 it is 5e-5 to 7e-5."""


def normal(*shape: int, dtype: np.dtype = BF16, seed: int = 0) -> np.ndarray:
    """Random normal numbers; small integers for 8-bit dtypes."""
    draw = np.random.default_rng(seed + sum(shape))
    if dtype.itemsize == 1:
        return draw.integers(-4, 5, shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def close(got: Any, expected: Any, allowed: float) -> str:
    """The norm of the relative error, as text; raises AssertionError if it is over `allowed`."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if not np.isfinite(got).all():
        raise AssertionError(f"{(~np.isfinite(got)).sum()} of {got.size} elements are not finite")
    error = float(np.linalg.norm(got - expected) / max(float(np.linalg.norm(expected)), 1e-30))
    if error > allowed:
        wrong = np.argwhere(np.abs(got - expected) > 8 * allowed * np.abs(expected).max())
        raise AssertionError(f"relative error {error:.1e}, allowed {allowed:.0e}; wrong at {wrong[:4].tolist()} ...")
    return f"relative error {error:.1e}"


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The product in float64."""
    return x.astype(np.float64) @ y.astype(np.float64)
