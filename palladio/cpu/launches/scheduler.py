"""The function of a launch that starts its clusters and runs their threads in turns.

A worker's memory: a `Header`, then one slot for each resident cluster: live and total threads, status and coroutine of
each, block memory, arenas, frames.
"""

from __future__ import annotations

from collections.abc import Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.analysis.work import BETWEEN, CLOCK, STEPS, quarter_seconds
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.llvm_types import I32, I64, PTR
from palladio.cpu.launches.control_flow import CollectiveScope, initialise_buffer
from palladio.cpu.launches.coroutines import ARGUMENTS, THREAD_DONE, WORD, Header
from palladio.cpu.runtime.status import Status
from palladio.types.types import RefType

ROUNDS = 1 << 16 if CLOCK else 64
"""Rounds after which the kernel returns, at the latest, so that Python can handle interrupts."""

IDLE = 1 << 22
"""Consecutive rounds in which threads only poll, after which the launch counts as deadlocked."""

HEADER = Header.WORDS * WORD
SLOT = 64
"""Bytes at the beginning of a cluster's memory: the words `LIVE` and `THREADS`."""

LIVE, THREADS = 0, 1


@dataclass(frozen=True)
class Member:
    """The facts about one program that the scheduler needs.

    Fields:
        names: of its coroutine, and of those of its warps.
        blocks, threads: of a cluster, and of each of its blocks.
        block_bytes: the memory of a block.
        shared: the buffers that are initialised at the beginning of a block, with their offsets.
        rooms: the offsets of the scopes that the threads of a block share.
        arena: the bytes of each thread's arena.
        frames: the most coroutines that each thread may have at once, including its own.
        work_estimate: an estimate of the elements that a thread computes between two waits.
    """

    names: Sequence[str]
    blocks: int
    threads: int
    block_bytes: int
    shared: Sequence[tuple[int, RefType]]
    rooms: Sequence[int]
    arena: int
    frames: int
    work_estimate: int

    @property
    def cluster_threads(self) -> int:
        """The threads of a cluster."""
        return self.blocks * self.threads

    @property
    def tables(self) -> int:
        """Bytes before the memory of the blocks."""
        return SLOT + -(-2 * WORD * self.cluster_threads // 64) * 64

    @property
    def bytes(self) -> int:
        """All of a cluster's memory except its coroutines' frames."""
        return self.tables + self.blocks * self.block_bytes + self.cluster_threads * self.arena


class _Scheduler:
    """The functions under construction."""

    def __init__(self, members: Sequence[Member], dynamic: int, eager: bool) -> None:
        self.members = members
        self.dynamic = dynamic
        self.eager = eager
        self.fixed = max(member.bytes for member in members)
        self.most = max(member.cluster_threads * member.frames for member in members)
        self.declared: dict[str, str] = {}

    def function(self, head: str, e: Emitter) -> str:
        self.declared |= e.declared
        return "\n".join([head + " {", "entry:", *e.lines, "}"])

    def begin(self, number: int, member: Member) -> str:
        """`beginN(arrays, sizes, header, slot, number)` starts a cluster: its memory, and its threads."""
        e = Emitter()
        slot = V("%slot", PTR)
        e.store(i64(member.cluster_threads), word(e, slot, LIVE), WORD)
        e.store(i64(member.cluster_threads), word(e, slot, THREADS), WORD)
        cluster = e.pointer(slot, member.tables, 1)
        with e.loop(0, member.blocks) as place:
            block = e.pointer(cluster, e.mul(place, member.block_bytes), 1)
            for start, type in member.shared:
                initialise_buffer(e, type, e.pointer(block, start, 1))
            for start in member.rooms:
                room = e.pointer(block, start, 1)
                for each in range(CollectiveScope.WORDS):
                    e.store(i64(0), word(e, room, each), WORD)
        own = e.pointer(cluster, member.blocks * member.block_bytes, 1)
        frame_bytes = e.load(I64, word(e, V("%header", PTR), Header.FRAME), WORD)
        stride = e.add(e.mul(frame_bytes, member.frames), member.arena)
        with e.loop(0, member.cluster_threads) as thread:
            arena = e.pointer(own, e.mul(thread, stride), 1)
            frame = e.pointer(arena, member.arena, 1)
            status, coroutine = self.tables(e, slot, thread)
            e.store(i64(0), status, WORD)
            values = f"ptr %arrays, ptr %sizes, ptr %header, {cluster}, {arena}, {frame}, {status}"
            handle = e.value(PTR, f"call ptr @{member.names[0]}({values}, i64 %number, {e.index(thread)})")
            e.store(handle, coroutine, WORD)
        e.line("ret void")
        head = f"define internal void @begin{number}(ptr %arrays, ptr %sizes, ptr %header, ptr %slot, i64 %number)"
        return self.function(f"{head} noinline", e)

    @staticmethod
    def tables(e: Emitter, slot: V, thread: Int) -> tuple[V, V]:
        """The addresses of a thread's status and coroutine."""
        pair = e.pointer(e.pointer(slot, SLOT, 1), thread, 2 * WORD)
        return pair, word(e, pair, 1)

    def start(self) -> str:
        """`start(arrays, sizes, header)` starts the next cluster, in a free slot."""
        e = Emitter()
        header = V("%header", PTR)
        number = increased(e, word(e, header, Header.NEXT), 1)
        increased(e, word(e, header, Header.RUNNING), 1)
        slots = e.load(I64, word(e, header, Header.SLOTS), WORD)
        with e.loop(0, slots) as place:
            slot = self.slot(e, header, place)
            free = e.compare("icmp eq", e.load(I64, word(e, slot, LIVE), WORD), i64(0))
            with e.when(free):
                self.start_in(e, slot, number)
                e.leave("ret void")
        e.line("ret void")
        return self.function("define internal void @start(ptr %arrays, ptr %sizes, ptr %header) noinline", e)

    def start_in(self, e: Emitter, slot: V, number: V) -> None:
        left: V = number
        for place in range(len(self.members)):
            arguments = f"ptr %arrays, ptr %sizes, ptr %header, {slot}, {left}"
            if place == len(self.members) - 1:
                e.line(f"call void @begin{place}({arguments})")
                return
            count = e.load(I64, word(e, V("%sizes", PTR), self.dynamic + place), WORD)
            with e.when(e.compare("icmp slt", left, count)):
                e.line(f"call void @begin{place}({arguments})")
                e.leave("ret void")
            left = e.binary("sub", left, count)

    def slot(self, e: Emitter, header: V, place: Int) -> V:
        """The memory of a cluster."""
        frame = e.load(I64, word(e, header, Header.FRAME), WORD)
        size = e.add(e.mul(frame, self.most), self.fixed)
        return e.pointer(e.pointer(header, HEADER, 1), e.mul(place, size), 1)

    def round(self) -> str:
        """`round(header)` resumes every thread once."""
        e = Emitter()
        header = V("%header", PTR)
        e.declared["llvm.coro.resume"] = "declare void @llvm.coro.resume(ptr)"
        e.store(i64(0), word(e, header, Header.PROGRESS), WORD)
        e.store(i64(0), word(e, header, Header.SPINS), WORD)
        slots = e.load(I64, word(e, header, Header.SLOTS), WORD)
        with e.loop(0, slots) as place:
            slot = self.slot(e, header, place)
            live = word(e, slot, LIVE)
            some = e.compare("icmp ne", e.load(I64, live, WORD), i64(0))
            with e.when(some):
                threads = e.load(I64, word(e, slot, THREADS), WORD)
                with e.loop(0, threads) as thread:
                    self.resume(e, *self.tables(e, slot, thread), live)
                over = e.compare("icmp eq", e.load(I64, live, WORD), i64(0))
                with e.when(over):
                    increased(e, word(e, header, Header.RUNNING), -1)
        e.line("ret void")
        return self.function("define internal void @round(ptr %header) noinline", e)

    @staticmethod
    def resume(e: Emitter, status: V, coroutine: V, live: V) -> None:
        with e.when(e.compare("icmp eq", e.load(I64, status, WORD), i64(0))):
            e.line(f"call void @llvm.coro.resume({e.load(PTR, coroutine, WORD)})")
            with e.when(e.compare("icmp eq", e.load(I64, status, WORD), i64(THREAD_DONE))):
                increased(e, live, -1)

    def kernel(self) -> str:
        """The function that Python calls: with a first cluster below 0, it reports the size of a coroutine's frame."""
        e = Emitter()
        header = V("%arena", PTR)
        with e.when(e.compare("icmp slt", V("%first", I64), i64(0))):
            most: V = i64(64)
            for name in (name for member in self.members for name in member.names):
                nothing = ", ".join(f"{each.split()[0]} {'null' if each.startswith('ptr') else 0}" for each in _LAST)
                e.line(f"call ptr @{name}(ptr null, ptr null, {header}, {nothing})")
                frame = e.load(I64, word(e, header, Header.FRAME), WORD)
                most = e.intrinsic("umax", I64, most, frame)
            padded = e.binary("and", e.index(e.add(most, 63)), i64(-64))
            e.store(padded, word(e, header, Header.FRAME), WORD)
            answer(e, Status.DONE)
        if self.eager:
            self.start_all(e, header)
        with e.loop(0, ROUNDS):
            e.line(f"call void @round({header})")
            failed = e.load(I64, word(e, header, Header.FAILED), WORD)
            with e.when(e.compare("icmp ne", failed, i64(0))):
                e.leave(f"ret i32 {e.convert('trunc', failed, I32).text}")
            progress = e.load(I64, word(e, header, Header.PROGRESS), WORD)
            with e.when(e.compare("icmp eq", progress, i64(0))):
                self.without_progress(e, header)
            with e.when(e.compare("icmp ne", progress, i64(0))):
                e.store(i64(0), word(e, header, Header.IDLE), WORD)
            self.poll(e, header)
        answer(e, Status.YIELDED, closes=False)
        head = "define i32 @kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %first, i64 %last)"
        return self.function(head, e)

    def poll(self, e: Emitter, header: V) -> None:
        """Poll the clock now and then: each quarter of a second the kernel returns, for Python to handle interrupts."""
        if not CLOCK:
            return
        work = max(member.cluster_threads * member.work_estimate for member in self.members)
        slots = e.load(I64, word(e, header, Header.SLOTS), WORD)
        weight = e.intrinsic("umax", I64, e.index(e.mul(slots, min(work, BETWEEN))), i64(BETWEEN // STEPS))
        before = increased(e, word(e, header, Header.WORK), weight)
        with e.when(e.compare("icmp uge", before, i64(BETWEEN))):
            e.store(i64(0), word(e, header, Header.WORK), WORD)
            now, last = quarter_seconds(e, word(e, header, Header.CLOCK)), word(e, header, Header.TIME)
            then = e.load(I64, last, WORD)
            e.store(now, last, WORD)
            with e.when(e.compare("icmp ne", now, then)):
                answer(e, Status.YIELDED)

    def more(self, e: Emitter, header: V) -> V:
        """True if another cluster can start."""
        following, running, slots = (
            e.load(I64, word(e, header, each), WORD) for each in (Header.NEXT, Header.RUNNING, Header.SLOTS)
        )
        left = e.compare("icmp slt", following, V("%last", I64))
        return e.binary("and", left, e.compare("icmp slt", running, slots))

    def start_all(self, e: Emitter, header: V) -> None:
        with e.repeat(lambda: self.more(e, header)):
            e.line(f"call void @start(ptr %arrays, ptr %sizes, {header})")

    def without_progress(self, e: Emitter, header: V) -> None:
        """No thread has made progress: the next cluster starts; or all have ended, poll, or wait for each other."""
        more, none = self.more(e, header), e.fresh("none")
        start, after = e.fresh("start"), e.fresh("after")
        e.branch(more, start, none)
        e.label(start)
        e.line(f"call void @start(ptr %arrays, ptr %sizes, {header})")
        e.jump(after)
        e.label(none)
        running = e.load(I64, word(e, header, Header.RUNNING), WORD)
        with e.when(e.compare("icmp eq", running, i64(0))):
            answer(e, Status.DONE)
        spins = e.load(I64, word(e, header, Header.SPINS), WORD)
        idle = increased(e, word(e, header, Header.IDLE), 1)
        quiet = e.compare("icmp eq", spins, i64(0))
        with e.when(e.binary("or", quiet, e.compare("icmp sgt", idle, i64(IDLE)))):
            answer(e, Status.DEADLOCKED)
        e.jump(after)
        e.label(after)

    def text(self) -> str:
        begins = [self.begin(number, member) for number, member in enumerate(self.members)]
        return "\n".join([*begins, self.start(), self.round(), self.kernel()])


_LAST = ARGUMENTS.split(", ")[3:]


def word(e: Emitter, base: V, number: int) -> V:
    """The address of a word."""
    return e.pointer(base, number, WORD)


def increased(e: Emitter, address: V, amount: Int) -> V:
    """Add to a word; returns its previous value."""
    before = e.load(I64, address, WORD)
    e.store(e.index(e.add(before, amount)), address, WORD)
    return before


def answer(e: Emitter, number: int, closes: bool = True) -> None:
    """Return from the kernel."""
    e.line(f"ret i32 {number}")
    if closes:
        e.label(e.fresh("never"))


def scheduler(members: Sequence[Member], dynamic: int, eager: bool) -> tuple[str, dict[str, str]]:
    """The functions, and their declarations.

    Args:
        dynamic: the number of sizes of mesh axes before the numbers of clusters.
        eager: whether all clusters start before any of them continues.
    """
    functions = _Scheduler(members, dynamic, eager)
    text = functions.text()
    return text, functions.declared


__all__ = ["HEADER", "Member", "scheduler"]
