"""Pairwise parameters of tests: any two values occur together, without all combinations of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def every_pair(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis, in which any two values of different axes occur together.

    Three axes of four values have 64 combinations and 16 of these. They are chosen greedily, the one with the most new
    pairs first (pairwise testing: D. Cohen et al., "The AETG system", IEEE Transactions on Software Engineering 23(7),
    1997), among equals the one whose pairs have occurred least, and are the same in each run.
    """
    places = list(product(*(range(len(axis)) for axis in axes)))
    pairs = [tuple(combinations(enumerate(place), 2)) for place in places]
    occurred: Counter[tuple[tuple[int, int], ...]] = Counter()
    chosen = []
    for _ in places:
        gains = [(sum(not occurred[pair] for pair in each), -sum(occurred[pair] for pair in each)) for each in pairs]
        best = max(range(len(places)), key=gains.__getitem__)
        if gains[best][0] == 0:
            break
        chosen.append(places[best])
        occurred.update(pairs[best])
    return [tuple(axis[at] for axis, at in zip(axes, place, strict=True)) for place in sorted(chosen)]
