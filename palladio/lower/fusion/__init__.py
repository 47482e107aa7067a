"""Fusion: what is computed together, and what is kept in memory in between."""

from palladio.lower.fusion.fuse import fuse, fused

__all__ = ["fuse", "fused"]
