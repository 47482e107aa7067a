"""Addresses of the buffers of a block: the lowest free bytes at allocation."""

from __future__ import annotations

from typing import Any

from palladio.lower.place import aligned_bytes, alignment_of


class Addresses:
    """The memory of one block.

    Fields:
        leftovers: the checker's accesses in flight to memory that was given back, by their identity.
    """

    def __init__(self) -> None:
        self._taken: dict[Any, list[tuple[int, int]]] = {}
        self.leftovers: dict[Any, Any] = {}

    def place(self, store: Any) -> None:
        """Assign a buffer its bytes, and the leftovers that may be in flight in them."""
        size, step = aligned_bytes(store.type), alignment_of(store.type)
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
            store.leftovers = [each for each in self.leftovers.values() if each.may_overlap(store)]

    def free(self, store: Any) -> None:
        """Free a buffer's bytes."""
        place = store.address, store.address + aligned_bytes(store.type)
        if place in self._taken.get(store.type.space, ()):
            self._taken[store.type.space].remove(place)
