"""Fusion: the choice of operations to compute together, and of arrays to keep in memory between them."""

from palladio.lower.fusion.bound_zeros import bound_zeros, bounded
from palladio.lower.fusion.fuse import fuse, fused
from palladio.lower.fusion.join_products import join_products, joined
from palladio.lower.fusion.keep_arrays import keep_arrays, kept

__all__ = ["bound_zeros", "bounded", "fuse", "fused", "join_products", "joined", "keep_arrays", "kept"]
