"""Random stacks of transforms with index operands inside and outside, and what they select, found by reading there."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from palladio.ops.references import access
from palladio.types import dtypes
from palladio.types.transforms import (
    Bitcast,
    Index,
    IndexEntry,
    Operand,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    bitcast_axis,
    transformed,
)
from palladio.types.types import ArrayType

Array = Any
DTYPES = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


class Stack:
    """A stack over an array of this type: its transforms, index operands and the type of what it selects."""

    def __init__(self, chance: random.Random, array: ArrayType, length: int, widths: bool = True) -> None:
        self.chance = chance
        self.root = array
        self.selected = array
        self.transforms: tuple[Transform, ...] = ()
        self.indices: list[Array] = []
        for _ in range(length):
            choices = [self._index, self._index, self._reshape, self._transpose, *([self._bitcast] if widths else [])]
            self._take(chance.choice(choices)())

    def _take(self, transform: Transform) -> None:
        operands = [ArrayType(np.shape(index), dtypes.INT32) for index in self.indices]
        self.selected = transformed(self.selected, [transform], operands)
        self.transforms += (transform,)

    def _operand(self, value: Array) -> Operand:
        self.indices.append(np.asarray(value, np.int32)[()])
        return Operand(len(self.indices) - 1)

    def _index(self) -> Transform:
        shapes = [(), (3,), (2, 1)] if self.chance.random() < 0.3 else [()]
        return Index(tuple(self._entry(extent, shapes) for extent in self.selected.shape))

    def _entry(self, extent: int, shapes: list[tuple[int, ...]]) -> IndexEntry:
        chance = self.chance
        kind = chance.random()
        if kind < 0.35:
            return SliceEntry(0, extent)
        if kind < 0.75:
            stride = chance.choice([1, 1, 2, 3])
            size = chance.randrange(0 if chance.random() < 0.05 else 1, extent // stride + 2)
            if size and (size - 1) * stride < extent and chance.random() < 0.5:
                return SliceEntry(chance.randrange(extent - (size - 1) * stride), size, stride)
            return SliceEntry(self._operand(chance.randrange(-2, extent)), size, stride)
        shape = chance.choice(shapes)
        if shape or chance.random() < 0.5 or not extent:
            outside = chance.random() < 0.1
            values = [chance.randrange(-1 if outside else 0, max(1, extent + outside)) for _ in range(math.prod(shape))]
            return self._operand(np.reshape(values, shape))
        return chance.randrange(extent)

    def _reshape(self) -> Transform:
        shape, left = [], self.selected.size
        if left == 0:
            return Reshape(self.selected.shape)
        while left > 1:
            factor = self.chance.choice([n for n in range(1, left + 1) if left % n == 0])
            shape.append(factor)
            left //= factor
            if len(shape) == 3:
                break
        return Reshape((*shape, left) if left > 1 or not shape else tuple(shape))

    def _transpose(self) -> Transform:
        axes = list(range(self.selected.ndim))
        self.chance.shuffle(axes)
        return Transpose(tuple(axes))

    def _bitcast(self) -> Transform:
        old, shape = self.selected.dtype, self.selected.shape
        fits = [
            dtype
            for dtype in DTYPES
            if dtype == old or (shape and shape[bitcast_axis(len(shape))] * old.itemsize % dtype.itemsize == 0)
        ]
        return Bitcast(self.chance.choice(fits))

    def mask(self) -> Array:
        """A random mask that broadcasts to the selection."""
        shape = tuple(self.chance.choice([n, n, 1]) for n in self.selected.shape)
        return np.reshape([self.chance.random() < 0.5 for _ in range(math.prod(shape))], shape).astype(bool)

    def reached(self, mask: Array | None = None) -> Array:
        """bool[root]: the elements of which a byte is selected where the mask is true.

        They are numbered from 1, since what lies outside reads as 0; each bit of the numbers is read on its own, from
        an array that has it in all bits of an element, so that elements may be cut to pieces and joined.
        """
        numbers = np.arange(1, self.root.size + 1).reshape(self.root.shape)
        ones = np.iinfo(self.root.dtype).max
        found = np.zeros((*self.selected.shape, self.selected.dtype.itemsize), np.int64)
        for bit in range(self.root.size.bit_length()):
            planes = np.where(numbers >> bit & 1, ones, 0).astype(self.root.dtype)
            read = np.array(access.read(planes, self.transforms, self.indices))
            found |= (read[..., None].view(np.uint8) & 1).astype(np.int64) << bit
        if mask is not None:
            found = found[np.broadcast_to(mask, self.selected.shape)]
        return np.isin(numbers, found)
