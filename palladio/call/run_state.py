"""`run_state`, outside of kernels a staged function: launches inside of it run with its references."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from palladio.base import trees
from palladio.call.jit import jit
from palladio.trace import control
from palladio.trace.array_refs import freeze, new_ref
from palladio.trace.gpu.rounds import carried_out_in_rounds
from palladio.trace.trace import current_trace
from palladio.types.scratch import ACC


def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A function of values from a function of references.

    `run_state(f)(values)` gives `f` references that hold the values (a pytree of arrays, and in a GPU kernel of
    `plgpu.ACC.init(array)`) and returns their final values. Outside of kernels `f` may launch others, which close over
    the references or take them as arguments; it is staged as one program.

    Raises:
        PalladioTypeError: a value that is not an array; a function that returns something.
    """
    within = control.run_state(f)
    staged = jit(within)

    @functools.wraps(within)
    def run(values: Any) -> Any:
        if carried_out_in_rounds():
            leaves, structure = trees.flatten(values)
            refs = [new_ref(leaf) for leaf in leaves]
            f(trees.unflatten(structure, refs))
            return trees.unflatten(structure, [freeze(ref) for ref in refs])
        accumulates = any(isinstance(leaf, ACC) for leaf in trees.flatten(values)[0])
        return within(values) if current_trace() is not None or accumulates else staged(values)

    return run
