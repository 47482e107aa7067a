"""Warp-specialised kernels for Hopper GPUs in the concurrent dialect: two compute warpgroups and one memory warpgroup.

    from palladio.library import hopper
    out = hopper.attention(q, k, v, causal=True)

They take the arguments of their namesakes in `palladio.library`, except for tiles: a configuration record divides the
work of a block. Without a GPU they run on the simulator, which checks every access.
"""

from palladio.library.hopper.attention import AttentionConfig, attention
from palladio.library.hopper.attention_backward import AttentionGradientConfig, attention_vjp
from palladio.library.hopper.config import MatmulConfig
from palladio.library.hopper.experts import LayerCall, moe_mlp, moe_mlp_vjp
from palladio.library.hopper.grouped_matmul import gmm, tgmm
from palladio.library.hopper.matmul import matmul
from palladio.library.hopper.rows import rms_norm, softmax

__all__ = [
    "AttentionConfig",
    "AttentionGradientConfig",
    "LayerCall",
    "MatmulConfig",
    "attention",
    "attention_vjp",
    "gmm",
    "matmul",
    "moe_mlp",
    "moe_mlp_vjp",
    "rms_norm",
    "softmax",
    "tgmm",
]
