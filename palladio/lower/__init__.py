"""Floor 7: further forms of the same IR, shared by every executor that runs kernels.

A form says what is legal in it and why, prints, reads back, and still runs on the evaluator. `LOWERINGS` are the passes
that make them, in the order in which an executor would run them.
"""

from __future__ import annotations

from palladio.lower.place import place
from palladio.passes.pipeline import Pass

LOWERINGS: tuple[Pass, ...] = (place,)

__all__ = ["LOWERINGS", "place"]
