"""The calls of `library.hopper` that are kept, where its functions and their namesakes both look for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import palladio as pl

KEPT = pl.KeptCalls()
"""The calls of `library.hopper` on arrays of a GPU."""


def kept_call(key: Hashable, interpret: Any, arrays: Sequence[Any], out: Any = None) -> Any:
    """The result of a call of `library.hopper` that was made before; None if it was not.

    Args:
        key: the name of the function and its other arguments, as it keeps calls.
        arrays: what it is called with, the first of them an array.
        out: the caller's array for the result.
    """
    return KEPT.on_card(key, arrays, out) if interpret is None else None
