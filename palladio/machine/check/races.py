"""Classification of a race: from two unordered accesses to a finding.

The code must not depend on which of the two came first in the run, so it is derived from their known order. An
asynchronous operation that was issued before the other access, but whose end is not ordered before it, determines the
code by its kind. If neither access happens before the other, it is a plain race; or, with a copy, one side should have
waited, and the threads that have waited at the copy's barrier decide which one.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from palladio.machine.check.findings import Participant, Sink
from palladio.machine.check.order.history import History
from palladio.machine.check.report.chains import Chain, Ends, chain
from palladio.machine.check.report.naming import at_text, common, describe
from palladio.machine.check.shadow import EARLIER, Access
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.clocks import Clock, Component
from palladio.machine.run.threads import Thread
from palladio.ops.grid import grid_call
from palladio.types.effects import AsyncKind
from palladio.types.types import SMEM

_COPIES = (AsyncKind.COPY, AsyncKind.DMA)


class Issue:
    """The start of an asynchronous operation.

    Fields:
        component, epoch: its thread, and the thread's epoch.
        waits: of a copy, the threads that have waited at its barrier so far.
        arrives: of a copy, the name of its barrier or semaphore. The object itself would keep the machine alive: the
            collector does not see that the shadow's cells, an array of objects, refer to it.
        known: of a copy, its thread's clock at the issue.
        digest: of a copy by a sub-core to memory of the device, a hash of the bytes that it copies.
    """

    __slots__ = ("arrives", "component", "digest", "epoch", "known", "waits")

    def __init__(
        self,
        component: Component,
        epoch: int,
        waits: Container[Component] = (),
        arrives: str = "",
        known: Clock | None = None,
        digest: bytes | None = None,
    ) -> None:
        self.component = component
        self.digest = digest
        self.epoch = epoch
        self.waits = waits
        self.arrives = arrives
        self.known = known


class Verdict(NamedTuple):
    """The code of a race, the missing edge, and its two accesses in the intended order."""

    code: str
    missing: str
    first: Access
    second: Access
    landing: bool = False
    fence: str = ""


def participant_of(access: Access) -> Participant:
    """One side of a race."""
    if access.asynchronous:
        reduction = access.site.params.get("reduction") if access.write else None
        does = f"reduces into it by {reduction}" if reduction else f"{'writes' if access.write else 'reads'} it"
        did = f"starts {_name(access)}, which {does}"
    else:
        did = f"{'writes' if access.write else 'reads'} it, by {_name(access)}"
    return Participant(access.thread, did, getattr(access.site, "location", None), at_text(access.trail))


def _name(access: Access) -> str:
    """The operation of an access, by its name in the kernel."""
    if access.site is None:
        return "the end"
    if access.site.op is grid_call:  # on cores that fetch and store blocks
        return "block store" if access.write else "block fetch"
    return access.site.op.name  # type: ignore[no-any-return]


def race(checker: Sink, history: History, thread: Thread, store: Buffer, before: Access, now: Access) -> None:
    """Report two unordered accesses."""
    verdict = _classified(thread, store, before, now)
    for each in (before, now):
        if not each.write:
            checker.raced(each)

    def order() -> Chain:
        known = thread.generic if verdict.second is now else verdict.second.issue and verdict.second.issue.known
        return chain(history, Ends(verdict.first, verdict.second, known, verdict.landing, verdict.fence))

    message = _message(verdict.code, store, before, now, thread.block.cluster.cores)
    replicated = verdict.code == "global-race" and _copies_the_same(before, now)
    checker.report(
        verdict.code,
        f"{message}, with the same bytes" if replicated else message,
        [participant_of(now), participant_of(before)],
        verdict.missing,
        level="hint" if replicated else "",
        operand=store.name,
        order=order,
    )


def is_repeated(thread: Thread, store: Buffer, before: Access, now: Access) -> bool:
    """True if the race of two unordered accesses is only a hint: `now` copies what `before` does to the same place."""
    return _copies_the_same(before, now) and _classified(thread, store, before, now).code == "global-race"


def _copies_the_same(before: Access, now: Access) -> bool:
    """True if two sub-cores carry out one copy of their program, of the same bytes to the same elements."""
    if before.site is not now.site or not (before.write and now.write) or not before.region.is_same(now.region):
        return False
    digest = now.issue.digest if now.issue is not None else None
    return digest is not None and before.issue is not None and before.issue.digest == digest


def _issued(access: Access) -> AsyncKind | None:
    """The kind of asynchronous operation that an access belongs to."""
    sync = access.site.op.sync
    return sync.issues if sync is not None else None


def _is_copy(access: Access) -> bool:
    return access.asynchronous and _issued(access) in _COPIES


def _operation(access: Access) -> str:
    """The text of an operation, e.g. `the wgmma on line 12`."""
    place = getattr(access.site, "location", None)
    return f"the {_name(access)}{f' on line {place.line}' if place is not None else ''}"


def _earlier(before: Access, now: Access) -> str:
    """The operation that came first; marked if both accesses are of the same line."""
    first = _operation(before)
    return f"{first} of an earlier step" if first == _operation(now) else first


def _message(code: str, store: Buffer, before: Access, now: Access, cores: bool) -> str:
    what, first, second = describe(store, common(before.region, now.region)), _operation(before), _operation(now)
    verb, earlier = ("written" if each.write else "read" for each in (now, before))
    if code in ("missing-commit-smem", "missing-commit-gmem"):
        return f"{what} is {verb} by {second}, an asynchronous operation, which may not see what {first} wrote"
    if code == "launch-not-awaited":
        does = "writes" if before.write else "reads"
        return f"{what} is {verb} by {second} while the launch before may not have ended, which {does} it by {first}"
    if code in ("data-race", "global-race"):
        if first == second and verb == earlier:
            several = "threads" if code == "data-race" else "cores" if cores else "blocks"
            return f"{what} is {verb} by {first} in two {several}, in no order"
        return f"{what} is {verb} by {second} and {earlier} by {first}, in no order"
    first = _earlier(before, now)
    if code == "copy-target-in-use" and before.write and not now.write:  # the copy went first in this run
        return f"{what} is written by {first} while it may still be {verb} by {second}"
    return f"{what} is {verb} by {second} while it may still be {earlier} by {first}"


def _classified(thread: Thread, store: Buffer, before: Access, now: Access) -> Verdict:
    shared = store.type.space is SMEM
    if before.component.cluster == EARLIER:
        wait = (
            f"plgpu.griddepcontrol_wait() in {now.thread}, or in a thread that it waits for, before {_operation(now)}"
        )
        return Verdict("launch-not-awaited", wait, before, now)
    if now.asynchronous and not before.asynchronous and thread.generic.covers(before.component, before.epoch):
        fence = "commit_smem" if shared else "commit_gmem"
        code = "missing-commit-smem" if shared else "missing-commit-gmem"
        missing = f"plgpu.{fence}() between {_operation(before)} and {_operation(now)}"
        return Verdict(code, missing, before, now, fence=fence)
    if before.asynchronous and thread.generic.covers(before.issue.component, before.issue.epoch):
        return _unfinished(before, now)
    if not shared and before.block != now.block:
        return Verdict("global-race", _order(before, now), before, now)
    copies = [each for each in (now, before) if each.write and _is_copy(each)]
    if len(copies) == 1:
        return _unordered(copies[0], now if copies[0] is before else before)
    if copies:
        return Verdict("copy-target-in-use", "a wait for the one copy before the other starts", before, now)
    return Verdict("data-race", _order(before, now), before, now)


def _order(before: Access, now: Access) -> str:
    return f"an order between {_operation(before)} in {before.thread} and {_operation(now)} in {now.thread}"


def _unfinished(before: Access, now: Access) -> Verdict:
    """The verdict if an operation was issued before the access, and its end is not ordered before it."""
    kind, then = _issued(before), f"before {_operation(now)}"
    stores = f"a wait_smem_to_gmem for {_operation(before)} in {before.thread}, {then}"
    if kind is AsyncKind.WGMMA:
        missing = f"a wgmma_wait for {_operation(before)} in {before.thread}, {then}"
        return Verdict("wgmma-operand-overwritten", missing, before, now)
    if kind is AsyncKind.STORE and not before.write:
        return Verdict("store-source-overwritten", stores, before, now)
    if before.write and now.write and _is_copy(now):
        again = " again" if _operation(before) == _operation(now) else ""
        return Verdict("copy-target-in-use", f"a wait for {_landing(before)}, {then}{again}", before, now, True)
    if kind is AsyncKind.STORE:
        return Verdict("copy-not-awaited", stores, before, now)
    return Verdict("copy-not-awaited", f"a wait for {_landing(before)}, {then}", before, now, True)


def _landing(copy: Access) -> str:
    """The barrier or semaphore that a copy signals when it lands."""
    counted = _issued(copy) is AsyncKind.DMA
    return f"the {'semaphore' if counted else 'barrier'} of {_operation(copy)}"


def _unordered(copy: Access, use: Access) -> Verdict:
    """A copy into memory that another thread uses. If the user has never waited for the copy's barrier, that wait is
    missing; otherwise its memory is overwritten too early.
    """
    user = use.issue.component if use.asynchronous else use.component
    if user not in copy.issue.waits:
        return Verdict("copy-not-awaited", f"a wait for {_landing(copy)} in {use.thread}", copy, use, True)
    missing = f"a wait in {copy.thread}, before {_operation(copy)}, until {use.thread} is done with {_operation(use)}"
    return Verdict("copy-target-in-use", missing, use, copy)


__all__ = ["Issue", "is_repeated", "participant_of", "race"]
