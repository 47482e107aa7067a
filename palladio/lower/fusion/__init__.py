"""What is computed together, and what is kept in memory in between."""

from palladio.lower.fusion.fuse import fuse, fuse_in

__all__ = ["fuse", "fuse_in"]
