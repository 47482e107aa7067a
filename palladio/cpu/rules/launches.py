"""What control flow and accesses become in the threads of a launch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from palladio.cpu.emit import Emitter, V
from palladio.cpu.launch_agents import WORD, Sibling, Site, Thread
from palladio.cpu.rules import control
from palladio.cpu.rules.barriers import add_to, agent_of, reached
from palladio.cpu.scope import Entry, Place, Refused, Rule, Scope
from palladio.cpu.tiles import Buffer, Memory, Tile, fill, row_major, scalar_tile
from palladio.ir.op import Op
from palladio.ir.program import Program, walk
from palladio.ops.launch import Launch, MeshShape
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
    units = agent.rooms.blocks if agent.rooms is not None else 1
    needed = arrivals.count * (1 + sum(each.size - 1 for each in axes)) * units
    observed = agent.arena.buffer(e, (max(1, math.prod(type.shape)),), dtypes.INT64)
    fill(e, observed, 0)
    return Site(memory, buffer_of(type, base), None, type, siblings, observed.base, units, needed)


def own_site(agent: Thread, type: RefType) -> Site:
    """A new buffer of one thread."""
    e = agent.e
    if type.space in SYNCHRONISING:
        words = agent.arena.buffer(e, (max(1, bytes_of(type) // WORD),), dtypes.INT64)
        begin(e, type, words.base)
        return site_of(agent, type, words.base, ())
    buffer = agent.arena.buffer(e, type.shape, type.dtype)
    fill(e, buffer, type.initial)
    return Site(Memory("allocated"), buffer, type=type)


def _scope(scope: Scope, *operands: Entry, body: Program, allocations: tuple[RefType, ...]) -> Sequence[Tile]:
    places = [own_site(agent_of(scope), type) for type in allocations]
    return _outputs(scope, body, operands, places)


def _outputs(scope: Scope, body: Program, operands: Sequence[Entry], places: Sequence[Place]) -> Sequence[Tile]:
    outputs = scope.function.run(body, [*operands, *places])
    memories = {place.memory for place in places}
    return [scope.keep(tile) if memories & set(tile.reads) else tile for tile in outputs]


class Room:
    """A scope that the threads of a block share, in the block's memory: how many have come, how often all, buffers."""

    COME, VISITS, WORDS = 0, 1, 2

    @staticmethod
    def starts(allocations: Sequence[RefType]) -> list[int]:
        """Where the buffers begin, and where the room ends."""
        found = [64]
        for type in allocations:
            found.append(-(-(found[-1] + bytes_of(type)) // 64) * 64)
        return found


def _collective_scope(
    scope: Scope, *operands: Entry, body: Program, allocations: tuple[RefType, ...]
) -> Sequence[Tile]:
    """All meet; the last one to come begins the buffers."""
    e, agent = scope.e, agent_of(scope)
    rooms, block = agent.rooms, agent.block
    if rooms is None or block is None:
        raise Refused("a scope that threads share, outside of a block, is not compiled for the CPU")
    barriers = any(type.space in SYNCHRONISING for type in allocations)
    if rooms.blocks > 1 and barriers and agent.loops:
        raise Refused("barriers that the blocks of a cluster allocate again and again are not compiled for the CPU")
    room = e.pointer(block, rooms.starts[id(body)], 1)
    bases = [e.pointer(room, start, 1) for start in Room.starts(allocations)[:-1]]
    come, visits = (e.pointer(room, number, WORD) for number in (Room.COME, Room.VISITS))
    before = e.load("i64", visits, WORD)
    last = e.compare("icmp eq", add_to(e, come, 1), V(str(rooms.threads), "i64"))
    with e.when(last):
        e.store(V("0", "i64"), come, WORD)
        add_to(e, visits, 1)
        for type, base in zip(allocations, bases, strict=True):
            if rooms.blocks == 1 or type.space not in SYNCHRONISING:
                begin(e, type, base)
    agent.wait(lambda: e.compare("icmp ne", e.load("i64", visits, WORD), before))
    places = [site_of(agent, type, base, agent.siblings) for type, base in zip(allocations, bases, strict=True)]
    outputs = _outputs(scope, body, operands, places)
    return [scope.keep(tile) if agent.shared & set(tile.reads) else tile for tile in outputs]


def _loop(scope: Scope, *operands: Entry, **params: Any) -> Sequence[Tile]:
    agent = agent_of(scope)
    agent.loops += 1
    try:
        return control.RULES["loop"](scope, *operands, **params)
    finally:
        agent.loops -= 1


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
    agent.look()
    agent.loops += 1
    control.put_all(scope, homes, agent.run(body, [*fixed, *(home.tile() for home in homes)]))
    agent.loops -= 1
    if any(isinstance(each, Place) for each in operands):
        agent.turn(only_looks(condition) and only_looks(body))
    e.jump(head)
    e.label(end)
    return [home.tile() for home in homes]


WITHIN = ("thread", "warp")
_BLOCKING = frozenset(
    ("barrier_wait", "barrier_sync", "barrier_test", "semaphore_wait", "semaphore_read", "dma_wait", "collective_scope")
)


def _launch(scope: Scope, *operands: Entry, launch: Launch, programs: tuple[Program, ...]) -> Sequence[Tile]:
    """The warps of a thread: one after the other, since none of them waits."""
    axes = [axis for mesh in launch.meshes for axis in mesh.axes]
    if launch.output_types or launch.dynamic or any(axis.kind not in WITHIN for axis in axes):
        raise Refused("a launch inside a thread, other than of its warps, is not compiled for the CPU")
    if any(eqn.op.name in (*_BLOCKING, "launch", "repeat") for program in programs for eqn in walk(program)):
        raise Refused("warps that wait are not compiled for the CPU")
    scratch = [None if type.space in OF_THREADS else own_site(agent_of(scope), type) for type in launch.scratch]
    for mesh, program in zip(launch.meshes, programs, strict=True):
        _warps(scope, mesh, program, operands, launch.scratch, scratch)
    return ()


def _warps(
    scope: Scope,
    mesh: MeshShape,
    program: Program,
    operands: Sequence[Entry],
    types: Sequence[RefType],
    shared: Sequence[Place | None],
) -> None:
    e = scope.e
    with e.loop(0, math.prod(axis.size or 0 for axis in mesh.axes)) as number:
        left = e.index(number)
        indices: list[Entry] = []
        for axis in reversed(mesh.axes):
            size = V(str(axis.size), "i64")
            index = e.convert("trunc", e.binary("urem", left, size), "i32")
            indices.insert(0, scalar_tile(e, index, dtypes.INT32))
            left = e.binary("udiv", left, size)
        scratch = [place or own_site(agent_of(scope), type) for place, type in zip(shared, types, strict=True)]
        scope.function.run(program, [*indices, *operands, *scratch])


def at_peer(op: Op, rule: Rule) -> Rule:
    """The rule of an access, which may be to the memory of another block."""

    def run(scope: Scope, place: Entry, *rest: Tile, transforms: Sequence[Any], **params: Any) -> Sequence[Tile]:
        if not isinstance(place, Site) or not transforms or not isinstance(transforms[0], Peer):
            return rule(scope, place, *rest, transforms=transforms, **params)
        buffer, stack = reached(scope, place, tuple(transforms), rest[op.access - 1 :])
        return rule(scope, Place(place.memory, buffer), *rest, transforms=stack, **params)

    return run


RULES: dict[str, Rule] = {"collective_scope": _collective_scope, "launch": _launch}

CONTROL: dict[str, Rule] = {"scope": _scope, "loop": _loop, "repeat": _repeat}
"""Rules that take the place of those of grid kernels."""
