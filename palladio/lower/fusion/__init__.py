"""Fusion: the operations that are computed together, and the arrays kept in memory between them."""

from palladio.lower.fusion.fuse import fuse, fused

__all__ = ["fuse", "fused"]
