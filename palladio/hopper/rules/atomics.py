"""Atomic operations, by the first of the threads that hold an element, which sends the old value to the others; and
semaphores, which are counters in global memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import literal, memory_type, narrow
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Entry, Registers, Semaphores, Shared
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import registers_of_each
from palladio.hopper.layouts.shared import swizzled_text
from palladio.hopper.rules.memory import Access, access
from palladio.ir.core import Atom, Eqn, Var
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.transforms import Transform

KINDS = {
    "add": "ADD",
    "max": "MAX",
    "min": "MIN",
    "and": "AND",
    "or": "OR",
    "xor": "XOR",
    "exchange": "EXCHANGE",
}
"""The primitives that combine a value with the one in memory, by name."""


def _require(found: Access, name: str) -> str:
    """The C++ type of the element.

    Raises:
        Refused: the dtype does not have 32 or 64 bits.
    """
    dtype = found.dtype
    if dtype.itemsize < 4 or narrow(dtype) or dtypes.is_bool(dtype):
        raise Refused(f"{name} of elements of fewer than 32 bits is not compiled for Hopper yet", got=str(dtype))
    return memory_type(dtype)


def _call(found: Access, address: str, shared: str, plain: str, arguments: str) -> str:
    """The call of a primitive on an element, as a C expression."""
    where = found.where
    if isinstance(where, Shared):
        return f"pal::{shared}({swizzled_text(address, where.layout.swizzle)}, {arguments})"
    return f"pal::{plain}({address}, {arguments})"


def _each(scope: Scope, eqn: Eqn, count: int, express: Callable[..., str]) -> Sequence[Entry]:
    """Apply an atomic to every selected element; `express` gives the C expression of the old value."""
    root, *rest = eqn.inputs
    values, indices = rest[:count], rest[count:]
    (out,) = eqn.outputs
    layout = registers_of_each(out.type.shape)
    found = access(scope, root, eqn.transforms, indices, layout if out.type.shape else None)
    kind = _require(found, eqn.op.name)
    scope.before_write(found.where.root)
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    given = [scope.array(value, layout) if value.type.shape else scope.scalar(value) for value in values]  # type: ignore[union-attr]
    texts = [each.text if hasattr(each, "text") else scope.element(each, "r", layout) for each in given]
    old = scope.declare(out.hint or "old", layout, out.type.dtype)
    tests = [layout.guard("r", "thread"), found.inside(index), layout.first_holder("thread") or "thread == 0"]
    test = " && ".join(each for each in tests if each)
    nothing = literal(dtypes.uninitialized(out.type.dtype), out.type.dtype)
    with scope.w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"):
        scope.w.line(f"{old.name}[r] = {nothing};")
        with scope.w.block(f"if ({test})"):
            if isinstance(found.where, Shared):
                scope.w.line(f"const u32 at = {found.address(index)};")
                address = "at"
            else:
                address = found.address(index)
            scope.w.line(f"{old.name}[r] = {express(found, kind, address, *texts)};")
    scope.sites.written.add(found.where.root)
    return [_broadcast_old(scope, old, out)] if out in scope.used else [old]


def _broadcast_old(scope: Scope, old: Registers, out: Var) -> Entry:
    """The old values, in the output's layout in all threads."""
    if out.type.shape:
        return exchange.through_shared(scope, old, scope.layout(out))
    base = exchange.put(scope, old, old.layout)
    scope.sites.read.add(EXCHANGE)
    return scope.number(out, exchange.get(scope, base, 0, old.dtype))


def _atomic(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    combiner = KINDS[eqn.kind]

    def express(found: Access, kind: str, address: str, value: str) -> str:
        template = f"<pal::{combiner}, {kind}>"
        return _call(found, address, f"atomic_shared{template}", f"atomic{template}", f"({kind})({value})")

    return _each(scope, eqn, 1, express)


def _compare(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    if dtypes.is_float(eqn.outputs[0].type.dtype):
        raise Refused("atomic_cas of floats is not compiled for Hopper, whose atomics compare bits")

    def express(found: Access, kind: str, address: str, expected: str, value: str) -> str:
        arguments = f"({kind})({expected}), ({kind})({value})"
        return _call(found, address, f"atomic_compare_shared<{kind}>", f"atomic_compare<{kind}>", arguments)

    return _each(scope, eqn, 2, express)


# Semaphores: one thread of the warpgroup signals and waits.


def _semaphore(scope: Scope, root: Atom, stack: Sequence[Transform], indices: Sequence[Atom]) -> Index:
    """The address of one semaphore."""
    found = scope.entry(root)
    if not isinstance(found, Semaphores):
        raise Refused("a semaphore from outside of the kernel is not compiled for Hopper")
    chosen = scope.view(found.type, stack, indices)
    if chosen.peer:
        raise Refused("a semaphore of another block is not compiled for Hopper yet")
    strides = [math.prod(found.type.shape[n + 1 :]) for n in range(found.type.ndim)]
    return added(found.name, *(times(start.at, stride) for start, stride in zip(chosen.starts, strides, strict=True)))


def _signal(scope: Scope, eqn: Eqn) -> None:
    """Signal after a synchronisation, which orders the warpgroup's writes before."""
    root, amount, *indices = eqn.inputs
    address = _semaphore(scope, root, eqn.transforms, indices)
    scope.sync()
    scope.w.line(f"if (thread == 0) pal::add_release({address}, {scope.text(amount)});")


def _await(scope: Scope, eqn: Eqn) -> None:
    root, amount, *indices = eqn.inputs
    address, count = _semaphore(scope, root, eqn.transforms, indices), scope.text(amount)
    with scope.w.block("if (thread == 0)"):
        if not eqn.decrement:
            scope.w.line(f"while (pal::load_acquire({address}) < {count}) {{}}")
        else:
            with scope.w.block("while (true)"):
                scope.w.line(f"const int seen = pal::load_acquire({address});")
                taken = f"pal::atomic_compare({address}, seen, seen - {count}) == seen"
                scope.w.line(f"if (seen >= {count} && {taken}) break;")
    scope.sync()


def _count(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Read a semaphore in one thread and send the count to all threads."""
    root, *indices = eqn.inputs
    (out,) = eqn.outputs
    address = _semaphore(scope, root, eqn.transforms, indices)
    base = scope.w.fresh("count")
    scope.w.line(f"const u32 {base} = {exchange.room(scope, 4)};")
    scope.w.line(f"if (thread == 0) pal::store_shared<int>({base}, pal::load_acquire({address}));")
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    scope.sites.read.add(EXCHANGE)
    return [scope.number(out, f"pal::load_shared<int>({base})")]


RULES: dict[str, Rule] = {
    "atomic": _atomic,
    "atomic_cas": _compare,
    "semaphore_signal": _signal,
    "semaphore_wait": _await,
    "semaphore_read": _count,
}
