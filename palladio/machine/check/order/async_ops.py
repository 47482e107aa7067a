"""The happens-before edges of copies, stores and products in flight, and their accesses."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NoReturn

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.accesses import Accesses
from palladio.machine.check.findings import CheckError, Finding, Participant
from palladio.machine.check.found import Found
from palladio.machine.check.order.barriers import BarrierOrder
from palladio.machine.check.order.semaphores import SemaphoreOrder
from palladio.machine.check.order.threads import epoch, released
from palladio.machine.check.races import Issue
from palladio.machine.check.report.naming import at_text, describe, part_text
from palladio.machine.check.shadow import Access
from palladio.machine.run.buffers import Accumulator, BarrierSlot, Buffer, Counter, Stack
from palladio.machine.run.clocks import Component
from palladio.machine.run.threads import AsyncOp, Thread
from palladio.ops.threads.copy import async_store_smem

MEET = "a barrier of the cluster between the beginning of the scope and the copy: plgpu.ClusterBarrier"
"""The order that lets blocks reach each other's buffers of a scope."""

PENDING = 1 << 62
"""The epoch of an operation that has not completed: no thread has seen it."""

Reached = tuple[Buffer, Stack]


class AsyncOpOrder:
    """Asynchronous operations access memory from their issue until a thread has waited for them."""

    def __init__(self, found: Found, accesses: Accesses, barriers: BarrierOrder, semaphores: SemaphoreOrder) -> None:
        self.found = found
        self.accesses = accesses
        self.barriers = barriers
        self.semaphores = semaphores

    def _launches(self, thread: Thread, async_op: AsyncOp) -> Issue:
        """The clocks that an operation releases when it completes: its thread's at the issue, and its own accesses."""
        accesses: list[Access] = []
        async_op.notes = thread.generic.copy(), thread.asynchronous.copy(), accesses
        return Issue(thread.component, epoch(thread))

    def _notes(self, thread: Thread, async_op: AsyncOp, component: Component, write: bool, issue: Issue) -> Access:
        """An access of an operation whose completion epoch is not yet known."""
        atomic = write and async_op.eqn.params.get("reduction") is not None
        place, trail = thread.block.key, thread.trail
        access = Access(component, PENDING, async_op.eqn, thread.title, write, atomic, True, place, issue, trail)
        async_op.notes[2].append(access)
        return access

    def absent(self, thread: Thread, eqn: Eqn, store: Buffer) -> NoReturn:
        """A copy accesses memory of a block that has not entered its scope: the run cannot continue."""
        message = f"{describe(store)} is copied to in a block of the cluster that has not come to its scope yet"
        participants = (Participant(thread.title, f"runs {eqn.op.name}", eqn.location, at_text(thread.trail)),)
        self.found.report("copy-target-in-use", message, participants, missing=MEET)
        raise CheckError(Finding("copy-target-in-use", message, participants, MEET, schedule=self.found.schedule))

    def copy_issued(
        self,
        thread: Thread,
        async_op: AsyncOp,
        source: Reached | None,
        targets: Sequence[Reached],
        slots: Sequence[BarrierSlot],
        indices: Sequence[Any],
    ) -> None:
        """A copy that arrives at barriers starts."""
        first = self.barriers.slot_clocks(slots[0])
        issue, lacks = self._launches(thread, async_op), False
        if source is not None:
            if async_op.eqn.fill == "promise_in_bounds":
                self.accesses.check_bounds(thread, async_op.eqn, *source, indices, None, False)
            read = self._notes(thread, async_op, first.component, False, issue)
            lacks = self.accesses.touch(thread, *source, indices, read, thread.asynchronous, strict=False)
        for (store, stack), slot in zip(targets, slots):
            if slot.home is not store.home:
                self._signals_elsewhere(thread, async_op.eqn, store, slot)
            clocks = self.barriers.slot_clocks(slot)
            issue = Issue(issue.component, issue.epoch, clocks.waits, slot.name, async_op.notes[0])
            self.barriers.history.releases(thread, async_op.eqn, slot.token, slot.completed + 1)
            self.accesses.check_bounds(thread, async_op.eqn, store, stack, indices, None, True)
            access = self._notes(thread, async_op, clocks.component, True, issue)
            self.accesses.touch(thread, store, stack, indices, access, thread.asynchronous)
            if source is not None and lacks:
                self.accesses.unwritten.copied(thread, async_op.eqn, source, (store, stack), indices, read)
        released(thread)

    def _signals_elsewhere(self, thread: Thread, eqn: Eqn, store: Buffer, slot: BarrierSlot) -> None:
        self.found.report(
            "cluster-mismatch",
            f"{eqn.op.name} writes {describe(store)} of {store.home.label} and signals {slot.name} of "
            f"{slot.home.label}; bytes are counted by a barrier of the block that they land in",
            [Participant(thread.title, f"runs {eqn.op.name}", eqn.location, at_text(thread.trail))],
            missing=f"{slot.name} of {store.home.label}: plgpu.cluster_ref with the same indices for both",
        )

    def shared_copy(
        self,
        thread: Thread,
        eqn: Eqn,
        places: Sequence[Any],
        parts: Sequence[Reached],
        slot: BarrierSlot,
        indices: Sequence[Any],
    ) -> None:
        """One block's part of a collective copy: all blocks must name the same source, target and barrier."""
        kept = thread.block.cluster.copies
        key = eqn, thread.label, places[0]
        turn = kept[key, thread.block.place] = kept.get((key, thread.block.place), 0) + 1
        reached = [self.accesses.regions_of(store).resolve(stack, indices) for store, stack in parts]
        mine = [(store.name, store.type.shape) for store, _ in parts], reached, slot.name, thread
        first, others = kept.pop((key, turn), (mine, len(places)))
        if others > 1:
            kept[key, turn] = first, others - 1
        if mine[:3] == first[:3]:  # usually the same Region objects
            return
        differ = [pair for pair in zip(_named(first), _named(mine), strict=True) if pair[0] != pair[1]]
        if not differ:
            return
        said, here = differ[0]
        self.found.report(
            "cluster-mismatch",
            f"a copy that blocks of a cluster share is to be of {here} in one and of {said} in another",
            [
                Participant(each.title, f"names {what}", eqn.location, at_text(each.trail))
                for each, what in ((thread, here), (first[3], said))
            ],
            missing="the same source, target and barrier in all blocks along the collective axes",
            about=f"{eqn.location}",
        )

    def dma_issued(
        self,
        thread: Thread,
        async_op: AsyncOp,
        source: Reached,
        target: Reached,
        counters: Sequence[Counter],
        amount: int,
        indices: Sequence[Any],
    ) -> None:
        """A copy that raises semaphores starts."""
        issue = self._launches(thread, async_op)
        own = async_op.notes[:2]
        for counter in counters:
            self.semaphores.order_of(counter)
        # The last semaphore of a remote copy signals that the source has been read.
        parts = [(*source, counters[-1], False), (*target, counters[0], True)]
        noted: dict[Counter, list[Access]] = {counter: [] for counter in counters}
        digest = _digest(source, indices) if thread.block.cluster.subcores and target[0].visible else None
        for store, stack, counter, write in parts:
            if not async_op.eqn.params.get("clip"):
                self.accesses.check_bounds(thread, async_op.eqn, store, stack, indices, None, write)
            issue = Issue(issue.component, issue.epoch, (), counter.name, own[0], digest)
            self.semaphores.history.releases(thread, async_op.eqn, counter.token)
            access = self._notes(thread, async_op, counter.component, write, issue)
            noted[counter].append(access)
            self.accesses.touch(thread, store, stack, indices, access, thread.asynchronous)
        for counter in counters:
            counter.order.add_copy(amount, own, counter.component, noted.pop(counter, ()))
        released(thread)

    def lands(self, async_op: AsyncOp, slot: BarrierSlot) -> None:
        """The bytes of a copy have landed, and its arrival at the barrier is about to be counted."""
        generic, asynchronous, accesses = async_op.notes
        clocks = self.barriers.slot_clocks(slot)
        component, epoch = clocks.component, clocks.base + slot.completed + 1
        # The thread itself releases its clock to its block's barrier, by mbarrier.arrive.expect_tx. The other blocks of
        # a multicast acquire only the completion: complete_tx releases the copy's own writes (PTX ISA,
        # "cp.async.bulk.tensor" and "Memory consistency model").
        joins = slot.home is async_op.thread.block or async_op.eqn.op is async_store_smem
        for clock, own in zip((clocks.generic, clocks.asynchronous), (generic, asynchronous), strict=True):
            if joins:
                clock.join(own)
            clock.set(component, epoch)
        for access in accesses:
            if access.component == component and access.epoch == PENDING:
                access.epoch = epoch

    def product_issued(
        self, thread: Thread, async_op: AsyncOp, acc: Accumulator, operands: Sequence[Reached], indices: Sequence[Any]
    ) -> dict[Buffer, Access]:
        """A product starts: it reads its operands until a wait for it returns.

        Returns:
            Its accesses of operands with uninitialised elements.
        """
        found = {}
        thread.last_product = async_op.eqn
        issue = Issue(thread.component, epoch(thread))
        for store, stack in operands:
            access = Access(
                thread.product_component,
                thread.issued,
                async_op.eqn,
                thread.title,
                asynchronous=True,
                block=thread.block.key,
                issue=issue,
                trail=thread.trail,
            )
            self.accesses.check_bounds(thread, async_op.eqn, store, stack, indices, None, False)
            if self.accesses.touch(thread, store, stack, indices, access, thread.asynchronous, strict=False):
                found[store] = access
        return found

    def products_awaited(self, thread: Thread, eqn: Eqn, upto: int) -> None:
        """Products up to this one are done."""
        if upto > 0:
            thread.generic.set(thread.product_component, upto)
            thread.asynchronous.set(thread.product_component, upto)

    def accumulator(self, thread: Thread, eqn: Eqn, acc: Accumulator) -> None:
        """An accumulator is read or set."""
        if acc.group > thread.generic.epoch(thread.product_component):
            self.found.report(
                "accumulator-in-flight",
                f"the accumulator {acc.name} is used while a product may be changing it",
                [
                    Participant(thread.title, f"runs {eqn.op.name}", eqn.location, at_text(thread.trail)),
                    Participant(thread.title, "started the product", acc.issued.location),
                ],
                missing="a wgmma_wait between the two",
            )

    def store_issued(
        self, thread: Thread, async_op: AsyncOp, source: Reached, target: Reached, indices: Sequence[Any]
    ) -> None:
        """A copy to global memory starts, in the open group."""
        thread.last_store = async_op.eqn
        group = thread.groups + 1
        site, place, trail = async_op.eqn, thread.block.key, thread.trail
        issue = Issue(thread.component, epoch(thread))
        reduces = site.reduction is not None
        read = Access(thread.read_component, group, site, thread.title, False, False, True, place, issue, trail)
        write = Access(thread.write_component, group, site, thread.title, True, reduces, True, place, issue, trail)
        self.accesses.check_bounds(thread, async_op.eqn, source[0], source[1], indices, None, False)
        lacks = self.accesses.touch(thread, *source, indices, read, thread.asynchronous, strict=False)
        self.accesses.touch(thread, *target, indices, write, thread.asynchronous)
        if lacks:
            self.accesses.unwritten.copied(thread, async_op.eqn, source, target, indices, read)

    def stores_awaited(self, thread: Thread, eqn: Eqn, n: int, read_only: bool) -> None:
        """All groups but the last n have read their sources and, unless `read_only`, written their targets."""
        for each in thread.storing:
            upto = each.groups - n
            if upto > 0:
                for component in (each.read_component,) if read_only else (each.read_component, each.write_component):
                    thread.generic.set(component, upto)
                    thread.asynchronous.set(component, upto)

    def accumulator_ends(self, acc: Accumulator, eqn: Eqn, thread: Thread) -> None:
        if acc.group > thread.generic.epoch(thread.product_component):
            self.found.report(
                "scope-in-use",
                f"the accumulator {acc.name} is given back while a product may still be changing it",
                [
                    Participant(thread.title, "started the product", acc.issued.location),
                    Participant(thread.title, "leaves the scope", eqn.location, at_text(thread.trail)),
                ],
            )


def _named(shared: tuple[list[Any], list[Any], str, Thread]) -> tuple[str, ...]:
    """Source, target and barrier of a block's part of a collective copy, as they are written in the kernel."""
    stores, regions, slot, _ = shared
    return *(part_text(*store, region) for store, region in zip(stores, regions, strict=True)), slot


def _digest(source: Reached, indices: Sequence[Any]) -> bytes:
    """A hash of the bytes that a copy takes from its source, and of the index arrays by which it places them."""
    buffer, stack = source
    found = blake2b(np.ascontiguousarray(buffer.read(stack, indices)).tobytes(), digest_size=16)
    for index in indices:
        if np.ndim(index):
            found.update(np.ascontiguousarray(index).tobytes())
    return found.digest()
