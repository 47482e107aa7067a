"""Semaphores: counters in global memory, which one thread of a warpgroup raises and waits for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Entry, Semaphores
from palladio.hopper.layouts.shared import added, times
from palladio.ir.core import Atom, Eqn
from palladio.lower.refused import Refused
from palladio.types.transforms import Transform


def _address(scope: Scope, root: Atom, stack: Sequence[Transform], indices: Sequence[Atom]) -> str:
    """The address of one semaphore, as a C expression."""
    found = scope.entry(root)
    if not isinstance(found, Semaphores):
        raise Refused("a semaphore that is none of the kernel's own is not compiled for Hopper")
    chosen = scope.view(found.type, stack, indices)
    if chosen.peer:
        raise Refused("a semaphore of another block is not compiled for Hopper yet")
    strides = [math.prod(found.type.shape[n + 1 :]) for n in range(found.type.ndim)]
    return added(found.name, *(times(start.text, stride) for start, stride in zip(chosen.starts, strides, strict=True)))


def _signal(scope: Scope, eqn: Eqn) -> None:
    """Order the writes of the warpgroup before."""
    root, amount, *indices = eqn.inputs
    address = _address(scope, root, eqn.transforms, indices)
    scope.sync()
    scope.w.line(f"if (thread == 0) pal::add_release({address}, {scope.text(amount)});")


def _wait(scope: Scope, eqn: Eqn) -> None:
    root, amount, *indices = eqn.inputs
    address, count = _address(scope, root, eqn.transforms, indices), scope.text(amount)
    with scope.w.block("if (thread == 0)"):
        if not eqn.decrement:
            scope.w.line(f"while (pal::load_acquire({address}) < {count}) {{}}")
        else:
            with scope.w.block("while (true)"):
                scope.w.line(f"const int seen = pal::load_acquire({address});")
                taken = f"pal::atomic_compare({address}, seen, seen - {count}) == seen"
                scope.w.line(f"if (seen >= {count} && {taken}) break;")
    scope.sync()


def _read(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """All threads hear the same count."""
    root, *indices = eqn.inputs
    (out,) = eqn.outputs
    address = _address(scope, root, eqn.transforms, indices)
    base = scope.w.fresh("count")
    scope.w.line(f"const u32 {base} = {exchange.room(scope, 4)};")
    scope.w.line(f"if (thread == 0) pal::store_shared<int>({base}, pal::load_acquire({address}));")
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    scope.sites.read.add(EXCHANGE)
    return [scope.number(out, f"pal::load_shared<int>({base})")]


RULES: dict[str, Rule] = {"semaphore_signal": _signal, "semaphore_wait": _wait, "semaphore_read": _read}
