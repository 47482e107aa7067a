"""Threads of a launch, the blocks and clusters that they belong to, and asynchronous operations in flight."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from palladio.ir.core import Eqn, Program
from palladio.machine.run.addresses import Addresses
from palladio.machine.run.clocks import Component, ComponentTable
from palladio.machine.run.points import Point
from palladio.ops.threads.launch import MeshAxis

Coordinates = tuple[int, ...]

Trail = tuple[Any, Eqn, Any] | None
"""The iterations of loops: the outer trail, the innermost loop, and its index, or the point of a grid."""


class Running(Protocol):
    """The machine's interface for threads and schedules; the fields are those of `machine.Machine`."""

    checker: Any
    points: bool
    runnable: deque[Thread]
    async_ops: InFlight
    groups: list[Group]

    @property
    def only_spinning(self) -> bool:
        """True if every runnable thread only polls."""

    def take(self, number: int) -> Thread:
        """Remove and return the thread at an index among the runnable ones."""
        ...


class Group:
    """The threads of one launch, and the clusters still to start, each when there is room.

    Fields:
        window: the next clusters that fit, which may start in any order.
    """

    def __init__(self, parent: Thread | None, starts: Iterator[Callable[[], None]], capacity: int) -> None:
        self.parent = parent
        self.starts: Iterator[Callable[[], None]] | None = starts
        self.window: list[Callable[[], None]] = []
        self.capacity = capacity
        self.resident = 0
        self.running = 0
        self.waiting: list[Thread] = []
        self.ended: list[Any] = []

    @property
    def done(self) -> bool:
        """True if every thread has ended."""
        return self.starts is None and self.running == 0

    def start_next(self, pick: Callable[[int], int] | None = None) -> bool:
        """Start one more cluster if there is one and there is room for it.

        Args:
            pick: chooses among a number of clusters; by default the first. Later clusters do not fit yet, so a kernel
                whose blocks wait for blocks of lower numbers, as many do, works with any choice.
        """
        room = self.capacity - self.resident
        if self.starts is None or room <= 0:
            return False
        self.window += itertools.islice(self.starts, room - len(self.window) if pick is not None else not self.window)
        if not self.window:
            self.starts = None
            return False
        start = self.window.pop(pick(min(room, len(self.window))) if pick is not None else 0)
        self.resident += 1
        start()
        return True


class Cluster:
    """Blocks that run concurrently and can access each other's shared memory, or the cores of a mesh.

    `place` is its index in the grid; `title` names its program, if a launch has several.
    """

    def __init__(
        self, group: Group, number: int, place: Coordinates, axes: Sequence[MeshAxis], sizes: Coordinates
    ) -> None:
        self.group = group
        self.place = place
        self.axes = tuple(axis.name for axis in axes)
        self.sizes = sizes
        self.components = ComponentTable(number)
        self.blocks = {each: Block(self, each) for each in itertools.product(*map(range, sizes))}
        self.running = 0
        self.shared: dict[Any, dict[Coordinates, Any]] = {}
        self.left: dict[Any, int] = {}
        self.copies: dict[Any, Any] = {}
        self.cores = False
        self.subcores = any(axis.kind == "subcore" for axis in axes)
        self.title = ""

    def dissolve(self) -> None:
        """Its threads have ended: drop the references between threads, blocks and memory.

        Otherwise a run is one large cycle, which the garbage collector would have to traverse.
        """
        for block in self.blocks.values():
            for thread in block.threads:
                thread.observed.clear()
            for store in block.stores:
                store.dissolve()
            block.threads, block.stores = [], []
            block.scopes.clear()
        self.blocks = {}
        self.shared.clear()
        self.copies.clear()


class Block:
    """A block: the threads that share memory and barriers.

    Fields:
        place: its index within its cluster.
        registers: a counter of the registers that its warpgroups have returned.
    """

    def __init__(self, cluster: Cluster, place: Coordinates) -> None:
        self.cluster = cluster
        self.place = place
        self.threads: list[Thread] = []
        self.stores: list[Any] = []
        self.scopes: dict[Any, Any] = {}
        self.retired: list[Any] = []
        self.shared_bytes = 0
        self.named_barriers = 0
        self.registers: Any = None
        self.addresses = Addresses()
        self.running = 0
        self.ended = False
        self._along: dict[tuple[str, ...], list[Coordinates]] = {}
        self._neighbours: dict[tuple[str, ...], list[Coordinates]] = {}
        self.key = cluster.components.cluster, place
        """The key that identifies the block."""

    @property
    def label(self) -> str:
        """Its name in reports."""
        if self.cluster.cores:
            named = (f"{axis} {n}" for axis, n in zip(self.cluster.axes, self.place, strict=True))
            return " ".join(named) or "the core"
        where = (*self.cluster.place, *self.place) if self.cluster.sizes else self.cluster.place
        title = f"{self.cluster.title} " if self.cluster.title else ""
        return f"{title}block ({', '.join(map(str, where))})" if where else f"{title}block 0"

    def peer(self, blocks: Mapping[str, int]) -> Coordinates:
        """The place of the block that differs from this one along the named axes."""
        at = [blocks.get(axis, here) for axis, here in zip(self.cluster.axes, self.place, strict=True)]
        return tuple(at)

    def neighbours(self, groups: Sequence[tuple[str, ...]]) -> list[Coordinates]:
        """The places of the other blocks that differ along the axes of exactly one of these groups."""
        key = tuple(groups)
        found = self._neighbours.get(key)
        if found is None:
            reached = (place for group in key for place in self.along(group) if place != self.place)
            found = self._neighbours[key] = list(dict.fromkeys(reached))
        return found

    @property
    def extents(self) -> dict[str, int]:
        """The sizes of its cluster's axes by name."""
        return dict(zip(self.cluster.axes, self.cluster.sizes, strict=True))

    def along(self, axes: tuple[str, ...]) -> list[Coordinates]:
        """The places of all blocks that differ at most along these axes, including this one."""
        found = self._along.get(axes)
        if found is None:
            free = [
                range(size) if axis in axes else (at,)
                for axis, size, at in zip(self.cluster.axes, self.cluster.sizes, self.place, strict=True)
            ]
            found = self._along[axes] = list(itertools.product(*free))
        return found


class Thread:
    """One thread of control: a warpgroup of a block, a warp, or a core.

    Fields:
        component: its index in the clocks.
        program, values: its program and the inputs, until it ends.
        eqn: its current equation, as last reported to the scheduler.
        waiting: the `Wait` that blocks it.
        priority: for schedules by priority.
        uninitialised: values that depend on uninitialised memory, for the checker.
        point: the scheduling point at which it has yielded.
        observed: for each barrier, the number of completions that it has waited for.
        products: wgmma groups in flight, the oldest first; `issued` counts them.
        stores: closed groups of stores in flight, the oldest first; `open` is the group not yet closed, `groups`
            counts the closed ones.
        trail: the iteration of each loop that it is in, innermost first: (the rest, the loop, its index), or None.
        registers, requested: the registers of a lane that it has, and that it last requested; None before a request.
        warps: for each of its warps, the last thread that ran there, in a launch that has ended.
        ahead: of such a thread, for each barrier, the number of completions that it has observed beyond the warpgroup.
        releases, acquires, title, generic, asynchronous, product_component, read_component, write_component,
            last_product, last_store: the checker's.
    """

    def __init__(
        self,
        machine: Running,
        group: Group,
        block: Block,
        label: str,
        component: Component,
        before: Thread | None = None,
    ) -> None:
        self.machine = machine
        self.checker = machine.checker
        self.points = machine.points
        self.group = group
        self.block = block
        self.label = label
        self.component = component
        self.steps: Any = None
        self.program: Program | None = None
        self.values: Sequence[Any] = ()
        self.eqn: Eqn | None = None
        self.waiting: Wait | None = None
        self.point: Point | None = None
        self.priority = 0.0
        self.uninitialised: dict[int, Any] = {}
        self.done = False
        self.observed: dict[Any, int] = {}
        self.products: deque[AsyncOp] = deque()
        self.issued = before.issued if before is not None else 0
        self.open: list[AsyncOp] = []
        self.stores: deque[list[AsyncOp]] = before.stores if before is not None else deque()
        self.groups = before.groups if before is not None else 0
        self.trail: Trail = None
        self.registers: int | None = None
        self.requested: int | None = None
        self.warps: dict[Any, Thread] = {}
        self.ahead: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.releases: Any = None
        self.acquires: Any = None
        self.title = ""
        self.generic: Any = None
        self.asynchronous: Any = None
        self.product_component: Any = before and before.product_component
        self.read_component: Any = before and before.read_component
        self.write_component: Any = before and before.write_component
        self.last_product: Any = before and before.last_product
        self.last_store: Any = before and before.last_store

    @property
    def storing(self) -> Sequence[Thread]:
        """The threads whose copies to global memory it waits for: a warpgroup's wait includes those of its warps."""
        return self, *self.warps.values()

    def __repr__(self) -> str:
        return f"{self.block.label} {self.label}"


class Wait:
    """A request that a blocked thread yields: the kind of wait, and the object that will wake it."""

    __slots__ = ("eqn", "kind", "thing", "wanted")

    def __init__(self, kind: str, thing: Any, eqn: Eqn, wanted: Any = None) -> None:
        self.kind = kind
        self.thing = thing
        self.eqn = eqn
        self.wanted = wanted


class AsyncOp:
    """An asynchronous operation between its issue and its completion.

    Fields:
        kind: copy, product, store or dma.
        before: an asynchronous operation that must complete first.
        carry_out: performs its effect.
        thing: the barrier or semaphore that its completion touches, if any.
        touches: the effects of its completion on barriers and semaphores.
        trail: the loop iterations of its thread at the issue.
        parts: the shared memory that it accesses: buffers with transforms and their indices.
    """

    __slots__ = (
        "before",
        "carry_out",
        "done",
        "eqn",
        "kind",
        "notes",
        "parts",
        "priority",
        "thing",
        "thread",
        "touches",
        "trail",
    )

    def __init__(
        self,
        kind: str,
        thread: Thread,
        eqn: Eqn,
        carry_out: Callable[[], None],
        thing: Any = None,
        before: Any = None,
        touches: Sequence[Point] = (),
        parts: Sequence[Any] = (),
    ) -> None:
        self.kind = kind
        self.thread = thread
        self.parts = parts
        self.eqn = eqn
        self.carry_out = carry_out
        self.thing = thing
        self.before = before
        self.touches = touches
        self.trail = thread.trail
        self.done = False
        self.priority = 0.0
        self.notes: Any = None

    @property
    def ready(self) -> bool:
        """True if it may complete now."""
        return self.before is None or self.before.done

    @property
    def first(self) -> AsyncOp:
        """The operation that must complete first, itself if it is ready."""
        found = self
        while found.before is not None and not found.before.done:
            found = found.before
        return found

    def complete(self) -> None:
        """Complete it now, after the operations that must complete first."""
        if self.done:
            return
        if self.before is not None:
            self.before.complete()
            self.before = None
        self.done = True
        self.thread.machine.async_ops.discard(self)
        carry_out, self.carry_out = self.carry_out, _done  # it refers to the operation: break the cycle
        carry_out()
        self.notes = None


def _done() -> None:
    """The effect of a completed operation: nothing."""


class InFlight:
    """Asynchronous operations in flight, in the order of their issue, with access by number."""

    __slots__ = ("_numbered", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[AsyncOp, int] = {}
        self._numbered: list[AsyncOp] = []

    def __len__(self) -> int:
        return len(self._numbered)

    def __iter__(self) -> Iterator[AsyncOp]:
        return iter(self._numbers)

    def add(self, async_op: AsyncOp) -> None:
        """Add an operation."""
        self._numbers[async_op] = len(self._numbered)
        self._numbered.append(async_op)

    def discard(self, async_op: AsyncOp) -> None:
        """Remove an operation; the last one gets its number."""
        number = self._numbers.pop(async_op, None)
        if number is not None:
            last = self._numbered.pop()
            if last is not async_op:
                self._numbered[number] = last
                self._numbers[last] = number

    def ready(self, number: int) -> AsyncOp:
        """The operation of a number, or the one that must complete before it."""
        return self._numbered[number].first
