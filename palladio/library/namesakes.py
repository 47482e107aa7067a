"""Dispatch from functions of `palladio.library` to their namesakes in `library.hopper`.

A function of the library runs its namesake if the call runs on Hopper, by its arrays or by its executor, and the
operands are 16-bit floats, which the tensor cores multiply exactly. They round float32 to 11 bits and do not support
float64 (PTX ISA, "wgmma.mma_async", tf32), so that products of these remain grid kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import palladio as pl
import palladio.numpy as jnp
from palladio.library.card_calls import HALVES
from palladio.library.checks import dtype_of, fail, require_tiling

EXECUTORS = "hopper", "hopper-twin"
FLOATS = HALVES | {jnp.dtype("float32")}


def on_hopper(
    interpret: Any,
    arrays: Sequence[Any],
    dtypes: frozenset[Any] = HALVES,
    instead: str | None = None,
    argument: str = "lhs, rhs",
) -> Any:
    """`palladio.library.hopper` for a call that runs its kernels; else None.

    Args:
        interpret: the argument of the call.
        arrays: the operands of the call.
        dtypes: those with which the namesake has the promised precision. All operands have the same dtype.
        instead: advice for other dtypes, if the function has no kernels for them on Hopper.
        argument: the names of the arrays, for the error.

    Raises:
        PalladioTypeError: the dtypes are others, and there is advice for them.
    """
    if pl.chosen_executor(interpret, arrays) not in EXECUTORS:
        return None
    if not all(hasattr(array, "dtype") and 0 not in getattr(array, "shape", (0,)) for array in arrays):
        return None
    found = {dtype_of(array) for array in arrays}
    if len(found) != 1 or not found <= dtypes:
        if instead is None:
            return None
        count = {2: "two", 3: "three"}[len(arrays)]
        rule, expected = "grouped products on Hopper are of floats of 16 bits", f"{count} arrays of float16 or bfloat16"
        got = " and ".join(str(dtype_of(array)) for array in arrays)
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=got, hint=instead)
    from palladio.library import hopper

    return hopper


def require_hint(tiling: Any) -> None:
    """Check a tiling, which kernels with their own tiles ignore: three positive integers or a look-up."""
    if isinstance(tiling, (tuple, list)) and not any(map(callable, tiling)) and None not in tiling:
        require_tiling(tiling)
