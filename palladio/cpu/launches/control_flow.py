"""Control flow and accesses in the threads of a launch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.cpu.emit.emitter import Emitter, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, fill
from palladio.cpu.emit.llvm_types import I64, PTR
from palladio.cpu.emit.scope import Binding, RefBinding, Rule, Scope
from palladio.cpu.launches.barriers import add_to, reached, thread_of
from palladio.cpu.launches.coroutines import WORD, CollectiveScopes, PeerAxis, SharedRef, ThreadFunction
from palladio.cpu.rules import control
from palladio.ir.core import Eqn, Op, Program, walk
from palladio.lower.place import arrivals_of
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer
from palladio.types.types import BARRIER, DMA_SEMAPHORE, SEMAPHORE, SYNCHRONISING, RefType
from palladio.types.views import row_major


def bytes_of(type: RefType) -> int:
    """The bytes of a buffer, barrier or semaphore: two words for a barrier, one for a semaphore."""
    if type.space in SYNCHRONISING:
        return math.prod(type.shape) * WORD * (2 if type.space is BARRIER else 1)
    return math.prod(type.shape) * type.dtype.itemsize


def buffer_of(type: RefType, base: V) -> StridedArray:
    """The buffer of a reference; of barriers and semaphores, their first words."""
    dtype = dtypes.INT64 if type.space in SYNCHRONISING else type.dtype
    return StridedArray(base, row_major(type.shape), type.shape, dtype)


def initialise_buffer(e: Emitter, type: RefType, base: V) -> None:
    """Initialise a new buffer."""
    if type.space is BARRIER:
        fill(e, StridedArray(base, (1,), (2 * math.prod(type.shape),), dtypes.INT64), 0)
    elif type.space in (SEMAPHORE, DMA_SEMAPHORE):
        fill(e, StridedArray(base, (1,), (math.prod(type.shape),), dtypes.INT64), 0)
    else:
        fill(e, buffer_of(type, base), type.initial)


def site_of(thread: ThreadFunction, type: RefType, base: V, siblings: Sequence[PeerAxis]) -> SharedRef:
    """A reference in the program of a thread, to memory at `base`."""
    e = thread.e
    memory = Allocation(str(type.space))
    if type.space is not BARRIER:
        return SharedRef(memory, buffer_of(type, base), type=type, siblings=siblings)
    units = thread.rooms.units if thread.rooms is not None else 1
    needed = arrivals_of(type, {each.name: each.size for each in thread.siblings}) * units
    site = SharedRef(memory, buffer_of(type, base), None, type, siblings, None, thread.peers, False, units, needed)
    # The counts of this thread, followed by the excess of each of its warps.
    rows = 1 + len(thread.rows or ())
    observed = thread.arena.buffer(e, (rows * site.counted,), dtypes.INT64)
    fill(e, observed, 0)
    return replace(site, observed=observed.base)


def waits_at_peers(program: Program) -> bool:
    """True if a thread waits at a barrier of another block."""
    return any(
        eqn.transforms and isinstance(eqn.transforms[0], Peer)
        for eqn in walk(program)
        if any(atom.type.space is BARRIER for atom in eqn.awaited)
    )


def own_site(thread: ThreadFunction, type: RefType) -> SharedRef:
    """A new buffer of one thread."""
    e = thread.e
    if type.space in SYNCHRONISING:
        words = thread.arena.buffer(e, (max(1, bytes_of(type) // WORD),), dtypes.INT64)
        initialise_buffer(e, type, words.base)
        return replace(site_of(thread, type, words.base, ()), private=True)
    buffer = thread.arena.buffer(e, type.shape, type.dtype)
    fill(e, buffer, type.initial)
    return SharedRef(Allocation("allocated"), buffer, type=type, private=True)


def _scope(scope: Scope, *operands: Binding, body: Program, allocations: tuple[RefType, ...]) -> Sequence[LazyArray]:
    places = [own_site(thread_of(scope), type) for type in allocations]
    return scope.function.run(body, [*operands, *places])


class CollectiveScope:
    """A scope that the threads of a block share, in the block's memory: some words, then the buffers.

    The words count the threads that have arrived, the visits of all threads, and the threads that have left; in the
    first block of a cluster, more words say which visits the barriers are ready for. Blocks of a cluster arrive at each
    other's barriers, also at those of a block that has not entered yet, or has not left the visit before: they have
    barriers for `RING` visits.
    """

    COME, VISITS, LEFT, READY = range(4)
    RING = 2
    WORDS = READY + RING

    @staticmethod
    def starts(allocations: Sequence[RefType], blocks: int) -> list[int]:
        """The offset of each buffer, and the end of the scope."""
        found = [64]
        for type in allocations:
            visits = CollectiveScope.RING if blocks > 1 and type.space in SYNCHRONISING else 1
            found.append(-(-(found[-1] + visits * CollectiveScope.size(type)) // 64) * 64)
        return found

    @staticmethod
    def size(type: RefType) -> int:
        """The bytes of a buffer for one visit."""
        return -(-bytes_of(type) // WORD) * WORD


def _collective_scope(
    scope: Scope, *operands: Binding, body: Program, allocations: tuple[RefType, ...]
) -> Sequence[LazyArray]:
    """All threads meet; the last one to arrive initialises the buffers."""
    e, thread = scope.e, thread_of(scope)
    rooms, block = thread.rooms, thread.block
    if rooms is None or block is None:
        raise Refused("a scope that threads share, outside of a block")
    start = rooms.starts[id(body)]
    room = e.pointer(block, start, 1)
    bases = [e.pointer(room, offset, 1) for offset in CollectiveScope.starts(allocations, rooms.blocks)[:-1]]
    come, visits, left = (
        e.pointer(room, number, WORD) for number in (CollectiveScope.COME, CollectiveScope.VISITS, CollectiveScope.LEFT)
    )
    visit = e.load(I64, visits, WORD)
    last = e.compare("icmp eq", add_to(e, come, 1), i64(rooms.threads))
    among = [n for n, type in enumerate(allocations) if rooms.blocks > 1 and type.space in SYNCHRONISING]
    with e.when(last):
        e.store(i64(0), come, WORD)
        for number, (type, base) in enumerate(zip(allocations, bases, strict=True)):
            if number not in among:
                initialise_buffer(e, type, base)
        if among:
            _initialise_for_cluster(thread, rooms, start, allocations, visit)
        add_to(e, visits, 1)
    thread.wait(lambda: e.compare("icmp ne", e.load(I64, visits, WORD), visit))
    turn = e.binary("urem", visit, i64(CollectiveScope.RING))
    for number in among:
        bases[number] = e.pointer(bases[number], turn, CollectiveScope.size(allocations[number]))
    places = [site_of(thread, type, base, thread.around) for type, base in zip(allocations, bases, strict=True)]
    outputs = scope.function.run(body, [*operands, *places])
    add_to(e, left, 1)
    return outputs


def _initialise_for_cluster(
    thread: ThreadFunction, rooms: CollectiveScopes, start: int, allocations: Sequence[RefType], visit: V
) -> None:
    """The first block of a cluster to arrive initialises all barriers, once none is used for an earlier visit."""
    e = thread.e
    each = [e.pointer(V("%cluster", PTR), start + n * rooms.stride, 1) for n in range(rooms.blocks)]
    earlier = e.binary("sub", visit, i64(CollectiveScope.RING - 1))
    gone = e.binary("mul", earlier, i64(rooms.threads))

    def all_gone() -> V:
        words = [e.load(I64, e.pointer(room, CollectiveScope.LEFT, WORD), WORD) for room in each]
        return e.truth([e.compare("icmp sge", word, gone) for word in words])  # type: ignore[return-value]

    thread.wait(all_gone)
    turn = e.binary("urem", visit, i64(CollectiveScope.RING))
    ready = e.pointer(e.pointer(each[0], CollectiveScope.READY, WORD), turn, WORD)
    with e.when(e.compare("icmp sle", e.load(I64, ready, WORD), visit)):
        e.store(e.index(e.add(visit, 1)), ready, WORD)
        for type, offset in zip(allocations, CollectiveScope.starts(allocations, rooms.blocks), strict=False):
            if type.space in SYNCHRONISING:
                for room in each:
                    initialise_buffer(e, type, e.pointer(e.pointer(room, offset, 1), turn, CollectiveScope.size(type)))


def only_observes(program: Program) -> bool:
    """True if a program has no effect that others see."""
    return all(
        kind is EffectKind.READ or (kind is EffectKind.SYNC and (eqn.op.control or _polls(eqn)))
        for eqn in walk(program)
        for kind, _ in eqn.effects
    )


def _polls(eqn: Eqn) -> bool:
    return eqn.op.sync is not None and eqn.op.sync.polls is not None


def _repeat(scope: Scope, *operands: Binding, condition: Program, body: Program, constants: int) -> Sequence[LazyArray]:
    """A while loop. One that accesses memory may wait for another thread's writes, so it yields in each step."""

    def turn() -> None:
        if any(isinstance(each, RefBinding) for each in operands):
            thread_of(scope).turn(only_observes(condition) and only_observes(body))

    return control.repeat(scope, *operands, condition=condition, body=body, constants=constants, end_step=turn)


def at_peer(op: Op, rule: Rule) -> Rule:
    """The rule of an access, which may be to the memory of another block."""

    def run(
        scope: Scope, place: Binding, *rest: LazyArray, transforms: Sequence[Any], **params: Any
    ) -> Sequence[LazyArray]:
        if not isinstance(place, SharedRef) or not transforms or not isinstance(transforms[0], Peer):
            return rule(scope, place, *rest, transforms=transforms, **params)
        buffer, stack = reached(scope, place, tuple(transforms), rest[op.index_start - 1 :])
        return rule(scope, RefBinding(place.memory, buffer), *rest, transforms=stack, **params)

    return run


RULES: dict[str, Rule] = {"collective_scope": _collective_scope}

CONTROL: dict[str, Rule] = {"scope": _scope, "repeat": _repeat}
"""Rules that replace those of grid kernels."""
