"""The machine: runs the threads of a launch and their async ops, one step at a time, in the order a policy chooses."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from palladio.ir.core import Program
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.coroutines import run_program
from palladio.machine.run.points import POLLS, SPINS
from palladio.machine.run.policies import Policy
from palladio.machine.run.products import Products, Widened
from palladio.machine.run.threads import AsyncOp, Group, InFlight, Thread, Wait

MOST_SPINS = 30_000
"""The number of consecutive polls after which a run counts as deadlocked."""


class Machine:
    """One run.

    Fields:
        runnable: threads that can take a step, in the order in which they became runnable.
        async_ops: asynchronous operations in flight, in the order of their issue.
        checker: the checker of every access, or None.
        worked, spun: the number of steps that were not polls, and of polls since the last of them.
        most_spins: the number of consecutive polls that ends a run.
        most_worked: the number of other steps that ends it; infinity unless the run may have an endless loop.
        timer: the timer of modelled time, or None.
        watch: called with each equation that a thread evaluates, its inputs and outputs; or None.
        zeros: whether uninitialised memory holds zeros.
        skip_floats: whether products of floats are skipped; the accumulator then holds infinities.
        cores: the number of cores that share a grid, with private memory for its blocks; 0 for the definition's order.
        grid_seed: seed for the order of the indices along parallel axes of a grid, on cores.
        grid_recorder: called at each point of a grid on cores, with a token, the point, and the core; or None.
        explains: whether the report of a deadlock names the threads that could have ended each wait.
        products: cached products of earlier runs of the same check, or None.
        widened: operands of products in float32.
    """

    def __init__(self, policy: Policy, checker: Any = None) -> None:
        self.policy = policy
        self.points = policy.points
        self.eager = policy.eager
        self.checker = checker
        self.timer: Any = None
        self.watch: Any = None
        self.zeros = False
        self.skip_floats = False
        self.cores = 0
        self.grid_seed = 0
        self.grid_recorder: Any = None
        self.explains = True
        self.products: Products | None = None
        self.widened = Widened()
        self.runnable: deque[Thread] = deque()
        self.async_ops = InFlight()
        self.groups: list[Group] = []
        self.threads: list[Thread] = []
        self.clusters = 0
        self.spun = 0
        self.worked = 0
        self.most_spins = MOST_SPINS
        self.most_worked = math.inf

    @property
    def only_spinning(self) -> bool:
        """True if every runnable thread only polls."""
        return all(thread.point is not None and thread.point.kind in POLLS for thread in self.runnable)

    def expect_deadlock(self) -> None:
        """Lower the limit of consecutive polls: a deadlock is known or likely."""
        self.most_spins //= 100

    def start(self, thread: Thread, program: Program, values: Sequence[Any]) -> None:
        """Make a thread ready to run a program."""
        thread.steps = run_program(thread, program, values)
        thread.program, thread.values = program, values
        thread.group.running += 1
        thread.block.cluster.running += 1
        thread.block.running += 1
        thread.priority = self.policy.priority()
        self.threads.append(thread)
        self.ready(thread)

    def run(self) -> bool:
        """Run until every thread has ended; false if the run deadlocks."""
        while True:
            chosen = self.policy.choose(self)
            if chosen is None:
                if any(group.start_next() for group in reversed(self.groups)):
                    continue
                return all(group.done for group in self.groups)
            if self.spun > len(self.runnable) and any(group.start_next() for group in reversed(self.groups)):
                self.spun = 0
            if self.spun > self.most_spins or self.worked > self.most_worked:
                return False
            if self.timer is not None:
                self.timer.current = chosen
            if isinstance(chosen, AsyncOp):
                chosen.complete()
            else:
                self.step(chosen)

    def allocated(self, store: Any, initialised: bool, written: bool = True) -> None:
        """A store has been allocated; uninitialised memory holds zeros if `zeros` is set."""
        if self.zeros and not initialised and isinstance(store, Buffer):
            store.array[...] = 0
        if self.checker is not None:
            self.checker.allocated(store, initialised, written)

    def ready(self, thread: Thread) -> None:
        """Make a thread runnable."""
        self.runnable.append(thread)
        self.policy.enters(self, thread)

    def take(self, number: int) -> Thread:
        """Remove and return the thread at an index among the runnable ones."""
        thread = self.runnable[number]
        del self.runnable[number]
        return thread

    def step(self, thread: Thread) -> None:
        """Run a thread until it yields, blocks or ends."""
        try:
            request = next(thread.steps)
        except StopIteration:
            self._end(thread)
            return
        thread.point = None
        if isinstance(request, Wait):
            if self.timer is not None:
                self.timer.blocks_at(thread, request.eqn)
            thread.waiting = request
            request.thing.waiting.append(thread)
        else:
            thread.point = request
            self.ready(thread)
            if request.kind in SPINS:
                self.spun = self.spun + 1 if not self.async_ops and self.only_spinning else 0
            else:
                self.worked += 1
                self.spun = self.spun if request.kind in POLLS else 0

    def _end(self, thread: Thread) -> None:
        thread.done, thread.values = True, ()
        if self.checker is not None:
            self.checker.threads.ends(thread)
        cluster, group = thread.block.cluster, thread.group
        cluster.running -= 1
        thread.block.running -= 1
        group.running -= 1
        if self.timer is not None:
            self.timer.ends(thread)
        if thread.block.running == 0:
            thread.block.ended = True
            if self.checker is not None:
                self.checker.block_ends(thread.block)
        if group.parent is not None:
            group.ended.append((thread.generic, thread.asynchronous))
        if cluster.running == 0 and not (self.policy.patient and self.has_copies(cluster)):
            self.leave(cluster)
        if group.running == 0 and not group.start_next() and group.done:
            self._finish(group)

    def has_copies(self, cluster: Any) -> bool:
        """True if a cluster has copies in flight that signal a barrier or semaphore."""
        return any(async_op.touches and async_op.thread.block.cluster is cluster for async_op in self.async_ops)

    def leave(self, cluster: Any) -> None:
        """The last thread of a cluster has ended: complete its operations in flight and free its place."""
        for async_op in [async_op for async_op in self.async_ops if async_op.thread.block.cluster is cluster]:
            async_op.complete()
        if self.checker is not None:
            self.checker.cluster_ends(cluster)
        self.threads = [thread for thread in self.threads if thread.block.cluster is not cluster]
        cluster.group.resident -= 1
        if not cluster.cores:  # the programs of cores follow each other
            cluster.dissolve()

    def _finish(self, group: Group) -> None:
        """A launch has ended: wake the threads that wait for it."""
        self.groups.remove(group)
        self.wake(group.waiting)

    def issue(self, async_op: AsyncOp) -> None:
        """Put an asynchronous operation in flight."""
        async_op.priority = self.policy.priority()
        self.async_ops.add(async_op)
        self.policy.enters(self, async_op)
        if self.timer is not None:
            self.timer.issued(async_op)
        if self.eager:
            async_op.complete()

    def wake(self, waiting: list[Any]) -> None:
        """Make blocked threads runnable; each tests its condition again."""
        for thread in waiting:
            thread.waiting = None
            self.ready(thread)
        waiting.clear()
