"""The staged call: the common part of `pallas_call`, `kernel`, `mpmd_map` and `jit`.

Each binds its arguments in its own way and builds its own program. In between, a call is found by its key or built and
kept; the program is loaded for an executor; and results are returned as arrays of the caller's library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from palladio.array.copies import note_copy
from palladio.array.foreign import common_library, from_numpy
from palladio.array.on_card import CardArray
from palladio.base import trees
from palladio.base.locations import Location
from palladio.driver.cache import PreparedCache
from palladio.driver.executors import Executor
from palladio.driver.fingerprint import Unkeyable
from palladio.driver.loading import load
from palladio.driver.retraced import note_traced
from palladio.ir.bind import form
from palladio.ir.core import Op, Program, Var
from palladio.ir.evaluate import Runner
from palladio.types.types import Type

T = TypeVar("T")

CALLS: PreparedCache[Any] = PreparedCache()
"""All prepared calls of every kind; a key begins with its kind."""


def prepared(
    key: Callable[[], Hashable],
    build: Callable[[], T],
    function: Callable[..., Any],
    *,
    keep: bool = True,
    warn: bool = True,
) -> T:
    """The result of `build`, of this call or of an earlier one with the same key.

    Args:
        key: makes the key; it raises `Unkeyable` for a function that captures something that cannot be compared.
        function: the user's function, for the warning that it is traced on every call.
        keep: False builds anew.
        warn: whether to warn in that case.
    """
    made: Hashable | None = None
    if keep:
        try:
            made = key()
        except Unkeyable as error:
            if warn:
                note_traced(function, error)
    found: T = CALLS.get(made, build)
    return found


def loaded(
    op: Op, params: Mapping[str, Any], types: Sequence[Type], name: str, executor: Executor, debug: bool, place: Program
) -> Runner:
    """Load a program of one equation.

    Args:
        types: of the inputs.
        debug: print the program after each stage.
        place: the user's program, whose source line is used for the call.
    """
    location: Location | None = place.location
    inputs = tuple(map(Var, types))
    eqn = form(op, inputs, {**params}, location)
    dump = (lambda text: print(text, file=sys.stdout)) if debug else None
    return load(Program(inputs, (eqn,), eqn.outputs, name, location), executor, dump)


def returned(results: Sequence[Any], leaves: Sequence[Any], structure: trees.Structure) -> Any:
    """The results of a call as arrays of the library that the arguments are of, in the structure of the outputs."""
    library = common_library(leaves)
    if results and isinstance(results[0], CardArray):
        results = [result.source for result in results]
    elif library != "numpy":
        results = [from_numpy(result, library) for result in results]
    return trees.unflatten(structure, results)


def owned(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results as separate arrays, which the caller may write to."""
    if results and isinstance(results[0], CardArray):
        return list(results)
    if len(results) == 1 and _stands_alone(results[0], inputs):
        return list(results)
    taken = {id(_memory(value)) for value in inputs}
    owned = []
    for result in results:
        array = np.asarray(result)
        memory = _memory(array)
        whole = memory is array or (memory.nbytes == array.nbytes and array.flags.c_contiguous)
        # A scalar may be a constant of the program.
        if memory.ndim == 0 or id(memory) in taken or not whole or not array.flags.writeable:
            note_copy(array, "a result is an input, or a part of an array", "copy it in the kernel")
            array = np.array(array)
        taken.add(id(memory))
        owned.append(array)
    return owned


def _stands_alone(result: Any, inputs: Sequence[Any]) -> bool:
    """True if a result is known to own its memory, as those of small kernel calls do."""
    if type(result) is not np.ndarray or result.base is not None or not result.ndim or not result.flags.writeable:
        return False
    return all(result is not value for value in inputs)


def _memory(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that an array is a view of; itself if it is not a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
