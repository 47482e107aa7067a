"""Floor 11: the library of kernels, written as any user would write them, with the public API only."""

import sys as _sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from palladio.library.attention import attention
from palladio.library.grouped_matmul import gmm, gmm_vjp, tgmm
from palladio.library.kernels.grouped import make_group_metadata
from palladio.library.matmul import matmul
from palladio.library.rms_norm import rms_norm
from palladio.library.softmax import softmax
from palladio.library.tilings import attention_blocks, gmm_tiling, matmul_tiling, tgmm_tiling

if TYPE_CHECKING:
    from palladio.library import hopper
    from palladio.library.experts import moe_mlp, moe_mlp_vjp
    from palladio.library.tuning import Tuned, tune
else:  # hidden from type checkers, for which a module with `__getattr__` has every name
    _LATER = {
        "hopper": "palladio.library.hopper",  # the kernels for one kind of GPU import the whole GPU dialect
        "moe_mlp": "palladio.library.experts",
        "moe_mlp_vjp": "palladio.library.experts",
        "Tuned": "palladio.library.tuning",
        "tune": "palladio.library.tuning",
    }
    """Names that few processes use, each with its module, which is imported when the name is first used."""

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            text = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=_sys.modules[__name__])  # Python suggests others
        module = import_module(_LATER[name])
        globals()[name] = found = module if name == "hopper" else getattr(module, name)
        return found


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
