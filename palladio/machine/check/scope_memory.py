"""Accesses of asynchronous operations to memory that was given back at the end of its scope.

It is harmless until the bytes have a new owner and are used; that use is the mistake, with three participants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.findings import Participant
from palladio.machine.check.races import Sink, participant_of
from palladio.machine.check.regions import Region
from palladio.machine.check.report.naming import at_text, describe
from palladio.machine.check.shadow import Access
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.clocks import Clock
from palladio.machine.run.threads import Block, Thread


class Leftover(NamedTuple):
    """Accesses that may still be in flight to memory that was given back.

    Fields:
        accesses: each with the elements of the buffer that it reaches, bool[elements].
        start: the address of the buffer.
        what: the description of the buffer in reports.
        left: the end of the scope.
        thread: the thread that owned the buffer; None if its block shared it.
    """

    accesses: list[tuple[Access, Any]]
    start: int
    itemsize: int
    what: str
    left: Participant
    thread: Any
    space: Any

    @property
    def about(self) -> str:
        """The key of the mistake: the operation, and the scope."""
        return f"{self.accesses[0][0].site.location} {self.left.location}"

    def may_overlap(self, store: Buffer) -> bool:
        """True if a newer buffer can have its bytes. Private buffers of two threads have no known order."""
        apart = self.thread is not None and store.owner is not None and self.thread is not store.owner
        return self.space is store.type.space and not apart

    def conflicts(self, store: Buffer, region: Region, write: bool) -> Iterator[Access]:
        """The accesses whose bytes overlap a region of a newer buffer, and which conflict with its use."""
        wanted = _bytes(region.mask(store.type.shape).ravel(), store.type.dtype.itemsize, store.address)
        for access, elements in self.accesses:
            if (write or access.write) and _overlap(wanted, _bytes(elements, self.itemsize, self.start)):
                yield access


def _bytes(elements: Any, itemsize: int, start: int) -> tuple[int, Any]:
    """The bytes of elements in row-major order: the first one's address, and bool[bytes] from there."""
    return start, np.repeat(elements, itemsize)


def _overlap(one: tuple[int, Any], other: tuple[int, Any]) -> bool:
    (start, mine), (begin, theirs) = one, other
    low, high = max(start, begin), min(start + len(mine), begin + len(theirs))
    return low < high and bool(np.any(mine[low - start : high - start] & theirs[low - begin : high - begin]))


def pending(store: Buffer, done: Callable[[Access], bool]) -> list[tuple[Access, Any]]:
    """The asynchronous accesses of a buffer that may still be in flight, each with the elements that it reaches."""
    found: dict[Access, Any] = {}
    for state, elements in store.shadow.states():
        for access in (state.write, *state.beside, *state.reads):
            if access is not None and access.asynchronous and not done(access):
                found[access] = found[access] | elements if access in found else elements
    return list(found.items())


def leaves(checker: Sink, store: Buffer, known: Clock, eqn: Eqn, thread: Thread) -> None:
    """A buffer is given back; `known` covers the accesses that have happened before."""
    accesses = pending(store, lambda access: known.covers(access.component, access.epoch))
    if isinstance(store.home, Block):
        store.home.addresses.free(store)
    if not accesses:
        return
    left = Participant(thread.title, "leaves the scope", eqn.location, at_text(thread.trail))
    kept = Leftover(
        accesses, store.address, store.type.dtype.itemsize, describe(store), left, store.owner, store.type.space
    )
    if isinstance(store.home, Block):
        store.home.addresses.leftovers[kept.about, store.address, store.owner] = kept
    checker.report(
        "scope-in-use",
        f"{kept.what} is given back while an asynchronous operation may still reach it",
        [participant_of(accesses[0][0]), left],
        missing="a wait for the operation inside the scope, before another takes the memory",
        about=kept.about,
        level="hint",
    )


def takes(checker: Sink, thread: Thread, store: Buffer, region: Region, access: Access) -> None:
    """A buffer is used: accesses in flight to its bytes must have ended."""
    for leftover in store.leftovers:
        for before in leftover.conflicts(store, region, access.write):
            if not thread.generic.covers(before.component, before.epoch):
                checker.report(
                    "scope-in-use",
                    f"{leftover.what} was given back, and {describe(store)} has its memory now, while an asynchronous "
                    "operation may still reach it",
                    [participant_of(access), participant_of(before), leftover.left],
                    about=leftover.about,
                )
