"""The checker: follows what happens before what, and reports accesses that nothing orders.

Each agent has two clocks: `generic` orders its next ordinary access, `asynchronous` its next asynchronous operation;
`commit_smem` joins the first into the second. An asynchronous operation is an actor of its own kind, whose epochs
complete in order; its accesses are noted when it is issued, and whoever waits for it learns of its epoch.

Where hardware is used more freely than the letter of its memory model, the checker is too, since a false alarm is worse
than a missed one: a copy may overwrite what ordinary loads have read without a fence, and global memory does not tell
ordinary from asynchronous accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from palladio.ir.core import Eqn
from palladio.machine.check.atomic_order import Told
from palladio.machine.check.bounds import Bounds, reaches_outside
from palladio.machine.check.findings import CheckError, Finding, Party
from palladio.machine.check.races import Issue, describe, party_of, race
from palladio.machine.check.regions import Regions
from palladio.machine.check.resource_limits import Limits
from palladio.machine.check.semaphore_order import Signals
from palladio.machine.check.shadow import Access, Shadow
from palladio.machine.run.buffers import Accumulator, Barrier, Buffer, Counter, Semaphores, Slot, Stack
from palladio.machine.run.clocks import Actor, ActorTable, Clock
from palladio.machine.run.threads import Agent, Block, Cluster, Flight, Group
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
        base: the last epoch of the actor when it belonged to a barrier that has ended.
    """

    __slots__ = ("actor", "asynchronous", "base", "generic", "overrun", "phases", "strangers", "waiters", "waits")

    def __init__(self, actor: Actor, clock: Clock, base: int = 0) -> None:
        self.actor = actor
        self.base = base
        self.generic = clock
        self.asynchronous = clock.copy()
        self.phases: dict[int, tuple[Clock, Clock]] = {}
        self.overrun = False
        self.waits: dict[Actor, int] = {}
        self.waiters: dict[Actor, tuple[int, Party]] = {}
        self.strangers: dict[Actor, tuple[int, Party]] = {}


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
        self._global = ActorTable(-1)
        self.limits = Limits(self)

    # Findings.

    def report(
        self,
        code: str,
        message: str,
        parties: Iterable[Party],
        missing: str = "",
        fix: str = "",
        details: Any = (),
        about: str = "",
    ) -> None:
        """Raise a finding, or keep it if this mistake is new."""
        finding = Finding(code, message, tuple(parties), missing, fix, tuple(details), self.schedule, about)
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

    def accesses(self, agent: Agent, eqn: Eqn, values: Sequence[Any], atomic: bool = False) -> None:
        """Ordinary accesses of an equation, at the references that its effects name."""
        op, params = eqn.op, eqn.params
        indices = values[op.access :] if op.access else ()
        stacks = op.stacks(params["transforms"]) if op.access else ((),)
        mask = values[_MASKED[op.name]] if op.name in _MASKED else None
        for kind, var in sorted(eqn.effects, key=_writes_last):
            if var is None:
                continue
            position = eqn.inputs.index(var)
            store = values[position]
            if not isinstance(store, Buffer):
                continue
            stack = stacks[position] if position < len(stacks) else ()
            self._check_bounds(agent, eqn, store, stack, indices, mask)
            write = kind is not EffectKind.READ
            access = Access(agent.actor, self._epoch(agent), eqn, agent.title, write, atomic, block=agent.block.key)
            self.touch(agent, store, stack, indices, access, agent.generic, mask)

    @staticmethod
    def _epoch(agent: Agent) -> int:
        return agent.generic.own.item(agent.actor.local)

    def touch(
        self,
        agent: Agent,
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
        generic, in_blocks = agent.generic, store.type.space is SMEM

        def ordered(before: Access, current_is_write: bool) -> bool:
            # Proxies matter in shared memory only, and only for what ordinary stores have written.
            proxied = in_blocks and before.write and not before.asynchronous
            return (clock if proxied else generic).covers(before.actor, before.epoch)

        if access.write:
            before = shadow.write(region, access, ordered)
        else:
            if self.strict_reads and shadow.uninitialised(region):
                self._uninitialised(store, access)
            before = shadow.read(region, access, ordered)
        if before is None:
            return
        if before.site is None:
            self._exited(party_of(access), f"{describe(store)} of {before.agent}")
            return
        race(self, agent, store, before, access)

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
            [party_of(access)],
        )

    def _check_bounds(
        self, agent: Agent, eqn: Eqn, store: Buffer, stack: Stack, indices: Sequence[Any], mask: Any
    ) -> None:
        if self._bounds is None:
            return
        found = self._bounds.outside(store.type.array, stack, indices)
        if found is not None and (mask is None or reaches_outside(store.type.array, stack, indices, mask)):
            axis, low, high, extent = found
            self.report(
                "out-of-bounds",
                f"{describe(store)} is accessed outside of axis {axis}: elements {low} to {high} of {extent}",
                [Party(agent.title, f"runs {eqn.op.name}", eqn.location)],
            )

    def atomic(self, agent: Agent, eqn: Eqn, values: Sequence[Any]) -> None:
        """An atomic access: it orders the elements that it touches, as acquire and release."""
        buffer = values[0]
        if buffer.shadow is not None:
            if buffer.told is None:
                buffer.told = Told(buffer.type.shape)
            stack = eqn.op.stacks(eqn.params["transforms"])[0]
            region = buffer.shadow.regions.resolve(stack, values[eqn.op.access :])
            buffer.told.exchange(region, (agent.generic, agent.asynchronous))
        self.accesses(agent, eqn, values, atomic=True)
        self.released(agent)

    # Agents.

    def agent_starts(self, agent: Agent, parent: Agent | None) -> None:
        """An agent begins, knowing what its parent knows."""
        actors = agent.block.cluster.actors
        agent.title = str(agent)
        if agent.product_actor is None:  # else it goes on as the thread that ran there before
            agent.product_actor = actors.new(f"products of {agent.title}")
            agent.read_actor = actors.new(f"stores of {agent.title}, reading")
            agent.write_actor = actors.new(f"stores of {agent.title}, writing")
        if parent is None:
            agent.generic, agent.asynchronous = actors.clock(), actors.clock()
        else:
            agent.generic, agent.asynchronous = parent.generic.copy(), parent.asynchronous.copy()
        agent.generic.advance(agent.actor)

    def joins(self, agent: Agent, group: Group) -> None:
        """The threads that an agent launched have all ended."""
        for clocks in group.ended:
            self._acquire(agent, clocks)
        self.released(agent)

    def agent_ends(self, agent: Agent) -> None:
        """Nothing of an agent's own may be under way when it ends."""
        if agent.products or agent.generic.epoch(agent.product_actor) < agent.issued:
            site = agent.last_product
            self.report(
                "unawaited-wgmma",
                "a thread ends and has not waited for its products",
                [Party(agent.title, "starts a product that it does not wait for", site.location)],
            )
        if agent.open or agent.generic.epoch(agent.read_actor) < agent.groups:
            site = agent.last_store
            closed = "" if not agent.open else " (its group was never committed)"
            self.report(
                "unawaited-copy",
                f"a thread ends and has not waited for its copies to global memory{closed}",
                [Party(agent.title, "starts a copy that it does not wait for", site.location)],
            )

    # Order.

    def released(self, agent: Agent) -> None:
        """What the agent does from here on is not part of what it has told others."""
        agent.generic.advance(agent.actor)

    @staticmethod
    def _acquire(agent: Agent, clocks: tuple[Clock, Clock]) -> None:
        agent.generic.join(clocks[0])
        agent.asynchronous.join(clocks[1])

    def fences(self, agent: Agent) -> None:
        """commit_smem: the agent's stores come before its asynchronous operations."""
        agent.asynchronous.join(agent.generic)
        self.released(agent)

    def meets(self, agents: Sequence[Agent]) -> None:
        """All these agents have come to one point."""
        generic, asynchronous = agents[0].generic.copy(), agents[0].asynchronous.copy()
        for agent in agents:
            generic.join(agent.generic)
            asynchronous.join(agent.asynchronous)
        for agent in agents:
            self._acquire(agent, (generic, asynchronous))
            self.released(agent)

    def slot_clocks(self, slot: Slot) -> SlotClocks:
        """The clocks of a barrier."""
        if slot.checks is None:
            actors = slot.home.cluster.actors
            # Actors of barriers that have ended serve again, so that clocks do not grow with every scope entered.
            retired = slot.home.retired
            actor, base = retired.pop() if retired else (actors.new(f"copies to barriers of {slot.home.label}"), 0)
            slot.checks = SlotClocks(actor, actors.clock(), base)
        return slot.checks  # type: ignore[no-any-return]

    def arrives(self, agent: Agent, eqn: Eqn, slot: Slot) -> None:
        """An arrival tells what the agent knows."""
        clocks = self.slot_clocks(slot)
        clocks.generic.join(agent.generic)
        clocks.asynchronous.join(agent.asynchronous)
        if slot.home is not agent.block:
            if slot.home.ended:
                party = Party(agent.title, f"arrives at {slot.name} of {slot.home.label}", eqn.location)
                self._exited(party, f"{slot.name} of {slot.home.label}")
            party = Party(agent.title, f"arrives at {slot.name} of {slot.home.label}", eqn.location)
            clocks.strangers[agent.actor] = self._epoch(agent), party

    def completes(self, slot: Slot, by: Any) -> None:
        """A phase is about to complete. Those who wait for the phase before must have seen it by then."""
        clocks = self.slot_clocks(slot)
        if slot.completed and not slot.named:
            self._completes_again(slot, clocks, by)
        clocks.phases[slot.completed + 1] = clocks.generic.copy(), clocks.asynchronous.copy()
        clocks.phases.pop(slot.completed - 2, None)

    def _completes_again(self, slot: Slot, clocks: SlotClocks, by: Any) -> None:
        seen = [actor for actor, (phase, _) in clocks.waiters.items() if phase == slot.completed]
        late = [actor for actor in seen if not clocks.generic.covers(actor, clocks.waits[actor])]
        if seen and not late:
            return
        who, eqn = by
        agent = who if isinstance(who, Agent) else who.agent
        parties = [Party(agent.title, f"makes the last arrival, by {eqn.op.name}", eqn.location)]
        clocks.overrun = True
        if len(late) == len(seen):
            self.report(
                "barrier-overrun",
                f"{slot.name} completes phase {slot.completed + 1} though nobody may have seen phase {slot.completed} "
                "yet",
                parties,
                missing=f"a wait for completion {slot.completed} that comes before this arrival",
                about=slot.barrier,
            )
            return
        _, party = clocks.waiters[late[0]]
        self.report(
            "missed-phase",
            f"{slot.name} completes phase {slot.completed + 1} though a thread that waits for phase {slot.completed} "
            "may not have seen it yet",
            [party, *parties],
            missing=f"an arrival behind this wait, for which those of phase {slot.completed + 1} wait",
            about=slot.barrier,
        )

    def misses(self, agent: Agent, eqn: Eqn, slot: Slot) -> bool:
        """Whether a thread that waits is two completions behind, and so compares the wrong parity."""
        seen = agent.observed.get(slot, 0)
        if slot.completed - seen < 2:
            return False
        if not self.slot_clocks(slot).overrun:  # else that is why
            self.report(
                "missed-phase",
                f"{slot.name} has completed phase {slot.completed}, and a thread waits for phase {seen + 1} only now",
                [Party(agent.title, f"waits for phase {seen + 1}", eqn.location)],
                missing=f"waits for the completions from {seen + 1} on, each before the next",
                about=slot.barrier,
            )
        return True

    def observes(self, agent: Agent, slot: Slot, seen: int) -> None:
        """A wait returns: the agent learns what the arrivals told."""
        clocks = self.slot_clocks(slot)
        self._acquire(agent, clocks.phases.get(seen, (clocks.generic, clocks.asynchronous)))
        clocks.waits[agent.actor] = self._epoch(agent)
        party = Party(agent.title, f"waits for phase {seen}", agent.eqn.location)  # type: ignore[union-attr]
        clocks.waiters[agent.actor] = seen, party

    def signals(self, agent: Agent, eqn: Eqn, counter: Counter, amount: int) -> None:
        """A signal tells what the agent knows."""
        if counter.told is None:
            counter.told, counter.actor = Signals(), self._global.new(f"copies to {counter.name}")
        clocks = agent.generic.copy(), agent.asynchronous.copy()
        counter.told.add(amount, clocks, agent.actor, self._epoch(agent))
        self.released(agent)

    def acquires(self, agent: Agent, counter: Counter, amount: int, taken: bool) -> None:
        """A wait for a semaphore returns, and may have taken the amount off it."""
        if counter.told is None:
            return
        self._acquire(agent, counter.told.heard(amount, agent.generic))
        if taken:
            counter.told.taken(amount, agent.actor, self._epoch(agent))
            self.released(agent)

    # Asynchronous operations.

    def _launches(self, agent: Agent, flight: Flight) -> Issue:
        """What an operation tells when it completes: what its thread knew, and that its own accesses are done."""
        accesses: list[Access] = []
        flight.notes = agent.generic.copy(), agent.asynchronous.copy(), accesses
        return Issue(agent.actor, self._epoch(agent))

    def _notes(self, agent: Agent, flight: Flight, actor: Actor, write: bool, issue: Issue) -> Access:
        """An access of an operation whose end is not known yet."""
        atomic = write and flight.eqn.params.get("reduction") is not None
        access = Access(actor, PENDING, flight.eqn, agent.title, write, atomic, True, agent.block.key, issue)
        flight.notes[2].append(access)
        return access

    def absent(self, agent: Agent, eqn: Eqn, store: Buffer) -> NoReturn:
        """A copy reaches memory of blocks that have not come to its scope: the run cannot go on."""
        message = f"{describe(store)} is copied to in a block of the cluster that has not come to its scope yet"
        parties = (Party(agent.title, f"runs {eqn.op.name}", eqn.location),)
        self.report("copy-target-in-use", message, parties, missing=MEET)
        raise CheckError(Finding("copy-target-in-use", message, parties, MEET, schedule=self.schedule))

    def copy_issued(
        self,
        agent: Agent,
        flight: Flight,
        source: Reached | None,
        targets: Sequence[Reached],
        slots: Sequence[Slot],
        indices: Sequence[Any],
    ) -> None:
        """A copy that arrives at barriers starts."""
        first = self.slot_clocks(slots[0])
        issue = self._launches(agent, flight)
        if source is not None:
            if flight.eqn.params["fill"] == "promise_in_bounds":
                self._check_bounds(agent, flight.eqn, *source, indices, None)
            access = self._notes(agent, flight, first.actor, False, issue)
            self.touch(agent, *source, indices, access, agent.asynchronous)
        for (store, stack), slot in zip(targets, slots, strict=True):
            if slot.home is not store.home:
                self._signals_elsewhere(agent, flight.eqn, store, slot)
            clocks = self.slot_clocks(slot)
            issue = Issue(issue.actor, issue.epoch, clocks.waits)
            self._check_bounds(agent, flight.eqn, store, stack, indices, None)
            access = self._notes(agent, flight, clocks.actor, True, issue)
            self.touch(agent, store, stack, indices, access, agent.asynchronous)
        self.released(agent)

    def _signals_elsewhere(self, agent: Agent, eqn: Eqn, store: Buffer, slot: Slot) -> None:
        self.report(
            "cluster-mismatch",
            f"{eqn.op.name} writes {describe(store)} of {store.home.label} and signals {slot.name} of "
            f"{slot.home.label}; bytes are counted by a barrier of the block that they land in",
            [Party(agent.title, f"runs {eqn.op.name}", eqn.location)],
            missing=f"{slot.name} of {store.home.label}: plgpu.cluster_ref with the same indices for both",
        )

    def shared_copy(
        self,
        agent: Agent,
        eqn: Eqn,
        places: Sequence[Any],
        parts: Sequence[Reached],
        slot: Slot,
        indices: Sequence[Any],
    ) -> None:
        """One block's part of a copy that blocks share: all must name the same source, target and barrier."""
        kept = agent.block.cluster.copies
        key = eqn, agent.label, places[0]
        turn = kept[key, agent.block.place] = kept.get((key, agent.block.place), 0) + 1
        named = *(self._named(store, stack, indices) for store, stack in parts), slot.name
        first, others = kept.pop((key, turn), ((named, agent), len(places)))
        if others > 1:
            kept[key, turn] = first, others - 1
        if first[0] == named:
            return
        said, here = next((theirs, mine) for theirs, mine in zip(first[0], named, strict=True) if theirs != mine)
        self.report(
            "cluster-mismatch",
            f"a copy that blocks of a cluster share is to be of {here} in one and of {said} in another",
            [Party(each.title, f"names {what}", eqn.location) for each, what in ((agent, here), (first[1], said))],
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
        agent: Agent,
        flight: Flight,
        source: Reached,
        target: Reached,
        counters: Sequence[Counter],
        amount: int,
        indices: Sequence[Any],
    ) -> None:
        """A copy that raises semaphores starts."""
        issue = self._launches(agent, flight)
        told = flight.notes[:2]
        for counter in counters:
            if counter.told is None:
                counter.told, counter.actor = Signals(), self._global.new(f"copies to {counter.name}")
        # Of a remote copy, the last semaphore says that the source has been read.
        parts = [(*source, counters[-1], False), (*target, counters[0], True)]
        noted: dict[Counter, list[Access]] = {counter: [] for counter in counters}
        for store, stack, counter, write in parts:
            if not flight.eqn.params.get("clip"):
                self._check_bounds(agent, flight.eqn, store, stack, indices, None)
            access = self._notes(agent, flight, counter.actor, write, issue)
            noted[counter].append(access)
            self.touch(agent, store, stack, indices, access, agent.asynchronous)
        for counter in counters:
            counter.told.add_copy(amount, told, counter.actor, noted.pop(counter, ()))
        self.released(agent)

    def lands(self, flight: Flight, slot: Slot) -> None:
        """The bytes of a copy have landed, and the barrier is about to learn of it."""
        generic, asynchronous, accesses = flight.notes
        clocks = self.slot_clocks(slot)
        actor, epoch = clocks.actor, slot.completed + 1
        # What its thread knew, the thread itself tells its own block's barrier, by mbarrier.arrive.expect_tx. Of a
        # multicast the other blocks hear only that it is done: complete_tx releases the copy's own writes (PTX ISA,
        # "cp.async.bulk.tensor" and "Memory consistency model").
        tells = slot.home is flight.agent.block or flight.eqn.op.name == "async_store_smem"
        for clock, told in zip((clocks.generic, clocks.asynchronous), (generic, asynchronous), strict=True):
            if tells:
                clock.join(told)
            clock.set(actor, epoch)
        for access in accesses:
            if access.actor == actor and access.epoch == PENDING:
                access.epoch = epoch

    def product_issued(
        self, agent: Agent, flight: Flight, acc: Accumulator, operands: Sequence[Reached], indices: Sequence[Any]
    ) -> None:
        """A product starts: it reads its operands from now until it is waited for."""
        agent.last_product = flight.eqn
        issue = Issue(agent.actor, self._epoch(agent))
        for store, stack in operands:
            access = Access(
                agent.product_actor,
                agent.issued,
                flight.eqn,
                agent.title,
                asynchronous=True,
                block=agent.block.key,
                issue=issue,
            )
            self._check_bounds(agent, flight.eqn, store, stack, indices, None)
            self.touch(agent, store, stack, indices, access, agent.asynchronous)

    def products_awaited(self, agent: Agent, eqn: Eqn, upto: int) -> None:
        """Products up to this one are done."""
        if upto > 0:
            agent.generic.set(agent.product_actor, upto)
            agent.asynchronous.set(agent.product_actor, upto)

    def accumulator(self, agent: Agent, eqn: Eqn, acc: Accumulator) -> None:
        """An accumulator is read or set."""
        if acc.group > agent.generic.epoch(agent.product_actor):
            self.report(
                "accumulator-in-flight",
                f"the accumulator {acc.name} is used while a product may be changing it",
                [
                    Party(agent.title, f"runs {eqn.op.name}", eqn.location),
                    Party(agent.title, "started the product", acc.issued.location),
                ],
                missing="a wgmma_wait between the two",
            )

    def store_issued(
        self, agent: Agent, flight: Flight, source: Reached, target: Reached, indices: Sequence[Any]
    ) -> None:
        """A copy to global memory starts, in the group that is open."""
        agent.last_store = flight.eqn
        group = agent.groups + 1
        site, place = flight.eqn, agent.block.key
        issue = Issue(agent.actor, self._epoch(agent))
        reduces = site.params["reduction"] is not None
        read = Access(agent.read_actor, group, site, agent.title, asynchronous=True, block=place, issue=issue)
        write = Access(agent.write_actor, group, site, agent.title, True, reduces, True, place, issue)
        self._check_bounds(agent, flight.eqn, source[0], source[1], indices, None)
        self.touch(agent, *source, indices, read, agent.asynchronous)
        self.touch(agent, *target, indices, write, agent.asynchronous)

    def stores_awaited(self, agent: Agent, eqn: Eqn, n: int, read_only: bool) -> None:
        """Groups but the last n have read their sources, and unless `read_only` written their targets."""
        upto = agent.groups - n
        if upto > 0:
            for actor in (agent.read_actor,) if read_only else (agent.read_actor, agent.write_actor):
                agent.generic.set(actor, upto)
                agent.asynchronous.set(actor, upto)

    # Ends.

    def scope_ends(self, agent: Agent, eqn: Eqn, stores: Sequence[Any], others: Sequence[Clock] = ()) -> None:
        """Stores are given back; `others` are the clocks of threads that share them, each as it left the scope."""
        known = agent.generic.copy()
        for clock in others:
            known.join(clock)
        for store in stores:
            if isinstance(store, Barrier):
                self._barrier_ends(store)
                self._retire(store)
            elif isinstance(store, Semaphores):
                self._semaphores_end(store)
            elif isinstance(store, Buffer) and store.shadow is not None:
                self._buffer_ends(store, known, eqn, agent)
            elif isinstance(store, Accumulator):
                self._accumulator_ends(store, eqn, agent)
            self.limits.freed(store)

    @staticmethod
    def _retire(barrier: Barrier) -> None:
        """The actors of a barrier that has ended may serve another one."""
        for slot in barrier.slots:
            clocks = slot.checks
            if clocks is not None and not slot.arrived and not slot.parts:
                slot.home.retired.append((clocks.actor, clocks.base + slot.completed))
                slot.checks = None

    def _buffer_ends(self, store: Buffer, known: Clock, eqn: Eqn, agent: Agent) -> None:
        end = Access(agent.actor, 0, eqn, agent.title, write=True)
        region = store.shadow.regions.resolve((), ())
        before = store.shadow.write(region, end, lambda b, _: not b.asynchronous or known.covers(b.actor, b.epoch))
        if before is not None:
            self.report(
                "scope-in-use",
                f"{describe(store)} is given back while an asynchronous operation may still reach it",
                [party_of(before), Party(agent.title, "leaves the scope", eqn.location)],
            )

    def _accumulator_ends(self, acc: Accumulator, eqn: Eqn, agent: Agent) -> None:
        if acc.group > agent.generic.epoch(agent.product_actor):
            self.report(
                "scope-in-use",
                f"the accumulator {acc.name} is given back while a product may still be changing it",
                [
                    Party(agent.title, "started the product", acc.issued.location),
                    Party(agent.title, "leaves the scope", eqn.location),
                ],
            )

    def _barrier_ends(self, barrier: Barrier) -> None:
        for slot in barrier.slots:
            where = f"{slot.name} of {slot.home.label}"
            if slot.arrived or slot.parts:
                parties = [_arrival(each) for each in slot.arrivals]
                self.report(
                    "barrier-pending-arrivals",
                    f"{where} ends with {slot.arrived} of {slot.needed} arrivals of a phase",
                    parties,
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
        """The last agent of a block has ended: what its neighbours did to its memory must have come before."""
        if len(block.cluster.blocks) == 1:
            return
        known = block.cluster.actors.clock()
        for agent in block.agents:
            known.join(agent.generic)
        mine = {agent.title for agent in block.agents}
        for store in block.stores:
            if isinstance(store, Barrier):
                self._strangers(store, known, block)
            elif isinstance(store, Buffer) and store.shadow is not None:
                self._peers(store, known, block, mine)

    def _peers(self, store: Buffer, known: Clock, block: Block, mine: set[str]) -> None:
        region = store.shadow.regions.resolve((), ())
        end = Access(block.agents[0].actor, PENDING, None, block.label, write=True)

        def before_the_end(before: Access, _: bool) -> bool:
            return before.agent in mine or known.covers(before.actor, before.epoch)

        before = store.shadow.write(region, end, before_the_end)
        if before is not None:
            self._exited(party_of(before), f"{describe(store)} of {block.label}")

    def _strangers(self, barrier: Barrier, known: Clock, block: Block) -> None:
        for slot in barrier.slots:
            for actor, (epoch, party) in slot.checks.strangers.items() if slot.checks else ():
                if not known.covers(actor, epoch):
                    self._exited(party, f"{slot.name} of {block.label}")

    def _exited(self, party: Party, what: str) -> None:
        self.report("peer-exited", f"{what} is reached by another block, and its own block may have ended", [party])

    def cluster_ends(self, cluster: Cluster) -> None:
        """All agents of a cluster have ended."""
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


def _arrival(by: tuple[Any, Eqn]) -> Party:
    who, eqn = by
    agent = who if isinstance(who, Agent) else who.agent
    return Party(agent.title, f"arrives by {eqn.op.name}", eqn.location)


def _writes_last(effect: tuple[EffectKind, Any]) -> bool:
    return effect[0] is not EffectKind.READ


# Where the mask of a masked access stands among its inputs.
_MASKED = {"load_masked": 1, "store_masked": 2}
