"""Random products of one value with itself, compiled, with exact results."""

from __future__ import annotations

from tests.fuzz.test_products import random_case
from tools.soak.frame import Soak


def products(soak: Soak) -> None:
    """Each round, a product of small integers, of two views of one array."""
    for _ in soak.rounds():
        case = random_case(soak.rng)
        with soak.faults(repr(case)):
            found, expected = case.run(case.draw(soak.rng))
            soak.check(repr(case), found + 0, expected + 0)  # turns -0 into +0
