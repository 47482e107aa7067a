"""Schedules: the order of the steps of threads and the completions of asynchronous operations. A name replays one."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from typing import Any

from palladio.machine.run.buffers import BarrierSlot, Buffer, Counter, Element
from palladio.machine.run.points import SPINS, Point
from palladio.machine.run.threads import AsyncOp, Running, Thread
from palladio.types.device import H100_SXM

Choice = Thread | AsyncOp

COMPLETIONS = ("earliest", "latest", "random")


class Policy:
    """Chooses the next step.

    Fields:
        name: the name that replays it.
        apart: whether atomics of different elements are distinguished.
        points: whether every synchronising operation is a scheduling point.
        eager: whether asynchronous operations complete at their issue.
        patient: whether a cluster whose threads have ended stays resident until the policy lets its copies land.
    """

    name = ""
    apart = False
    points = True
    eager = False
    patient = False

    def choose(self, machine: Running) -> Choice | None:
        """The thread or async op that takes the next step; None if there is none."""
        raise NotImplementedError

    def enters(self, machine: Running, choice: Choice) -> None:
        """A thread or asynchronous operation has become runnable."""

    def priority(self) -> float:
        """The priority of a new thread or asynchronous operation."""
        return 0.0


class RoundRobin(Policy):
    """Each thread runs until it must wait; asynchronous operations complete immediately."""

    name = "round_robin"
    points = False
    eager = True

    def choose(self, machine: Running) -> Choice | None:
        """The thread that has been runnable for the longest time."""
        if machine.runnable:
            return machine.runnable.popleft()
        return next(iter(machine.async_ops), None)


class Lazy(Policy):
    """Each thread runs until it must wait; asynchronous operations complete as late as they can."""

    name = "latest"
    points = False

    def choose(self, machine: Running) -> Choice | None:
        """A thread while one is runnable."""
        async_op = next((async_op for async_op in machine.async_ops if async_op.ready), None)
        if machine.runnable and (async_op is None or not machine.only_spinning):
            return machine.runnable.popleft()
        return async_op


class Random(Policy):
    """Chooses at random among runnable threads and asynchronous operations.

    Args:
        completions: "earliest" completes asynchronous operations at their issue, "latest" when nothing else can
            run, "random" like any other step.
        start: the chance of starting one more cluster of blocks at a step.

    If asynchronous operations complete in any order, clusters also start in any order.
    """

    def __init__(self, seed: int, completions: str = "random", start: float = 0.1) -> None:
        self.name = f"random:{completions}:{seed}"
        self.eager = completions == "earliest"
        self.late = completions == "latest"
        self.start = start
        self.random = random.Random(seed)
        self.pick = self.random.randrange if completions == "random" else None

    def choose(self, machine: Running) -> Choice | None:
        """A random runnable thread or operation."""
        if machine.groups and (self.random.random() < self.start or (self.pick and not machine.runnable)):
            machine.groups[-1].start_next(self.pick)
        threads, async_ops = len(machine.runnable), len(machine.async_ops)
        if threads and (not async_ops or (self.late and not machine.only_spinning)):
            return machine.take(self.random.randrange(threads))
        if not threads + async_ops:
            return None
        chosen = self.random.randrange(threads + async_ops)
        return machine.take(chosen) if chosen < threads else machine.async_ops.ready(chosen - threads)


class Priorities(Policy):
    """Probabilistic concurrency testing (Burckhardt and others, 2010): the thread of the highest priority runs.

    Clusters start in a random order.

    Priorities are random; at `changes` random steps the running one gets the lowest. Asynchronous operations have
    priorities too. The length of the run is unknown, so the steps of the changes are log-uniform, up to `steps`.
    """

    def __init__(self, seed: int, changes: int = 3, steps: int = 2000) -> None:
        self.name = f"pct:{seed}"
        self.random = random.Random(seed)
        self.changes = {int(steps ** self.random.random()) for _ in range(changes)}
        self.lowest = 0.0
        self.step = 0
        self._machine: Running | None = None
        self._entered = itertools.count()
        self._waiting: list[tuple[float, int, Choice]] = []

    def enters(self, machine: Running, choice: Choice) -> None:
        """Add a runnable thread or operation."""
        if machine is not self._machine:  # the next launch of a run
            self._machine, self._waiting = machine, []
        heapq.heappush(self._waiting, (-choice.priority, next(self._entered), choice))

    def choose(self, machine: Running) -> Choice | None:
        """The thread or operation of the highest priority."""
        for group in machine.groups:  # in any order: the priorities decide
            while (group.resident < _AT_FIRST or self.random.random() < 0.1) and group.start_next(
                self.random.randrange
            ):
                pass
        while self._waiting and self._waiting[0][2].done:  # an operation that a thread has waited for
            heapq.heappop(self._waiting)
        if not self._waiting:
            return None
        best = self._waiting[0][2]
        if isinstance(best, AsyncOp):
            best = best.first  # it stays until it is done
        else:
            heapq.heappop(self._waiting)
        self.step += 1
        if self.step in self.changes:
            self._lower(best)
        if isinstance(best, AsyncOp):
            return best
        if best.point is not None and best.point.kind in SPINS:  # it waits for the others
            self._lower(best)
        return machine.take(machine.runnable.index(best))

    def priority(self) -> float:
        """A random number between 0 and 1."""
        return self.random.random()

    def _lower(self, choice: Choice) -> None:
        """Give it the lowest priority."""
        self.lowest -= 1.0
        choice.priority = self.lowest


class Choices(Policy):
    """Follows a list of numbers: for each step whose order other threads can observe, the number of the option.

    A thread runs alone until it is about to touch a shared object; the runnable threads at such a point are the options
    of a step, together with the copies in flight, the longest idle first. After the end of the list the first option
    is taken, so threads take turns; a poll of unchanged state is not an option. All clusters that have room start at
    the beginning; products and stores complete at their issue, since only their own thread can observe their
    completion.

    Fields:
        made: the number of the option taken, for each step so far.
        polled: whether a polling thread was held back at some step because nothing had changed.
    """

    apart = True
    patient = True

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        self.given = numbers
        self.made: list[int] = []
        self.polled = False
        self.machine: Running | None = None
        self.numbers: dict[Choice, int] = {}
        self._count = itertools.count()
        self._taken: dict[int, int] = {}
        self._polls: dict[Choice, Any] = {}
        self._steps = 0
        self._async_op: AsyncOp | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that replays the run."""
        return f"choices:{packed(self.given)}"

    def choose(self, machine: Running) -> Choice | None:
        """A thread with a private step, if there is one; else the option that the list gives."""
        if machine is not self.machine:
            self.machine = machine
            self.begins(machine)
        self._lands(machine)
        for group in machine.groups:
            while group.start_next():
                pass
        self.number_new(machine)
        for number, thread in enumerate(machine.runnable):
            if thread.point is None or thread.point.kind in _PRIVATE:
                return machine.take(number)
        options, active = self._options(machine)
        if not options:
            self.ends(machine)
            return machine.take(0) if machine.runnable else None  # a blocked thread then yields its `Wait`
        turns = [each for each in options if isinstance(each, Thread) and each.point and each.point.kind in _TURNS]
        if not active or len(turns) == len(options):  # all can only poll
            machine.spun += 0 if active else _AT_ONCE
            chosen = options[0]
        else:
            chosen = options[self._number(options)]
        self._taken[self.numbers[chosen]] = self._steps
        self._steps += 1
        if isinstance(chosen, AsyncOp):
            self._async_op = chosen
            return chosen
        if chosen.point is not None and chosen.point.kind not in _TURNS:
            self._polls[chosen] = _polled(chosen)
        return machine.take(machine.runnable.index(chosen))

    def begins(self, machine: Running) -> None:
        """Another launch of the run begins."""

    def ends(self, machine: Running) -> None:
        """No step is possible any more."""

    def pick(self, options: Sequence[Choice]) -> int:
        """The number of the option that takes the next step."""
        place = len(self.made)
        return min(self.given[place], len(options) - 1) if place < len(self.given) else 0

    def joins(self, new: Choice) -> None:
        """A thread or a copy has started."""

    def number_new(self, machine: Running) -> None:
        """Number the new threads and copies, in the order of their start."""
        for async_op in [async_op for async_op in machine.async_ops if not async_op.touches and async_op.ready]:
            async_op.complete()
        for each in (*machine.runnable, *machine.async_ops):
            if each not in self.numbers:
                self.numbers[each] = next(self._count)
                self.joins(each)

    def _lands(self, machine: Running) -> None:
        """Free the place of a cluster whose threads have ended and whose last copy has landed."""
        async_op, self._async_op = self._async_op, None
        if async_op is not None:
            cluster = async_op.thread.block.cluster
            if cluster.running == 0 and not machine.has_copies(cluster):
                machine.leave(cluster)

    def _number(self, options: Sequence[Choice]) -> int:
        number = self.pick(options)
        self.made.append(number)
        return number

    def _options(self, machine: Running) -> tuple[list[Choice], bool]:
        """The runnable choices, and whether any of them is not a poll of unchanged state."""
        able: list[Choice] = [thread for thread in machine.runnable if is_unblocked(thread)]
        able += [async_op for async_op in machine.async_ops if async_op.ready]
        active = [each for each in able if self._polls.get(each) is None or self._polls[each] != _polled(each)]
        self.polled = self.polled or len(active) < len(able)
        return sorted(active or able, key=self._place), bool(active)

    def _place(self, choice: Choice) -> tuple[int, int]:
        number = self.numbers[choice]
        return self._taken.get(number, -1), number


_AT_FIRST = H100_SXM.multiprocessors  # clusters that start immediately; choosing among thousands is slow
_PRIVATE = ("copy", "pass")
_AT_ONCE = 100  # polls that one counts for if nothing can have changed
_TURNS = ("turn", "work")
_LONGEST = 1_000_000  # the maximum repeat count in a name: no named run has as many steps
_FLAGS = 4096  # bytes: larger memory is not compared to detect polling


def touched(choice: Choice) -> Sequence[Point]:
    """The shared objects that the next step of a thread or a copy touches."""
    if isinstance(choice, AsyncOp):
        return choice.touches
    point = choice.point
    return () if point is None or point.kind in (*_PRIVATE, *_TURNS) else (point, *point.more)


def is_unblocked(thread: Thread) -> bool:
    """True if a thread's next step would not block it."""
    point = thread.point
    if point is None or point.kind not in ("wait", "take"):
        return True
    if isinstance(point.thing, Counter):
        return point.thing.count >= point.amount
    # The checker reports a thread that has missed a phase and lets it continue; the hardware compares parities.
    return bool(point.thing.completed > thread.observed.get(point.thing, 0))


def _polled(choice: Choice) -> Any:
    """The value that a polling thread would read; None if its step is not a poll, or the poll will succeed.

    The turn of a loop is not a poll: a polling loop contains an atomic or another poll, or has a race.
    """
    if isinstance(choice, AsyncOp) or choice.point is None or choice.point.kind not in ("test", "read", "atomic"):
        return None
    thing = choice.point.thing
    if choice.point.kind == "atomic":  # an atomic that changes nothing is a poll too
        if isinstance(thing, Element):
            return thing, *(point.thing.value for point in (choice.point, *choice.point.more) if point.kind == "atomic")
        return (thing, thing.array.tobytes()) if isinstance(thing, Buffer) and thing.array.nbytes <= _FLAGS else None
    if isinstance(thing, BarrierSlot):
        found = thing.completed
        return (thing, found) if found <= choice.observed.get(thing, 0) else None
    return thing, thing.count


def packed(numbers: Sequence[int]) -> str:
    """Numbers as text: `0x5.2` for five zeros and a two. Trailing zeros are omitted."""
    parts: list[str] = []
    for number, run in itertools.groupby(numbers):
        count = len(list(run))
        parts.append(f"{number}x{count}" if count > 1 else str(number))
    if parts and parts[-1].split("x")[0] == "0":
        parts.pop()
    return ".".join(parts) or "0"


def unpacked(text: str) -> list[int]:
    """The numbers of a text from `packed`, without trailing zeros.

    Raises:
        ValueError: for any other text.
    """
    found: list[int] = []
    for part in text.split("."):
        number, cross, count = part.partition("x")
        if not number.isdecimal() or (cross and not count.isdecimal()) or int(count or 1) > _LONGEST:
            raise ValueError(text)
        found += [int(number)] * int(count or 1)
    return found


def schedules(count: int, seed: int) -> list[Policy]:
    """The schedules of a check: round robin, latest completions, then random ones of every kind."""
    found: list[Policy] = [RoundRobin(), Lazy()]
    for number in range(seed, seed + max(0, count - 2)):
        kind = number % 4
        found.append(Priorities(number) if kind == 3 else Random(number, COMPLETIONS[kind]))
    return found[:count]


def named(name: str) -> Policy:
    """The schedule with a name from a report.

    Raises:
        ValueError: for an unknown name.
    """
    kind, *rest = name.split(":")
    if len(rest) != {"random": 2, "choices": 1, "pct": 1}.get(kind, 0):
        raise ValueError(name)
    if kind == "random":
        if rest[0] not in COMPLETIONS:
            raise ValueError(name)
        return Random(int(rest[1]), rest[0])
    if kind == "choices":
        return Choices(unpacked(rest[0]))
    if kind == "pct":
        return Priorities(int(rest[0]))
    return {"round_robin": RoundRobin, "latest": Lazy}[kind]()
