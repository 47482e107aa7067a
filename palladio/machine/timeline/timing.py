"""Modelled time: the duration of each step of a run, by the cost model, and the resulting timeline.

Every thread has its own time. The thread that can act earliest acts next, so that shared units (the tensor cores and
the copy path of a multiprocessor) are assigned in the order of time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palladio.ir.core import Eqn, Work
from palladio.machine.check.report.naming import at_text, part_text
from palladio.machine.run.buffers import Buffer, Counter
from palladio.machine.run.policies import Choice, Policy
from palladio.machine.run.threads import AsyncOp, Block, Thread
from palladio.machine.timeline.cost import H100, CostModel
from palladio.machine.timeline.records import Edge, Lane, Span, summed
from palladio.machine.timeline.timeline import Timeline
from palladio.ops.threads.copy import commit_smem
from palladio.ops.threads.wgmma import wgmma_wait
from palladio.types.effects import AsyncKind, Sync
from palladio.types.transforms import transformed
from palladio.types.types import ACC, SYNCHRONISING, ArrayType, RefType

if TYPE_CHECKING:
    from palladio.machine.run.machine import Machine

_KINDS = {"copy": "copy", "dma": "copy", "store": "store", "product": "wgmma"}
_UNITS = {"copy": "TMA", "dma": "DMA", "store": "TMA", "product": "tensor core"}
_SHORTEST = 4.0
"""Nanoseconds below which array work is not shown as a span."""


class Earliest(Policy):
    """The thread or operation that can act at the earliest modelled time acts next."""

    name = "timed"

    def choose(self, machine: Machine) -> Choice | None:
        """The thread or the completion with the earliest time."""
        timer = machine.timer
        while len(machine.groups) and machine.groups[-1].start_next():
            pass
        thread = min(machine.runnable, key=timer.time_of, default=None)
        async_op = min((each for each in machine.async_ops if each.ready), key=timer.end_of, default=None)
        if thread is None or (async_op is not None and timer.end_of(async_op) <= timer.time_of(thread)):
            return async_op
        return machine.take(machine.runnable.index(thread))


class _Clock:
    """One thread's time: `now`, the start of array work not yet shown, and the ends of its groups in flight."""

    __slots__ = ("blocked", "lane", "now", "products", "stores", "working")

    def __init__(self, lane: Lane, now: float) -> None:
        self.lane = lane
        self.now = now
        self.working: tuple[float, Any] | None = None
        self.blocked: tuple[float, Any] | None = None
        self.products: list[float] = []
        self.stores: list[tuple[float, float]] = []


class Timer:
    """Keeps the modelled time of one run and collects its spans.

    Args:
        model: the cost model.
        follows: also keep each thread's last span at each line, for the picture of a finding.
    """

    def __init__(self, model: CostModel = H100, follows: bool = False) -> None:
        self.model = model
        self.spans: list[Span] = []
        self.edges: list[Edge] = []
        self._clocks: dict[Thread, _Clock] = {}
        self._ends: dict[AsyncOp, float] = {}
        self._lanes: dict[AsyncOp, Lane] = {}
        self._cores: dict[Block, float] = {}
        self._paths: dict[Block, float] = {}
        self._completed: dict[tuple[Any, int], tuple[float, Lane | None]] = {}
        self._raised: dict[Counter, tuple[float, Lane | None]] = {}
        self._filled: list[tuple[float, float]] = []
        self._not_taken: set[tuple[Any, int]] = set()
        self._bytes: list[tuple[float, float]] = []
        self.follows = follows
        self._did: dict[tuple[str, Any, str], Span] = {}
        self._wanted: list[tuple[str, Any, str]] = []
        self._accused: list[Span] = []
        self._why = ""
        self.current: Thread | AsyncOp | None = None
        self.blocks = 1
        self._places: dict[Block, float] = {}
        self._free: list[float] = []

    # The times of threads.

    def time_of(self, thread: Thread) -> float:
        """A thread's time."""
        return self._clocks[thread].now

    def end_of(self, async_op: AsyncOp) -> float:
        """The completion time of an asynchronous operation."""
        return self._ends[async_op]

    def starts(self, thread: Thread, parent: Thread | None) -> None:
        """A thread starts: at its parent's time, or when its block starts."""
        lane = Lane(thread.block.label, thread.label)
        if parent is not None:
            now = self._clocks[parent].now
        else:
            now = self._begins(thread)
        self._clocks[thread] = _Clock(lane, now)

    def _begins(self, thread: Thread) -> float:
        """The start of a block: immediately while multiprocessors are free, else when one becomes free."""
        block = thread.block
        if block not in self._places:
            wait = heapq.heappop(self._free) if len(self._places) >= self.model.sms and self._free else 0.0
            self._places[block] = wait + self.model.launch_ns
        return self._places[block]

    def ends(self, thread: Thread) -> None:
        """A thread has ended."""
        clock = self._clocks[thread]
        self._show_work(clock)
        if thread.block.running == 0:
            heapq.heappush(self._free, clock.now)

    # Durations of steps.

    def charge(self, thread: Thread, eqn: Eqn) -> None:
        """Charge the time of an ordinary equation that a thread has just executed."""
        clock, sync = self._clocks[thread], eqn.op.sync or Sync()
        work = self._work(eqn)
        if work:
            if clock.working is None:
                clock.working = clock.now, eqn
            clock.now += work
            if self.follows:
                name = eqn.op.name
                self._noted(thread, eqn, Span(clock.lane, name, clock.now - work, clock.now, "compute", eqn.location))
            return
        if isinstance(sync.waits, str):
            clock.now += self.model.wait_ns
        elif sync.arrives and sync.issues is None:
            self._step(clock, eqn.op.name, self.model.arrive_ns, "sync", eqn)
            self._noted(thread, eqn, self.spans[-1])
        elif eqn.op is commit_smem:
            self._step(clock, eqn.op.name, self.model.commit_smem_ns, "sync", eqn)
        elif sync.waits is AsyncKind.WGMMA:
            left = eqn.n if eqn.op is wgmma_wait else eqn.wait_n
            if left is not None:
                self._awaits_products(thread, eqn, left)
        elif sync.waits is AsyncKind.STORE:
            self._awaits_stores(thread, eqn)

    def _work(self, eqn: Eqn) -> float:
        """Nanoseconds of array work and of ordinary accesses; 0 for other operations."""
        model = self.model
        for position, atom in enumerate(eqn.inputs):
            if isinstance(atom.type, RefType):
                if atom.type.space in SYNCHRONISING or atom.type.space is ACC or eqn.op.ref_count > 1:
                    return 0.0
                size = _selected(eqn, position)
                in_block = atom.type.space.name in ("smem", "vmem", "scalar")
                return model.smem_time(size) if in_block else model.gmem_time(size)
        elements = sum(var.type.size for var in eqn.outputs if isinstance(var.type, ArrayType) and var.type.shape)
        if not elements:
            return model.instruction_ns if eqn.outputs else 0.0
        return model.elementwise_time(elements, transcendental=eqn.op.work is Work.TRANSCENDENTAL)

    def _show_work(self, clock: _Clock) -> None:
        """Record array work up to now as one span, if it is long enough to be visible."""
        if clock.working is None:
            return
        start, eqn = clock.working
        clock.working = None
        if clock.now - start >= _SHORTEST:
            self.spans.append(Span(clock.lane, "compute", start, clock.now, "compute", eqn.location))

    def _step(self, clock: _Clock, name: str, length: float, kind: str, eqn: Eqn) -> None:
        self._show_work(clock)
        self.spans.append(Span(clock.lane, name, clock.now, clock.now + length, kind, eqn.location))
        clock.now += length

    def _waited(self, clock: _Clock, name: str, start: float, end: float, eqn: Eqn) -> None:
        if end - start > 0.5:
            self.spans.append(Span(clock.lane, name, start, end, "wait", eqn.location))
        clock.now = max(clock.now, end)

    # Waiting.

    def blocks_at(self, thread: Thread, eqn: Eqn) -> None:
        """A thread is blocked."""
        clock = self._clocks[thread]
        self._show_work(clock)
        if clock.blocked is None:
            clock.blocked = clock.now, eqn

    def resume(self, thread: Thread, since: float, source: Lane | None, label: str, eqn: Eqn) -> None:
        """A wait is over: its event happened at `since`."""
        clock = self._clocks[thread]
        self._show_work(clock)
        start = clock.blocked[0] if clock.blocked is not None else clock.now
        clock.blocked = None
        if since > start:
            end = since + self.model.wake_ns
            self._waited(clock, label, start, end, eqn)
            if source is not None and source != clock.lane:
                self.edges.append(Edge(source, since, clock.lane, end, label))

    def completed(self, thing: Any, number: int) -> None:
        """A barrier completes a phase, or all threads have arrived at a shared scope."""
        last = getattr(thing, "last", None)
        copy = last[0] if last is not None and isinstance(last[0], AsyncOp) and last[0] in self._ends else None
        self._completed[thing, number] = self._moment() if copy is None else (self._ends[copy], self._lanes[copy])
        if copy is not None:
            self._not_taken.add((thing, number))
            self._filled.append((self._ends[copy], 1))

    def observed(self, thread: Thread, thing: Any, number: int, label: str, eqn: Eqn) -> None:
        """A thread has waited for a completion."""
        since, lane = self._completed.get((thing, number), (0.0, None))
        self.resume(thread, since, lane, label, eqn)
        if (thing, number) in self._not_taken:
            self._not_taken.remove((thing, number))
            self._filled.append((max(since, self._clocks[thread].now), -1))

    def raised(self, counter: Counter) -> None:
        """A semaphore has been signalled."""
        self._raised[counter] = self._moment()

    def acquired(self, thread: Thread, counter: Counter, eqn: Eqn) -> None:
        """A thread has waited for a semaphore."""
        since, lane = self._raised.get(counter, (0.0, None))
        self.resume(thread, since, lane, counter.name, eqn)

    def _moment(self) -> tuple[float, Lane | None]:
        """The time of the acting thread or operation, and its lane."""
        if isinstance(self.current, AsyncOp):
            return self._ends[self.current], self._lanes[self.current]
        if self.current is None:
            return 0.0, None
        clock = self._clocks[self.current]
        return clock.now, clock.lane

    # Asynchronous operations.

    def issued(self, async_op: AsyncOp) -> None:
        """An asynchronous operation is issued: it starts when its unit is free."""
        thread, eqn = async_op.thread, async_op.eqn
        clock, model = self._clocks[thread], self.model
        self._show_work(clock)
        issue = model.wgmma_issue_ns if async_op.kind == "product" else model.tma_issue_ns
        clock.now += issue
        lane = Lane(thread.block.label, thread.label, _UNITS[async_op.kind])
        size = _selected(eqn, 0)
        if async_op.kind == "product":
            start, end = self._product(thread, eqn, clock.now)
            clock.products.append(end)
        else:
            start, sms = max(clock.now, self._paths.get(thread.block, 0.0)), min(self.blocks, model.sms)
            self._paths[thread.block] = start + model.transfer_time(size, copying_sms=sms)
            if async_op.kind == "store":
                end = start + model.store_time(size, storing_sms=sms)
                clock.stores.append((start + model.store_read_time(size), end))
            else:
                end = start + model.copy_time(size, copying_sms=sms)
            if end > start:
                self._bytes += [(start, size / (end - start)), (end, -size / (end - start))]
        self._ends[async_op], self._lanes[async_op] = end, lane
        slots = ", ".join(_slot(*each) for each in async_op.parts)
        detail = "; ".join(part for part in (slots, at_text(async_op.trail)) if part)
        span = Span(lane, _named(eqn), start, end, _KINDS[async_op.kind], eqn.location, detail)
        self.spans.append(span)
        self._noted(thread, eqn, span)

    def _product(self, thread: Thread, eqn: Eqn, now: float) -> tuple[float, float]:
        acc, _, b = (_part(eqn, position) for position in range(3))
        start = max(now, self._cores.get(thread.block, 0.0))
        end = start + self.model.wgmma_time(*acc.shape, b.shape[0], b.dtype)
        self._cores[thread.block] = end
        return start, end

    def _awaits_products(self, thread: Thread, eqn: Eqn, n: int) -> None:
        clock = self._clocks[thread]
        self._show_work(clock)
        upto = len(clock.products) - n
        if upto > 0:
            self._waited(clock, "products", clock.now, clock.products[upto - 1], eqn)

    def _awaits_stores(self, thread: Thread, eqn: Eqn) -> None:
        clock = self._clocks[thread]
        self._show_work(clock)
        upto = thread.groups - eqn.n
        ends = clock.stores[: max(0, upto)]
        if ends:
            which = 0 if eqn.read_only else 1
            self._waited(clock, "stores", clock.now, max(end[which] for end in ends), eqn)

    def timeline(self, title: str, note: str = "") -> Timeline:
        """The timeline of the run."""
        for clock in self._clocks.values():
            self._show_work(clock)
        endless = self._endless()
        first = min((span.start for span in self.spans), default=0.0)

        def moved(spans: Sequence[Span]) -> list[Span]:
            return [replace(span, start=max(0.0, span.start - first), end=span.end - first) for span in spans]

        def shifted(edges: Sequence[Edge]) -> list[Edge]:
            return [
                replace(edge, from_time=edge.from_time - first, to_time=edge.to_time - first)
                for edge in edges
                if edge.from_time >= first
            ]

        changes = [(("full stages", ""), self._filled), (("copied", "bytes per ns"), self._bytes)]
        counters = [
            summed(*names, ((max(0.0, time - first), amount) for time, amount in found))
            for names, found in changes
            if found
        ]
        accused = [*self._accused, *endless]
        missing = _missing(self._accused, self._why) if len(self._accused) == 2 else []
        return Timeline(
            moved([*self.spans, *endless, *(each for each in self._accused if each not in self.spans)]),
            shifted(self.edges),
            title,
            note,
            moved(accused),
            shifted(missing),
            counters,
        )

    def _endless(self) -> list[Span]:
        """The waits that never ended, up to the end of the run."""
        stuck = [(clock.lane, *clock.blocked) for clock in self._clocks.values() if clock.blocked is not None]
        ends = [span.end for span in self.spans] + [start + self.model.wait_ns for _, start, _ in stuck]
        return [
            Span(lane, eqn.op.name, start, max(ends), "wait", eqn.location, "never ends") for lane, start, eqn in stuck
        ]

    # The accesses of a finding.

    def _noted(self, thread: Thread, eqn: Eqn, span: Span) -> None:
        """Record the time of an access that a finding may report."""
        if self.follows:
            key = thread.title, eqn.location, at_text(thread.trail)
            self._did[key] = span
            if key in self._wanted:
                self._wanted.remove(key)
                self._accused.append(span)

    @property
    def accuses(self) -> bool:
        """True if the picture shows the accesses of a finding."""
        return bool(self._accused)

    def accuse(self, participants: Sequence[tuple[str, Any, str]], why: str) -> None:
        """Let the picture show two accesses and the edge that is missing between them.

        Args:
            participants: threads, lines and iterations of the accesses of a finding.
            why: the words at the missing edge.
        """
        if self._accused or self._wanted:
            return
        self._why = why
        for key in participants[:2]:
            if key in self._did:
                self._accused.append(self._did[key])
            else:  # it has not run yet
                self._wanted.append(key)


def _part(eqn: Eqn, position: int) -> ArrayType:
    """The type of the elements that an equation accesses at an input."""
    type = eqn.inputs[position].type
    if isinstance(type, ArrayType) or not eqn.op.index_start:
        return type if isinstance(type, ArrayType) else type.array
    stacks = eqn.op.stacks(eqn.transforms)
    operands: Sequence[Any] = [atom.type for atom in eqn.indices]
    return transformed(type.array, stacks[position], operands) if position < len(stacks) else type.array


def _selected(eqn: Eqn, position: int) -> int:
    """The number of bytes that an equation accesses at an input."""
    part = _part(eqn, position)
    return math.prod(part.shape) * part.dtype.itemsize


def _missing(accused: Sequence[Span], why: str) -> list[Edge]:
    """The missing edge between two accesses: from the end of the earlier one to the start of the other."""
    one, other = sorted(accused, key=lambda span: span.start)
    return [Edge(one.lane, one.end, other.lane, other.start, why)]


def _slot(store: Any, stack: Any, indices: Any) -> str:
    """The part of a buffer that an asynchronous operation reaches: `ring[1]`."""
    if not isinstance(store, Buffer) or store.shadow is None:
        return getattr(store, "name", "")
    return part_text(store.name, store.type.shape, store.shadow.regions.resolve(stack, indices))


def _named(eqn: Eqn) -> str:
    """The name of a bar: the buffer that is written."""
    written = next((atom for atom in eqn.inputs if atom in eqn.written), None)
    return getattr(written, "hint", "") or eqn.op.name
