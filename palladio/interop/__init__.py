"""The library's kernels inside other libraries: their derivatives, their compilers, their models.

    palladio.interop.torch         `gmm`, `tgmm`, `matmul`, `softmax`, `attention`, `moe_mlp` as PyTorch operators
    palladio.interop.jax           `gmm`, `tgmm`, `matmul`, `softmax`, `attention`, `moe_mlp` under JAX
    palladio.interop.transformers  the experts of Hugging Face's models

Each module is imported at its first use, and its library with it.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["jax", "torch", "transformers"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        __import__(f"palladio.interop.{name}")  # not by a function of importlib, whose line an error would point at
        return sys.modules[f"palladio.interop.{name}"]
    raise AttributeError(f"module 'palladio.interop' has no attribute {name!r}")
