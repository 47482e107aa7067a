"""Semaphores as inputs and outputs of calls: between calls their counts are an array.

A call that returns a semaphore returns its count; the call that takes it starts from that count. A copy that signals
such a semaphore completes when it starts: no call ends while its copies are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError
from palladio.trace.array_refs import empty_ref
from palladio.trace.dma import landing_at_once
from palladio.trace.semaphores import semaphore_read, semaphore_signal, semaphore_wait
from palladio.types import dtypes
from palladio.types.types import COUNTING, MemoryRef

Side = tuple[Sequence[Any], Sequence[Any]]
"""References to arrays of a call, and the specification of each."""


def is_semaphore(spec: Any) -> bool:
    """True if a specification is that of semaphores."""
    return spec is not None and spec.memory_space in COUNTING


def with_semaphores(
    inputs: Side, outputs: Side
) -> tuple[list[Any], list[Any], Callable[[], AbstractContextManager[None]]]:
    """The references of a kernel: semaphores in place of references to their counts.

    Returns:
        The inputs, the outputs, and the context to run the kernel in, which copies the counts in and out.
    """
    counts: dict[int, tuple[Any, Any]] = {}

    def local(side: Side) -> list[Any]:
        found = []
        for ref, spec in zip(*side, strict=True):
            if is_semaphore(spec) and id(ref) not in counts:
                _require_counts(ref)
                counts[id(ref)] = ref, empty_ref(MemoryRef(ref.shape, dtypes.INT32, spec.memory_space))
            found.append(counts[id(ref)][1] if is_semaphore(spec) else ref)
        return found

    given, made = local(inputs), local(outputs)
    fresh = {id(ref) for ref in outputs[0]} - {id(ref) for ref in inputs[0]}

    @contextmanager
    def around() -> Iterator[None]:
        for key, (count, semaphore) in counts.items():
            for place in np.ndindex(*semaphore.shape) if key not in fresh else ():
                semaphore_signal(semaphore.at[place], count[place])
        with landing_at_once([semaphore for _, semaphore in counts.values()]):
            yield
        for count, semaphore in counts.values():
            for place in np.ndindex(*semaphore.shape):
                count[place] = semaphore_read(semaphore.at[place])
                semaphore_wait(semaphore.at[place], count[place])

    return given, made, around


def _require_counts(ref: Any) -> None:
    if ref.dtype != dtypes.INT32:
        raise PalladioTypeError(
            "semaphores between calls are the counts that another call gave",
            argument="args",
            expected="an array of int32",
            got=str(ref.array),
        )
