"""The threads of a launch as coroutines: a program becomes a function that suspends where it waits.

One worker runs the threads of a block (or of a whole launch, if blocks wait for each other) in turns: each runs until
it must wait, and resumes after the others have run. So nothing spins, the order is that of the machine that defines
launches, and a deadlock is detected immediately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import Arena, StridedArray
from palladio.cpu.emit.llvm_types import I1, I8, I64, PTR, LlvmType
from palladio.cpu.emit.scope import Function, RefBinding, Rule
from palladio.cpu.runtime.callbacks import Callback
from palladio.cpu.runtime.detected import detected
from palladio.cpu.runtime.status import Status
from palladio.types.types import RefType

WORD = 8


class Header:
    """The words at the beginning of the memory of a worker."""

    NEXT = 0  # the next cluster to start
    PROGRESS = 1  # flag: a thread of the launch has made progress in this round
    SPINS = 2  # flag: a thread has only polled in this round
    FAILED = 3  # the status that `kernel` returns
    RUNNING = 4  # clusters that have not ended
    IDLE = 5  # consecutive rounds in which threads have only polled
    FRAME = 6  # bytes of a suspended coroutine's frame
    SLOTS = 7  # clusters that may run concurrently
    CALLER = 8  # the function that calls back into Python
    WORK = 9  # work since the clock was last read
    TIME = 10  # the time of that reading
    CLOCK = 12  # two words for the clock
    WORDS = 16


THREAD_DONE = 1
"""The status of a thread that has ended."""

# Parameters of a coroutine. `cluster` and `arena` are its memory, `number` is its cluster's index in the grid, `member`
# the thread's index in the cluster. Called without a `frame`, it reports the size of one.
ARGUMENTS = "ptr %arrays, ptr %sizes, ptr %header, ptr %cluster, ptr %arena, ptr %frame, ptr %status"
ARGUMENTS += ", i64 %number, i64 %member"


@dataclass(frozen=True)
class PeerAxis:
    """An axis along which peers have the same buffer: this one's index, the number of peers, the stride in bytes."""

    name: str
    here: Int
    size: int
    stride: int


@dataclass(frozen=True)
class SharedRef(RefBinding):
    """A buffer that peers have too, or a barrier or semaphore.

    Fields:
        type: of the reference.
        siblings: the axes along which those of peers are reached.
        observed: for barriers, the address of this thread's counts of observed completions.
        apart: whether each sibling's barriers have their own counts, one sibling after the other.
        private: whether only one thread can reach it.
        units: the units of one arrival; copies that blocks share arrive with a part of them.
        needed: the units that complete a phase.
    """

    type: RefType | None = None
    siblings: Sequence[PeerAxis] = ()
    observed: V | None = None
    apart: bool = False
    private: bool = False
    units: int = 1
    needed: int = 1

    @property
    def slots(self) -> int:
        """The number of barriers."""
        return math.prod(self.buffer.shape)

    @property
    def counted(self) -> int:
        """The number of barriers whose completions this thread counts."""
        return max(1, self.slots * (math.prod(each.size for each in self.siblings) if self.apart else 1))


@dataclass(frozen=True)
class CollectiveScopes:
    """The scopes that the threads of a block share, or that other cores reach, and their offsets in the block's memory,
    by the id of their body.

    Fields:
        threads: of a block.
        blocks: of a cluster, or cores of a mesh.
        units: the units of an arrival at a barrier, divided among the blocks of a cluster in a copy that they share.
        stride: the bytes of a block's memory.
    """

    starts: Mapping[int, int]
    threads: int
    blocks: int
    units: int
    stride: int


class ThreadFunction(Function):
    """A program that waits, under construction.

    Fields:
        rooms, block: the scopes that the threads of a block share, and its memory, if it has one.
        siblings: the other blocks of its cluster.
        around: those, or the other cores of its mesh: the peers that enter the scopes that its threads share.
        peers: whether it waits at barriers of other blocks.
        rows: the waiting warps that it launches, each with the row of its observed completions; None if none may
            wait.
    """

    rooms: CollectiveScopes | None = None
    block: V | None = None
    siblings: Sequence[PeerAxis] = ()
    around: Sequence[PeerAxis] = ()
    peers = False
    rows: Mapping[tuple[int, ...], int] | None = None

    def wait(self, holds: Callable[[], V]) -> None:
        """Suspend until a condition holds."""
        raise NotImplementedError

    def turn(self, only_observes: bool) -> None:
        """Yield to the others, after progress or after a poll."""
        raise NotImplementedError


class SingleThread(ThreadFunction):
    """The kernel of a grid, which is one thread: a condition that does not hold when it waits never will."""

    def __init__(self, e: Emitter, arena: Arena, rules: Mapping[str, Rule], refused: Mapping[str, str]) -> None:
        super().__init__(e, arena, rules, refused)
        self.reads_status = True

    def wait(self, holds: Callable[[], V]) -> None:
        self.require(holds())

    def turn(self, only_observes: bool) -> None:
        self.poll()


class ThreadCoroutine(ThreadFunction):
    """The coroutine of one program under construction.

    Fields:
        children: the coroutines of its warps.
        frames: the number of those, and of their warps, that may be live at once.
    """

    def __init__(
        self, name: str, rules: Mapping[str, Rule], refused: Mapping[str, str], callbacks: list[Callback]
    ) -> None:
        super().__init__(Emitter(), Arena(V("%arena", PTR)), rules, refused)
        self.name = name
        self.callbacks = callbacks
        self.children: list[ThreadCoroutine] = []
        self.frames = 0
        e = self.e
        e.declared |= {
            "llvm.coro.id": "declare token @llvm.coro.id(i32, ptr, ptr, ptr)",
            "llvm.coro.size": "declare i64 @llvm.coro.size.i64()",
            "llvm.coro.begin": "declare ptr @llvm.coro.begin(token, ptr)",
            "llvm.coro.suspend": "declare i8 @llvm.coro.suspend(token, i1)",
            "llvm.coro.end": f"declare {_ended()} @llvm.coro.end(ptr, i1, token)",
        }
        e.line("%id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)")
        e.line("%size = call i64 @llvm.coro.size.i64()")
        e.line("%is_query = icmp eq ptr %frame, null")
        e.branch(V("%is_query", I1), "query", "begin")
        e.label("query")
        e.store(V("%size", I64), self.word(Header.FRAME), WORD)
        e.line("ret ptr null")
        e.label("begin")
        e.line("%coroutine = call noalias ptr @llvm.coro.begin(token %id, ptr %frame)")
        self.caller = self.word(Header.CALLER)
        self.stop()
        self.note(Header.PROGRESS)

    @property
    def names(self) -> list[str]:
        """Its name, then those of its warps and of theirs."""
        return [self.name, *(name for child in self.children for name in child.names)]

    def word(self, number: int) -> V:
        """The address of a word of the header."""
        return self.e.pointer(V("%header", PTR), number, WORD)

    def note(self, number: int, value: int = 1) -> None:
        """Set a word of the header."""
        self.e.store(i64(value), self.word(number), WORD)

    def stop(self) -> None:
        """Yield to the others."""
        e = self.e
        after = e.fresh("resumed")
        found = e.value(I8, "call i8 @llvm.coro.suspend(token none, i1 false)")
        e.line(f"switch {found}, label %stopped [ i8 0, label %{after} i8 1, label %stopped ]")
        e.label(after)

    def turn(self, only_observes: bool) -> None:
        self.note(Header.SPINS if only_observes else Header.PROGRESS)
        self.stop()

    def wait(self, holds: Callable[[], V]) -> None:
        e = self.e
        blocked, passed, woken = e.fresh("blocked"), e.fresh("passed"), e.fresh("woken")
        e.branch(holds(), passed, blocked)
        e.label(blocked)
        self.stop()
        e.branch(holds(), woken, blocked)
        e.label(woken)
        self.note(Header.PROGRESS)
        e.jump(passed)
        e.label(passed)

    def leave(self, answer: int) -> None:
        """End this thread and the whole launch, with a status."""
        self.note(Header.FAILED, answer)
        self.e.leave("br label %stopped")

    def require(self, condition: V | None) -> None:
        if condition is not None:
            with self.e.when(self.e.negated(condition)):
                self.leave(Status.FAILED)

    def give_up(self) -> None:
        self.leave(Status.CALLBACK_FAILED)

    def text(self) -> str:
        """The whole function, after those of its warps."""
        e = self.e
        e.store(i64(THREAD_DONE), V("%status", PTR), WORD)
        e.jump("stopped")
        e.label("stopped")
        ends = "" if _ended() == "void" else "%ended = "
        e.line(f"{ends}call {_ended()} @llvm.coro.end(ptr %coroutine, i1 false, token none)")
        e.line("ret ptr %coroutine")
        head = f"define internal ptr @{self.name}({ARGUMENTS}) presplitcoroutine {{"
        warps = [child.text() for child in self.children]
        for child in self.children:
            e.declared |= child.e.declared
        return "\n".join([*warps, head, "entry:", *self.slots, *e.lines, "}"])


def _ended() -> LlvmType | str:
    """The type of the result of `llvm.coro.end`, which has none from LLVM 22 on."""
    return "void" if int(detected().version.partition(".")[0]) >= 22 else I1


def moved(buffer: StridedArray, e: Emitter, distance: Int) -> StridedArray:
    """The buffer at a distance in bytes."""
    return StridedArray(e.pointer(buffer.base, distance, 1), buffer.strides, buffer.shape, buffer.dtype)
