"""Launches inside a thread: its warps.

If no warp waits, they run one after the other, as a loop. Otherwise they are separate coroutines, which the thread
resumes in turns, each time that it is resumed itself, until all have ended. They read the values of the thread that
they need from a table of words that it fills.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.access.gather import copied
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, array_in, fill, scalar_array
from palladio.cpu.emit.llvm_types import I32, I64, PTR
from palladio.cpu.emit.scope import Binding, RefBinding, Rule, Scope
from palladio.cpu.launches.barriers import thread_of
from palladio.cpu.launches.control_flow import own_site
from palladio.cpu.launches.coroutines import THREAD_DONE, WORD, Header, PeerAxis, SharedRef, ThreadCoroutine
from palladio.ir.core import Eqn, Program, walk
from palladio.lower.refused import Refused
from palladio.ops.control import repeat
from palladio.ops.threads.launch import THREAD_KINDS, Launch, MeshShape, launch
from palladio.ops.threads.owners import OF_THREADS
from palladio.types import dtypes
from palladio.types.types import RefType


def waits(programs: Sequence[Program]) -> bool:
    """True if a program may have to wait for another."""
    return any(_may_wait(eqn) for program in programs for eqn in walk(program))


def _may_wait(eqn: Eqn) -> bool:
    return eqn.op in (launch, repeat) or (eqn.op.sync is not None and eqn.op.sync.yields)


def places_of(number: int, mesh: MeshShape) -> Iterator[tuple[int, ...]]:
    """Each thread of a mesh: the number of the mesh, then the indices along its axes, the last one fastest."""
    for indices in itertools.product(*(range(axis.size or 0) for axis in mesh.axes)):
        yield number, *indices


def rows_of(program: Program) -> dict[tuple[int, ...], int]:
    """The waiting warps of all launches of a thread, each with the row of its observed completions of barriers."""
    launches = [eqn.launch for eqn in walk(program) if eqn.op is launch and waits(eqn.programs)]
    places = {place for each in launches for n, mesh in enumerate(each.meshes) for place in places_of(n, mesh)}
    return {place: row for row, place in enumerate(sorted(places))}


def _launch(scope: Scope, *operands: Binding, launch: Launch, programs: tuple[Program, ...]) -> Sequence[LazyArray]:
    axes = [axis for mesh in launch.meshes for axis in mesh.axes]
    if launch.dynamic or any(axis.kind not in THREAD_KINDS for axis in axes):
        raise Refused("a launch inside a thread, other than of its warps")
    thread, e = thread_of(scope), scope.e
    types = launch.split(0, programs[0].input_types).operands
    shared = [_referred(scope, *each) for each in zip(operands, types, strict=True)]
    sources = {target: source for source, target in launch.aliases}
    outputs: list[RefBinding] = []
    for number, ref in enumerate(launch.output_refs):
        place = shared[sources[number]] if number in sources else own_site(thread, ref)
        outputs.append(place)  # type: ignore[arg-type]
    scratch = [None if type.space in OF_THREADS else own_site(thread, type) for type in launch.scratch]
    if waits(programs):
        _Warps(scope, launch, programs, [*shared, *outputs], scratch).run()
    else:
        for mesh, program in zip(launch.meshes, programs, strict=True):
            _one_by_one(scope, mesh, program, [*shared, *outputs], launch.scratch, scratch)
    return [scope.keep(array_in(e, place.buffer)) for place in outputs]


def _referred(scope: Scope, entry: Binding, type: object) -> Binding:
    """An operand as the programs see it: an array is copied to new memory, which they may change; a scalar is kept."""
    if isinstance(entry, LazyArray) and isinstance(type, RefType):
        return SharedRef(Allocation("operand"), copied(scope, entry), type=type)
    return scope.keep(entry) if isinstance(entry, LazyArray) else entry


def _one_by_one(
    scope: Scope,
    mesh: MeshShape,
    program: Program,
    operands: Sequence[Binding],
    types: Sequence[RefType],
    shared: Sequence[RefBinding | None],
) -> None:
    """Warps that do not wait, as a loop."""
    with scope.e.loop(0, math.prod(axis.size or 0 for axis in mesh.axes)) as number:
        indices = _indices(scope.e, mesh, number)
        scratch = [place or own_site(thread_of(scope), type) for place, type in zip(shared, types, strict=True)]
        scope.function.run(program, [*indices, *operands, *scratch])


def _indices(e: Emitter, mesh: MeshShape, number: Int) -> list[Binding]:
    """The indices of a thread along the axes of its mesh."""
    left = e.index(number)
    indices: list[Binding] = []
    for axis in reversed(mesh.axes):
        size = i64(axis.size)
        indices.insert(0, scalar_array(e, e.convert("trunc", e.binary("urem", left, size), I32), dtypes.INT32))
        left = e.binary("udiv", left, size)
    return indices


class _Passing:
    """Values of one function that another one reads from a table; `%cluster` is its address in the latter."""

    def __init__(self, child: ThreadCoroutine) -> None:
        self.child = child
        self.values: list[V] = []

    def index(self, value: Int) -> Int:
        return self.value(value) if isinstance(value, V) else value

    def value(self, value: V) -> V:
        if value.constant is not None:
            return value
        e = self.child.e
        address = e.pointer(V("%cluster", PTR), len(self.values), WORD)
        self.values.append(value)
        return e.load(value.type, address, WORD)

    def buffer(self, buffer: StridedArray) -> StridedArray:
        strides = tuple(self.index(stride) for stride in buffer.strides)
        return StridedArray(self.value(buffer.base), strides, buffer.shape, buffer.dtype)

    def sibling(self, sibling: PeerAxis) -> PeerAxis:
        return replace(sibling, here=self.index(sibling.here))

    def entry(self, entry: Binding) -> Binding:
        """A reference or scalar."""
        if isinstance(entry, LazyArray):
            return scalar_array(self.child.e, self.value(entry.at((), 1)), entry.dtype)
        if not isinstance(entry, SharedRef):
            return RefBinding(entry.memory, self.buffer(entry.buffer))
        siblings = [self.sibling(each) for each in entry.siblings]
        return replace(entry, buffer=self.buffer(entry.buffer), siblings=siblings)


@dataclass(frozen=True)
class _Seen:
    """The completions that warps have observed of each barrier of an array; `own` if that is scratch of the launch.

    There is a row for each warp of the launch: its counts, then the excess of each of its own warps.
    """

    site: SharedRef
    rows: StridedArray
    own: bool

    @property
    def slots(self) -> int:
        return self.site.counted

    def row(self, e: Emitter, number: Int) -> V:
        return e.pointer(self.rows.base, e.mul(number, self.rows.shape[1]), WORD)


class _Warps:
    """The warps of one launch, while they are lowered."""

    def __init__(
        self,
        scope: Scope,
        launch: Launch,
        programs: Sequence[Program],
        operands: Sequence[Binding],
        scratch: Sequence[RefBinding | None],
    ) -> None:
        self.scope = scope
        self.e = scope.e
        thread = thread_of(scope)
        if not isinstance(thread, ThreadCoroutine) or thread.rows is None:
            raise Refused("warps that wait, in the kernel of a grid")
        self.thread = thread
        self.launch = launch
        self.programs = programs
        self.operands = operands
        self.scratch = scratch
        self.places = [place for n, mesh in enumerate(launch.meshes) for place in places_of(n, mesh)]
        sites = [(entry, False) for entry in operands] + [(entry, True) for entry in scratch]
        self.seen = [
            self.noted(site, own) for site, own in sites if isinstance(site, SharedRef) and site.observed is not None
        ]

    def noted(self, site: SharedRef, own: bool) -> _Seen:
        inner = 1 + max(len(rows_of(program)) for program in self.programs)
        rows = self.thread.arena.buffer(self.e, (len(self.places), inner * site.counted), dtypes.INT64)
        return _Seen(site, rows, own)

    def run(self) -> None:
        """Start all warps and run them until the last one has ended."""
        e, thread = self.e, self.thread
        for seen in self.seen:
            self.remember(seen)
        table = thread.arena.buffer(e, (len(self.places), 2), dtypes.INT64)
        lowered = [self.lowered(mesh, program) for mesh, program in enumerate(self.programs)]
        frames = 1 + max(child.frames for child, _ in lowered)
        thread.frames = max(thread.frames, len(self.places) * frames)
        for mesh, (child, values) in enumerate(lowered):
            self.begin(mesh, child, values, table, frames)
        again, ended = e.fresh("warps"), e.fresh("ended")
        left = thread.slot(I64)
        e.jump(again)
        e.label(again)
        e.store(i64(0), left, WORD)
        e.declared["llvm.coro.resume"] = "declare void @llvm.coro.resume(ptr)"
        with e.loop(0, len(self.places)) as number:
            status = e.pointer(table.base, number, 2 * WORD)
            with e.when(self.lives(status)):
                e.line(f"call void @llvm.coro.resume({e.load(PTR, e.pointer(status, 1, WORD), WORD)})")
                with e.when(self.lives(status)):
                    e.store(i64(1), left, WORD)
        waiting = e.fresh("waiting")
        e.branch(e.compare("icmp eq", e.load(I64, left, WORD), i64(0)), ended, waiting)
        e.label(waiting)
        thread.stop()
        e.jump(again)
        e.label(ended)
        for seen in self.seen:
            self.learn(seen)

    def lives(self, status: V) -> V:
        return self.e.compare("icmp ne", self.e.load(I64, status, WORD), i64(THREAD_DONE))

    def ahead(self, seen: _Seen, number: int) -> V:
        """The address of the number of completions by which a warp is ahead of its thread."""
        rows = self.thread.rows or {}
        return self.e.pointer(seen.site.observed, (1 + rows[self.places[number]]) * seen.slots, WORD)  # type: ignore[arg-type]

    def remember(self, seen: _Seen) -> None:
        """Set each warp's counts to those of its thread plus the warp's excess when it last ended."""
        e = self.e
        fill(e, seen.rows, 0)
        if seen.own:
            return
        for number in range(len(self.places)):
            with e.loop(0, seen.slots) as slot:
                words = [
                    e.load(I64, e.pointer(base, slot, WORD), WORD)
                    for base in (seen.site.observed, self.ahead(seen, number))
                ]
                e.store(e.binary("add", *words), e.pointer(seen.row(e, number), slot, WORD), WORD)

    def learn(self, seen: _Seen) -> None:
        """Set the thread's counts to the least of its warps', and store the excess of each warp."""
        e = self.e
        if seen.own:
            return
        with e.loop(0, seen.slots) as slot:
            found = [e.load(I64, e.pointer(seen.row(e, n), slot, WORD), WORD) for n in range(len(self.places))]
            least = found[0]
            for each in found[1:]:
                least = e.intrinsic("smin", I64, least, each)
            e.store(least, e.pointer(seen.site.observed, slot, WORD), WORD)  # type: ignore[arg-type]
            for number, each in enumerate(found):
                e.store(e.binary("sub", each, least), e.pointer(self.ahead(seen, number), slot, WORD), WORD)

    def lowered(self, mesh: int, program: Program) -> tuple[ThreadCoroutine, list[V]]:
        """The function of one program, and the values of its table."""
        thread = self.thread
        child = ThreadCoroutine(f"{thread.name}_{len(thread.children)}", thread.rules, thread.refused, thread.callbacks)
        thread.children.append(child)
        child.peers, child.rows = thread.peers, rows_of(program)
        if thread.rooms is not None:
            child.rooms = replace(thread.rooms, starts={})
        passing = _Passing(child)
        child.siblings = [passing.sibling(each) for each in thread.siblings]
        first = self.first(mesh)
        inputs = [self.passed(passing, entry, first) for entry in self.operands]
        for entry, type in zip(self.scratch, self.launch.scratch, strict=True):
            inputs.append(own_site(child, type) if entry is None else self.passed(passing, entry, first))
        indices = _indices(child.e, self.launch.meshes[mesh], V("%number", I64))
        child.run(program, [*indices, *inputs])
        return child, passing.values

    def first(self, mesh: int) -> int:
        """The first warp of a mesh, among those of the launch."""
        return next(n for n, place in enumerate(self.places) if place[0] == mesh)

    def begin(self, mesh: int, child: ThreadCoroutine, values: Sequence[V], table: StridedArray, frames: int) -> None:
        """Start a coroutine of a function for each warp of its mesh, each with memory for a number of frames."""
        e, thread = self.e, self.thread
        words = thread.arena.buffer(e, (max(1, len(values)),), dtypes.INT64)
        for number, value in enumerate(values):
            e.store(value, e.pointer(words.base, number, WORD), WORD)
        first, count = self.first(mesh), sum(place[0] == mesh for place in self.places)
        arena = thread.arena.buffer(e, (count, -(-child.arena.size // 64) * 64), np.dtype(np.uint8))
        frame_bytes = e.load(I64, thread.word(Header.FRAME), WORD)
        with e.loop(0, count) as number:
            status = e.pointer(table.base, e.add(number, first), 2 * WORD)
            e.store(i64(0), status, WORD)
            own = e.pointer(arena.base, number, arena.shape[1])
            before = e.add(e.mul(e.add(number, first), frames), 1)
            frame = e.pointer(V("%frame", PTR), e.mul(before, frame_bytes), 1)
            given = f"ptr %arrays, ptr %sizes, ptr %header, {words.base}, {own}, {frame}, {status}, {e.index(number)}"
            handle = e.value(PTR, f"call ptr @{child.name}({given}, i64 0)")
            e.store(handle, e.pointer(status, 1, WORD), WORD)

    def passed(self, passing: _Passing, entry: Binding, first: int) -> Binding:
        """An operand or scratch as a warp sees it, which counts its own observed completions."""
        found = passing.entry(entry)
        seen = next((seen for seen in self.seen if seen.site is entry), None)
        if seen is None or not isinstance(found, SharedRef):
            return found
        e = passing.child.e
        rows = replace(seen.rows, base=passing.value(seen.rows.base))
        return replace(found, observed=replace(seen, rows=rows).row(e, e.add(V("%number", I64), first)))


RULES: dict[str, Rule] = {"launch": _launch}
