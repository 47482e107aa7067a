"""Launches and the scopes that threads share: start, rendezvous and end of threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.ir.core import Eqn, Program, walk
from palladio.lower.place import owner_of, placements
from palladio.machine.check.deadlock import deadlock
from palladio.machine.run.buffers import Accumulator, Barrier, BarrierSlot, Buffer, allocate
from palladio.machine.run.core_memory import PerCore, part
from palladio.machine.run.coroutines import RULES, Coroutine, run_program
from palladio.machine.run.machine import Machine
from palladio.machine.run.occupancy import resident
from palladio.machine.run.threads import Block, Cluster, Group, Point, Thread, Wait
from palladio.ops.threads.dependent import griddepcontrol_launch_dependents
from palladio.ops.threads.launch import MEMORY_KINDS, THREAD_KINDS, Launch, MeshAxis, MeshShape
from palladio.ops.threads.owners import core_axes
from palladio.types.device import H100_SXM
from palladio.types.types import ACC, DMA_SEMAPHORE, HBM, SEMAPHORE, ArrayType, RefType
from palladio.types.types import BARRIER as BARRIER_SPACE


class ThreadMesh:
    """A mesh with known sizes, its axes grouped by kind."""

    def __init__(self, shape: MeshShape, sizes: Sequence[int]) -> None:
        self.shape = shape
        self.sizes = tuple(sizes)
        self.grid = self._axes("grid")
        self.beside = self._axes(*MEMORY_KINDS)
        self.within = self._axes(*THREAD_KINDS)
        self.cores = shape.has_cores
        self.dynamic = tuple(np.int32(size) for axis, size in zip(shape.axes, sizes, strict=True) if axis.size is None)

    def _axes(self, *kinds: str) -> list[int]:
        return [n for n, axis in enumerate(self.shape.axes) if axis.kind in kinds]

    def axes(self, numbers: Sequence[int]) -> list[MeshAxis]:
        return [self.shape.axes[n] for n in numbers]

    def places(self, numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Every index along these axes, the last axis fastest."""
        return itertools.product(*(range(self.sizes[n]) for n in numbers))

    def indices(self, grid: Sequence[int], beside: Sequence[int], within: Sequence[int]) -> list[Any]:
        """The indices along all axes, in the mesh's order."""
        at = dict(zip((*self.grid, *self.beside, *self.within), (*grid, *beside, *within), strict=True))
        return [np.int32(at[n]) for n in range(len(self.shape.axes))]

    def thread_label(self, within: Sequence[int]) -> str:
        """The name of a thread of a block in reports."""
        named = [f"{axis.name or 'thread'} {n}" for axis, n in zip(self.axes(self.within), within, strict=True)]
        return " ".join(named) or self.shape.label


class LaunchRun:
    """A launch in progress: the state that its programs share, and the start of its clusters."""

    def __init__(
        self,
        machine: Machine,
        parent: Thread | None,
        launch: Launch,
        programs: Sequence[Program],
        operands: Sequence[Any],
        eqn: Eqn | None,
    ) -> None:
        self.machine = machine
        self.parent = parent
        self.launch = launch
        self.programs = programs
        self.eqn = eqn
        sizes = iter(operands[: launch.dynamic])
        self.meshes = [
            ThreadMesh(shape, [int(next(sizes)) if axis.size is None else axis.size for axis in shape.axes])
            for shape in launch.meshes
        ]
        self.placements = placements(launch)
        self.on_cores = any(mesh.cores for mesh in self.meshes)
        starts = itertools.chain(*map(self._clusters, range(len(programs))))
        if machine.timer is not None:
            machine.timer.blocks = max(
                math.prod(mesh.sizes[n] for n in (*mesh.grid, *mesh.beside)) for mesh in self.meshes
            )
        self.group = Group(parent, starts, self._capacity())
        self.made: list[Any] = []
        self.overlaps = parent is None and any(
            eqn.op is griddepcontrol_launch_dependents for program in programs for eqn in walk(program)
        )
        self.cores = {n: self._cluster(n, ()) for n, mesh in enumerate(self.meshes) if mesh.cores}
        self.shared, self.outputs = self._share(operands[launch.dynamic :])
        self.scratch = dict(self._of_launch())
        self.warps: dict[Any, Thread] = {}
        machine.groups.append(self.group)

    def _capacity(self) -> int:
        """The number of clusters that are resident concurrently."""
        if self.parent is not None or self.on_cores:
            return H100_SXM.multiprocessors
        clusters = []
        for mesh, program in zip(self.meshes, self.programs, strict=True):
            blocks, warpgroups = (math.prod(mesh.sizes[n] for n in axes) for axes in (mesh.beside, mesh.within))
            clusters.append(H100_SXM.multiprocessors * resident(program, self.launch.scratch, warpgroups) // blocks)
        return max(1, min(clusters) * max(1, self.launch.gpus))

    def _name(self, position: int) -> str:
        var = self.programs[0].inputs[self.launch.indices(0) + position]
        return var.hint or f"operand {position}"

    def _scratch_name(self, number: int) -> str:
        return self._name(len(self.programs[0].inputs) - self.launch.indices(0) - len(self.launch.scratch) + number)

    def _share(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The operands of all programs, and the arrays that the launch returns."""
        written = self.launch.written(self.programs)
        aliased = dict(self.launch.aliases)
        first = self.launch.indices(0)
        kept: list[Any] = []
        arrays = list(operands)
        for position, value in enumerate(operands):
            type = self.programs[0].inputs[first + position].type
            if isinstance(type, ArrayType) or not isinstance(value, np.ndarray):
                kept.append(value)
                continue
            changes = position in written
            if changes and not self._is_reference(position):
                arrays[position] = np.array(value)
            kept.append(self._buffer(type, position, arrays[position], True, changes, value))
        sources = {target: source for source, target in aliased.items()}
        for number, (type, whole) in enumerate(zip(self.launch.output_refs, self.launch.output_types, strict=True)):
            if number in sources:
                kept.append(kept[sources[number]])
                arrays.append(arrays[sources[number]])
                continue
            arrays.append(np.full(whole.shape, type.initial, type.dtype))
            kept.append(self._buffer(type, len(operands) + number, arrays[-1], False))
            if len(operands) + number in written:
                self.made.append(kept[-1])
        return kept, arrays[len(operands) :]

    def _is_reference(self, position: int) -> bool:
        """True if an operand is a reference of the enclosing program, which sees the writes."""
        return self.eqn is not None and isinstance(self.eqn.inputs[self.launch.dynamic + position].type, RefType)

    def _buffer(
        self, type: RefType, position: int, array: Any, initialised: bool, written: bool = True, source: Any = None
    ) -> Any:
        """The memory of an input or output; on cores, one buffer for each device."""
        # An input aliased to an output has the output's name in the kernel.
        number = dict(self.launch.aliases).get(position)
        outputs = len(self.programs[0].inputs) - self.launch.indices(0) - len(self.launch.scratch)
        shown = position if number is None else outputs - len(self.launch.output_refs) + number
        name, axes = self._name(shown), self.launch.meshes[0].axes

        def make(site: Any) -> Buffer:
            own = array if site is None else part(array, type.shape, axes, site)
            buffer = Buffer(type, name, site, own)
            buffer.visible = True
            buffer.source = source if site is None else None
            self.machine.allocated(buffer, initialised, written or self.overlaps)
            return buffer

        return PerCore(_extents(core_axes(HBM, self.launch.meshes)), make) if self.on_cores else make(None)

    def _of_launch(self) -> Iterator[tuple[int, Any]]:
        """The scratch that lives as long as the launch: on cores all of it, else that in global memory.

        A launch inside a thread also has that of blocks.
        """
        for n, type in enumerate(self.launch.scratch):
            scope = self.placements[n].scope
            if self.on_cores:
                yield n, self._spread(n, type)
            elif scope == "launch" or (self.parent is not None and scope == "block"):
                home = self.parent.block if self.parent is not None and scope == "block" else None
                store = allocate(type, self._scratch_name(n), home)
                store.visible = False
                self.machine.allocated(store, False)
                yield n, store

    def _spread(self, number: int, type: RefType) -> PerCore:
        """The stores of scratch on cores."""
        placement = self.placements[number]

        def make(site: Any) -> Any:
            store = allocate(type, self._scratch_name(number), site)
            self.machine.allocated(store, False)
            return store

        return PerCore(_extents(placement.axes), make, self.cores[placement.mesh or 0])

    def _clusters(self, number: int) -> Iterator[Callable[[], None]]:
        """The functions that start each cluster of a mesh, in order."""
        mesh = self.meshes[number]
        if self.parent is not None:
            yield partial(self._start_within, number, self.parent.block)
            return
        for place in mesh.places(mesh.grid):
            yield partial(self._start, number, place)

    def _cluster(self, number: int, place: tuple[int, ...]) -> Cluster:
        mesh, machine = self.meshes[number], self.machine
        sizes = tuple(mesh.sizes[n] for n in mesh.beside)
        cluster = Cluster(self.group, machine.clusters, place, mesh.axes(mesh.beside), sizes)
        cluster.cores = mesh.cores
        if len(self.meshes) > 1 and not mesh.cores:
            cluster.title = self.programs[number].name
        machine.clusters += 1
        return cluster

    def _start(self, number: int, place: tuple[int, ...]) -> None:
        cluster = self.cores.get(number) or self._cluster(number, place)
        if not self.on_cores:
            for n, type in enumerate(self.launch.scratch):
                if n not in self.scratch and self.placements[n].scope == "block" and owner_of(type) in (None, number):
                    allocate_in_cluster(self.machine, cluster, type, self._scratch_name(n))
        for block in cluster.blocks.values():
            self._start_threads(number, block, place)

    def _start_within(self, number: int, block: Block) -> None:
        self._start_threads(number, block, ())

    def _start_threads(self, number: int, block: Block, place: tuple[int, ...]) -> None:
        mesh, machine, program = self.meshes[number], self.machine, self.programs[number]
        for within in mesh.places(mesh.within):
            label = program.name if mesh.cores else mesh.thread_label(within)
            if self.parent is not None:
                own = f"{program.name} " if len(self.meshes) > 1 else ""
                label = f"{self.parent.label} {own}{label}"
            thread = self._thread(block, label, (number, within))
            if machine.checker is not None:
                machine.checker.threads.starts(thread, self.parent)
            if machine.timer is not None:
                machine.timer.starts(thread, self.parent)
            indices = mesh.indices(place, block.place if self.parent is None else (), within)
            named = {axis.name: index for axis, index in zip(mesh.shape.axes, indices, strict=True)}
            shared = [each.at(named) if isinstance(each, PerCore) else each for each in self.shared]
            scratch = self._scratch_of(thread, number, named)
            machine.start(thread, program, [*indices, *mesh.dynamic, *shared, *scratch])

    def _thread(self, block: Block, label: str, place: Any) -> Thread:
        """A thread of a block. A relaunched warp inherits the clock and the observed barrier phases of its predecessor,
        so that clocks do not grow with every launch.
        """
        before = self.parent.warps.get(place) if self.parent is not None else None
        component = before.component if before is not None else block.cluster.components.new(f"{block.label} {label}")
        thread = Thread(self.machine, self.group, block, label, component, before)
        if self.parent is None:
            block.threads.append(thread)
            return thread
        self.warps[place] = thread
        thread.trail = self.parent.trail
        thread.observed = {slot: seen for slot, seen in self.parent.observed.items() if isinstance(slot, BarrierSlot)}
        for slot, more in before.ahead.items() if before is not None else ():
            thread.observed[slot] = thread.observed.get(slot, 0) + more
        return thread

    def leaves(self, parent: Thread) -> None:
        """The warps have ended: each keeps the phases that it observed; the warpgroup gets those that all observed."""
        warps = self.warps
        own = {slot for store in self.stores() if isinstance(store, Barrier) for slot in store.slots}
        for slot in {slot for warp in warps.values() for slot in warp.observed} - own:
            if not isinstance(slot, BarrierSlot):
                continue
            seen = [warp.observed.get(slot, 0) for warp in warps.values()]
            if min(seen):
                parent.observed[slot] = min(seen)
            for warp, each in zip(warps.values(), seen, strict=True):
                if each > min(seen):
                    warp.ahead[slot] = each - min(seen)
        parent.warps.update(warps)
        self.machine.threads = [thread for thread in self.machine.threads if thread.group is not self.group]

    def _scratch_of(self, thread: Thread, number: int, named: dict[str, Any]) -> Iterator[Any]:
        """The scratch of a thread, with None for scratch of another mesh's blocks."""
        of_block = iter(thread.block.stores)
        for n, type in enumerate(self.launch.scratch):
            kept = self.scratch.get(n)
            if kept is not None:
                yield kept.at(named) if isinstance(kept, PerCore) else kept
            elif owner_of(type) not in (None, number):
                yield None
            elif self.placements[n].scope == "thread":
                yield allocate_for(thread, type, self._scratch_name(n))
            else:
                yield next(of_block)

    def stores(self) -> Iterator[Any]:
        """Every store of the scratch that lives as long as the launch."""
        for kept in self.scratch.values():
            yield from kept.stores.values() if isinstance(kept, PerCore) else (kept,)

    def fresh(self) -> Iterator[Buffer]:
        """Every buffer that the launch allocated for an output that its programs write."""
        for made in self.made:
            yield from made.stores.values() if isinstance(made, PerCore) else (made,)


def _extents(axes: Sequence[MeshAxis]) -> dict[str, int]:
    return {axis.name: axis.size or 0 for axis in axes}


def allocate_for(thread: Thread, type: RefType, name: str) -> Any:
    """A private store of one thread."""
    store = allocate(type, name, thread.block)
    if isinstance(store, (Accumulator, Buffer)):
        store.owner = thread
    thread.machine.allocated(store, False)
    return store


def allocate_in_cluster(machine: Machine, cluster: Cluster, type: RefType, name: str) -> dict[Any, Any]:
    """A store in each block of a cluster, linked to its siblings."""
    stores = {place: allocate(type, name, block) for place, block in cluster.blocks.items()}
    for place, store in stores.items():
        store.siblings = stores
        cluster.blocks[place].stores.append(store)
        machine.allocated(store, False)
    return stores


def run_launch(
    machine: Machine, launch: Launch, programs: Sequence[Program], operands: Sequence[Any], eqn: Eqn | None = None
) -> list[Any]:
    """Run a launch to its end and return its outputs."""
    launching = LaunchRun(machine, None, launch, programs, operands, eqn)
    if machine.checker is not None:
        machine.checker.launch_starts(launching)
    if len(programs) > 1 or launching.on_cores:  # all meshes run concurrently, under every schedule
        while launching.group.start_next():
            pass
    if not machine.run():
        deadlock(machine)
    if machine.checker is not None:
        machine.checker.launch_ends(launching)
    return launching.outputs


@RULES.in_steps("launch")
def nested_launch(eqn: Eqn) -> Callable[..., Coroutine]:
    """A launch inside a thread: it starts the threads of its mesh and waits for their end."""
    launch, programs = eqn.launch, eqn.programs
    if any(axis.kind not in THREAD_KINDS for mesh in launch.meshes for axis in mesh.axes):
        raise PalladioValueError(
            "inside a kernel only a mesh of warps can be launched", got=", ".join(mesh.label for mesh in launch.meshes)
        )

    def steps(thread: Thread, *operands: Any) -> Coroutine:
        launching = LaunchRun(thread.machine, thread, launch, programs, operands, eqn)
        thread.eqn = eqn
        while not launching.group.done:
            if not launching.group.start_next():
                yield Wait("launch", launching.group, eqn)
        launching.leaves(thread)
        if thread.checker is not None:
            thread.checker.threads.joins(thread, launching.group)
            thread.checker.scope_ends(thread, eqn, list(launching.stores()))
        return launching.outputs

    return steps


class _Meeting:
    """A scope that the threads of a block share: the arrived threads, the stores, and the number that left."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.come: list[Thread] = []
        self.left = 0
        self.stores: list[Any] | None = None
        self.known: list[Any] = []  # the clocks of threads as they left
        self.waiting: list[Thread] = []


def _names(body: Program, count: int) -> list[str]:
    """The names of a scope's allocations in reports: those of the program, or else their kinds."""
    kinds = {BARRIER_SPACE: "barrier", SEMAPHORE: "semaphore", DMA_SEMAPHORE: "semaphore", ACC: "accumulator"}
    return [var.hint or kinds.get(var.type.space, "buffer") for var in body.inputs[len(body.inputs) - count :]]


@RULES.in_steps("collective_scope")
def collective_scope(eqn: Eqn) -> Callable[..., Coroutine]:
    """Wait for all threads, allocate once, run the body in each thread, free when the last one leaves."""
    body, allocations = eqn.body, eqn.allocations
    names = _names(body, len(allocations))

    def steps(thread: Thread, *operands: Any) -> Coroutine:
        block = thread.block
        visit = (eqn, thread.observed.get(eqn, 0))
        thread.observed[eqn] = visit[1] + 1
        meeting = block.scopes.setdefault(visit, _Meeting(len(block.threads)))
        if thread.points:
            yield Point("meet", meeting)
        meeting.come.append(thread)
        thread.eqn = eqn
        if len(meeting.come) == meeting.expected:
            shared = zip(allocations, names, strict=True)
            meeting.stores = [_allocate_shared(thread, visit, n, *each) for n, each in enumerate(shared)]
            if thread.checker is not None:
                thread.checker.threads.rendezvous(meeting.come)
            if thread.machine.timer is not None:
                thread.machine.timer.completed(meeting, 0)
            thread.machine.wake(meeting.waiting)
        if thread.points:
            yield Point("pass", meeting)
        while meeting.stores is None:
            yield Wait("collective_scope", meeting, eqn)
        if thread.machine.timer is not None:
            thread.machine.timer.observed(thread, meeting, 0, "scope", eqn)
        results = yield from run_program(thread, body, (*operands, *meeting.stores))
        meeting.left += 1
        if thread.checker is not None:
            meeting.known.append(thread.generic.copy())
        if meeting.left == meeting.expected:
            del block.scopes[visit]
            if thread.checker is not None:
                thread.checker.scope_ends(thread, eqn, meeting.stores, meeting.known)
            _forget_scope(block, visit, meeting.stores)
        return results

    return steps


def _forget_scope(block: Block, visit: Any, stores: Sequence[Any]) -> None:
    """Discard a block's records of a scope, so that they do not grow with the number of scopes entered."""
    for store in stores:
        for slot in store.slots if isinstance(store, Barrier) else ():
            for thread in block.threads:
                thread.observed.pop(slot, None)
    cluster = block.cluster
    cluster.left[visit] = cluster.left.get(visit, 0) + 1
    if cluster.left[visit] == len(cluster.blocks):
        del cluster.left[visit]
        for number in range(len(stores)):
            cluster.shared.pop((visit, number), None)


def _allocate_shared(thread: Thread, visit: Any, number: int, type: RefType, name: str) -> Any:
    """One allocation of a block in a scope; the blocks of a cluster that enter the same scope are its siblings.

    Barriers exist from the beginning of the kernel: the first block to enter allocates those of all blocks, so that it
    can arrive at the barriers of blocks that enter later.
    """
    cluster, here = thread.block.cluster, thread.block.place
    siblings = cluster.shared.setdefault((visit, number), {})
    coming = cluster.blocks.values() if type.space is BARRIER_SPACE else (thread.block,)
    for block in coming:
        if block.place not in siblings:
            store = siblings[block.place] = allocate(type, name, block)
            store.siblings = siblings
            thread.machine.allocated(store, False)
    return siblings[here]


def _allocate_on_core(thread: Thread, visit: Any, number: int, type: RefType, name: str) -> Any:
    """One allocation of a core in a scope; those of the other cores that enter the scope are its siblings.

    The first core to enter allocates for all, so that it can signal and copy to cores that enter later.
    """
    cluster, here = thread.block.cluster, thread.block
    siblings = cluster.shared.setdefault((visit, number), {})
    for block in cluster.blocks.values():
        if block.place not in siblings:
            store = siblings[block.place] = allocate(type, name, block)
            if isinstance(store, Buffer) and block is here:
                store.owner = thread
            store.siblings = siblings
            thread.machine.allocated(store, False)
    return siblings[here.place]


@RULES.in_steps("scope")
def scope(eqn: Eqn) -> Callable[..., Coroutine]:
    """Allocate for one thread and run the body. The cores of a mesh can access their peers' allocations."""
    body, allocations = eqn.body, eqn.allocations
    named = [*zip(allocations, _names(body, len(allocations)), strict=True)]

    def steps(thread: Thread, *operands: Any) -> Coroutine:
        cluster = thread.block.cluster
        if not cluster.cores:
            stores = [allocate_for(thread, *each) for each in named]
        else:
            visit = (eqn, thread.observed.get(eqn, 0))
            thread.observed[eqn] = visit[1] + 1
            stores = [_allocate_on_core(thread, visit, n, *each) for n, each in enumerate(named)]
        results = yield from run_program(thread, body, (*operands, *stores))
        if thread.checker is not None:
            thread.checker.scope_ends(thread, eqn, stores)
        if cluster.cores:
            _forget_scope(thread.block, visit, stores)
        return results

    return steps
