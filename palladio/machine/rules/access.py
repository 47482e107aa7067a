"""Ordinary accesses: they happen at once, by the definition of the operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.threads import Point, Thread
from palladio.ops import ALL_OPS
from palladio.types.transforms import Peer
from palladio.types.types import RefType


@RULES.at_once("load")
def access(eqn: Eqn, atomic: bool = False) -> Callable[..., Any]:
    """The rule of every operation that reaches data and waits for nobody."""
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
            (thread.checker.atomic if atomic else thread.checker.accesses)(thread, eqn, values)
        return evaluate(*reached)

    return run


@RULES.in_steps(*(op.name for op in ALL_OPS if op.atomic))
def atomic(eqn: Eqn) -> Callable[..., Coroutine]:
    """An atomic access: others may go first, and it orders what it touches."""
    run = access(eqn, atomic=True)
    stacks = eqn.op.stacks(eqn.params["transforms"])

    def steps(thread: Thread, *values: Any) -> Coroutine:
        if thread.points:
            yield Point("atomic", values[0].reached(stacks[0], values[eqn.op.index_start :])[0])
        return run(thread, *values)

    return steps


@RULES.at_once("debug_print", "debug_check")
def debug(eqn: Eqn) -> Callable[..., Any]:
    """Printing and checking, by the definition."""
    evaluate = partial(eqn.op.eval, **eqn.params)
    return lambda thread, *values: evaluate(*values)
