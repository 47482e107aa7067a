"""Threads written as lists of steps, run on the machine: small enough to enumerate every schedule by brute force.

Steps of a semaphore: `("signal", s, n)`, `("take", s, n)`, `("look", s, n)`, `("read", s)`, and `("dma", s, n)`, a copy
that raises it. Of a barrier: `("arrive", b)`, `("wait", b)`, `("test", b)`, `("copy", b)`, a copy that arrives, and
`("sync", b)`, arrive and go on with the completion. `("add", m)` is an atomic, `("meet", m)` a scope that all share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from palladio.machine.rules.barrier import arrive, observe, passes
from palladio.machine.rules.semaphore import signal
from palladio.machine.run.buffers import BarrierSlot, Counter
from palladio.machine.run.explore import Cut, Exploration, Schedule
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Choice, Choices, Policy
from palladio.machine.run.threads import AsyncOp, Cluster, Group, Point, Thread, Wait

Step = tuple[Any, ...]
Threads = Sequence[Sequence[Step]]


class Shared:
    """Memory, or a scope: how often threads have touched it, and who waits."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: list[Any] = []


class Run:
    """One run of threads under a policy.

    Fields:
        sees: for each thread what its steps saw, and where it stopped.
        order: for each thing, the steps that touched it, those that may change places in one set.
    """

    def __init__(self, threads: Threads, needed: dict[str, int], policy: Policy) -> None:
        self.machine = Machine(policy)
        self.needed = needed
        self.things: dict[str, Any] = {}
        self.seen: list[list[Any]] = [[] for _ in threads]
        self.touched: dict[str, list[tuple[Any, Any]]] = {}
        group = Group(None, iter([lambda: self._start(group, threads)]), 1)
        self.machine.groups.append(group)
        self.machine.run()

    @property
    def sees(self) -> Any:
        return tuple(tuple(seen) for seen in self.seen), tuple(self._state(name) for name in sorted(self.things))

    @property
    def order(self) -> Any:
        """The identity of a run: two with the same order are one, up to what is not observable."""
        return tuple((name, tuple(_sets(self.touched[name]))) for name in sorted(self.touched))

    def _start(self, group: Group, threads: Threads) -> None:
        cluster = Cluster(group, 0, (), (), ())
        block = next(iter(cluster.blocks.values()))
        for number, steps in enumerate(threads):
            thread = Thread(self.machine, group, block, f"thread {number}", cluster.components.new(f"thread {number}"))
            thread.priority = self.machine.policy.priority()
            thread.steps = self._thread(thread, number, steps)
            group.running += 1
            cluster.running += 1
            block.running += 1
            self.machine.threads.append(thread)
            self.machine.ready(thread)

    def _thing(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.things:
            self.things[name] = make()
        return self.things[name]

    def _slot(self, name: str) -> BarrierSlot:
        return self._thing(name, lambda: BarrierSlot(name, self.needed.get(name, 1), None))

    def _state(self, name: str) -> Any:
        thing = self.things[name]
        if isinstance(thing, BarrierSlot):
            return name, thing.completed, thing.arrived
        return name, thing.count

    def _touch(self, name: str, kind: Any, who: Any) -> None:
        self.touched.setdefault(name, []).append((kind, who))

    def _thread(self, thread: Thread, number: int, steps: Sequence[Step]) -> Iterator[Any]:
        for place, (kind, name, *rest) in enumerate(steps):
            yield from getattr(self, f"_{kind}")(thread, self.seen[number], name, (number, place), *rest)
        self.seen[number].append("end")

    def _arrival(self, name: str, who: Any) -> None:
        slot = self._slot(name)
        self._touch(name, ("arrive", slot.completed + 1), who)
        arrive(self.machine, slot, (who, None))

    def _arrive(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        yield Point("arrive", self._slot(name))
        self._arrival(name, who)

    def _sync(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        slot = self._slot(name)
        yield Point("arrive", slot)
        phase = slot.completed
        self._arrival(name, who)
        yield Point("pass", slot)
        while slot.completed == phase:
            yield Wait("barrier", slot, None)  # type: ignore[arg-type]

    def _wait(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        slot = self._slot(name)
        yield Point("wait", slot)
        while slot.completed <= thread.observed.get(slot, 0):
            yield Wait("barrier", slot, None)  # type: ignore[arg-type]
        thread.observed[slot] = slot.completed  # as the checker does with a thread that has missed a phase
        seen.append(slot.completed)
        self._touch(name, ("look", slot.completed), who)

    def _test(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        slot = self._slot(name)
        yield Point("test", slot)
        self._touch(name, ("look", slot.completed), who)
        found = passes(thread, slot)
        seen.append((found, slot.completed))
        if found:
            observe(thread, slot)

    def _copy(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        slot = self._slot(name)
        yield Point("copy", slot)
        eqn: Any = None
        async_op = AsyncOp(
            "copy", thread, eqn, lambda: self._arrival(name, (*who, "lands")), slot, touches=[Point("arrive", slot)]
        )
        self.machine.issue(async_op)

    def _counter(self, name: str) -> Counter:
        return self._thing(name, lambda: Counter(name))

    def _raise(self, name: str, amount: int, who: Any) -> None:
        self._touch(name, ("signal",), who)
        signal(self.machine, self._counter(name), amount, who)

    def _signal(self, thread: Thread, seen: list[Any], name: str, who: Any, amount: int = 1) -> Iterator[Any]:
        yield Point("signal", self._counter(name), amount)
        self._raise(name, amount, who)

    def _dma(self, thread: Thread, seen: list[Any], name: str, who: Any, amount: int = 1) -> Iterator[Any]:
        counter = self._counter(name)
        yield Point("copy", counter)
        eqn: Any = None
        touches = [Point("signal", counter, amount)]
        async_op = AsyncOp(
            "dma", thread, eqn, lambda: self._raise(name, amount, (*who, "lands")), counter, touches=touches
        )
        self.machine.issue(async_op)

    def _take(self, thread: Thread, seen: list[Any], name: str, who: Any, amount: int = 1) -> Iterator[Any]:
        yield from self._await(name, amount, "take")
        seen.append(self._counter(name).count)
        self._touch(name, ("take", who), who)
        self._counter(name).count -= amount

    def _look(self, thread: Thread, seen: list[Any], name: str, who: Any, amount: int = 1) -> Iterator[Any]:
        yield from self._await(name, amount, "wait")
        seen.append(self._counter(name).count)
        self._touch(name, ("look",), who)

    def _await(self, name: str, amount: int, kind: str) -> Iterator[Any]:
        counter = self._counter(name)
        yield Point(kind, counter, amount)
        while counter.count < amount:
            yield Wait("semaphore", counter, None)  # type: ignore[arg-type]

    def _read(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        yield Point("read", self._counter(name))
        seen.append(self._counter(name).count)
        self._touch(name, ("look",), who)

    def _add(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        memory = self._thing(name, Shared)
        yield Point("atomic", memory)
        seen.append(memory.count)
        memory.count += 1
        self._touch(name, ("add", who), who)

    def _meet(self, thread: Thread, seen: list[Any], name: str, who: Any) -> Iterator[Any]:
        meeting = self._thing(name, Shared)
        yield Point("meet", meeting)
        meeting.count += 1
        if meeting.count == len(self.seen):
            self.machine.wake(meeting.waiting)
        yield Point("pass", meeting)
        while meeting.count < len(self.seen):
            yield Wait("collective_scope", meeting, None)  # type: ignore[arg-type]


def _sets(touched: list[tuple[Any, Any]]) -> Iterator[Any]:
    """Steps of one kind in a row as a set: these may change places. Kinds of barriers are in the order of phases."""
    if any(kind[0] == "arrive" for kind, _ in touched):
        touched = sorted(touched, key=lambda each: (each[0][1], each[0][0]))
    kinds: list[tuple[Any, set[Any]]] = []
    for kind, who in touched:
        if not kinds or kinds[-1][0] != kind:
            kinds.append((kind, set()))
        kinds[-1][1].add(who)
    return ((kind, frozenset(who)) for kind, who in kinds)


class All(Choices):
    """Takes the options that a list of numbers says, and tells how many there were."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(numbers)
        self.counts: list[int] = []

    def pick(self, options: Sequence[Choice]) -> int:
        self.counts.append(len(options))
        return super().pick(options)


def by_brute_force(threads: Threads, most: int = 50_000, **needed: int) -> list[Run] | None:
    """Every schedule there is; None if they are more than this."""
    found: list[Run] = []
    numbers: list[int] = []
    while True:
        policy = All(numbers)
        found.append(Run(threads, needed, policy))
        if len(found) > most:
            return None
        numbers = list(policy.made)
        while numbers and numbers[-1] + 1 == policy.counts[len(numbers) - 1]:
            numbers.pop()
        if not numbers:
            return found
        numbers[-1] += 1


def explored(threads: Threads, limit: int = 50_000, **needed: int) -> tuple[Exploration, list[Run]]:
    """The schedules that an exploration brings to their end."""
    exploration, found = Exploration(limit), []
    for branches in exploration:
        for branch in branches:
            schedule = Schedule(branch)
            with suppress(Cut):
                found.append(Run(threads, needed, schedule))
            exploration.add(schedule.outcome)
    return exploration, found
