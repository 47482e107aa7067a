"""Semaphores as inputs and outputs of calls: between calls their counts are an array.

A call that returns a semaphore returns its count; the call that takes it starts from that count. A copy that signals
such a semaphore completes when it starts: no call ends while its copies are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError
from palladio.call.outputs import Outputs
from palladio.trace.array_refs import KeptSemaphores, Semaphores, empty_ref
from palladio.trace.dma import landing_at_once
from palladio.trace.semaphores import semaphore_read, semaphore_signal, semaphore_wait
from palladio.types import dtypes
from palladio.types.types import COUNTING, MemoryRef, MemorySpace

Side = tuple[Sequence[Any], Sequence[Any]]
"""References to arrays of a call, and the specification of each."""


def is_semaphore(spec: Any) -> bool:
    """True if a specification is that of semaphores."""
    return spec is not None and spec.memory_space in COUNTING


@dataclass(frozen=True)
class Counted:
    """A semaphore of a program, and the reference to its count between calls.

    Fields:
        starts: the semaphore starts at the count.
        ends: the count it ends at is kept.
    """

    count: Any
    semaphore: Any
    starts: bool = True
    ends: bool = True


def counted(count: Any, space: MemorySpace, *, starts: bool = True, ends: bool = True) -> Counted:
    """A semaphore for a count; its fields are those of `Counted`.

    Raises:
        PalladioTypeError: not a count.
    """
    _require_counts(count)
    return Counted(count, empty_ref(MemoryRef(count.shape, dtypes.INT32, space)), starts, ends)


@contextmanager
def counting(all_counted: Sequence[Counted]) -> Iterator[None]:
    """Inside the block, where the kernel runs, semaphores replace their counts, which are copied in and out."""
    for each in all_counted:
        for place in np.ndindex(*each.semaphore.shape) if each.starts else ():
            semaphore_signal(each.semaphore.at[place], each.count[place])
    with landing_at_once([each.semaphore for each in all_counted]):
        yield
    for each in all_counted:
        for place in np.ndindex(*each.semaphore.shape):
            left = semaphore_read(each.semaphore.at[place])
            if each.ends:
                each.count[place] = left
            semaphore_wait(each.semaphore.at[place], left)


def with_semaphores(
    inputs: Side, outputs: Side
) -> tuple[list[Any], list[Any], Callable[[], AbstractContextManager[None]]]:
    """The references of a kernel: semaphores in place of references to their counts.

    Returns:
        The inputs, the outputs, and the context to run the kernel in, which copies the counts in and out.
    """
    found: dict[int, Counted] = {}
    given = {id(ref) for ref in inputs[0]}

    def local(side: Side) -> list[Any]:
        refs = []
        for ref, spec in zip(*side, strict=True):
            if is_semaphore(spec) and id(ref) not in found:
                found[id(ref)] = counted(ref, spec.memory_space, starts=id(ref) in given)
            refs.append(found[id(ref)].semaphore if is_semaphore(spec) else ref)
        return refs

    return local(inputs), local(outputs), lambda: counting(list(found.values()))


def _require_counts(ref: Any) -> None:
    if ref.dtype != dtypes.INT32:
        raise PalladioTypeError(
            "semaphores between calls are the counts that another call gave",
            argument="args",
            expected="an array of int32",
            got=str(ref.array),
        )


def with_counts(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with references to the counts in place of references to semaphores."""
    return trees.replaced(args, KeptSemaphores, lambda ref: Semaphores(ref.counts, ref.space))  # type: ignore[no-any-return]


def only_counts(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with counts in place of semaphores, whose kind the block specifications of a grid give."""
    return trees.replaced(with_counts(args), Semaphores, lambda value: value.counts)  # type: ignore[no-any-return]


def with_values(outputs: Outputs, results: Any) -> Any:
    """The results of a launch with semaphores in place of their counts."""
    if not outputs.semaphores:
        return results
    leaves, structure = trees.flatten(results)
    for position, space in outputs.semaphores.items():
        leaves[position] = Semaphores(leaves[position], space)
    return trees.unflatten(structure, leaves)


@contextmanager
def local_semaphores(
    args: Any,
    outs: Any,
    made: Mapping[int, MemorySpace],
    kept: Sequence[KeptSemaphores] = (),
    outlives: Callable[[Any], bool] = lambda count: True,
) -> Iterator[tuple[Any, Any]]:
    """The arguments and outputs of a program with its own semaphores, for the time that its kernel is traced.

    Args:
        args, outs: pytrees of references, to the counts of semaphores.
        made: the kind of each output that is semaphores, by its position.
        kept: those that the program closes over.
        outlives: true for a reference whose changes are seen after the launch.
    """
    found: dict[int, Counted] = {}
    leaves, structure = trees.flatten(outs)
    written = {id(leaves[n]) for n in made}

    def local(count: Any, space: Any, *, starts: bool = True) -> Any:
        if id(count) not in found:
            ends = id(count) in written or outlives(count)
            found[id(count)] = counted(count, space, starts=starts, ends=ends)
        return found[id(count)].semaphore

    args = trees.replaced(args, Semaphores, lambda value: local(value.counts, value.space))
    for position, space in made.items():
        leaves[position] = local(leaves[position], space, starts=False)
    for each in kept:
        each.memory = local(each.counts, each.space)
    try:
        with counting(list(found.values())):
            yield args, trees.unflatten(structure, leaves)
    finally:
        for each in kept:
            each.memory = None
