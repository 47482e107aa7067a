"""The happens-before edges of barriers, and their misuse."""

from __future__ import annotations

from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.check.findings import Participant
from palladio.machine.check.found import Found
from palladio.machine.check.order.history import History
from palladio.machine.check.order.threads import acquire, epoch
from palladio.machine.check.report.naming import at_text
from palladio.machine.run.buffers import Barrier, BarrierSlot
from palladio.machine.run.clocks import Clock, Component
from palladio.machine.run.threads import Block, Thread, Trail


class SlotClocks:
    """The clocks that a wait for a barrier acquires: those of the arrivals of recent phases.

    Fields:
        waits: for each thread, the epoch of its last wait here.
        waiters: for each thread, the last completion that it has waited for, with its title, the equation and the
            loops around it, for reports.
        overrun: whether a phase that its waiting threads may miss has been reported.
        remote_arrivals: for each thread of another block, the epoch of its last arrival, with the same as in `waiters`.
        base: the last epoch of the component at the end of the barrier that used it before.
    """

    __slots__ = (
        "asynchronous",
        "base",
        "component",
        "generic",
        "overrun",
        "phases",
        "remote_arrivals",
        "waiters",
        "waits",
    )

    def __init__(self, component: Component, clock: Clock, base: int = 0) -> None:
        self.component = component
        self.base = base
        self.generic = clock
        self.asynchronous = clock.copy()
        self.phases: dict[int, tuple[Clock, Clock]] = {}
        self.overrun = False
        self.waits: dict[Component, int] = {}
        self.waiters: dict[Component, tuple[int, str, Any, Trail]] = {}
        self.remote_arrivals: dict[Component, tuple[int, str, Any, Trail]] = {}


class BarrierOrder:
    """Arrivals release to waits, and the waiting threads must see each completion before the next."""

    def __init__(self, found: Found, history: History) -> None:
        self.found = found
        self.history = history

    def slot_clocks(self, slot: BarrierSlot) -> SlotClocks:
        """The clocks of a barrier."""
        if slot.checks is None:
            components = slot.home.cluster.components
            # Components of barriers that have ended are reused, so that clocks do not grow with every scope entered.
            retired = slot.home.retired
            component, base = (
                retired.pop() if retired else (components.new(f"copies to barriers of {slot.home.label}"), 0)
            )
            slot.checks = SlotClocks(component, components.clock(), base)
        return slot.checks  # type: ignore[no-any-return]

    def arrives(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> None:
        """An arrival releases the thread's clocks."""
        clocks = self.slot_clocks(slot)
        clocks.generic.join(thread.generic)
        clocks.asynchronous.join(thread.asynchronous)
        self.history.releases(thread, eqn, slot.token, slot.completed + 1)
        if slot.home is not thread.block:
            arrival = epoch(thread), thread.title, eqn, thread.trail
            if slot.home.ended:
                self._exited(slot, arrival)
            clocks.remote_arrivals[thread.component] = arrival

    def completes(self, slot: BarrierSlot, by: Any) -> None:
        """A phase is about to complete. The threads that wait for the previous phase must have seen it."""
        clocks = self.slot_clocks(slot)
        if slot.completed and not slot.named:
            self._completes_again(slot, clocks, by)
        clocks.phases[slot.completed + 1] = clocks.generic.copy(), clocks.asynchronous.copy()
        clocks.phases.pop(slot.completed - 2, None)

    def _completes_again(self, slot: BarrierSlot, clocks: SlotClocks, by: Any) -> None:
        seen = [component for component, (phase, *_) in clocks.waiters.items() if phase == slot.completed]
        late = [component for component in seen if not clocks.generic.covers(component, clocks.waits[component])]
        if seen and not late:
            return
        who, eqn = by
        thread = who if isinstance(who, Thread) else who.thread
        did = f"makes the last arrival, by {eqn.op.name}"
        participants = [Participant(thread.title, did, eqn.location, at_text(who.trail))]
        clocks.overrun = True
        if len(late) == len(seen):
            self.found.report(
                "barrier-overrun",
                f"{slot.name} completes phase {slot.completed + 1} though no thread may have seen phase "
                f"{slot.completed} yet",
                participants,
                missing=f"a wait for completion {slot.completed} that comes before this arrival",
                about=slot.barrier,
                jax=f"Barrier completed phase {slot.completed}, but no threads observed phase {slot.completed - 1}.",
            )
            return
        participant = _wait(*clocks.waiters[late[0]])
        self.found.report(
            "missed-phase",
            f"{slot.name} completes phase {slot.completed + 1} though a thread that waits for phase {slot.completed} "
            "may not have seen it yet",
            [participant, *participants],
            missing=f"an arrival after this wait, for which those of phase {slot.completed + 1} wait",
            about=slot.barrier,
        )

    def misses(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> bool:
        """True if a waiting thread is two completions late, and so compares the wrong parity."""
        self._divided(thread, eqn, slot)
        seen = thread.observed.get(slot, 0)
        if slot.completed - seen < 2:
            return False
        if not self.slot_clocks(slot).overrun:  # that is the cause otherwise
            self.found.report(
                "missed-phase",
                f"{slot.name} has completed phase {slot.completed}, and a thread waits for phase {seen + 1} only now",
                [_wait(seen + 1, thread.title, eqn, thread.trail)],
                missing=f"waits for the completions from {seen + 1} on, each before the next",
                about=slot.barrier,
                jax=""
                if seen
                else f"{_thread_in_jax(thread)} is waiting at barrier {slot.number} for the first time, "
                f"but barrier is already at phase {slot.completed}.",
            )
        return True

    def _divided(self, thread: Thread, eqn: Eqn, slot: BarrierSlot) -> None:
        """A warpgroup waits with all its warps, so each warp must itself have seen the same completions."""
        ahead = [warp.ahead.get(slot, 0) for warp in thread.warps.values()]
        if not any(ahead):
            return
        seen = thread.observed.get(slot, 0)
        took_part = sum(seen + each > 0 for each in ahead)
        why = (
            "its constituent warps have previously observed different phases"
            if took_part == len(ahead)
            else f"only {took_part} of its constituent warps have participated in the barrier"
        )
        self.found.report(
            "missed-phase",
            f"a warpgroup waits for {slot.name}, of which {sum(map(bool, ahead))} of its {len(ahead)} warps have seen "
            f"more phases than the others, {seen + max(ahead)} for {seen}",
            [_wait(seen + 1, thread.title, eqn, thread.trail)],
            missing="waits of all warps, or of none: plgpu.warp_map ends with the same phases in each",
            about=slot.barrier,
            jax=f"Warpgroup-thread Warpgroup({thread.title}) is waiting at barrier {slot.number}, but {why}",
        )

    def observes(self, thread: Thread, slot: BarrierSlot, seen: int) -> None:
        """A wait returns: the thread acquires the clocks that the arrivals released."""
        clocks = self.slot_clocks(slot)
        self.history.acquires(thread, slot.token, seen)
        acquire(thread, clocks.phases.get(seen, (clocks.generic, clocks.asynchronous)))
        clocks.waits[thread.component] = epoch(thread)
        clocks.waiters[thread.component] = seen, thread.title, thread.eqn, thread.trail

    def retire(self, barrier: Barrier) -> None:
        """Release the components of an ended barrier for reuse."""
        for slot in barrier.slots:
            clocks = slot.checks
            if clocks is not None and not slot.arrived and not slot.parts:
                slot.home.retired.append((clocks.component, clocks.base + slot.completed))
                slot.checks = None

    def ends(self, barrier: Barrier) -> None:
        for slot in barrier.slots:
            where = f"{slot.name} of {slot.home.label}"
            if slot.arrived or slot.parts:
                participants = [arrival_of(each) for each in slot.arrivals]
                self.found.report(
                    "barrier-pending-arrivals",
                    f"{where} ends with {slot.arrived} of {slot.needed} arrivals of a phase",
                    participants,
                    about=slot.barrier,
                )
            if slot.completed > slot.seen and not slot.named:
                phases = f"phase {slot.completed}, which no thread has"
                if slot.completed > slot.seen + 1:
                    phases = f"phases {slot.seen + 1} to {slot.completed}, which no thread has"
                self.found.report(
                    "unobserved-completion",
                    f"{where} has completed {phases} waited for",
                    [arrival_of(slot.last)] if slot.last else [],
                    about=slot.barrier,
                    level="error" if slot.foreign > slot.seen or self._is_strict(slot) else "hint",
                    jax=f"When barrier {slot.number} was deallocated, thread Warpgroup(...) had only observed barrier "
                    f"up to phase {slot.seen - 1}, but barrier completed up to phase {slot.completed - 1}.",
                )

    def _is_strict(self, slot: BarrierSlot) -> bool:
        """True if the hint is an error here: `strict` names it, and the barrier is waited for at all."""
        return slot.seen > 0 and "unobserved-completion" in self.found.strict

    def check_remote_arrivals(self, barrier: Barrier, known: Clock, block: Block) -> None:
        for slot in barrier.slots:
            for component, arrival in slot.checks.remote_arrivals.items() if slot.checks else ():
                if not known.covers(component, arrival[0]):
                    self._exited(slot, arrival)

    def _exited(self, slot: BarrierSlot, arrival: tuple[int, str, Eqn, Trail]) -> None:
        """A thread of another block has arrived at a barrier of a block that may have ended."""
        _, thread, eqn, trail = arrival
        what = f"{slot.name} of {slot.home.label}"
        self.found.exited(Participant(thread, f"arrives at {what}", eqn.location, at_text(trail)), what)


def _thread_in_jax(thread: Thread) -> str:
    """A thread's name in JAX's interpreter."""
    return f"Thread {'Warp' if 'warp' in thread.title else 'Warpgroup'}({thread.title})"


def arrival_of(by: tuple[Any, Eqn]) -> Participant:
    """The participant that arrived or signalled, for reports."""
    who, eqn = by
    thread = who if isinstance(who, Thread) else who.thread
    at = "" if thread is who else at_text(who.trail)  # the iteration of a thread's arrival is not recorded
    return Participant(thread.title, f"arrives by {eqn.op.name}", eqn.location, at)


def _wait(phase: int, thread: str, eqn: Eqn, trail: Trail) -> Participant:
    return Participant(thread, f"waits for phase {phase}", eqn.location, at_text(trail))
