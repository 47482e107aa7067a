"""Where the buffers of a block lie: at the lowest bytes that are free when they come to be."""

from __future__ import annotations

from typing import Any

from palladio.types.attributes import SwizzleTransform
from palladio.types.device import H100_SXM
from palladio.types.types import RefType

PLAIN = 128
"""Other buffers begin where bulk tensor copies can reach them (PTX ISA, "cp.async.bulk.tensor")."""


def alignment(type: RefType) -> int:
    """What a buffer's address is a multiple of."""
    return PLAIN if type.attribute(SwizzleTransform) is None else H100_SXM.shared_alignment


def aligned(type: RefType) -> int:
    """The bytes of a buffer, with those that its alignment costs."""
    step = alignment(type)
    return -(-type.size * type.dtype.itemsize // step) * step


class Addresses:
    """The memory of one block.

    Fields:
        leftovers: what the checker knows to be under way in memory that was given back, by what tells it from others.
    """

    def __init__(self) -> None:
        self._taken: dict[Any, list[tuple[int, int]]] = {}
        self.leftovers: dict[Any, Any] = {}

    def place(self, store: Any) -> None:
        """Give a buffer its bytes, and what is still under way in them."""
        size, step = aligned(store.type), alignment(store.type)
        taken = self._taken.setdefault(store.type.space, [])
        start = 0
        for low, high in taken:
            if start + size <= low:
                break
            start = max(start, -(-high // step) * step)
        taken.append((start, start + size))
        taken.sort()
        store.address = start
        if self.leftovers:
            store.leftovers = [each for each in self.leftovers.values() if each.may_meet(store)]

    def free(self, store: Any) -> None:
        """Take a buffer's bytes back."""
        place = store.address, store.address + aligned(store.type)
        if place in self._taken.get(store.type.space, ()):
            self._taken[store.type.space].remove(place)
