"""Ordinary accesses: performed immediately, by the definition of the operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.check.order.atomics import elements
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.threads import Point, Thread
from palladio.ops import ALL_OPS
from palladio.types.transforms import Peer
from palladio.types.types import RefType


@RULES.at_once("load")
def access(eqn: Eqn, note: str = "ordinary") -> Callable[..., Any]:
    """The rule of every operation that accesses data and does not wait.

    Args:
        note: the method of `Accesses` by which the checker records it.
    """
    refs = [n for n, type in enumerate(eqn.input_types) if isinstance(type, RefType)]
    params = dict(eqn.params)
    stacks = eqn.op.stacks(params["transforms"]) if eqn.op.index_start else ()
    remote = any(stack and isinstance(stack[0], Peer) for stack in stacks)
    evaluate = partial(eqn.op.eval, **params)

    def run(thread: Thread, *values: Any) -> Any:
        reached = list(values)
        for n in refs:
            store = values[n].reached(stacks[n], values[eqn.op.index_start :])[0] if remote else values[n]
            reached[n] = store.array
            values = (*values[:n], store, *values[n + 1 :]) if remote else values
        if thread.checker is not None:
            accesses = thread.checker.accesses
            getattr(accesses, note)(thread, eqn, values)
            if accesses.uninitialised or thread.uninitialised:
                return accesses.unwritten.evaluate(thread, eqn, evaluate, values, tuple(accesses.uninitialised))
        return evaluate(*reached)

    return run


@RULES.in_steps(*(op.name for op in ALL_OPS if op.atomic))
def atomic(eqn: Eqn) -> Callable[..., Coroutine]:
    """An atomic access: a scheduling point, which orders the accesses of its elements."""
    return _atomic(eqn, "atomic", "atomic")


@RULES.in_steps_unused(*(op.name for op in ALL_OPS if op.atomic))
def tally(eqn: Eqn) -> Callable[..., Coroutine]:
    """An atomic access whose result is unused: it only releases, and two of the same kind commute."""
    kind = eqn.params.get("kind", "exchange")
    return _atomic(eqn, "tally", "atomic" if kind == "exchange" else f"tally {kind}")


def _atomic(eqn: Eqn, note: str, kind: str) -> Callable[..., Coroutine]:
    run = access(eqn, note)
    (stack,) = eqn.op.stacks(eqn.transforms)[:1]

    def steps(thread: Thread, *values: Any) -> Coroutine:
        if thread.points:
            indices = values[eqn.op.index_start :]
            store, rest = values[0].reached(stack, indices)
            yield _point(store, rest, indices, kind) if thread.machine.policy.apart else Point(kind, store)
        return run(thread, *values)

    return steps


def _point(store: Any, stack: Any, indices: Any, kind: str) -> Point:
    """The memory that an atomic accesses: its elements, or the buffer if there are many."""
    numbers = None
    if store.shadow is not None:
        numbers = elements(store.shadow.regions.resolve(stack, indices), store.type.shape)
    if not numbers:
        return Point(kind, store)
    points = [Point(kind, store.element(number)) for number in numbers]
    return Point(kind, points[0].thing, more=(*points[1:], Point("share", store)))


@RULES.at_once("debug_print", "debug_check")
def debug(eqn: Eqn) -> Callable[..., Any]:
    """Printing and checking, by the definition."""
    evaluate = partial(eqn.op.eval, **eqn.params)
    return lambda thread, *values: evaluate(*values)
