"""Arithmetic with NumPy's names."""

from __future__ import annotations

from palladio.array.convert import Array, ArrayLike, apply
from palladio.ops import arithmetic as ops

__all__ = ["add", "multiply", "subtract"]


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """`x + y`, promoted and broadcast."""
    return apply(ops.add, x, y)


def subtract(x: ArrayLike, y: ArrayLike) -> Array:
    """`x - y`, promoted and broadcast."""
    return apply(ops.sub, x, y)


def multiply(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * y`, promoted and broadcast."""
    return apply(ops.mul, x, y)
