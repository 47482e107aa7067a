"""Floor 11: kernels people come for, written as any user would write them, on the public surface only."""

from palladio.library import hopper
from palladio.library.attention import attention
from palladio.library.grouped_matmul import gmm, gmm_vjp, make_group_metadata, tgmm
from palladio.library.matmul import matmul
from palladio.library.softmax import softmax

__all__ = ["attention", "gmm", "gmm_vjp", "hopper", "make_group_metadata", "matmul", "softmax", "tgmm"]
