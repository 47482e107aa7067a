"""Kernels for Hopper GPUs in the concurrent dialect: warpgroups that compute beside one that moves memory.

    from palladio.library import hopper
    out = hopper.attention(q, k, v, causal=True)

They take what their namesakes in `palladio.library` take, except for tiles: a configuration record says how a block is
divided. On a laptop they run on the simulator, which checks every access.
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
