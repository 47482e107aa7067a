"""Shared by the families of element-by-element operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.cpu.emit.lazy_array import LazyArray, merged
from palladio.cpu.emit.scope import Rule, Scope
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

# What an operation does to registers; the dtype is that of its inputs.
Compute = Callable[..., V]


def at(tile: LazyArray, index: Sequence[Index], width: int) -> V:
    """Elements of an operand: a scalar goes with every index."""
    return tile.at(index if tile.shape else (), width)


def mapped(scope: Scope, dtype: DType, compute: Callable[..., V], *tiles: LazyArray) -> LazyArray:
    """The tile whose elements are computed from those of others at the same index; `compute` gets registers."""
    shape = next((tile.shape for tile in tiles if tile.shape), ())

    def element(index: Sequence[Index], width: int) -> V:
        return compute(*(at(tile, index, width) for tile in tiles))

    result = LazyArray(ArrayType(shape, dtype), element, merged(tiles))
    # A scalar is computed where it stands: later it might be inside a loop.
    return result if shape else scope.keep(result)


def elementwise(compute: Callable[[Emitter, DType, Sequence[V]], V], result: DType | None = None) -> Rule:
    """A rule from a function of (emitter, dtype, registers)."""

    def rule(scope: Scope, *tiles: LazyArray) -> Sequence[LazyArray]:
        dtype = tiles[0].dtype

        def element(*values: V) -> V:
            found = compute(scope.e, dtype, values)
            return found if result is not None else registers.rounded(scope.e, found, dtype)

        return (mapped(scope, result or dtype, element, *tiles),)

    return rule
