"""Schedules: in which order agents take steps and asynchronous operations complete. A seed replays one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palladio.machine.agents import Agent, Flight

if TYPE_CHECKING:
    from palladio.machine.machine import Machine

Choice = Agent | Flight

COMPLETIONS = ("earliest", "latest", "random")


class Policy:
    """Decides what happens next.

    Fields:
        name: what replays it.
        points: whether agents stop before every synchronising operation, so that others may go first.
        eager: whether asynchronous operations complete as they are issued.
    """

    name = ""
    points = True
    eager = False

    def choose(self, machine: Machine) -> Choice | None:
        """What takes the next step; None if nothing can."""
        raise NotImplementedError


class RoundRobin(Policy):
    """Each agent runs until it must wait; asynchronous operations complete at once."""

    name = "round_robin"
    points = False
    eager = True

    def choose(self, machine: Machine) -> Choice | None:
        """The agent that could have gone on for the longest time."""
        if machine.runnable:
            return machine.runnable.popleft()
        return next(iter(machine.flights), None)


class Lazy(Policy):
    """Each agent runs until it must wait; asynchronous operations complete as late as they can."""

    name = "latest"
    points = False

    def choose(self, machine: Machine) -> Choice | None:
        """An agent while there is one."""
        if machine.runnable:
            return machine.runnable.popleft()
        return next((flight for flight in machine.flights if flight.ready), None)


class Random(Policy):
    """Whoever can go on is chosen at random, agents and asynchronous operations alike.

    Args:
        completions: "earliest" completes asynchronous operations as they are issued, "latest" when nothing else can
            go on, "random" like any other step.
        start: the chance of starting one more cluster of blocks at a step.
    """

    def __init__(self, seed: int, completions: str = "random", start: float = 0.1) -> None:
        self.name = f"random:{completions}:{seed}"
        self.eager = completions == "earliest"
        self.late = completions == "latest"
        self.start = start
        self.random = random.Random(seed)

    def choose(self, machine: Machine) -> Choice | None:
        """Any of those that can go on."""
        if machine.groups and self.random.random() < self.start:
            machine.groups[-1].start_next()
        flights = [flight for flight in machine.flights if flight.ready]
        if machine.runnable and (self.late or not flights):
            return machine.take(self.random.randrange(len(machine.runnable)))
        total = len(machine.runnable) + len(flights)
        if not total:
            return None
        chosen = self.random.randrange(total)
        if chosen < len(machine.runnable):
            return machine.take(chosen)
        return flights[chosen - len(machine.runnable)]


class Priorities(Policy):
    """Probabilistic concurrency testing (Burckhardt and others, 2010): the agent of the highest priority runs.

    Priorities are random; at `changes` random steps the running one falls to the lowest. Asynchronous operations have
    priorities too.
    """

    def __init__(self, seed: int, changes: int = 3, steps: int = 400) -> None:
        self.name = f"pct:{seed}"
        self.random = random.Random(seed)
        self.changes = {self.random.randrange(steps) for _ in range(changes)}
        self.priority: dict[Any, float] = {}
        self.lowest = 0.0
        self.step = 0

    def choose(self, machine: Machine) -> Choice | None:
        """The one of the highest priority."""
        if machine.groups and self.random.random() < 0.1:
            machine.groups[-1].start_next()
        options: Sequence[Choice] = [*machine.runnable, *(flight for flight in machine.flights if flight.ready)]
        if not options:
            return None
        for option in options:
            if option not in self.priority:
                self.priority[option] = self.random.random()
        best = max(options, key=self.priority.__getitem__)
        self.step += 1
        if self.step in self.changes:
            self.lowest -= 1.0
            self.priority[best] = self.lowest
        if isinstance(best, Flight):
            del self.priority[best]
            return best
        return machine.take(machine.runnable.index(best))


def schedules(count: int, seed: int) -> list[Policy]:
    """The schedules of a check: round robin, the latest completions, then random ones of every kind."""
    found: list[Policy] = [RoundRobin(), Lazy()]
    for number in range(seed, seed + max(0, count - 2)):
        kind = number % 4
        found.append(Priorities(number) if kind == 3 else Random(number, COMPLETIONS[kind]))
    return found[:count]


def named(name: str) -> Policy:
    """The schedule of a name, as reports give it.

    Raises:
        ValueError: for a name that no schedule has.
    """
    kind, *rest = name.split(":")
    if kind == "random":
        return Random(int(rest[1]), rest[0])
    if kind == "pct":
        return Priorities(int(rest[0]))
    return {"round_robin": RoundRobin, "latest": Lazy}[kind]()
