"""The checker: tracks the happens-before order, and reports unordered accesses.

Each thread has two clocks: `generic` orders its next ordinary access, `asynchronous` its next asynchronous operation;
`commit_smem` joins the first into the second. An asynchronous operation is a component of its own kind, whose epochs
complete in order; its accesses are recorded at its issue, and a thread that waits for it acquires its epoch.

Where practice is laxer than the letter of the memory model, the checker is too, since a false alarm is worse
than a missed one: a copy may overwrite data that ordinary loads have read without a fence, and in global memory also
data that ordinary stores have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.accesses import Accesses, Places
from palladio.machine.check.findings import CODES, Participant
from palladio.machine.check.found import Found
from palladio.machine.check.order.async_ops import PENDING, AsyncOpOrder
from palladio.machine.check.order.barriers import BarrierOrder
from palladio.machine.check.order.history import History
from palladio.machine.check.order.launches import EarlierLaunches
from palladio.machine.check.order.semaphores import SemaphoreOrder
from palladio.machine.check.order.threads import ThreadOrder
from palladio.machine.check.races import participant_of
from palladio.machine.check.report.naming import describe
from palladio.machine.check.resource_limits import Limits
from palladio.machine.check.scope_memory import leaves
from palladio.machine.check.shadow import Access
from palladio.machine.run.buffers import Accumulator, Barrier, Buffer, Semaphores
from palladio.machine.run.clocks import Clock
from palladio.machine.run.threads import Block, Cluster, Thread

MISUSE = frozenset(
    ("barrier-overrun", "missed-phase", "barrier-pending-arrivals", "semaphore-not-drained", "out-of-bounds")
)
"""The findings of a run without race detection: misused barriers and semaphores, and wrong indices."""


class Checker:
    """Watches one run. Each kind of event has its own part; this class handles the beginnings and ends.

    Args:
        stop: raise the first error; else findings are collected, each mistake once.
        schedule: the schedule that replays the run, for reports.
        strict_reads: report reads of memory that nothing has written.
        bounds: report accesses outside their buffer.
        places: those of another run.
        ignore: codes of findings that are not reported.
        memory: follow every access of memory; without it only `MISUSE` is reported, at a fraction of the time.
        launches: those before this one.
        strict: codes whose hints are errors, and which are reported in any case.
    """

    def __init__(
        self,
        *,
        stop: bool = True,
        schedule: str = "",
        strict_reads: bool = True,
        bounds: bool = True,
        places: Places | None = None,
        ignore: frozenset[str] = frozenset(),
        memory: bool = True,
        launches: EarlierLaunches | None = None,
        strict: frozenset[str] = frozenset(),
    ) -> None:
        self.memory = memory
        self.found = Found(stop, schedule, ignore if memory else ignore | (CODES.keys() - MISUSE - strict), strict)
        self.limits = Limits(self.found)
        self.threads = ThreadOrder(self.found)
        self.history = History()
        self.launches = EarlierLaunches() if launches is None else launches
        shared = Places() if places is None else places
        self.accesses = Accesses(self.found, shared, strict_reads, bounds, self.history)
        self.barriers = BarrierOrder(self.found, self.history)
        self.semaphores = SemaphoreOrder(self.found, self.history)
        self.async_ops = AsyncOpOrder(self.found, self.accesses, self.barriers, self.semaphores)
        self.deadlocked = False

    def allocated(self, store: Any, initialised: bool, written: bool = True) -> None:
        """A store has been allocated. Memory that nothing writes needs no shadow."""
        if isinstance(store, Buffer) and self.memory and (written or not initialised):
            self.accesses.allocated(store, initialised)
        if isinstance(store, Buffer) and store.visible and self.memory:
            self.launches.brought(store, self.accesses)
        if isinstance(store, Buffer) and isinstance(store.home, Block):
            store.home.addresses.place(store)
        self.limits.allocated(store)

    def scope_ends(self, thread: Thread, eqn: Eqn, stores: Sequence[Any], others: Sequence[Clock] = ()) -> None:
        """Stores are given back; `others` are the clocks of threads that share them, each as it left the scope."""
        known = thread.generic.copy()
        for clock in others:
            known.join(clock)
        for store in stores:
            if isinstance(store, Barrier):
                self.barriers.ends(store)
                self.barriers.retire(store)
            elif isinstance(store, Semaphores):
                self.semaphores.ends(store, cleared=False)
            elif isinstance(store, Buffer) and store.shadow is not None:
                leaves(self.found, store, known, eqn, thread)
            elif isinstance(store, Accumulator):
                self.async_ops.accumulator_ends(store, eqn, thread)
            self.limits.freed(store)

    def block_ends(self, block: Block) -> None:
        """The last thread of a block has ended: accesses of its memory by other blocks must have happened before."""
        if len(block.cluster.blocks) == 1:
            return
        known = block.cluster.components.clock()
        for thread in block.threads:
            known.join(thread.generic)
        mine = {thread.title for thread in block.threads}
        for store in block.stores:
            if isinstance(store, Barrier):
                self.barriers.check_remote_arrivals(store, known, block)
            elif isinstance(store, Buffer) and store.shadow is not None:
                self._peers(store, known, block, mine)

    def _peers(self, store: Buffer, known: Clock, block: Block, mine: set[str]) -> None:
        region = store.shadow.regions.resolve((), ())
        end = Access(block.threads[0].component, PENDING, None, block.label, write=True)

        def before_the_end(before: Access, _: bool) -> bool:
            return before.thread in mine or known.covers(before.component, before.epoch)

        before = store.shadow.write(region, end, before_the_end)
        if before is not None:
            self.found.exited(participant_of(before), f"{describe(store)} of {block.label}")

    def cluster_ends(self, cluster: Cluster) -> None:
        """All threads of a cluster have ended."""
        for block in cluster.blocks.values():
            for store in block.stores:
                if isinstance(store, Barrier):
                    self.barriers.ends(store)
                elif isinstance(store, Semaphores):
                    self.semaphores.ends(store, cleared=True)
            self.limits.block_ends(block)
        self.history.forget(cluster.components.cluster)

    def launch_starts(self, launching: Any) -> None:
        """Everything before a launch has happened before it, except launches that let it start early."""
        self.launches.starts()
        self.found.place = self.limits.place = launching.eqn.location if launching.eqn is not None else None

    def launch_ends(self, launching: Any) -> None:
        """Check that the semaphores of a completed launch are back at zero, and its barriers and outputs."""
        self.launches.ends(launching)
        if self.deadlocked:
            return
        cleared = launching.parent is None and not launching.on_cores
        for store in launching.stores():
            if isinstance(store, Semaphores):
                self.semaphores.ends(store, cleared)
            elif isinstance(store, Barrier):
                self.barriers.ends(store)
        if not any(finding.level == "error" for finding in self.found.findings):  # an error may be the cause
            for store in launching.fresh():
                self._output_ends(store)

    def _output_ends(self, store: Buffer) -> None:
        """Report an output with an unwritten element."""
        if store.shadow is None or not store.shadow.uninitialised(store.shadow.regions.resolve((), ())):
            return
        written, place = store.shadow.initialised(), self.limits.place
        first = ", ".join(map(str, np.argwhere(~written)[0]))
        self.found.report(
            "unwritten-output",
            f"{np.count_nonzero(~written):,} of {written.size:,} elements of {store.name} ({store.type.array}) are not "
            f"written; the first is [{first}]",
            [Participant("the launch", "ends", place)],
            about=f"{store.name} {place}",
        )
