"""Palladio's library as PyTorch operators: gradients, `torch.compile`, `torch.export`, `vmap` and autocast work.

    from palladio.interop.torch import gmm

Tensors are in host memory or on a Hopper GPU. Each function calls a `torch.library` operator, e.g.
`torch.ops.palladio.gmm`, whose derivatives are operators too, so they can be differentiated to any order. `moe_mlp` is
the expert layer of a mixture of experts, `ExpertParallel` spreads one over many processes. `op` makes an operator of
any kernel call.
"""

from typing import TYPE_CHECKING, Any

from palladio.interop.extras import missing

try:
    import torch  # noqa: F401  every module of this package needs it
except ImportError as error:
    raise missing("palladio.interop.torch", "PyTorch", "torch") from error

from palladio.interop.torch.experts import moe_mlp
from palladio.interop.torch.functions import attention, gmm, matmul, softmax, tgmm
from palladio.interop.torch.kernels import op

if TYPE_CHECKING:
    from palladio.interop.torch.distributed import ExpertParallel
else:

    def __getattr__(name: str) -> Any:
        if name != "ExpertParallel":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # It imports distributed tensors, which take as long as PyTorch itself and which most processes never use.
        from palladio.interop.torch.distributed import ExpertParallel

        return ExpertParallel


__all__ = ["ExpertParallel", "attention", "gmm", "matmul", "moe_mlp", "op", "softmax", "tgmm"]
