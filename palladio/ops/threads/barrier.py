"""Barriers of a block or cluster: arrivals complete a phase, and waiting threads see every completion in turn."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.ir.core import Op
from palladio.ops.references.memory import Transforms
from palladio.ops.threads.copy import (
    PREDICATE,
    only_among_threads,
    require_barrier,
    require_predicate,
    stays_a_reference,
)
from palladio.types.effects import Sync
from palladio.types.types import Type


def _arrive_type(barrier: Type, predicate: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    require_barrier(barrier, transforms, indices, named=None)
    require_predicate(predicate)
    return ()


barrier_arrive = Op(
    "barrier_arrive",
    "One arrival at the barrier. The phase completes with the last of its arrivals. Nothing happens where "
    "`predicate: bool[]` is false.",
    _arrive_type,
    only_among_threads("barrier_arrive"),
    sync=Sync(arrives=("barrier",)),
    discharge=stays_a_reference,
)


def _wait_type(barrier: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    require_barrier(barrier, transforms, indices)
    return ()


barrier_wait = Op(
    "barrier_wait",
    "Waits for the next completion of the barrier that this thread has not seen yet.",
    _wait_type,
    only_among_threads("barrier_wait"),
    sync=Sync(waits="barrier"),
    discharge=stays_a_reference,
)


def _sync_type(barrier: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    require_barrier(barrier, transforms, indices, named=True)
    return ()


barrier_sync = Op(
    "barrier_sync",
    "Arrives at the named barrier and waits for the completion of the current phase.",
    _sync_type,
    only_among_threads("barrier_sync"),
    sync=Sync(waits="barrier", arrives=("barrier",)),
    discharge=stays_a_reference,
)


def _test_type(barrier: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    require_barrier(barrier, transforms, indices)
    return (PREDICATE,)


barrier_test = Op(
    "barrier_test",
    "Whether the next completion that this thread has not seen yet has come, as bool[]; if so, it has now seen it.",
    _test_type,
    only_among_threads("barrier_test"),
    sync=Sync(polls="barrier"),
    discharge=stays_a_reference,
)
