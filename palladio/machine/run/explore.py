"""Exploration of all distinguishable schedules of a call, each once, by dynamic partial-order reduction.

Two runs are equivalent if one becomes the other by exchanging adjacent independent steps, so one run of each class
suffices. During a run, the objects that each step touches give its happens-before order (`History`). If two steps could
have run in the other order, the state before the first one becomes a backtrack point, where a later run takes another
step (Flanagan & Godefroid, "Dynamic partial-order reduction for model checking software", 2005; a sufficient choice of
that step: Abdulla et al., "Optimal dynamic partial order reduction", 2014, source sets). A step explored from a state
is asleep in the other branches from there, until a dependent step wakes it, so no class runs twice (Godefroid's sleep
sets). Threads cannot be copied: every run starts from the beginning and repeats the choices up to the state.

Only barriers, semaphores and atomics count as touched. Loads and stores do not: if exchanging them makes a visible
difference there is a race, and the checker finds it in either order.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError
from palladio.machine.run.buffers import BarrierSlot, Counter
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Choice, Choices, is_unblocked, packed, touched
from palladio.machine.run.threads import AsyncOp, Point, Thread

STEPS = 50_000
"""A longer run is cut: its threads probably loop forever."""

AT_ONCE = 16
"""The maximum number of runs in a group, which may run concurrently; the next group does not depend on that."""

# Sets of steps of a run are integers with one bit for each step, since they are joined at every step.
StepSet = int


class Cut(PalladioError):
    """Not an error: the rest of this run has been explored, or the run is endless. It propagates like a user error."""


class Changed(PalladioError):
    """The same choices led to other options: the function is not deterministic."""


class Event:
    """A step of a run.

    Fields:
        thread: the number of the thread or async op that took it.
        touches: the objects that it touched.
        past: the steps that happen before it, including itself.
        arrived: for each barrier it touched, the earlier arrivals of the phase.
    """

    __slots__ = ("arrived", "past", "thread", "touches")

    def __init__(self, thread: int, touches: Sequence[Point]) -> None:
        self.thread = thread
        self.touches = touches
        self.past: StepSet = 0
        self.arrived = {point.thing: _arrived(point) for point in touches if isinstance(point.thing, BarrierSlot)}


def _arrived(point: Point) -> Fraction:
    return point.thing.arrived + Fraction(sum(point.thing.parts.values()), point.amount)


def levels(events: Iterable[Event], slot: BarrierSlot, arrived: Fraction) -> set[tuple[int, int]]:
    """The completed phases of a barrier that each of some steps sees, if they run in this order."""
    found, phase = set(), 0
    for event in events:
        for point in event.touches:
            if point.thing is not slot:
                continue
            if point.kind != "arrive":
                found.add((id(event), phase))
                continue
            arrived += Fraction(1, point.amount)
            if arrived >= slot.needed:
                arrived, phase = Fraction(0), phase + 1
    return found


class SlotHistory:
    """The history of one barrier.

    The completion of a phase is a separate event: all arrivals of the phase and all observations of the previous phase
    happen before it; all observations of it and all arrivals of the next phase happen after it. So arrivals of one
    phase commute, and so do an arrival and an observation of the previous phase, unless the arrival is the last one.

    Fields:
        completed: the number of complete phases.
        past: the steps before the last completion.
        ahead: the further steps before the next one.
        last, arrived: the arrivals of the last complete phase, and of the current one.
        observed: the observations since the last completion.
    """

    def __init__(self, slot: BarrierSlot) -> None:
        self.slot = slot
        self.completed = slot.completed
        self.past: StepSet = 0
        self.ahead: StepSet = 0
        self.last: list[int] = []
        self.arrived: list[int] = []
        self.observed: list[int] = []

    def arrives(self, run: History, step: int, before: StepSet, completes: bool) -> tuple[list[int], StepSet]:
        """An arrival: the steps that it could have preceded, and those that happen before it."""
        found = self.last
        if completes:
            observed = (each for each in self.observed if not any(run.events[a].past >> each & 1 for a in self.arrived))
            found = [*found, *observed]
        self.arrived.append(step)
        return found, self.past

    def completes(self, run: History) -> None:
        """The last arrival has completed the phase."""
        for each in (*self.arrived, *self.observed):
            self.ahead |= run.events[each].past
        self.past, self.ahead = self.past | self.ahead, 0
        self.last, self.arrived, self.observed = self.arrived, [], []
        self.completed += 1

    def exchanges(self, run: History, since: int) -> bool:
        """True if an arrival from that step on could be the last of the phase, after all observations."""
        arrived = (each for each in self.arrived if each >= since)
        return any(not any(run.events[other].past >> each & 1 for other in self.observed) for each in arrived)

    def observe(self, step: int, early: bool) -> tuple[list[int], StepSet]:
        """A wait that returns, or a test; `early` if it could have run before the last completion."""
        self.observed.append(step)
        return (self.last if early else []), self.past


class CounterHistory:
    """The history of one semaphore. Signals commute, and so do reads.

    Fields:
        steps: for each step its number, kind, change of the count, and the count before it.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, str, int, int]] = []
        self._later: list[int] = []  # for each step, the total change by settled steps not after it
        self._settled = 0

    def touches(self, run: History, point: Point, before: StepSet) -> tuple[list[int], StepSet]:
        """The steps that this one could have preceded, and those that happen before it."""
        self._settle(run)
        found, past = [], 0
        for place, (step, kind, _, count) in enumerate(self.steps):
            if not _conflict(kind, point.kind):
                continue
            past |= run.events[step].past
            if before >> step & 1:
                continue
            if point.kind in ("take", "wait"):
                rest = self.steps[max(place + 1, self._settled) :]
                later = sum(change for each, _, change, _ in rest if not run.events[each].past >> step & 1)
                if count + self._later[place] + later < point.amount:
                    continue  # without that step, this one would have had to wait
            found.append(step)
        return found, past

    def add(self, step: int, point: Point, count: int) -> None:
        """Record a step, with the count before it."""
        change = point.amount if point.kind == "signal" else -point.amount if point.kind == "take" else 0
        self.steps.append((step, point.kind, change, count))
        self._later.append(0)

    def _settle(self, run: History) -> None:
        """Add the changes of all steps but the run's last one, whose pasts are final."""
        while self._settled < len(self.steps) and self.steps[self._settled][0] < len(run.events) - 1:
            step, _, change, _ = self.steps[self._settled]
            past = run.events[step].past
            for place in range(self._settled if change else 0):
                if not past >> self.steps[place][0] & 1:
                    self._later[place] += change
            self._settled += 1


_OBSERVATIONS = ("wait", "read")


def _conflict(first: str, second: str) -> bool:
    return not (first == second == "signal" or (first in _OBSERVATIONS and second in _OBSERVATIONS))


class OrderHistory:
    """The history of memory that atomics access: each sees the earlier ones, except in a row of commuting ones.

    Fields:
        kind: the kind of the last row.
        row, before: the steps of that row, and of the previous one.
        past: the steps before the row.
    """

    def __init__(self) -> None:
        self.kind = ""
        self.row: list[int] = []
        self.before: list[int] = []
        self.past: StepSet = 0

    def touches(self, run: History, step: int, kind: str) -> tuple[list[int], StepSet]:
        """The steps that this one could have preceded, and those that happen before it."""
        if kind == "meet":
            return [], 0
        if not (kind == self.kind and kind.startswith(_COMMUTING)):
            self.before, self.row, self.kind = self.row, [], kind
            for each in self.before:
                self.past |= run.events[each].past
        self.row.append(step)
        return self.before, self.past


_COMMUTING = ("tally", "share")


class History:
    """The steps of one run so far, with their happens-before order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.things: dict[Any, Any] = {}

    def of(self, thing: Any) -> Any:
        """The history of a barrier, a semaphore, or memory."""
        found = self.things.get(thing)
        if found is None:
            kind = SlotHistory(thing) if isinstance(thing, BarrierSlot) else None
            found = kind or (CounterHistory() if isinstance(thing, Counter) else OrderHistory())
            self.things[thing] = found
        return found

    def add(self, event: Event, before: StepSet, seen: dict[Any, int]) -> list[int]:
        """Record the last step; returns the earlier ones that it could have preceded.

        Args:
            before: the steps that happened before it in its thread.
            seen: for each barrier it touched, the completions seen by its thread; for a semaphore, the count before.
        """
        number = len(self.events)
        self.events.append(event)
        event.past = before | 1 << number
        found: list[int] = []
        ended: list[SlotHistory] = []
        for place in range(len(event.touches)):
            races, past = self._touches(event, place, before, seen, ended)
            found += races
            event.past |= past
        for history in ended:
            history.completes(self)
        return self._latest(found, event.thread, before)

    def blocked(self, point: Point, thread: int, before: StepSet) -> tuple[list[int], StepSet]:
        """For a thread blocked at a semaphore: the steps before which it could have run, and those before it."""
        found, past = self.of(point.thing).touches(self, point, before)
        return self._latest(found, thread, before), past

    def _touches(
        self, event: Event, place: int, before: StepSet, seen: dict[Any, int], ended: list[SlotHistory]
    ) -> tuple[list[int], StepSet]:
        number, point = len(self.events) - 1, event.touches[place]
        history = self.of(point.thing)
        if isinstance(history, CounterHistory):
            found, past = history.touches(self, point, before)
            history.add(number, point, seen[point.thing])
            return found, past
        if isinstance(history, OrderHistory):
            return history.touches(self, number, point.kind)
        if point.kind != "arrive":
            early = point.kind == "test" or history.completed - seen[point.thing] >= 2
            return history.observe(number, early)
        # Of several arrivals in one step, the last counts as the completing one.
        further = any(later.thing is point.thing for later in event.touches[place + 1 :])
        completes = history.slot.completed > history.completed and not further
        if completes:
            ended.append(history)
        return history.arrives(self, number, before, completes)

    def _latest(self, found: Iterable[int], thread: int, before: StepSet) -> list[int]:
        """The steps of other threads that are unordered with the thread, without those before another of them."""
        others = {step for step in found if not before >> step & 1 and self.events[step].thread != thread}
        earlier = functools.reduce(operator.or_, (self.events[step].past & ~(1 << step) for step in others), 0)
        return [step for step in others if not earlier >> step & 1]


class SearchState:
    """A state of the exploration, and its remaining backtracks. Threads and async ops are numbers.

    Fields:
        before: the previous state and the choice there; None at the beginning.
        depth: the number of steps to it.
        options: the runnable threads and async ops, in the order of their choice numbers.
        asleep: choices that need not be tried, since their runs are or will be covered; with the depth since when.
        wanted: the choices to try.
        listed: True while it is in the list of states with untried choices.
    """

    def __init__(
        self, before: tuple[SearchState, int] | None, options: list[int], asleep: dict[int, int], chosen: int
    ) -> None:
        self.before = before
        self.depth: int = before[0].depth + 1 if before else 0
        self.options = options
        self.asleep = {**asleep, chosen: self.depth}
        self.wanted = {chosen}
        self.listed = False

    @property
    def left(self) -> list[int]:
        """The wanted choices that are not tried yet."""
        return [each for each in self.options if each in self.wanted and each not in self.asleep]

    def path_to(self, chosen: int) -> tuple[list[SearchState], list[int]]:
        """The states up to and including this one, and the choice in each of them, here `chosen`."""
        states, turns = [], []
        step: tuple[SearchState, int] | None = (self, chosen)
        while step is not None:
            states.append(step[0])
            turns.append(step[1])
            step = step[0].before
        return states[::-1], turns[::-1]


@dataclass(frozen=True)
class Branch:
    """A run to make: the path to a state, and another choice there.

    Fields:
        options, chosen: at each state on the path, the runnable choices and the one taken.
        asleep: the sleep set of the last state.
    """

    options: list[list[int]]
    chosen: list[int]
    asleep: dict[int, int]


@dataclass
class Outcome:
    """The states of a run, and the backtracks that it requests.

    Fields:
        states: after the branch: the runnable choices, the sleep set, and the choice taken.
        wants: steps to backtrack to: any choice of the first list suffices; if none is there, try the second list.
        cut: True if it was abandoned as redundant.
        endless: True if it polled, was too long, or broke off.
    """

    states: list[tuple[list[int], dict[int, int], int]]
    wants: list[tuple[int, list[int], list[int]]]
    cut: bool
    endless: bool


class Exploration:
    """All runs. Iterate over it, run the branches that it yields, in any process, and `add` their outcomes.

    Fields:
        explored: the number of complete runs.
        cut: the number of runs abandoned as redundant.
        complete: whether all distinguishable schedules have run.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.explored = 0
        self.cut = 0
        self.complete = False
        self.endless = False
        self._open: list[tuple[int, int, SearchState]] = []
        self._count = itertools.count()
        self._out: deque[tuple[list[SearchState], int]] = deque()

    def __iter__(self) -> Iterator[list[Branch]]:
        branches = [self._branch([], [])]
        while branches:
            yield branches
            branches = self._next(min(AT_ONCE, self.limit - self.explored - self.cut))
        self.complete = not self._open and not self.endless

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a branch's run; those of a group are added in the order of their branches."""
        path, turn = self._out.popleft()
        before = (path[-1], turn) if path else None
        for options, asleep, chosen in outcome.states:
            state = SearchState(before, options, asleep, chosen)
            path.append(state)
            before = (state, chosen)
        for step, begin, able in outcome.wants:
            state = path[step]
            if not any(each in state.wanted or each in state.asleep for each in begin):
                state.wanted.update(able)
                if not state.listed and state.left:
                    state.listed = True
                    heapq.heappush(self._open, (-state.depth, next(self._count), state))
        self.cut += outcome.cut
        self.explored += not outcome.cut
        self.endless = self.endless or outcome.endless

    def _next(self, most: int) -> list[Branch]:
        """Branches at the deepest states with untried choices."""
        found: list[Branch] = []
        while self._open and len(found) < most:
            state = self._open[0][2]
            left = state.left
            if left:
                found.append(self._branch(*state.path_to(left[0])))
                state.asleep[left[0]] = state.depth
            if len(left) < 2:
                heapq.heappop(self._open)
                state.listed = False
        return found

    def _branch(self, path: list[SearchState], chosen: list[int]) -> Branch:
        self._out.append((path, chosen[-1] if chosen else 0))
        return Branch([each.options for each in path], chosen, dict(path[-1].asleep) if path else {})


class Schedule(Choices):
    """One run of an exploration: repeats the path of a branch, takes its choice, and continues from there."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        self.branch = branch
        self.known = len(branch.chosen)
        self.states: list[tuple[list[int], dict[int, int], int]] = []
        self.wants: list[tuple[int, list[int], list[int]]] = []
        self.history = History()
        self.asleep: dict[int, int] = {}
        self.cut = False
        self.endless = False
        self._event: Event | None = None
        self._seen: dict[Any, int] = {}
        self._before: StepSet = 0
        self._stepped: Choice | None = None
        self._latest: StepSet = 0
        self._open = False
        self._past: dict[int, StepSet] = {}
        self._base: StepSet = 0
        self._by_number: dict[int, Choice] = {}
        self._waits: dict[Choice, Any] = {}
        self._left: dict[Any, StepSet] = {}

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that replays the run up to here."""
        return f"choices:{packed(self.made)}"

    def begins(self, machine: Machine) -> None:
        """A launch begins after the end of the earlier ones."""
        self._base = (1 << len(self.history.events)) - 1
        self._latest = self._base
        self._waits.clear()
        self._open = True

    def choose(self, machine: Machine) -> Choice | None:
        """The thread or async op that takes the next step; the previous step is recorded first."""
        if machine is self.machine:
            self._note()
        chosen = super().choose(machine)
        if isinstance(chosen, Thread) and chosen in self._waits:
            self._resumes(chosen, self._waits.pop(chosen))
        elif isinstance(chosen, Thread) and chosen.point is not None and chosen.point.kind == "pass":
            self._resumes(chosen, chosen.point.thing)
        self._stepped = chosen
        self._open = chosen is not None
        return chosen

    @property
    def outcome(self) -> Outcome:
        """The outcome of the finished run, for the exploration."""
        broken = self._open and not self.cut  # in the middle of a launch
        return Outcome(self.states, self.wants, self.cut, self.polled or self.endless or broken)

    def joins(self, new: Choice) -> None:
        """A new thread or async op inherits the past of its creator."""
        maker = new.thread if isinstance(new, AsyncOp) else new.group.parent
        number = self.numbers[new]
        self._by_number[number] = new
        self._past[number] = self._past[self.numbers[maker]] if maker is not None else self._latest
        for point in touched(new) if isinstance(new, AsyncOp) else ():
            self.history.of(point.thing)

    def pick(self, options: Sequence[Choice]) -> int:
        """The choice that the path gives; past its end, the first that is not asleep."""
        depth = len(self.made)
        numbers = [self.numbers[each] for each in options]
        if depth < self.known:
            if self.branch.options[depth] != numbers:
                raise Changed("other threads are runnable than in the last run")
            turn = self.branch.chosen[depth]
            self.asleep = self.branch.asleep if depth == self.known - 1 else {}
        else:
            awake = [each for each in numbers if each not in self.asleep]
            self.endless = depth >= STEPS
            if not awake or self.endless:
                if self.machine is not None:
                    self.ends(self.machine)
                self.cut = True
                raise Cut("this run is cut")
            turn = awake[0]
            self.states.append((numbers, dict(self.asleep), turn))
        chosen = self._by_number[turn]
        self._before = self._past[turn]
        self._event = Event(turn, touched(chosen))
        self._seen = {point.thing: self._found(chosen, point) for point in self._event.touches}
        return numbers.index(turn)

    def ends(self, machine: Machine) -> None:
        """The run is over: a blocked thread might have run before another one took the semaphore's count."""
        for thread in machine.runnable:
            point = thread.point
            if point is None or is_unblocked(thread) or not isinstance(point.thing, Counter):
                continue  # a wait for a barrier is blocked in every order
            number = self.numbers[thread]
            races, past = self.history.blocked(point, number, self._past[number])
            event = Event(number, (point,))
            event.past = self._past[number] | past
            for step in races:
                self._want(step, [*self.history.events, event])

    def _found(self, chosen: Choice, point: Point) -> int:
        thing = point.thing
        history = self.history.of(thing)
        if isinstance(history, CounterHistory):
            return int(thing.count)
        if isinstance(history, SlotHistory) and isinstance(chosen, Thread):
            return chosen.observed.get(thing, 0)
        return 0

    def _note(self) -> None:
        """Record the step that was chosen last."""
        stepped, event, self._event = self._stepped, self._event, None
        if event is not None:
            self._note_event(event)
            self._latest = event.past
        if isinstance(stepped, Thread):
            past = self._latest = self._past[self.numbers[stepped]]
            if stepped.waiting is not None:
                self._waits[stepped] = stepped.waiting.thing
            if stepped.done:
                self._left[stepped.group] = self._left.get(stepped.group, 0) | past

    def _note_event(self, event: Event) -> None:
        number = len(self.history.events)
        races = self.history.add(event, self._before, self._seen)
        self._past[event.thread] = event.past
        for point in event.touches:
            if point.kind == "meet":
                self._left[point.thing] = self._left.get(point.thing, 0) | event.past
        if number >= self.known - 1:
            for step in races:
                self._want(step, self.history.events)
        self.asleep = {
            each: since
            for each, since in self.asleep.items()
            if each != event.thread and not self._sees(self._by_number[each], event, since)
        }

    def _resumes(self, thread: Thread, thing: Any) -> None:
        """A thread resumes: the event that it waited for happened before."""
        past = self.history.of(thing).past if isinstance(thing, BarrierSlot) else self._left.get(thing, 0)
        self._past[self.numbers[thread]] |= past

    def _sees(self, choice: Choice, event: Event, since: int) -> bool:
        """True if the next step of a sleeping choice depends on a step just taken."""
        return any(
            mine.thing is theirs.thing and self._differs(mine, theirs, since)
            for mine in touched(choice)
            for theirs in event.touches
        )

    def _differs(self, mine: Point, theirs: Point, since: int) -> bool:
        history = self.history.of(mine.thing)
        if isinstance(history, CounterHistory):
            return _conflict(mine.kind, theirs.kind)
        if isinstance(history, OrderHistory):
            return mine.kind != "meet" and not (mine.kind == theirs.kind and mine.kind.startswith(_COMMUTING))
        if theirs.kind == "arrive":
            return not history.arrived  # that arrival was the last of a phase
        if mine.kind != "arrive" or history.slot.arrived != history.slot.needed - 1:
            return False
        return not history.exchanges(self.history, since)

    def _want(self, step: int, events: Sequence[Event]) -> None:
        """Request a backtrack to the state before a step: a choice that leads to the last event without that step."""
        rest = [
            (number, event)
            for number, event in enumerate(events[step + 1 :], step + 1)
            if number == len(events) - 1 or not event.past >> step & 1
        ]
        begin: list[int] = []
        others: set[int] = set()
        passed: StepSet = 0
        for number, event in rest:
            if event.thread not in others:
                others.add(event.thread)
                if not event.past & passed and self._can_begin(event, [each for _, each in rest], events[step:]):
                    begin.append(event.thread)
            passed |= 1 << number
        options = self.branch.options[step] if step < self.known else self.states[step - self.known][0]
        able = [each for each in reversed(begin) if each in options]
        self.wants.append((step, begin, able[:1] or options))

    @staticmethod
    def _can_begin(event: Event, rest: Sequence[Event], since: Sequence[Event]) -> bool:
        """True if a step may run before all others of `rest`, so that all observations of barriers stay the same."""
        for slot in event.arrived:
            touching = [each for each in rest if slot in each.arrived]
            if touching[0] is event:
                continue
            arrived = next(each.arrived[slot] for each in since if slot in each.arrived)
            first = [event, *(each for each in touching if each is not event)]
            if levels(touching, slot, arrived) != levels(first, slot, arrived):
                return False
        return True


__all__ = ["STEPS", "Branch", "Changed", "Cut", "Exploration", "Outcome", "Schedule"]
