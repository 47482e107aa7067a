"""Times of kernels on a GPU, on memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, at_call
from palladio.call.ahead import Ahead
from palladio.call.choices import least_of_turns
from palladio.types.types import ArrayType, ShapeDtypeStruct


def time_kernels(
    kernels: Sequence[Ahead],
    operands: Sequence[Any],
    *,
    seconds: float = 1.0,
    progress: Callable[[float], object] | None = None,
) -> list[float]:
    """The time of each of some functions on the first GPU, in seconds: the least of its turns.

    They are called in turns, as by `palladio.time_in_turns`; a time is that between two events of the CUDA driver
    around the call's kernels, after the L2 cache has been overwritten. Operands and results are in memory that is
    allocated for this and freed at the end.

    Args:
        kernels: functions staged for these operands, by `pl.jit(f, interpret="hopper").ahead(*operands)`.
        operands: for each a NumPy array, which is copied, or a `ShapeDtypeStruct`, for random normal numbers.
        seconds: the time to spend on the turns; every function has three of them, however long they take.
        progress: called with the part of the work that is done, from 0 to 1.

    Raises:
        PalladioTypeError: functions that were staged for another executor or for other operands.
        PalladioError: there is no Hopper card, or the driver fails.
    """
    with at_call():
        given = [_operand(each) for each in operands]
        types = [each if isinstance(each, ArrayType) else ArrayType(each.shape, each.dtype) for each in given]
        for number, kernel in enumerate(kernels):
            _require_staged(kernel, types, f"kernels[{number}]")
        if not kernels:
            return []
        from palladio.hopper.launch.timing import timed  # with what launches kernels, which few processes need

        with timed([kernel.run_on_card for kernel in kernels], given, kernels[0].results) as clocks:
            return least_of_turns(clocks, seconds, progress)


def _operand(given: Any) -> Any:
    """An operand as a NumPy array, or as a type."""
    return ArrayType(given.shape, given.dtype) if isinstance(given, ShapeDtypeStruct) else np.asarray(given)


def _require_staged(kernel: Any, types: Sequence[ArrayType], name: str) -> None:
    """Check that a function was staged for a GPU and for operands of these types."""
    if not isinstance(kernel, Ahead) or not kernel.on_card:
        raise PalladioTypeError(
            "not a function that was staged for a GPU",
            argument=name,
            expected='pl.jit(f, interpret="hopper").ahead(*operands)',
            got=type(kernel).__name__,
        )
    if list(kernel.types) != list(types):
        raise PalladioTypeError(
            "staged for other operands",
            argument=name,
            expected=", ".join(map(str, types)),
            got=", ".join(map(str, kernel.types)),
        )
