"""Bounds checks of accesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from palladio.ops.references import access
from palladio.types.transforms import Index, Operand, SliceEntry, Transform, transformed
from palladio.types.types import ArrayType

Outside = tuple[int, int, int, int]
"""The axis, the first and the last element reached along it, and its extent."""

_MOST_KEPT = 4096


class Start(NamedTuple):
    """One index operand of a stack: its axis, its position, the distance to the last element, and the axis's extent."""

    axis: int
    position: int
    length: int
    extent: int


class Bounds:
    """Finds accesses outside a buffer. The comparisons are prepared once for each stack of transforms."""

    def __init__(self) -> None:
        self._starts: dict[tuple[int, tuple[int, ...]], tuple[Sequence[Transform], list[Start]]] = {}

    def outside(self, array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any]) -> Outside | None:
        """The first place at which a stack of transforms reaches outside an array; None if it does not.

        Args:
            stack: recognised by identity, so pass the equation's own object.
            indices: the index operands, NumPy integers and arrays of them.
        """
        if not indices or not stack:
            return None
        key = id(stack), array.shape
        known = self._starts.get(key)
        if known is None:
            if len(self._starts) >= _MOST_KEPT:
                self._starts.clear()
            known = self._starts[key] = stack, _starts(array, stack, indices)
        for axis, position, length, extent in known[1]:
            value = indices[position]
            if not isinstance(value, np.ndarray) or value.ndim == 0:
                low = high = int(value)
            elif value.size:
                low, high = int(value.min()), int(value.max())
            else:
                continue
            if low < 0 or high + length >= extent:
                return axis, low, high + length, extent
        return None


def reaches_outside(array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any], mask: Any) -> bool:
    """True if an element that a mask selects lies outside an array."""
    inside = np.broadcast_to(np.bool_(True), array.shape)
    return bool(np.any(~access.read(inside, stack, indices, False) & np.asarray(mask)))


def _starts(array: ArrayType, stack: Sequence[Transform], indices: Sequence[Any]) -> list[Start]:
    types = [ArrayType(np.shape(index), np.asarray(index).dtype) for index in indices]
    found = []
    for transform in stack:
        if isinstance(transform, Index):
            for axis, (entry, extent) in enumerate(zip(transform.entries, array.shape, strict=True)):
                start = entry.start if isinstance(entry, SliceEntry) else entry
                length = (entry.size - 1) * entry.stride if isinstance(entry, SliceEntry) else 0
                if isinstance(start, Operand) and length >= 0:
                    found.append(Start(axis, start.position, length, extent))
        array = transformed(array, [transform], types)
    return found
