"""The library's kernels under the automatic differentiation of other libraries.

    palladio.interop.torch   `gmm`, `tgmm`, `matmul`, `softmax` through which PyTorch's gradients flow
    palladio.interop.jax     the same for `jax.grad`, inside `jax.jit` too

Each module is imported when it is first asked for, and only then its library.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["jax", "torch"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        __import__(f"palladio.interop.{name}")  # and no function of importlib, whose line an error would point at
        return sys.modules[f"palladio.interop.{name}"]
    raise AttributeError(f"module 'palladio.interop' has no attribute {name!r}")
