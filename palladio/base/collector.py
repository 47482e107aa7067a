"""The garbage collector, while something makes very many objects and few cycles of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000
"""Objects made, less those that have gone, from one collection to the next."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block, of any thread, the collector looks for cycles among young objects less often.

    It is for objects that go by themselves: looking through those that are in use only takes time. A collector that is
    off stays off.
    """
    young, *older = gc.get_threshold()
    if not 0 < young < SELDOM:  # off, or another block does it already
        yield
        return
    gc.set_threshold(SELDOM, *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
