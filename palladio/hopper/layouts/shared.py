"""Shared-memory layouts: row-major or swizzled blocks, and their descriptors for the tensor cores.

A swizzled buffer `[..., rows, columns]` is split along its columns into blocks with rows as wide as the swizzle, 32, 64
or 128 bytes. The blocks of a matrix are contiguous: `[..., columns / span, rows, span]`. Tensor maps fill and tensor
cores read this layout. The swizzle permutes the 16-byte pieces of a row by bits of the address (PTX ISA, "Tensor
swizzling modes"), so that it does not depend on the first row of an access.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.layouts.integers import Index, added, times

SWIZZLES = (128, 64, 32)
MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""The code of a swizzle in a matrix descriptor (PTX ISA, "Matrix Descriptor Format")."""

GROUP = 8
"""Rows after which a swizzle repeats."""


@dataclass(frozen=True)
class SharedLayout:
    """The byte offsets of a buffer's elements.

    Fields:
        shape: the shape of the buffer.
        itemsize: bytes of an element.
        swizzle: bytes of a swizzled row; 0 for a buffer in row-major order.
    """

    shape: tuple[int, ...]
    itemsize: int
    swizzle: int = 0

    @property
    def bytes(self) -> int:
        """The size of the buffer."""
        return math.prod(self.shape) * self.itemsize

    @property
    def alignment(self) -> int:
        """The alignment of its start: a period of the swizzle, else 128 bytes, for copies."""
        return GROUP * self.swizzle or 128

    @property
    def span(self) -> int:
        """Elements of a row of a block."""
        return self.swizzle // self.itemsize if self.swizzle else self.shape[-1]

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides along each axis; along a swizzled last axis, within a row of a block."""
        *outer, last = self.shape
        found, step = [self.itemsize], (self.swizzle or last * self.itemsize)
        if outer:
            found.append(step)
            step = last * self.itemsize * outer[-1]
            for extent in reversed(outer[:-1]):
                found.append(step)
                step *= extent
        return tuple(reversed(found))

    @property
    def block_bytes(self) -> int:
        """Bytes from one block of columns to the next."""
        return self.swizzle * self.shape[-2] if self.swizzle else 0

    def offset(self, place: Sequence[Index]) -> Index:
        """The byte offset of an element before the swizzle, from its indices."""
        terms: list[Index] = []
        for axis, (index, stride) in enumerate(zip(place, self.strides, strict=True)):
            if axis == len(self.shape) - 1 and self.swizzle and self.shape[-1] > self.span:
                if isinstance(index, int):
                    block, within = divmod(index, self.span)
                    terms.append(block * self.block_bytes + within * stride)
                    continue
                terms.append(times(f"({index}) / {self.span}", self.block_bytes))
                terms.append(times(f"({index}) % {self.span}", stride))
            else:
                terms.append(times(index, stride))
        return added(*terms)

    def addresses(self, base: int = 0) -> np.ndarray[Any, Any]:
        """The address of each element of a buffer at `base`. For tests and pictures."""
        places = np.indices(self.shape).astype(np.int64)
        last = places[-1]
        found = np.full(self.shape, base, np.int64)
        for place, stride in zip(places[:-1], self.strides, strict=False):
            found += place * stride
        if not self.swizzle:
            return found + last * self.itemsize
        found += last // self.span * self.block_bytes + last % self.span * self.itemsize
        return swizzled(found, self.swizzle)


def swizzled(address: Any, swizzle: int) -> Any:
    """The swizzled address of a byte: one, two or three bits from bit 4 are XORed with those from bit 7."""
    return address ^ (address >> 3 & _mask(swizzle)) if swizzle else address


def swizzled_text(address: str, swizzle: int) -> str:
    """The swizzled address as a C expression; `address` is the name of a variable."""
    return f"({address} ^ ({address} >> 3 & {_mask(swizzle):#x}))" if swizzle else address


def _mask(swizzle: int) -> int:
    return {128: 0x70, 64: 0x30, 32: 0x10}[swizzle]


def swizzle_for(columns: int, itemsize: int) -> int:
    """The widest swizzle that divides a row of this many columns; 0 for none."""
    return next((swizzle for swizzle in SWIZZLES if columns * itemsize % swizzle == 0), 0)


@dataclass(frozen=True)
class SharedOperand:
    """The matrix descriptor of a product's operand (PTX ISA, "Strides" and "Matrix Descriptor Format").

    Fields:
        leading, stride: the leading and stride dimension byte offsets.
        mode: the code of the swizzle.
        transposed: True if its rows are along m or n rather than along k.
    """

    layout: SharedLayout
    transposed: bool

    @property
    def leading(self) -> int:
        """Bytes between blocks of columns, if these are along m or n; the hardware ignores it otherwise."""
        return self.layout.block_bytes if self.transposed else 16

    @property
    def stride(self) -> int:
        """Bytes between groups of 8 rows."""
        return GROUP * self.layout.swizzle

    @property
    def mode(self) -> int:
        """The code of the swizzle."""
        return MODES[self.layout.swizzle]

    def step(self, depth: int) -> int:
        """Bytes from the operand's start to the start of an instruction at `depth` along k."""
        layout = self.layout
        if self.transposed:
            return depth * layout.swizzle
        return depth // layout.span * layout.block_bytes + depth % layout.span * layout.itemsize
