"""Barriers in a kernel."""

from __future__ import annotations

from typing import Any

from palladio.ir.bind import bind
from palladio.ops.threads import barrier as ops
from palladio.trace.gpu.copies import one_barrier, predicate_of
from palladio.trace.reference import reached
from palladio.types.attributes import Named


def barrier_arrive(barrier: Any, *, predicate: Any = None) -> None:
    """Arrive at a barrier, once, without waiting.

    Args:
        barrier: one barrier, or an array of one; of several, `barriers.at[i]`.
        predicate: a scalar bool; where it is false nothing arrives.

    Raises:
        PalladioTypeError: not a barrier, or several; a predicate that is not a bool[].
    """
    (root,), (stack,), operands = reached(one_barrier(barrier))
    bind(ops.barrier_arrive, root, predicate_of(predicate), *operands, transforms=stack)


def barrier_wait(barrier: Any) -> None:
    """Wait for the next completion of a barrier that this thread has not observed.

    Raises:
        PalladioTypeError: not a barrier, or several.
    """
    (root,), (stack,), operands = reached(one_barrier(barrier))
    bind(ops.barrier_wait, root, *operands, transforms=stack)


def barrier_test(barrier: Any) -> Any:
    """True if the next completion that this thread has not observed has happened: bool[]. If so, it is now observed.

    Raises:
        PalladioTypeError: not a barrier, or several.
    """
    (root,), (stack,), operands = reached(one_barrier(barrier))
    return bind(ops.barrier_test, root, *operands, transforms=stack)[0]


def barrier_arrive_and_wait(barrier: Any) -> None:
    """Arrive at a barrier and wait for the completion.

    At a `NamedBarrier` (PTX `bar.sync`) it is that of the current phase, at another barrier the next one that this
    thread has not observed.

    Raises:
        PalladioTypeError: not a barrier, or several.
    """
    reference = one_barrier(barrier)
    root = reference.root.palladio_type
    if root.attribute(Named) is None:
        barrier_arrive(barrier)
        barrier_wait(barrier)
        return
    (ref,), (stack,), operands = reached(reference)
    bind(ops.barrier_sync, ref, *operands, transforms=stack)
