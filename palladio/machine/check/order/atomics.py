"""The happens-before edges of atomics: for each element, the clocks of the threads that have accessed it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from palladio.machine.check.regions import Region
from palladio.machine.run.clocks import Clock

MOST_AT_ONCE = 64
"""Atomics of more elements than this, e.g. sums of whole blocks, release to all later ones of the buffer."""

MOST_APART = 4096
"""So do atomics of further elements, once this many have separate clocks: it misses races, without false alarms."""

Clocks = tuple[Clock, Clock]


class AtomicClocks:
    """The clocks that the atomics of one buffer have released and acquired, for each element that they touch."""

    __slots__ = ("_elements", "_everywhere", "_shape")

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._elements: dict[int, Clocks] = {}
        self._everywhere: Clocks | None = None

    def exchange(self, region: Region, clocks: Clocks, learns: bool = True) -> None:
        """One atomic: its thread acquires the clocks of the elements, and releases its own to them.

        Args:
            learns: whether the thread acquires; if not, its clocks are only joined into those of the elements.
        """
        numbers = elements(region, self._shape)
        known = self._elements.values() if numbers is None else map(self._elements.get, numbers)
        learning = clocks if learns else (clocks[0].copy(), clocks[1].copy())
        for known_there in (self._everywhere, *known):
            if known_there is not None:
                _join(learning, known_there)
        clocks = learning
        if numbers is None or len(self._elements) + len(numbers) > MOST_APART:
            if self._everywhere is None:
                self._everywhere = clocks[0].copy(), clocks[1].copy()
            _join(self._everywhere, clocks)
            return
        released = clocks[0].copy(), clocks[1].copy()
        for number in numbers:
            self._elements[number] = released  # includes the element's previous clocks, which have been joined


def elements(region: Region, shape: Sequence[int]) -> list[int] | None:
    """The numbers of a region's elements in row-major order; None if they are too many to be distinguished."""
    if region.bands is None:
        return []
    count = 1
    for bands in region.bands:
        count *= sum(high - low for low, high in bands)
    if count > MOST_AT_ONCE and region.chosen is None:
        return None
    if region.chosen is not None:
        numbers = np.flatnonzero(region.mask(tuple(shape))).tolist()
        return numbers if len(numbers) <= MOST_AT_ONCE else None
    along = [[place for low, high in bands for place in range(low, high)] for bands in region.bands]
    numbers = [0]
    for extent, places in zip(shape, along, strict=True):
        numbers = [number * extent + place for number, place in itertools.product(numbers, places)]
    return numbers


def _join(clocks: Clocks, others: Clocks) -> None:
    for mine, theirs in zip(clocks, others, strict=True):
        mine.join(theirs)
