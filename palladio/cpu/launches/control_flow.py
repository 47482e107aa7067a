"""What control flow and accesses become in the threads of a launch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.cpu.analysis.work import effort
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.lazy_array import Buffer, Memory, Tile, fill, row_major
from palladio.cpu.emit.scope import Entry, Place, Refused, Rule, Scope
from palladio.cpu.launches.barriers import add_to, agent_of, reached
from palladio.cpu.launches.coroutines import WORD, Rooms, Sibling, Site, Thread
from palladio.cpu.rules import control
from palladio.ir.core import Op, Program, walk
from palladio.types import dtypes
from palladio.types.attributes import Arrivals
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer
from palladio.types.types import ACC, BARRIER, DMA_SEMAPHORE, REGS, SEMAPHORE, SYNCHRONISING, RefType

OF_THREADS = (ACC, REGS)


def bytes_of(type: RefType) -> int:
    """How much memory a buffer, barrier or semaphore takes: of barriers two words, of semaphores one."""
    if type.space in SYNCHRONISING:
        return math.prod(type.shape) * WORD * (2 if type.space is BARRIER else 1)
    return math.prod(type.shape) * type.dtype.itemsize


def buffer_of(type: RefType, base: V) -> Buffer:
    """The buffer of a reference; of barriers and semaphores, their first words."""
    dtype = dtypes.INT64 if type.space in SYNCHRONISING else type.dtype
    return Buffer(base, row_major(type.shape), type.shape, dtype)


def begin(e: Emitter, type: RefType, base: V) -> None:
    """Give a buffer what it holds when it is allocated."""
    if type.space is BARRIER:
        fill(e, Buffer(base, (1,), (2 * math.prod(type.shape),), dtypes.INT64), 0)
    elif type.space in (SEMAPHORE, DMA_SEMAPHORE):
        fill(e, Buffer(base, (1,), (math.prod(type.shape),), dtypes.INT64), 0)
    else:
        fill(e, buffer_of(type, base), type.initial)


def site_of(agent: Thread, type: RefType, base: V, siblings: Sequence[Sibling]) -> Site:
    """A reference as the program of an agent sees it, allocated somewhere."""
    e = agent.e
    memory = Memory(str(type.space))
    if type.space not in SYNCHRONISING:
        agent.shared.add(memory)
    if type.space is not BARRIER:
        return Site(memory, buffer_of(type, base), type=type, siblings=siblings)
    arrivals = type.attribute(Arrivals) or Arrivals()
    axes = [each for each in agent.siblings if each.name in arrivals.cluster_axes]
    units = agent.rooms.units if agent.rooms is not None else 1
    needed = arrivals.count * (1 + sum(each.size - 1 for each in axes)) * units
    site = Site(memory, buffer_of(type, base), None, type, siblings, None, agent.peers, False, units, needed)
    # Behind what this thread has waited for, how much more each of its warps has.
    rows = 1 + len(agent.rows or ())
    observed = agent.arena.buffer(e, (rows * site.counted,), dtypes.INT64)
    fill(e, observed, 0)
    return replace(site, observed=observed.base)


def waits_at_peers(program: Program) -> bool:
    """Whether a thread waits at a barrier of another block."""
    return any(
        stack and isinstance(stack[0], Peer)
        for eqn in walk(program)
        if eqn.op.name in ("barrier_wait", "barrier_sync", "barrier_test")
        for stack in [eqn.params["transforms"]]
    )


def own_site(agent: Thread, type: RefType) -> Site:
    """A new buffer of one thread."""
    e = agent.e
    if type.space in SYNCHRONISING:
        words = agent.arena.buffer(e, (max(1, bytes_of(type) // WORD),), dtypes.INT64)
        begin(e, type, words.base)
        return replace(site_of(agent, type, words.base, ()), private=True)
    buffer = agent.arena.buffer(e, type.shape, type.dtype)
    fill(e, buffer, type.initial)
    return Site(Memory("allocated"), buffer, type=type, private=True)


def _scope(scope: Scope, *operands: Entry, body: Program, allocations: tuple[RefType, ...]) -> Sequence[Tile]:
    places = [own_site(agent_of(scope), type) for type in allocations]
    return _outputs(scope, body, operands, places)


def _outputs(scope: Scope, body: Program, operands: Sequence[Entry], places: Sequence[Place]) -> Sequence[Tile]:
    outputs = scope.function.run(body, [*operands, *places])
    memories = {place.memory for place in places}
    return [scope.keep(tile) if memories & set(tile.reads) else tile for tile in outputs]


class Room:
    """A scope that the threads of a block share, in the block's memory: some words, then the buffers.

    The words are how many threads have come, how often all have, how many have left, and, in the first block of a
    cluster, which visits the barriers are ready for. Blocks of a cluster arrive at each other's barriers, also at those
    of a block that is not there yet, or still there from the visit before: they have barriers for `RING` visits.
    """

    COME, VISITS, LEFT, READY = range(4)
    RING = 2
    WORDS = READY + RING

    @staticmethod
    def starts(allocations: Sequence[RefType], blocks: int) -> list[int]:
        """Where the buffers begin, and where the room ends."""
        found = [64]
        for type in allocations:
            visits = Room.RING if blocks > 1 and type.space in SYNCHRONISING else 1
            found.append(-(-(found[-1] + visits * Room.size(type)) // 64) * 64)
        return found

    @staticmethod
    def size(type: RefType) -> int:
        """The bytes of a buffer for one visit."""
        return -(-bytes_of(type) // WORD) * WORD


def _collective_scope(
    scope: Scope, *operands: Entry, body: Program, allocations: tuple[RefType, ...]
) -> Sequence[Tile]:
    """All meet; the last one to come begins the buffers."""
    e, agent = scope.e, agent_of(scope)
    rooms, block = agent.rooms, agent.block
    if rooms is None or block is None:
        raise Refused("a scope that threads share, outside of a block")
    start = rooms.starts[id(body)]
    room = e.pointer(block, start, 1)
    bases = [e.pointer(room, offset, 1) for offset in Room.starts(allocations, rooms.blocks)[:-1]]
    come, visits, left = (e.pointer(room, number, WORD) for number in (Room.COME, Room.VISITS, Room.LEFT))
    visit = e.load("i64", visits, WORD)
    last = e.compare("icmp eq", add_to(e, come, 1), V(str(rooms.threads), "i64"))
    among = [n for n, type in enumerate(allocations) if rooms.blocks > 1 and type.space in SYNCHRONISING]
    with e.when(last):
        e.store(V("0", "i64"), come, WORD)
        for number, (type, base) in enumerate(zip(allocations, bases, strict=True)):
            if number not in among:
                begin(e, type, base)
        if among:
            _begin_among_blocks(agent, rooms, start, allocations, visit)
        add_to(e, visits, 1)
    agent.wait(lambda: e.compare("icmp ne", e.load("i64", visits, WORD), visit))
    turn = e.binary("urem", visit, V(str(Room.RING), "i64"))
    for number in among:
        bases[number] = e.pointer(bases[number], turn, Room.size(allocations[number]))
    places = [site_of(agent, type, base, agent.around) for type, base in zip(allocations, bases, strict=True)]
    outputs = _outputs(scope, body, operands, places)
    kept = [scope.keep(tile) if agent.shared & set(tile.reads) else tile for tile in outputs]
    add_to(e, left, 1)
    return kept


def _begin_among_blocks(agent: Thread, rooms: Rooms, start: int, allocations: Sequence[RefType], visit: V) -> None:
    """The first block of a cluster to come begins the barriers of all, when none uses them for an earlier visit."""
    e = agent.e
    each = [e.pointer(V("%cluster", "ptr"), start + n * rooms.stride, 1) for n in range(rooms.blocks)]
    earlier = e.binary("sub", visit, V(str(Room.RING - 1), "i64"))
    gone = e.binary("mul", earlier, V(str(rooms.threads), "i64"))

    def all_gone() -> V:
        words = [e.load("i64", e.pointer(room, Room.LEFT, WORD), WORD) for room in each]
        return e.truth([e.compare("icmp sge", word, gone) for word in words])  # type: ignore[return-value]

    agent.wait(all_gone)
    turn = e.binary("urem", visit, V(str(Room.RING), "i64"))
    ready = e.pointer(e.pointer(each[0], Room.READY, WORD), turn, WORD)
    with e.when(e.compare("icmp sle", e.load("i64", ready, WORD), visit)):
        e.store(e.index(e.add(visit, 1)), ready, WORD)
        for type, offset in zip(allocations, Room.starts(allocations, rooms.blocks), strict=False):
            if type.space in SYNCHRONISING:
                for room in each:
                    begin(e, type, e.pointer(e.pointer(room, offset, 1), turn, Room.size(type)))


def only_looks(program: Program) -> bool:
    """Whether a program changes nothing that others see."""
    known = ("barrier_test", "semaphore_read")
    return all(
        kind is EffectKind.READ or (kind is EffectKind.SYNC and (eqn.op.control or eqn.op.name in known))
        for eqn in walk(program)
        for kind, _ in eqn.effects
    )


def _repeat(scope: Scope, *operands: Entry, condition: Program, body: Program, constants: int) -> Sequence[Tile]:
    """A while loop. One that reaches memory may wait for what another thread writes: the others get their turn."""
    e, agent = scope.e, agent_of(scope)
    fixed = operands[:constants]
    homes = control.carried(scope, operands[constants:])
    head, inside, end = e.fresh("again"), e.fresh("body"), e.fresh("done")
    e.jump(head)
    e.label(head)
    (goes_on,) = agent.run(condition, [*fixed, *(home.tile() for home in homes)])
    e.branch(goes_on.at((), 1), inside, end)
    e.label(inside)
    agent.look(effort(body))
    control.put_all(scope, homes, agent.run(body, [*fixed, *(home.tile() for home in homes)]))
    if any(isinstance(each, Place) for each in operands):
        agent.turn(only_looks(condition) and only_looks(body))
    e.jump(head)
    e.label(end)
    return [home.tile() for home in homes]


def at_peer(op: Op, rule: Rule) -> Rule:
    """The rule of an access, which may be to the memory of another block."""

    def run(scope: Scope, place: Entry, *rest: Tile, transforms: Sequence[Any], **params: Any) -> Sequence[Tile]:
        if not isinstance(place, Site) or not transforms or not isinstance(transforms[0], Peer):
            return rule(scope, place, *rest, transforms=transforms, **params)
        buffer, stack = reached(scope, place, tuple(transforms), rest[op.access - 1 :])
        return rule(scope, Place(place.memory, buffer), *rest, transforms=stack, **params)

    return run


RULES: dict[str, Rule] = {"collective_scope": _collective_scope}

CONTROL: dict[str, Rule] = {"scope": _scope, "repeat": _repeat}
"""Rules that take the place of those of grid kernels."""
