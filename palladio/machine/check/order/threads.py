"""The happens-before edges of threads: start, end, rendezvous and fences."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.machine.check.findings import Participant
from palladio.machine.check.found import Found
from palladio.machine.run.clocks import Clock
from palladio.machine.run.threads import Group, Thread


def epoch(thread: Thread) -> int:
    """The current epoch of a thread."""
    return thread.generic.own.item(thread.component.local)


def released(thread: Thread) -> None:
    """The thread has released its clocks: advance its epoch, so that later steps are not covered by them."""
    thread.generic.advance(thread.component)


def acquire(thread: Thread, clocks: tuple[Clock, Clock]) -> None:
    """A thread acquires these clocks."""
    thread.generic.join(clocks[0])
    thread.asynchronous.join(clocks[1])


class ThreadOrder:
    """The start, rendezvous, end and fences of threads."""

    def __init__(self, found: Found) -> None:
        self.found = found

    def starts(self, thread: Thread, parent: Thread | None) -> None:
        """A thread starts, with its parent's clocks."""
        components = thread.block.cluster.components
        thread.title = str(thread)
        if thread.product_component is None:  # else inherited from its predecessor
            thread.product_component = components.new(f"products of {thread.title}")
            thread.read_component = components.new(f"stores of {thread.title}, reading")
            thread.write_component = components.new(f"stores of {thread.title}, writing")
        if parent is None:
            thread.generic, thread.asynchronous = components.clock(), components.clock()
        else:
            thread.generic, thread.asynchronous = parent.generic.copy(), parent.asynchronous.copy()
        thread.generic.advance(thread.component)

    def joins(self, thread: Thread, group: Group) -> None:
        """The threads that a thread launched have all ended."""
        for clocks in group.ended:
            acquire(thread, clocks)
        released(thread)

    def ends(self, thread: Thread) -> None:
        """A thread ends: report its products and copies that may still be in flight."""
        if thread.products or thread.generic.epoch(thread.product_component) < thread.issued:
            site = thread.last_product
            self.found.report(
                "unawaited-wgmma",
                "a thread ends and has not waited for its products",
                [Participant(thread.title, "starts a product that it does not wait for", site.location)],
            )
        for each in thread.storing:
            # A warp may leave the wait to its warpgroup, whose lanes are the warp's: groups belong to a lane (PTX ISA,
            # "cp.async.bulk.wait_group").
            left = thread.group.parent is None and thread.generic.epoch(each.read_component) < each.groups
            if each.open or left:
                closed = "" if not each.open else " (its group was never committed)"
                self.found.report(
                    "unawaited-copy",
                    f"a thread ends and has not waited for its copies to global memory{closed}",
                    [Participant(each.title, "starts a copy that it does not wait for", each.last_store.location)],
                )

    def fences(self, thread: Thread) -> None:
        """commit_smem: orders the thread's stores before its asynchronous operations."""
        thread.asynchronous.join(thread.generic)
        released(thread)

    def rendezvous(self, threads: Sequence[Thread]) -> None:
        """All these threads have arrived at a rendezvous."""
        generic, asynchronous = threads[0].generic.copy(), threads[0].asynchronous.copy()
        for thread in threads:
            generic.join(thread.generic)
            asynchronous.join(thread.asynchronous)
        for thread in threads:
            acquire(thread, (generic, asynchronous))
            released(thread)
