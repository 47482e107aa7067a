"""The checker: follows what happens before what, and reports accesses that nothing orders.

Each thread has two clocks: `generic` orders its next ordinary access, `asynchronous` its next asynchronous operation;
`commit_smem` joins the first into the second. An asynchronous operation is a component of its own kind, whose epochs
complete in order; its accesses are noted when it is issued, and whoever waits for it learns of its epoch.

Where hardware is used more freely than the letter of its memory model, the checker is too, since a false alarm is worse
than a missed one: a copy may overwrite what ordinary loads have read without a fence, and global memory does not tell
ordinary from asynchronous accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from palladio.ir.core import Eqn
from palladio.machine.check.atomic_order import AtomicClocks
from palladio.machine.check.bounds import Bounds, reaches_outside
from palladio.machine.check.findings import CheckError, Finding, Participant
from palladio.machine.check.races import Issue, describe, participant_of, race
from palladio.machine.check.regions import Regions
from palladio.machine.check.resource_limits import Limits
from palladio.machine.check.semaphore_order import Signals
from palladio.machine.check.shadow import Access, Shadow
from palladio.machine.run.buffers import Accumulator, Barrier, BarrierSlot, Buffer, Counter, Semaphores, Stack
from palladio.machine.run.clocks import Clock, Component, ComponentTable
from palladio.machine.run.threads import AsyncOp, Block, Cluster, Group, Thread
from palladio.ops.threads.copy import async_store_smem
from palladio.types.effects import EffectKind
from palladio.types.types import SMEM

MEET = "a barrier of the cluster between the beginning of the scope and the copy: plgpu.ClusterBarrier"
"""What lets blocks reach each other's buffers of a scope."""

PENDING = 1 << 62
"""The epoch of what has not completed yet: nobody has seen it."""

Reached = tuple[Buffer, Stack]


class SlotClocks:
    """What those who wait for a barrier learn: the clocks of its arrivals, of the last two completions.

    Fields:
        waits: for each thread, the epoch of its last wait here.
        waiters: for each thread, the last completion that it has waited for, and how reports name that wait.
        overrun: whether a phase was found that its waiting threads may miss.
        strangers: for each thread of another block, its last arrival.
        base: the last epoch of the component when it belonged to a barrier that has ended.
    """

    __slots__ = ("asynchronous", "base", "component", "generic", "overrun", "phases", "strangers", "waiters", "waits")

    def __init__(self, component: Component, clock: Clock, base: int = 0) -> None:
        self.component = component
        self.base = base
        self.generic = clock
        self.asynchronous = clock.copy()
        self.phases: dict[int, tuple[Clock, Clock]] = {}
        self.overrun = False
        self.waits: dict[Component, int] = {}
        self.waiters: dict[Component, tuple[int, Participant]] = {}
        self.strangers: dict[Component, tuple[int, Participant]] = {}


class Places:
    """Which elements stacks of transforms select: what many runs of one program need not find again.

    Fields:
        regions: for each shape and size of elements.
        bounds: what reaches outside.
    """

    def __init__(self) -> None:
        self.regions: dict[Any, Regions] = {}
        self.bounds = Bounds()


class Checker:
    """Watches one run.

    Args:
        stop: raise the first finding; else findings are collected, each mistake once.
        schedule: what replays the run, for reports.
        strict_reads: report reads of memory that nothing has written.
        bounds: report accesses outside their buffer.
        places: those of another run.
        ignore: codes of findings that are not reported.
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
    ) -> None:
        self.stop = stop
        self.ignore = ignore
        self.schedule = schedule
        self.strict_reads = strict_reads
        self.findings: list[Finding] = []
        self._known: set[Any] = set()
        self._raced: set[Any] = set()
        self.deadlocked = False
        places = Places() if places is None else places
        self._regions = places.regions
        self._bounds = places.bounds if bounds else None
        self._global = ComponentTable(-1)
        self.limits = Limits(self)

    # Findings.

    def report(
        self,
        code: str,
        message: str,
        participants: Iterable[Participant],
        missing: str = "",
        fix: str = "",
        details: Any = (),
        about: str = "",
    ) -> None:
        """Raise a finding, or keep it if this mistake is new."""
        finding = Finding(code, message, tuple(participants), missing, fix, tuple(details), self.schedule, about)
        if finding.key in self._known:
            return
        self._known.add(finding.key)
        if code in self.ignore:
            return
        self.findings.append(finding)
        if self.stop:
            raise CheckError(finding)

    # Memory.

    def allocated(self, store: Any, initialised: bool, written: bool = True) -> None:
        """A store came to be. Memory that nobody writes needs no shadow."""
        if isinstance(store, Buffer) and (written or not initialised):
            type = store.type
            store.shadow = Shadow(type.shape, initialised, type.dtype.itemsize, self._regions_of(store))
        self.limits.allocated(store)

    def accesses(self, thread: Thread, eqn: Eqn, values: Sequence[Any], atomic: bool = False) -> None:
        """Ordinary accesses of an equation, at the references that its effects name."""
        op, params = eqn.op, eqn.params
        indices = values[op.index_start :] if op.index_start else ()
        stacks = op.stacks(params["transforms"]) if op.index_start else ((),)
        mask = values[op.signature.operands.index("mask")] if "mask" in op.signature.operands else None
        for kind, var in sorted(eqn.effects, key=_writes_last):
            if var is None:
                continue
            position = eqn.inputs.index(var)
            store = values[position]
            if not isinstance(store, Buffer):
                continue
            stack = stacks[position] if position < len(stacks) else ()
            self._check_bounds(thread, eqn, store, stack, indices, mask)
            write = kind is not EffectKind.READ
            access = Access(
                thread.component, self._epoch(thread), eqn, thread.title, write, atomic, block=thread.block.key
            )
            self.touch(thread, store, stack, indices, access, thread.generic, mask)

    @staticmethod
    def _epoch(thread: Thread) -> int:
        return thread.generic.own.item(thread.component.local)

    def touch(
        self,
        thread: Thread,
        store: Buffer,
        stack: Stack,
        indices: Sequence[Any],
        access: Access,
        clock: Clock,
        mask: Any = None,
    ) -> None:
        """Note one access of a buffer and report the earlier one that it races with."""
        shadow = store.shadow
        if shadow is None:
            return
        region = shadow.regions.resolve(stack, indices, mask)
        generic, in_blocks = thread.generic, store.type.space is SMEM

        def ordered(before: Access, current_is_write: bool) -> bool:
            # Proxies matter in shared memory only, and only for what ordinary stores have written.
            proxied = in_blocks and before.write and not before.asynchronous
            return (clock if proxied else generic).covers(before.component, before.epoch)

        if access.write:
            before = shadow.write(region, access, ordered)
        else:
            if self.strict_reads and shadow.uninitialised(region):
                self._uninitialised(store, access)
            before = shadow.read(region, access, ordered)
        if before is None:
            return
        if before.site is None:
            self._exited(participant_of(access), f"{describe(store)} of {before.thread}")
            return
        race(self, thread, store, before, access)

    def raced(self, read: Access) -> None:
        """A read races with a write: that it found nothing written, in some schedules, is no mistake of its own."""
        place = read.site.location
        self._raced.add(place)
        if place is not None:
            unwritten = ("uninitialized-read", (place,))
            self.findings[:] = [each for each in self.findings if (each.code, each.locations) != unwritten]

    def _uninitialised(self, store: Buffer, access: Access) -> None:
        if access.site.location in self._raced:
            return
        self.report(
            "uninitialized-read",
            f"{describe(store)} is read where nothing has written to it",
            [participant_of(access)],
        )

    def _check_bounds(
        self, thread: Thread, eqn: Eqn, store: Buffer, stack: Stack, indices: Sequence[Any], mask: Any
    ) -> None:
        if self._bounds is None:
            return
        found = self._bounds.outside(store.type.array, stack, indices)
        if found is not None and (mask is None or reaches_outside(store.type.array, stack, indices, mask)):
            axis, low, high, extent = found
            self.report(
                "out-of-bounds",
                f"{describe(store)} is accessed outside of axis {axis}: elements {low} to {high} of {extent}",
                [Participant(thread.title, f"runs {eqn.op.name}", eqn.location)],
            )

    def atomic(self, thread: Thread, eqn: Eqn, values: Sequence[Any]) -> None:
        """An atomic access: it orders the elements that it touches, as acquire and release."""
        buffer = values[0]
        if buffer.shadow is not None:
            if buffer.told is None:
                buffer.told = AtomicClocks(buffer.type.shape)
            stack = eqn.op.stacks(eqn.params["transforms"])[0]
            region = buffer.shadow.regions.resolve(stack, values[eqn.op.index_start :])
            buffer.told.exchange(region, (thread.generic, thread.asynchronous))
        self.accesses(thread, eqn, values, atomic=True)
        self.released(thread)

    # Threads.

    def thread_starts(self, thread: Thread, parent: Thread | None) -> None:
        """A thread begins, knowing what its parent knows."""
        components = thread.block.cluster.components
        thread.title = str(thread)
        if thread.product_component is None:  # else it goes on as the thread that ran there before
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
            self._acquire(thread, clocks)
        self.released(thread)

    def thread_ends(self, thread: Thread) -> None:
        """Nothing of a thread's own may be under way when it ends."""
        if thread.products or thread.generic.epoch(thread.product_component) < thread.issued:
            site = thread.last_product
            self.report(
                "unawaited-wgmma",
                "a thread ends and has not waited for its products",
                [Participant(thread.title, "starts a product that it does not wait for", site.location)],
            )
        if thread.open or thread.generic.epoch(thread.read_component) < thread.groups:
            site = thread.last_store
            closed = "" if not thread.open else " (its group was never committed)"
            self.report(
                "unawaited-copy",
                f"a thread ends and has not waited for its copies to global memory{closed}",
                [Participant(thread.title, "starts a copy that it does not wait for", site.location)],
            )

    # Order.

    def released(self, thread: Thread) -> None:
        """What the thread does from here on is not part of what it has told others."""
        thread.generic.advance(thread.component)

    @staticmethod
    def _acquire(thread: Thread, clocks: tuple[Clock, Clock]) -> None:
        thread.generic.join(clocks[0])
        thread.asynchronous.join(clocks[1])

    def fences(self, thread: Thread) -> None:
        """commit_smem: the thread's stores come before its asynchronous operations."""
        thread.asynchronous.join(thread.generic)
        self.released(thread)

    def meets(self, threads: Sequence[Thread]) -> None:
        """All these threads have come to one point."""
        generic, asynchronous = threads[0].generic.copy(), threads[0].asynchronous.copy()
        for thread in threads:
            generic.join(thread.generic)
            asynchronous.join(thread.asynchronous)
        for thread in threads:
            self._acquire(thread, (generic, asynchronous))
            self.released(thread)

    def slot_clocks(self, slot: BarrierSlot) -> SlotClocks:
        """The clocks of a barrier."""
        if slot.checks is None:
            components = slot.home.cluster.components
            # Components of barriers that have ended serve again, so that clocks do not grow with every scope entered.
            retired = slot.home.retired
            component, base = (
                retired.pop() if retired else (components.new(f"copies to barriers of {slot.home.label}"), 0)
            )
            slot.checks = SlotClocks(component, components.clock(), base)
        return slot.checks  # type: ignore[no-any-return]

    def arrives(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> None:
        """An arrival tells what the thread knows."""
        clocks = self.slot_clocks(slot)
        clocks.generic.join(thread.generic)
        clocks.asynchronous.join(thread.asynchronous)
        if slot.home is not thread.block:
            if slot.home.ended:
                participant = Participant(thread.title, f"arrives at {slot.name} of {slot.home.label}", eqn.location)
                self._exited(participant, f"{slot.name} of {slot.home.label}")
            participant = Participant(thread.title, f"arrives at {slot.name} of {slot.home.label}", eqn.location)
            clocks.strangers[thread.component] = self._epoch(thread), participant

    def completes(self, slot: BarrierSlot, by: Any) -> None:
        """A phase is about to complete. Those who wait for the phase before must have seen it by then."""
        clocks = self.slot_clocks(slot)
        if slot.completed and not slot.named:
            self._completes_again(slot, clocks, by)
        clocks.phases[slot.completed + 1] = clocks.generic.copy(), clocks.asynchronous.copy()
        clocks.phases.pop(slot.completed - 2, None)

    def _completes_again(self, slot: BarrierSlot, clocks: SlotClocks, by: Any) -> None:
        seen = [component for component, (phase, _) in clocks.waiters.items() if phase == slot.completed]
        late = [component for component in seen if not clocks.generic.covers(component, clocks.waits[component])]
        if seen and not late:
            return
        who, eqn = by
        thread = who if isinstance(who, Thread) else who.thread
        participants = [Participant(thread.title, f"makes the last arrival, by {eqn.op.name}", eqn.location)]
        clocks.overrun = True
        if len(late) == len(seen):
            self.report(
                "barrier-overrun",
                f"{slot.name} completes phase {slot.completed + 1} though nobody may have seen phase {slot.completed} "
                "yet",
                participants,
                missing=f"a wait for completion {slot.completed} that comes before this arrival",
                about=slot.barrier,
            )
            return
        _, participant = clocks.waiters[late[0]]
        self.report(
            "missed-phase",
            f"{slot.name} completes phase {slot.completed + 1} though a thread that waits for phase {slot.completed} "
            "may not have seen it yet",
            [participant, *participants],
            missing=f"an arrival behind this wait, for which those of phase {slot.completed + 1} wait",
            about=slot.barrier,
        )

    def misses(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> bool:
        """Whether a thread that waits is two completions behind, and so compares the wrong parity."""
        seen = thread.observed.get(slot, 0)
        if slot.completed - seen < 2:
            return False
        if not self.slot_clocks(slot).overrun:  # else that is why
            self.report(
                "missed-phase",
                f"{slot.name} has completed phase {slot.completed}, and a thread waits for phase {seen + 1} only now",
                [Participant(thread.title, f"waits for phase {seen + 1}", eqn.location)],
                missing=f"waits for the completions from {seen + 1} on, each before the next",
                about=slot.barrier,
            )
        return True

    def observes(self, thread: Thread, slot: BarrierSlot, seen: int) -> None:
        """A wait returns: the thread learns what the arrivals told."""
        clocks = self.slot_clocks(slot)
        self._acquire(thread, clocks.phases.get(seen, (clocks.generic, clocks.asynchronous)))
        clocks.waits[thread.component] = self._epoch(thread)
        participant = Participant(thread.title, f"waits for phase {seen}", thread.eqn.location)  # type: ignore[union-attr]
        clocks.waiters[thread.component] = seen, participant

    def signals(self, thread: Thread, eqn: Eqn, counter: Counter, amount: int) -> None:
        """A signal tells what the thread knows."""
        if counter.told is None:
            counter.told, counter.component = Signals(), self._global.new(f"copies to {counter.name}")
        clocks = thread.generic.copy(), thread.asynchronous.copy()
        counter.told.add(amount, clocks, thread.component, self._epoch(thread))
        self.released(thread)

    def acquires(self, thread: Thread, counter: Counter, amount: int, taken: bool) -> None:
        """A wait for a semaphore returns, and may have taken the amount off it."""
        if counter.told is None:
            return
        self._acquire(thread, counter.told.heard(amount, thread.generic))
        if taken:
            counter.told.taken(amount, thread.component, self._epoch(thread))
            self.released(thread)

    # Asynchronous operations.

    def _launches(self, thread: Thread, async_op: AsyncOp) -> Issue:
        """What an operation tells when it completes: what its thread knew, and that its own accesses are done."""
        accesses: list[Access] = []
        async_op.notes = thread.generic.copy(), thread.asynchronous.copy(), accesses
        return Issue(thread.component, self._epoch(thread))

    def _notes(self, thread: Thread, async_op: AsyncOp, component: Component, write: bool, issue: Issue) -> Access:
        """An access of an operation whose end is not known yet."""
        atomic = write and async_op.eqn.params.get("reduction") is not None
        access = Access(component, PENDING, async_op.eqn, thread.title, write, atomic, True, thread.block.key, issue)
        async_op.notes[2].append(access)
        return access

    def absent(self, thread: Thread, eqn: Eqn, store: Buffer) -> NoReturn:
        """A copy reaches memory of blocks that have not come to its scope: the run cannot go on."""
        message = f"{describe(store)} is copied to in a block of the cluster that has not come to its scope yet"
        participants = (Participant(thread.title, f"runs {eqn.op.name}", eqn.location),)
        self.report("copy-target-in-use", message, participants, missing=MEET)
        raise CheckError(Finding("copy-target-in-use", message, participants, MEET, schedule=self.schedule))

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
        first = self.slot_clocks(slots[0])
        issue = self._launches(thread, async_op)
        if source is not None:
            if async_op.eqn.params["fill"] == "promise_in_bounds":
                self._check_bounds(thread, async_op.eqn, *source, indices, None)
            access = self._notes(thread, async_op, first.component, False, issue)
            self.touch(thread, *source, indices, access, thread.asynchronous)
        for (store, stack), slot in zip(targets, slots):
            if slot.home is not store.home:
                self._signals_elsewhere(thread, async_op.eqn, store, slot)
            clocks = self.slot_clocks(slot)
            issue = Issue(issue.component, issue.epoch, clocks.waits)
            self._check_bounds(thread, async_op.eqn, store, stack, indices, None)
            access = self._notes(thread, async_op, clocks.component, True, issue)
            self.touch(thread, store, stack, indices, access, thread.asynchronous)
        self.released(thread)

    def _signals_elsewhere(self, thread: Thread, eqn: Eqn, store: Buffer, slot: BarrierSlot) -> None:
        self.report(
            "cluster-mismatch",
            f"{eqn.op.name} writes {describe(store)} of {store.home.label} and signals {slot.name} of "
            f"{slot.home.label}; bytes are counted by a barrier of the block that they land in",
            [Participant(thread.title, f"runs {eqn.op.name}", eqn.location)],
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
        """One block's part of a copy that blocks share: all must name the same source, target and barrier."""
        kept = thread.block.cluster.copies
        key = eqn, thread.label, places[0]
        turn = kept[key, thread.block.place] = kept.get((key, thread.block.place), 0) + 1
        named = *(self._named(store, stack, indices) for store, stack in parts), slot.name
        first, others = kept.pop((key, turn), ((named, thread), len(places)))
        if others > 1:
            kept[key, turn] = first, others - 1
        if first[0] == named:
            return
        said, here = next((theirs, mine) for theirs, mine in zip(first[0], named, strict=True) if theirs != mine)
        self.report(
            "cluster-mismatch",
            f"a copy that blocks of a cluster share is to be of {here} in one and of {said} in another",
            [
                Participant(each.title, f"names {what}", eqn.location)
                for each, what in ((thread, here), (first[1], said))
            ],
            missing="the same source, target and barrier in all blocks along the collective axes",
            about=f"{eqn.location}",
        )

    def _named(self, store: Buffer, stack: Stack, indices: Sequence[Any]) -> str:
        """A part of a buffer as a reader writes it, such as x[0:8, 64:128]."""
        bands = self._regions_of(store).resolve(stack, indices).bands or ()
        return f"{store.name}[{', '.join(f'{each[0][0]}:{each[-1][1]}' for each in bands)}]"

    def _regions_of(self, store: Buffer) -> Regions:
        key = store.type.shape, store.type.dtype.itemsize
        found = self._regions.get(key)
        if found is None:
            found = self._regions[key] = Regions(*key)
        return found  # type: ignore[no-any-return]

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
        told = async_op.notes[:2]
        for counter in counters:
            if counter.told is None:
                counter.told, counter.component = Signals(), self._global.new(f"copies to {counter.name}")
        # Of a remote copy, the last semaphore says that the source has been read.
        parts = [(*source, counters[-1], False), (*target, counters[0], True)]
        noted: dict[Counter, list[Access]] = {counter: [] for counter in counters}
        for store, stack, counter, write in parts:
            if not async_op.eqn.params.get("clip"):
                self._check_bounds(thread, async_op.eqn, store, stack, indices, None)
            access = self._notes(thread, async_op, counter.component, write, issue)
            noted[counter].append(access)
            self.touch(thread, store, stack, indices, access, thread.asynchronous)
        for counter in counters:
            counter.told.add_copy(amount, told, counter.component, noted.pop(counter, ()))
        self.released(thread)

    def lands(self, async_op: AsyncOp, slot: BarrierSlot) -> None:
        """The bytes of a copy have landed, and the barrier is about to learn of it."""
        generic, asynchronous, accesses = async_op.notes
        clocks = self.slot_clocks(slot)
        component, epoch = clocks.component, slot.completed + 1
        # What its thread knew, the thread itself tells its own block's barrier, by mbarrier.arrive.expect_tx. Of a
        # multicast the other blocks hear only that it is done: complete_tx releases the copy's own writes (PTX ISA,
        # "cp.async.bulk.tensor" and "Memory consistency model").
        tells = slot.home is async_op.thread.block or async_op.eqn.op is async_store_smem
        for clock, told in zip((clocks.generic, clocks.asynchronous), (generic, asynchronous), strict=True):
            if tells:
                clock.join(told)
            clock.set(component, epoch)
        for access in accesses:
            if access.component == component and access.epoch == PENDING:
                access.epoch = epoch

    def product_issued(
        self, thread: Thread, async_op: AsyncOp, acc: Accumulator, operands: Sequence[Reached], indices: Sequence[Any]
    ) -> None:
        """A product starts: it reads its operands from now until it is waited for."""
        thread.last_product = async_op.eqn
        issue = Issue(thread.component, self._epoch(thread))
        for store, stack in operands:
            access = Access(
                thread.product_component,
                thread.issued,
                async_op.eqn,
                thread.title,
                asynchronous=True,
                block=thread.block.key,
                issue=issue,
            )
            self._check_bounds(thread, async_op.eqn, store, stack, indices, None)
            self.touch(thread, store, stack, indices, access, thread.asynchronous)

    def products_awaited(self, thread: Thread, eqn: Eqn, upto: int) -> None:
        """Products up to this one are done."""
        if upto > 0:
            thread.generic.set(thread.product_component, upto)
            thread.asynchronous.set(thread.product_component, upto)

    def accumulator(self, thread: Thread, eqn: Eqn, acc: Accumulator) -> None:
        """An accumulator is read or set."""
        if acc.group > thread.generic.epoch(thread.product_component):
            self.report(
                "accumulator-in-flight",
                f"the accumulator {acc.name} is used while a product may be changing it",
                [
                    Participant(thread.title, f"runs {eqn.op.name}", eqn.location),
                    Participant(thread.title, "started the product", acc.issued.location),
                ],
                missing="a wgmma_wait between the two",
            )

    def store_issued(
        self, thread: Thread, async_op: AsyncOp, source: Reached, target: Reached, indices: Sequence[Any]
    ) -> None:
        """A copy to global memory starts, in the group that is open."""
        thread.last_store = async_op.eqn
        group = thread.groups + 1
        site, place = async_op.eqn, thread.block.key
        issue = Issue(thread.component, self._epoch(thread))
        reduces = site.params["reduction"] is not None
        read = Access(thread.read_component, group, site, thread.title, asynchronous=True, block=place, issue=issue)
        write = Access(thread.write_component, group, site, thread.title, True, reduces, True, place, issue)
        self._check_bounds(thread, async_op.eqn, source[0], source[1], indices, None)
        self.touch(thread, *source, indices, read, thread.asynchronous)
        self.touch(thread, *target, indices, write, thread.asynchronous)

    def stores_awaited(self, thread: Thread, eqn: Eqn, n: int, read_only: bool) -> None:
        """Groups but the last n have read their sources, and unless `read_only` written their targets."""
        upto = thread.groups - n
        if upto > 0:
            for component in (thread.read_component,) if read_only else (thread.read_component, thread.write_component):
                thread.generic.set(component, upto)
                thread.asynchronous.set(component, upto)

    # Ends.

    def scope_ends(self, thread: Thread, eqn: Eqn, stores: Sequence[Any], others: Sequence[Clock] = ()) -> None:
        """Stores are given back; `others` are the clocks of threads that share them, each as it left the scope."""
        known = thread.generic.copy()
        for clock in others:
            known.join(clock)
        for store in stores:
            if isinstance(store, Barrier):
                self._barrier_ends(store)
                self._retire(store)
            elif isinstance(store, Semaphores):
                self._semaphores_end(store)
            elif isinstance(store, Buffer) and store.shadow is not None:
                self._buffer_ends(store, known, eqn, thread)
            elif isinstance(store, Accumulator):
                self._accumulator_ends(store, eqn, thread)
            self.limits.freed(store)

    @staticmethod
    def _retire(barrier: Barrier) -> None:
        """The components of a barrier that has ended may serve another one."""
        for slot in barrier.slots:
            clocks = slot.checks
            if clocks is not None and not slot.arrived and not slot.parts:
                slot.home.retired.append((clocks.component, clocks.base + slot.completed))
                slot.checks = None

    def _buffer_ends(self, store: Buffer, known: Clock, eqn: Eqn, thread: Thread) -> None:
        end = Access(thread.component, 0, eqn, thread.title, write=True)
        region = store.shadow.regions.resolve((), ())
        before = store.shadow.write(region, end, lambda b, _: not b.asynchronous or known.covers(b.component, b.epoch))
        if before is not None:
            self.report(
                "scope-in-use",
                f"{describe(store)} is given back while an asynchronous operation may still reach it",
                [participant_of(before), Participant(thread.title, "leaves the scope", eqn.location)],
            )

    def _accumulator_ends(self, acc: Accumulator, eqn: Eqn, thread: Thread) -> None:
        if acc.group > thread.generic.epoch(thread.product_component):
            self.report(
                "scope-in-use",
                f"the accumulator {acc.name} is given back while a product may still be changing it",
                [
                    Participant(thread.title, "started the product", acc.issued.location),
                    Participant(thread.title, "leaves the scope", eqn.location),
                ],
            )

    def _barrier_ends(self, barrier: Barrier) -> None:
        for slot in barrier.slots:
            where = f"{slot.name} of {slot.home.label}"
            if slot.arrived or slot.parts:
                participants = [_arrival(each) for each in slot.arrivals]
                self.report(
                    "barrier-pending-arrivals",
                    f"{where} ends with {slot.arrived} of {slot.needed} arrivals of a phase",
                    participants,
                    about=slot.barrier,
                )
            if slot.completed > slot.seen and not slot.named:
                phases = f"phase {slot.completed}, which nobody has"
                if slot.completed > slot.seen + 1:
                    phases = f"phases {slot.seen + 1} to {slot.completed}, which nobody has"
                self.report(
                    "unobserved-completion",
                    f"{where} has completed {phases} waited for",
                    [_arrival(slot.last)] if slot.last else [],
                    about=slot.barrier,
                )

    def _semaphores_end(self, semaphores: Semaphores) -> None:
        for counter in semaphores.counters:
            if counter.count:
                self.report(
                    "semaphore-not-drained",
                    f"{counter.name} ends at {counter.count}",
                    [_arrival(each) for each in counter.signals[-1:]],
                )

    def block_ends(self, block: Block) -> None:
        """The last thread of a block has ended: what its neighbours did to its memory must have come before."""
        if len(block.cluster.blocks) == 1:
            return
        known = block.cluster.components.clock()
        for thread in block.threads:
            known.join(thread.generic)
        mine = {thread.title for thread in block.threads}
        for store in block.stores:
            if isinstance(store, Barrier):
                self._strangers(store, known, block)
            elif isinstance(store, Buffer) and store.shadow is not None:
                self._peers(store, known, block, mine)

    def _peers(self, store: Buffer, known: Clock, block: Block, mine: set[str]) -> None:
        region = store.shadow.regions.resolve((), ())
        end = Access(block.threads[0].component, PENDING, None, block.label, write=True)

        def before_the_end(before: Access, _: bool) -> bool:
            return before.thread in mine or known.covers(before.component, before.epoch)

        before = store.shadow.write(region, end, before_the_end)
        if before is not None:
            self._exited(participant_of(before), f"{describe(store)} of {block.label}")

    def _strangers(self, barrier: Barrier, known: Clock, block: Block) -> None:
        for slot in barrier.slots:
            for component, (epoch, participant) in slot.checks.strangers.items() if slot.checks else ():
                if not known.covers(component, epoch):
                    self._exited(participant, f"{slot.name} of {block.label}")

    def _exited(self, participant: Participant, what: str) -> None:
        self.report(
            "peer-exited", f"{what} is reached by another block, and its own block may have ended", [participant]
        )

    def cluster_ends(self, cluster: Cluster) -> None:
        """All threads of a cluster have ended."""
        for block in cluster.blocks.values():
            for store in block.stores:
                if isinstance(store, Barrier):
                    self._barrier_ends(store)
                elif isinstance(store, Semaphores):
                    self._semaphores_end(store)
            self.limits.block_ends(block)

    def launch_starts(self, launching: Any) -> None:
        """What comes before a launch has happened before it."""
        self.limits.place = launching.eqn.location if launching.eqn is not None else None

    def launch_ends(self, launching: Any) -> None:
        """The semaphores of a launch are back at zero, if it came to its end."""
        if self.deadlocked:
            return
        for store in launching.stores():
            if isinstance(store, Semaphores):
                self._semaphores_end(store)
            elif isinstance(store, Barrier):
                self._barrier_ends(store)


def _arrival(by: tuple[Any, Eqn]) -> Participant:
    who, eqn = by
    thread = who if isinstance(who, Thread) else who.thread
    return Participant(thread.title, f"arrives by {eqn.op.name}", eqn.location)


def _writes_last(effect: tuple[EffectKind, Any]) -> bool:
    return effect[0] is not EffectKind.READ


# Where the mask of a masked access stands among its inputs.
