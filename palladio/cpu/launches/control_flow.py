"""Control flow and accesses in the threads of a launch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, fill
from palladio.cpu.emit.llvm_types import I64, PTR
from palladio.cpu.emit.scope import Binding, RefBinding, Rule, Scope
from palladio.cpu.launches.barriers import add_to, reached, thread_of
from palladio.cpu.launches.coroutines import WORD, PeerAxis, SharedRef, ThreadFunction
from palladio.cpu.rules import control
from palladio.ir.core import Eqn, Op, Program, walk
from palladio.lower.place import arrivals_of, reached_at_peers
from palladio.lower.refused import Refused
from palladio.ops.control import scope as private_scope
from palladio.ops.threads.launch import collective_scope
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
    """The memory of one thread. What the peers of a core reach of it is in the memory of the core."""
    thread = thread_of(scope)
    if thread.rooms is None or id(body) not in thread.rooms.starts:
        return scope.function.run(body, [*operands, *(own_site(thread, type) for type in allocations)])
    reached = reached_by_peers(body, allocations)
    layout = CollectiveScope([allocations[n] for n in reached], range(len(reached)))
    entry = _Entry(thread, layout, id(body))
    entry.initialise_early()
    add_to(thread.e, entry.visits, 1)
    shared = dict(zip(reached, entry.sites(), strict=True))
    places = [shared[n] if n in shared else own_site(thread, type) for n, type in enumerate(allocations)]
    outputs = scope.function.run(body, [*operands, *places])
    add_to(thread.e, entry.left, 1)
    return outputs


def reached_by_peers(body: Program, allocations: Sequence[RefType]) -> list[int]:
    """The positions of the allocations of a scope that the program of a core reaches at its peers."""
    first = len(body.inputs) - len(allocations)
    return sorted(n - first for n in reached_at_peers(body) if n >= first)


@dataclass(frozen=True)
class CollectiveScope:
    """The memory of a scope that several threads use: some words, then the buffers.

    The words count the threads that have arrived, the visits of all threads, and the threads that have left; in the
    first block of a cluster, more words say which visits the early buffers are ready for.

    Fields:
        types: of its buffers.
        early: the positions of those that peers use before their block has entered, or has left the visit before. They
            have memory for `RING` visits.
    """

    types: Sequence[RefType]
    early: Sequence[int]

    COME, VISITS, LEFT, READY = range(4)
    RING = 2
    WORDS = READY + RING

    @staticmethod
    def of(eqn: Eqn, blocks: int, on_cores: bool) -> CollectiveScope | None:
        """The memory of a scope; None if it is private to each thread, or for another operation."""
        if eqn.op is collective_scope:
            return CollectiveScope.of_threads(eqn.allocations, blocks)
        reached = reached_by_peers(eqn.body, eqn.allocations) if on_cores and eqn.op is private_scope else []
        return CollectiveScope([eqn.allocations[n] for n in reached], range(len(reached))) if reached else None

    @staticmethod
    def of_threads(allocations: Sequence[RefType], blocks: int) -> CollectiveScope:
        """The memory of a scope that the threads of a block enter together.

        Blocks of a cluster arrive at each other's barriers at any time.
        """
        early = [n for n, type in enumerate(allocations) if blocks > 1 and type.space in SYNCHRONISING]
        return CollectiveScope(allocations, early)

    @property
    def starts(self) -> list[int]:
        """The offset of each buffer, and the end of the scope."""
        found = [64]
        for number, type in enumerate(self.types):
            visits = self.RING if number in self.early else 1
            found.append(-(-(found[-1] + visits * self.size(type)) // 64) * 64)
        return found

    @staticmethod
    def size(type: RefType) -> int:
        """The bytes of a buffer for one visit."""
        return -(-bytes_of(type) // WORD) * WORD


class _Entry:
    """The code by which a thread enters a scope whose memory others use."""

    def __init__(self, thread: ThreadFunction, layout: CollectiveScope, body: int) -> None:
        if thread.rooms is None or thread.block is None:
            raise Refused("a scope that threads share, outside of a block")
        e = self.e = thread.e
        self.thread, self.layout, self.rooms = thread, layout, thread.rooms
        self.start = self.rooms.starts[body]
        room = e.pointer(thread.block, self.start, 1)
        self.bases = [e.pointer(room, offset, 1) for offset in layout.starts[:-1]]
        self.come, self.visits, self.left = (
            e.pointer(room, number, WORD)
            for number in (CollectiveScope.COME, CollectiveScope.VISITS, CollectiveScope.LEFT)
        )
        self.visit = e.load(I64, self.visits, WORD)

    def initialise_early(self) -> None:
        """The first block of a cluster to arrive initialises the early buffers of all, once no block uses their memory
        for an earlier visit.
        """
        e, layout, rooms = self.e, self.layout, self.rooms
        each = [e.pointer(V("%cluster", PTR), self.start + n * rooms.stride, 1) for n in range(rooms.blocks)]
        earlier = e.binary("sub", self.visit, i64(CollectiveScope.RING - 1))
        gone = e.binary("mul", earlier, i64(rooms.threads))

        def all_gone() -> V:
            words = [e.load(I64, e.pointer(room, CollectiveScope.LEFT, WORD), WORD) for room in each]
            return e.truth([e.compare("icmp sge", word, gone) for word in words])  # type: ignore[return-value]

        self.thread.wait(all_gone)
        turn = e.binary("urem", self.visit, i64(CollectiveScope.RING))
        ready = e.pointer(e.pointer(each[0], CollectiveScope.READY, WORD), turn, WORD)
        starts = layout.starts
        with e.when(e.compare("icmp sle", e.load(I64, ready, WORD), self.visit)):
            e.store(e.index(e.add(self.visit, 1)), ready, WORD)
            for number in layout.early:
                type = layout.types[number]
                for room in each:
                    base = e.pointer(room, starts[number], 1)
                    initialise_buffer(e, type, e.pointer(base, turn, CollectiveScope.size(type)))

    def sites(self) -> list[SharedRef]:
        """The buffers of this visit."""
        e, layout = self.e, self.layout
        turn = e.binary("urem", self.visit, i64(CollectiveScope.RING))
        for number in layout.early:
            self.bases[number] = e.pointer(self.bases[number], turn, CollectiveScope.size(layout.types[number]))
        pairs = zip(layout.types, self.bases, strict=True)
        return [site_of(self.thread, type, base, self.thread.around) for type, base in pairs]


def _collective_scope(
    scope: Scope, *operands: Binding, body: Program, allocations: tuple[RefType, ...]
) -> Sequence[LazyArray]:
    """All threads meet; the last one to arrive initialises the buffers."""
    e, thread = scope.e, thread_of(scope)
    blocks = thread.rooms.blocks if thread.rooms is not None else 1
    entry = _Entry(thread, CollectiveScope.of_threads(allocations, blocks), id(body))
    last = e.compare("icmp eq", add_to(e, entry.come, 1), i64(entry.rooms.threads))
    with e.when(last):
        e.store(i64(0), entry.come, WORD)
        for number, (type, base) in enumerate(zip(allocations, entry.bases, strict=True)):
            if number not in entry.layout.early:
                initialise_buffer(e, type, base)
        if entry.layout.early:
            entry.initialise_early()
        add_to(e, entry.visits, 1)
    thread.wait(lambda: e.compare("icmp ne", e.load(I64, entry.visits, WORD), entry.visit))
    outputs = scope.function.run(body, [*operands, *entry.sites()])
    add_to(e, entry.left, 1)
    return outputs


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
