"""Atomic operations, by the first of the threads that hold an element, which sends the old value to the others; stores
into other blocks of the cluster; and semaphores, which are counters in global memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.base.dataclass import dataclass
from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import from_memory, literal, memory_type, narrow
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Entry, Registers, Semaphores, Shared
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import registers_of_each, warp
from palladio.hopper.layouts.shared import swizzled_text
from palladio.hopper.rules.barriers import address, arrive_at, slot
from palladio.hopper.rules.memory import Access, access, layout_for, store
from palladio.hopper.rules.reduce import COMBINE
from palladio.ir.core import Atom, Eqn, Var
from palladio.lower.refused import Refused
from palladio.ops.references.memory import JOINED_BY
from palladio.types import dtypes
from palladio.types.dtypes import DType
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

WORD_BYTES = 4
"""The hardware combines elements of 32 and 64 bits; narrower ones are replaced by compare-and-swap."""


def _call(found: Access, address: str, name: str, template: str, arguments: str) -> str:
    """The call of a primitive on an element, as a C expression."""
    where = found.where
    if not isinstance(where, Shared):
        return f"pal::{name}{template}({address}, {arguments})"
    place = swizzled_text(address, where.layout.swizzle)
    if found.part.peer:
        return f"pal::{name}_cluster{template}({place}, {found.scope.rank(found.part.peer)}, {arguments})"
    return f"pal::{name}_shared{template}({place}, {arguments})"


Express = Callable[..., list[str]]
"""`(access, C++ type, address, *values, register) -> statements` that set the register to the old value."""


def _each(scope: Scope, eqn: Eqn, count: int, express: Express) -> Sequence[Entry]:
    """Apply an atomic to every selected element."""
    root, *rest = eqn.inputs
    values, indices = rest[:count], rest[count:]
    (out,) = eqn.outputs
    layout = warp(out.type.shape) if scope.one_warp else registers_of_each(out.type.shape)
    found = access(scope, root, eqn.transforms, indices, layout if out.type.shape else None)
    kind = memory_type(found.dtype)
    scope.before_write(found.where.root)
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    given = [scope.array(value, layout) if value.type.shape else scope.scalar(value) for value in values]  # type: ignore[union-attr]
    texts = [each.text if hasattr(each, "text") else scope.element(each, "r", layout) for each in given]
    old = scope.declare(out.hint or "old", layout, out.type.dtype)
    tests = [layout.guard("r", "thread"), found.inside(index), layout.first_holder("thread")]
    test = " && ".join(each for each in tests if each)
    nothing = literal(dtypes.uninitialized(out.type.dtype), out.type.dtype)
    with scope.w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"):
        scope.w.line(f"{old.name}[r] = {nothing};")
        with scope.w.block(f"if ({test})" if test else ""):
            if isinstance(found.where, Shared):
                scope.w.line(f"const u32 at = {found.address(index)};")
                address = "at"
            else:
                address = found.address(index)
            for line in express(found, kind, address, *texts, f"{old.name}[r]"):
                scope.w.line(line)
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
    """Combine each element with a value; narrow elements by compare-and-swap."""

    def express(found: Access, kind: str, address: str, value: str, old: str) -> list[str]:
        if found.dtype.itemsize < WORD_BYTES:
            swap = _swap(found, address)
            lines = _compared(swap, found.dtype, lambda seen: joined(eqn.kind, found.dtype, seen, value))
            return [*lines, f"{old} = {_decoded('seen', found.dtype)};"]
        return [f"{old} = {combined(found, eqn.kind, address, value)};"]

    return _each(scope, eqn, 1, express)


def combined(found: Access, kind: str, address: str, value: str) -> str:
    """An element of 32 or 64 bits combined with a value: the old one, as a C expression."""
    type = memory_type(found.dtype)
    return _call(found, address, "atomic", f"<pal::{KINDS[kind]}, {type}>", f"({type})({value})")


def joined(kind: str, dtype: DType, seen: str, value: str) -> str:
    """An element combined with a value, as a C expression."""
    return value if kind == "exchange" else COMBINE[JOINED_BY[kind]](dtype, seen, f"({value})")


@dataclass(frozen=True)
class _Swap:
    """The access of one element by compare-and-swap, as C expressions.

    Fields:
        load: the bits of the element.
        replace: the replacement of the bits `expected` by others; gives the bits before.
    """

    load: str
    replace: Callable[[str], str]


def _swap(found: Access, address: str) -> _Swap:
    word = f"u{8 * found.dtype.itemsize}"
    if not isinstance(found.where, Shared):
        return _swap_of_array(f"({word}*)({address})", word)
    place = swizzled_text(address, found.where.layout.swizzle)
    peer = found.part.peer
    rank = f"_cluster<{word}>({place}, {found.scope.rank(peer)})" if peer else f"_shared<{word}>({place})"
    load = f"pal::load{rank}"
    return _Swap(load, lambda bits: _call(found, address, "atomic_compare", f"<{word}>", f"expected, {bits}"))


def _swap_of_array(place: str, word: str) -> _Swap:
    return _Swap(f"pal::load_global({place})", lambda bits: f"pal::atomic_compare<{word}>({place}, expected, {bits})")


def _compared(
    swap: _Swap, dtype: DType, new: Callable[[str], str], holds: Callable[[str], str] | None = None
) -> list[str]:
    """The statements that replace an element by compare-and-swap of its bits, as often as others replace it meanwhile.

    Its bits before are in `seen` then.

    Args:
        new: the new element, from the old one; both are C expressions.
        holds: the condition on the old element, without which it stays.
    """
    seen = _decoded("expected", dtype)
    return [
        f"u{8 * dtype.itemsize} seen = {swap.load}, expected;",
        "do {",
        "  expected = seen;",
        *([f"  if (!({holds(seen)})) break;"] if holds is not None else []),
        f"  seen = {swap.replace(_encoded(new(seen), dtype))};",
        "} while (seen != expected);",
    ]


def reduced_in_array(kind: str, dtype: DType, place: str, bits: str) -> list[str]:
    """The statements that combine an element of an array with another one.

    Args:
        place: the address of the element, of its type in memory.
        bits: the other element in its form in memory.
    """
    if dtype.itemsize < WORD_BYTES:
        swap = _swap_of_array(f"(u{8 * dtype.itemsize}*)({place})", f"u{8 * dtype.itemsize}")
        return _compared(swap, dtype, lambda seen: joined(kind, dtype, seen, from_memory(bits, dtype)))
    type = memory_type(dtype)
    return [f"pal::atomic<pal::{KINDS[kind]}, {type}>({place}, {bits});"]


def _decoded(bits: str, dtype: DType) -> str:
    """An element from its bits, as a C expression."""
    if name := narrow(dtype):
        return f"pal::float_{name}({bits})"
    if dtypes.is_float(dtype):
        return f"pal::{'double' if dtype == dtypes.FLOAT64 else 'float'}_of({bits})"
    return f"({memory_type(dtype)}){bits}"


def _encoded(text: str, dtype: DType) -> str:
    """The bits of an element, as a C expression."""
    if name := narrow(dtype):
        return f"pal::bits_{name}({text})"
    return f"pal::bits_of({text})" if dtypes.is_float(dtype) else f"(u{8 * dtype.itemsize})({text})"


def _compare(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Floats are compared as numbers, the hardware compares bits."""

    def express(found: Access, kind: str, address: str, expected: str, value: str, old: str) -> list[str]:
        if dtypes.is_float(found.dtype):
            swap = _swap(found, address)
            lines = _compared(swap, found.dtype, lambda seen: value, lambda seen: f"{seen} == {expected}")
            return [*lines, f"{old} = {_decoded('seen', found.dtype)};"]
        arguments = f"({kind})({expected}), ({kind})({value})"
        return [f"{old} = {_call(found, address, 'atomic_compare', f'<{kind}>', arguments)};"]

    return _each(scope, eqn, 2, express)


# Stores into the shared memory of a block of the cluster.


def _store_in_cluster(scope: Scope, eqn: Eqn) -> None:
    """Every thread stores its elements, or combines them; then each warp arrives at the barrier of the target block."""
    target, barrier, value, *indices = eqn.inputs
    stack, barrier_stack = eqn.transforms
    found = access(scope, target, stack, indices)
    scope.before_write(found.where.root)
    if eqn.reduction is None:
        store(scope, found, value, None)
    else:
        _combine_each(scope, found, value, eqn.reduction)
    scope.sites.written.add(found.where.root)
    barriers, number = slot(scope, barrier, barrier_stack, indices, remote=True)
    peer = scope.view(barriers.type, barrier_stack, indices).peer or found.part.peer
    scope.w.line("pal::sync_warp();")
    arrive_at(scope, barriers, address(barriers, number), scope.rank(peer))


def _combine_each(scope: Scope, found: Access, value: Atom, kind: str) -> None:
    """Combine elements of a buffer with those of a value, each by one of the threads that hold it."""
    layout = layout_for(scope, value) if value.type.shape else registers_of_each(())
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    tests = [layout.guard("r", "thread"), found.inside(index), layout.first_holder("thread")]
    text = scope.element(scope.array(value, layout), "r", layout)
    with scope.w.block(f"PAL_UNROLL for (int r = 0; r < {max(1, layout.count)}; ++r)"):
        scope.w.line(f"const u32 at = {found.address(index)};")
        test = " && ".join(each for each in tests if each)
        with scope.w.block(f"if ({test})" if test else ""):
            if found.dtype.itemsize < WORD_BYTES:
                for line in _compared(
                    _swap(found, "at"), found.dtype, lambda seen: joined(kind, found.dtype, seen, text)
                ):
                    scope.w.line(line)
            else:
                scope.w.line(f"{combined(found, kind, 'at', text)};")


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
    "async_store_smem": _store_in_cluster,
    "semaphore_signal": _signal,
    "semaphore_wait": _await,
    "semaphore_read": _count,
}
