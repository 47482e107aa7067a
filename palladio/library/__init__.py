"""Floor 11: the library of kernels, written as any user would write them, with the public API only."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from palladio.library.attention import attention
from palladio.library.experts import moe_mlp, moe_mlp_vjp
from palladio.library.grouped_matmul import gmm, gmm_vjp, tgmm
from palladio.library.kernels.grouped import make_group_metadata
from palladio.library.matmul import matmul
from palladio.library.rms_norm import rms_norm
from palladio.library.softmax import softmax
from palladio.library.tilings import attention_blocks, gmm_tiling, matmul_tiling, tgmm_tiling
from palladio.library.tune import Tuned, tune

if TYPE_CHECKING:
    from palladio.library import hopper
else:  # hidden from type checkers, for which a module with `__getattr__` has every name

    def __getattr__(name: str) -> ModuleType:
        if name != "hopper":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Imported on first use: kernels for one kind of GPU, which import the whole GPU dialect.
        return import_module("palladio.library.hopper")


__all__ = [
    "Tuned",
    "attention",
    "attention_blocks",
    "gmm",
    "gmm_tiling",
    "gmm_vjp",
    "hopper",
    "make_group_metadata",
    "matmul",
    "matmul_tiling",
    "moe_mlp",
    "moe_mlp_vjp",
    "rms_norm",
    "softmax",
    "tgmm",
    "tgmm_tiling",
    "tune",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
