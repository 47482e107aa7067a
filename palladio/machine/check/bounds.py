"""Whether an access reaches outside its buffer."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ops.references import access
from palladio.types.transforms import Index, Operand, Slice, Transform, transformed
from palladio.types.types import ArrayType

Outside = tuple[int, int, int, int]
"""The axis, the first and the last element reached along it, and its extent."""


class Bounds:
    """Finds what reaches outside, once for each stack of transforms and the values of its scalar indices."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Sequence[Transform], Outside | None]] = {}

    def outside(self, array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any]) -> Outside | None:
        """Where a stack of transforms first reaches outside an array; None if it does not.

        Args:
            indices: the index operands, NumPy integers and arrays of them.
        """
        if not indices or not stack:
            return None
        try:
            key = (id(stack), array.shape, *map(operator.index, indices))
        except TypeError:
            return _outside(array, stack, indices)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= 4096:
                self._known.clear()
            found = self._known[key] = stack, _outside(array, stack, indices)
        return found[1]


def reaches_outside(array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any], mask: Any) -> bool:
    """Whether some element that a mask lets through lies outside of an array."""
    inside = np.broadcast_to(np.bool_(True), array.shape)
    return bool(np.any(~access.read(inside, stack, indices, False) & np.asarray(mask)))


def _outside(array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any]) -> Outside | None:
    types = [ArrayType(np.shape(index), np.asarray(index).dtype) for index in indices]
    for transform in stack:
        if isinstance(transform, Index):
            for axis, (entry, extent) in enumerate(zip(transform.entries, array.shape, strict=True)):
                start = entry.start if isinstance(entry, Slice) else entry
                if not isinstance(start, Operand):
                    continue
                value = np.asarray(indices[start.position])
                length = (entry.size - 1) * entry.stride if isinstance(entry, Slice) else 0
                if value.size == 0 or length < 0:
                    continue
                low, high = int(value.min()), int(value.max()) + length
                if low < 0 or high >= extent:
                    return axis, low, high, extent
        array = transformed(array, [transform], types)
    return None
