"""A `launch` as the text of one LLVM module.

    i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)

runs the clusters from `first` below `last`, mesh by mesh, and may return before they have ended, to be called again.
`arrays` are the addresses of the operands, the outputs, and the scratch of the whole launch; `sizes` the dynamic sizes
of mesh axes and the number of clusters of each mesh; `arena` is the memory of the worker, which begins with the words
of `Header`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.cpu.analysis.work import work_estimate
from palladio.cpu.emit.emitter import Int, V, i64
from palladio.cpu.emit.lazy_array import Allocation, array_in, number_array, scalar_array
from palladio.cpu.emit.llvm_types import I64, PTR
from palladio.cpu.emit.scope import Binding, RefBinding
from palladio.cpu.launches.control_flow import (
    CollectiveScope,
    buffer_of,
    bytes_of,
    own_site,
    site_of,
    waits_at_peers,
)
from palladio.cpu.launches.coroutines import WORD, CollectiveScopes, PeerAxis, SharedRef, ThreadCoroutine
from palladio.cpu.launches.scheduler import Member, scheduler
from palladio.cpu.launches.warps import rows_of
from palladio.cpu.rule_table import LAUNCHED, REFUSED_IN_LAUNCHES
from palladio.cpu.runtime.callbacks import Callback
from palladio.ir.core import Eqn, Program, walk
from palladio.lower.place import owner_of, placements
from palladio.lower.refused import Refused
from palladio.ops.control import repeat
from palladio.ops.threads.copy import copy_smem_to_gmem
from palladio.ops.threads.launch import (
    MEMORY_KINDS,
    THREAD_KINDS,
    Launch,
    MeshAxis,
    MeshShape,
    Placement,
)
from palladio.ops.threads.owners import OF_BLOCKS, OF_THREADS
from palladio.types.types import (
    DMA_SEMAPHORE,
    SEMAPHORE,
    SYNCHRONISING,
    ArrayType,
    RefType,
    Type,
)

ALIGNMENT = 64


@dataclass(frozen=True)
class LaunchArray:
    """Scratch of the whole launch: `words` for barriers and semaphores, which are integers of eight bytes."""

    type: RefType
    places: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape: one buffer for each index along the axes that have their own."""
        if self.type.space in SYNCHRONISING:
            return (*self.places, max(1, bytes_of(self.type) // WORD))
        return (*self.places, *self.type.shape)


@dataclass(frozen=True)
class LoweredLaunch:
    """One compiled launch.

    Fields:
        text: a module with one function `kernel`.
        scratch: the arrays that are allocated for the whole launch.
        together: whether all its blocks take turns on one worker, since they may wait for each other.
        eager: whether all clusters start before any of them continues.
        fixed: bytes of the memory of a cluster, besides the frames of its suspended coroutines.
        frames: coroutines of a cluster, at most.
        callbacks: the operations that it calls Python for.
    """

    text: str
    scratch: Sequence[LaunchArray]
    together: bool
    eager: bool
    fixed: int
    frames: int
    callbacks: Sequence[Callback]


def lower_launch(
    launch: Launch, programs: Sequence[Program], operands: Sequence[Type], clusters: Sequence[int] = ()
) -> LoweredLaunch:
    """The LLVM module of a launch.

    Args:
        operands: the types of its operands, those of dynamic axes first.
        clusters: the dynamic sizes of axes of clusters, mesh by mesh; missing ones are 1.

    Raises:
        Refused: if something is not compiled, with the reason.
    """
    return _LaunchEmitter(launch, programs, operands, clusters).emit()


def varies(axis: MeshAxis) -> bool:
    """True if the code depends on the size of an axis that is known only at the call."""
    return axis.size is None and axis.kind != "grid"


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class _LoweredMesh:
    """A mesh of the launch, with its axes by kind; the axes of clusters have their sizes."""

    def __init__(self, shape: MeshShape, clusters: Iterator[int]) -> None:
        axes = (replace(axis, size=next(clusters, 1)) if varies(axis) else axis for axis in shape.axes)
        self.shape = MeshShape(shape.label, tuple(axes))
        self.axes = self.shape.axes
        self.dynamic = [n for n, axis in enumerate(shape.axes) if axis.size is None]
        self.grid = self.shape.of("grid")
        self.blocks = math.prod(axis.size or 0 for axis in self.shape.of(*MEMORY_KINDS))
        self.threads = math.prod(axis.size or 0 for axis in self.shape.of(*THREAD_KINDS))
        self.cores = self.shape.has_cores


class _LaunchEmitter:
    """A launch while it is lowered."""

    def __init__(
        self, launch: Launch, programs: Sequence[Program], operands: Sequence[Type], clusters: Sequence[int]
    ) -> None:
        self.launch = launch
        self.programs = programs
        self.operands = operands[launch.dynamic :]
        sizes = iter(clusters)
        self.meshes = [_LoweredMesh(shape, sizes) for shape in launch.meshes]
        self.on_cores = any(mesh.cores for mesh in self.meshes)
        self.callbacks: list[Callback] = []
        self.arrays = len(self.operands) + len(launch.output_types)
        self.scratch: list[LaunchArray] = []
        self.placements = placements(launch, [mesh.shape for mesh in self.meshes])
        self.places = [self._array(*each) for each in zip(launch.scratch, self.placements, strict=True)]
        self.written = launch.written(programs)

    def _array(self, type: RefType, placement: Placement) -> int | None:
        """The position among the arrays of scratch of the whole launch; None for scratch of blocks and threads."""
        if placement.scope in ("thread", "block"):
            return None
        self.scratch.append(LaunchArray(type, tuple(axis.size or 0 for axis in placement.axes)))
        return self.arrays + len(self.scratch) - 1

    @property
    def together(self) -> bool:
        """True if blocks may wait for each other, or observe the order in which they run."""
        return self.on_cores or len(self.programs) > 1 or bool(self.scratch) or any(map(self._couples, self.eqns()))

    def eqns(self) -> Iterator[Eqn]:
        """All equations of the programs."""
        for program in self.programs:
            yield from walk(program)

    @staticmethod
    def _couples(eqn: Eqn) -> bool:
        if eqn.op.atomic or any(atom.type.space in (SEMAPHORE, DMA_SEMAPHORE) for atom in eqn.synchronised):
            return True
        if eqn.op is copy_smem_to_gmem:
            return eqn.reduction is not None
        outside = (type for type in eqn.input_types if isinstance(type, RefType) and type.space not in OF_BLOCKS)
        return eqn.op is repeat and any(type.space not in OF_THREADS for type in outside)

    def emit(self) -> LoweredLaunch:
        """The whole module."""
        if self.on_cores and any(mesh.grid for mesh in self.meshes):
            raise Refused("a grid of cores is not compiled for the CPU")
        lowered = [_ProgramEmitter(self, number) for number in range(len(self.programs))]
        texts = [each.emit() for each in lowered]
        declared: dict[str, str] = {}
        for each in lowered:
            declared |= each.e.declared
        arena = aligned(max(each.thread.arena.size for each in lowered))
        frames = 1 + max(each.thread.frames for each in lowered)
        members = [each.member(arena, frames) for each in lowered]
        eager = len(self.programs) > 1 or self.on_cores
        text, more = scheduler(members, self.launch.dynamic, eager)
        declared |= more
        fixed = max(member.bytes for member in members)
        lines = [*(declared[name] for name in sorted(declared)), *texts, text, ""]
        most = max(member.cluster_threads * frames for member in members)
        return LoweredLaunch("\n".join(lines), self.scratch, self.together, eager, fixed, most, self.callbacks)


class _ProgramEmitter:
    """One program of a launch while it is lowered."""

    def __init__(self, launch: _LaunchEmitter, number: int) -> None:
        self.parent = launch
        self.launch = launch.launch
        self.number = number
        self.program = launch.programs[number]
        self.mesh = launch.meshes[number]
        self.thread = ThreadCoroutine(f"thread{number}", LAUNCHED, REFUSED_IN_LAUNCHES, launch.callbacks)
        self.thread.rows = rows_of(self.program)
        self.thread.peers = waits_at_peers(self.program)
        self.e = self.thread.e
        self.memories: dict[int, Allocation] = {}
        self.stores: list[tuple[int, RefType, int]] = []
        self.rooms: list[int] = []
        self.block_bytes = self.lay_out()

    def lay_out(self) -> int:
        """Lay out buffers and shared scopes in the memory of a block; returns its size."""
        size = 0
        blocks = self.mesh.blocks
        for number, type in enumerate(self.launch.scratch):
            mine = owner_of(type) in (None, self.number)
            if mine and self.parent.placements[number].scope == "block":
                self.stores.append((number, type, size))
                size += aligned(max(1, bytes_of(type)))
        starts: dict[int, int] = {}
        for eqn in walk(self.program):
            shared = CollectiveScope.of(eqn, blocks, self.parent.on_cores)
            if shared is not None and id(eqn.body) not in starts:
                starts[id(eqn.body)] = size
                self.rooms.append(size)
                size += shared.starts[-1]
        self.thread.rooms = CollectiveScopes(
            starts, self.mesh.threads, blocks, 1 if self.parent.on_cores else blocks, size
        )
        return size

    def member(self, arena: int, frames: int) -> Member:
        """The facts about the program that the scheduler needs."""
        shared = [(start, type) for _, type, start in self.stores]
        mesh, names, work = self.mesh, self.thread.names, work_estimate(self.program)
        return Member(names, mesh.blocks, mesh.threads, self.block_bytes, shared, self.rooms, arena, frames, work)

    def emit(self) -> str:
        """The coroutine."""
        e, thread = self.e, self.thread
        numbers = self.numbers()
        indices = [number_array(self.e, numbers[axis.name, n]) for n, axis in enumerate(self.mesh.axes)]
        dynamic = [number_array(self.e, self.size(n)) for n in self.mesh.dynamic]
        beside = [(n, axis) for n, axis in enumerate(self.mesh.axes) if axis.kind in MEMORY_KINDS]
        self.named = {axis.name: numbers[axis.name, n] for n, axis in beside}
        strides = [math.prod(axis.size or 0 for _, axis in beside[n + 1 :]) for n in range(len(beside))]
        thread.around = [
            PeerAxis(axis.name, self.named[axis.name], axis.size or 0, stride * self.block_bytes)
            for (_, axis), stride in zip(beside, strides, strict=True)
        ]
        thread.siblings = () if self.parent.on_cores else thread.around
        place = e.binary("udiv", V("%member", I64), i64(self.mesh.threads))
        thread.block = e.pointer(V("%cluster", PTR), e.mul(place, self.block_bytes), 1)
        shared = [self.shared(n) for n in range(len(self.parent.operands) + len(self.launch.output_types))]
        scratch = [self.scratch(n, type) for n, type in enumerate(self.launch.scratch)]
        self.refuse_unowned(scratch)
        thread.run(self.program, [*indices, *dynamic, *shared, *scratch])  # type: ignore[list-item]
        return thread.text()

    def refuse_unowned(self, scratch: Sequence[Binding | None]) -> None:
        """Refuse scratch that belongs to another mesh: it is not in this one's blocks."""
        inputs = self.launch.split(self.number, self.program.inputs)
        none = {var for var, entry in zip(inputs.scratch, scratch, strict=True) if entry is None}
        if any(atom in none for eqn in self.program.eqns for atom in eqn.inputs):
            raise Refused("a buffer of another mesh is not compiled for the CPU")

    def size(self, number: int) -> Int:
        """The size of an axis of this mesh."""
        known = self.mesh.axes[number].size
        if known is not None:
            return known
        before = sum(mesh.dynamic for mesh in self.launch.meshes[: self.number]) + self.mesh.dynamic.index(number)
        return self.e.load(I64, self.e.pointer(V("%sizes", PTR), before, WORD), WORD)

    def numbers(self) -> dict[tuple[str, int], Int]:
        """The index along each axis, by name and position, from the numbers of the cluster and of the thread in it."""
        e = self.e
        found: dict[tuple[str, int], Int] = {}
        for start, order in ((V("%number", I64), [("grid",)]), (V("%member", I64), [MEMORY_KINDS, THREAD_KINDS])):
            left = start
            axes = [(n, axis) for kinds in order for n, axis in enumerate(self.mesh.axes) if axis.kind in kinds]
            for n, axis in reversed(axes):
                size = e.index(self.size(n))
                found[axis.name, n] = e.binary("urem", left, size)
                left = e.binary("udiv", left, size)
        return found

    def address(self, number: int) -> V:
        """The address of one of the arrays."""
        return self.e.load(PTR, self.e.pointer(V("%arrays", PTR), number, WORD), WORD)

    def shared(self, position: int) -> Binding:
        """An operand or output."""
        parent, e = self.parent, self.e
        operands = len(parent.operands)
        sources = {target + operands: source for source, target in self.launch.aliases}
        seen = self.launch.split(self.number, self.program.inputs).arrays[position].type
        position = sources.get(position, position)
        steady = position < operands and position not in parent.written
        base = self.address(position)
        if isinstance(seen, ArrayType):
            buffer = buffer_of(RefType(seen.shape, seen.dtype), base)
            array = array_in(e, buffer)
            return array if seen.shape else scalar_array(e, array.at((), 1), seen.dtype)
        if seen.space in SYNCHRONISING or seen.space in OF_THREADS:
            raise Refused("a barrier, semaphore or accumulator from outside of the launch is not compiled for the CPU")
        memory = self.memory(position, steady)
        siblings: Sequence[PeerAxis] = ()
        whole = parent.operands[position] if position < operands else self.launch.output_types[position - operands]
        if parent.on_cores and isinstance(whole, ArrayType):
            step = bytes_of(seen) if whole.shape != seen.shape else 0
            siblings = self.strided([axis for axis in parent.meshes[0].axes if axis.kind == "device"], step)
            base = self.at_home(base, siblings)
        return SharedRef(memory, buffer_of(seen, base), type=seen, siblings=siblings)

    def memory(self, position: int, steady: bool) -> Allocation:
        """The memory of an operand, which an output may share."""
        return self.memories.setdefault(position, Allocation(f"array{position}", steady))

    def strided(self, axes: Sequence[MeshAxis], step: int) -> list[PeerAxis]:
        """The peer axes of contiguous buffers, the last axis fastest. The index along axes not in this mesh is 0."""
        found: list[PeerAxis] = []
        for axis in reversed(axes):
            found.insert(0, PeerAxis(axis.name, self.named.get(axis.name, 0), axis.size or 0, step))
            step *= axis.size or 0
        return found

    def at_home(self, base: V, siblings: Sequence[PeerAxis]) -> V:
        """The buffer of this core."""
        e = self.e
        distance: Int = 0
        for sibling in siblings:
            distance = e.add(distance, e.mul(sibling.here, sibling.stride))
        return e.pointer(base, distance, 1)

    def scratch(self, number: int, type: RefType) -> RefBinding | None:
        """A scratch buffer; None for one of another mesh's blocks."""
        thread, e = self.thread, self.e
        array = self.parent.places[number]
        if array is not None:
            allocated = self.parent.scratch[array - self.parent.arrays]
            step = math.prod(allocated.shape[len(allocated.places) :])
            size = WORD if type.space in SYNCHRONISING else type.dtype.itemsize
            siblings = self.strided(self.parent.placements[number].axes, step * size)
            return site_of(thread, type, self.at_home(self.address(array), siblings), siblings)
        if self.parent.placements[number].scope == "thread":
            return own_site(thread, type)
        start = next((start for n, _, start in self.stores if n == number), None)
        if start is None or thread.block is None:
            return None
        return site_of(thread, type, e.pointer(thread.block, start, 1), thread.siblings)
