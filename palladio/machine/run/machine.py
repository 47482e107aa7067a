"""The machine: runs the agents of a launch and their flights, one step at a time, in the order a policy chooses."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from palladio.ir.core import Program
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.coroutines import run_program
from palladio.machine.run.points import LOOKS, SPINS
from palladio.machine.run.policies import Policy
from palladio.machine.run.threads import Agent, Flight, Group, Wait

MOST_SPINS = 30_000
"""How often threads look, with nothing else going on, before nothing will happen any more."""


class Machine:
    """One run.

    Fields:
        runnable: agents that can take a step, in the order in which they became able to.
        flights: asynchronous operations under way, in the order of their issue.
        checker: what watches every access, or None.
        worked, spun: steps of threads that were no mere looking again, and how often threads have only looked since.
        most_spins: how many such looks end a run.
        timer: what keeps model time, or None.
        zeros: whether memory that nothing has written holds zeros rather than uninitialised values.
    """

    def __init__(self, policy: Policy, checker: Any = None) -> None:
        self.policy = policy
        self.points = policy.points
        self.eager = policy.eager
        self.checker = checker
        self.timer: Any = None
        self.zeros = False
        self.runnable: deque[Agent] = deque()
        self.flights: dict[Flight, None] = {}
        self.groups: list[Group] = []
        self.agents: list[Agent] = []
        self.clusters = 0
        self.spun = 0
        self.worked = 0
        self.most_spins = MOST_SPINS

    @property
    def only_spinning(self) -> bool:
        """Whether every thread that could go on only looks again whether something has happened."""
        return all(agent.point is not None and agent.point.kind in LOOKS for agent in self.runnable)

    def start(self, agent: Agent, program: Program, values: Sequence[Any]) -> None:
        """Make an agent ready to run a program."""
        agent.steps = run_program(agent, program, values)
        agent.program = program
        agent.group.running += 1
        agent.block.cluster.running += 1
        agent.block.running += 1
        self.agents.append(agent)
        self.runnable.append(agent)

    def run(self) -> bool:
        """Run until every agent has come to its end, or until nothing can happen any more: then false."""
        while True:
            chosen = self.policy.choose(self)
            if chosen is None:
                if any(group.start_next() for group in reversed(self.groups)):
                    continue
                return all(group.done for group in self.groups)
            if self.spun > len(self.runnable) and any(group.start_next() for group in reversed(self.groups)):
                self.spun = 0
            if self.spun > self.most_spins:
                return False
            if self.timer is not None:
                self.timer.current = chosen
            if isinstance(chosen, Flight):
                chosen.complete()
            else:
                self.step(chosen)

    def allocated(self, store: Any, initialised: bool, written: bool = True) -> None:
        """A store came to be; memory without values holds zeros where the run asks for that."""
        if self.zeros and not initialised and isinstance(store, Buffer):
            store.array[...] = 0
        if self.checker is not None:
            self.checker.allocated(store, initialised, written)

    def take(self, number: int) -> Agent:
        """The agent at a place among the runnable ones, which it leaves."""
        agent = self.runnable[number]
        del self.runnable[number]
        return agent

    def step(self, agent: Agent) -> None:
        """Let an agent go on until it stops, waits or ends."""
        try:
            request = next(agent.steps)
        except StopIteration:
            self._end(agent)
            return
        agent.point = None
        if isinstance(request, Wait):
            if self.timer is not None:
                self.timer.blocks_at(agent, request.eqn)
            agent.waiting = request
            request.thing.waiting.append(agent)
        else:
            agent.point = request
            self.runnable.append(agent)
            if request.kind in SPINS:
                self.spun = self.spun + 1 if not self.flights and self.only_spinning else 0
            else:
                self.worked += 1
                self.spun = self.spun if request.kind in LOOKS else 0

    def _end(self, agent: Agent) -> None:
        agent.done = True
        if self.checker is not None:
            self.checker.agent_ends(agent)
        cluster, group = agent.block.cluster, agent.group
        cluster.running -= 1
        agent.block.running -= 1
        group.running -= 1
        if self.timer is not None:
            self.timer.ends(agent)
        if agent.block.running == 0:
            agent.block.ended = True
            if self.checker is not None:
                self.checker.block_ends(agent.block)
        if group.parent is not None:
            group.ended.append((agent.generic, agent.asynchronous))
        if cluster.running == 0 and not (self.policy.patient and self.has_copies(cluster)):
            self.leave(cluster)
        if group.running == 0 and not group.start_next() and group.done:
            self._finish(group)

    def has_copies(self, cluster: Any) -> bool:
        """Whether a cluster has copies under way that arrive somewhere."""
        return any(flight.touches and flight.agent.block.cluster is cluster for flight in self.flights)

    def leave(self, cluster: Any) -> None:
        """The last agent of a cluster has ended: what it left under way completes, and it makes room."""
        for flight in [flight for flight in self.flights if flight.agent.block.cluster is cluster]:
            flight.complete()
        if self.checker is not None:
            self.checker.cluster_ends(cluster)
        self.agents = [agent for agent in self.agents if agent.block.cluster is not cluster]
        cluster.group.resident -= 1

    def _finish(self, group: Group) -> None:
        """A launch is over: whoever waits for it goes on."""
        self.groups.remove(group)
        self.wake(group.waiting)

    def issue(self, flight: Flight) -> None:
        """Take an asynchronous operation under way."""
        self.flights[flight] = None
        if self.timer is not None:
            self.timer.issued(flight)
        if self.eager:
            flight.complete()

    def wake(self, waiting: list[Any]) -> None:
        """Let blocked agents look again whether they can go on."""
        for agent in waiting:
            agent.waiting = None
            self.runnable.append(agent)
        waiting.clear()
