"""Accesses of memory, ordinary ones and those of asynchronous operations: checks that each pair is ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.ir.core import Eqn
from palladio.machine.check.bounds import Bounds, reaches_outside
from palladio.machine.check.findings import Participant
from palladio.machine.check.found import Found
from palladio.machine.check.order.atomics import AtomicClocks
from palladio.machine.check.order.fences import GlobalFences
from palladio.machine.check.order.history import History
from palladio.machine.check.order.threads import epoch, released
from palladio.machine.check.races import is_repeated, participant_of, race
from palladio.machine.check.regions import Region, Regions
from palladio.machine.check.report.naming import at_text, describe
from palladio.machine.check.scope_memory import takes
from palladio.machine.check.shadow import EARLIER, Access, Grid, Ordered, Shadow
from palladio.machine.check.unwritten import Origin, Unwritten
from palladio.machine.run.buffers import Buffer, Stack
from palladio.machine.run.clocks import Clock
from palladio.machine.run.products import Products
from palladio.machine.run.threads import Thread
from palladio.types.effects import AsyncKind, EffectKind
from palladio.types.types import SMEM


class Places:
    """The elements that stacks of transforms select, cached for many runs of one program.

    Fields:
        regions: for each shape and size of elements.
        grids: the cuts of buffers, for each name and shape.
        bounds: the bounds checks of index operands.
        products: values of accumulators.
    """

    def __init__(self) -> None:
        self.regions: dict[Any, Regions] = {}
        self.grids: dict[Any, Grid] = {}
        self.bounds = Bounds()
        self.products = Products()


class Accesses:
    """Records each buffer's accesses in its shadow; reports races, uninitialised reads and out-of-bounds accesses.

    Args:
        places: those of another run.
        strict_reads: report reads of memory that nothing has written.
        bounds: report accesses outside their buffer.
    """

    def __init__(
        self, found: Found, places: Places, strict_reads: bool, bounds: bool, history: History | None = None
    ) -> None:
        self.found = found
        self.history = History() if history is None else history
        self.strict_reads = strict_reads
        self._regions = places.regions
        self._grids = places.grids
        self._bounds = places.bounds if bounds else None
        self.unwritten = Unwritten(found)
        self.fences = GlobalFences()
        self.uninitialised: list[Origin] = []
        """The reads of the last ordinary access that reach uninitialised memory."""

    @property
    def checks_bounds(self) -> bool:
        """True if accesses outside their buffer are reported."""
        return self._bounds is not None

    def allocated(self, store: Buffer, initialised: bool) -> None:
        """A buffer that is written or uninitialised has been allocated: give it a shadow."""
        type = store.type
        grid = self._grids.get((store.name, type.shape))
        if grid is None:
            grid = self._grids[store.name, type.shape] = Grid(type.shape)
        store.shadow = Shadow(type.shape, initialised, type.dtype.itemsize, self.regions_of(store), grid)

    def ordinary(self, thread: Thread, eqn: Eqn, values: Sequence[Any], atomic: bool = False) -> None:
        """Ordinary accesses of an equation, at the references that its effects name."""
        op, params = eqn.op, eqn.params
        indices = values[op.index_start :] if op.index_start else ()
        stacks = op.stacks(params["transforms"]) if op.index_start else ((),)
        self.uninitialised.clear()
        mask = values[op.signature.operands.index("mask")] if "mask" in op.signature.operands else None
        for kind, var in sorted(eqn.effects, key=_writes_last):
            if var is None:
                continue
            position = eqn.inputs.index(var)
            store = values[position]
            if not isinstance(store, Buffer):
                continue
            stack = stacks[position] if position < len(stacks) else ()
            write = kind is not EffectKind.READ
            self.check_bounds(thread, eqn, store, stack, indices, mask, write)
            access = Access(
                thread.component,
                epoch(thread),
                eqn,
                thread.title,
                write,
                atomic,
                block=thread.block.key,
                trail=thread.trail,
            )
            uninitialised = self.touch(thread, store, stack, indices, access, thread.generic, mask, atomic)
            if uninitialised and not atomic:
                self.uninitialised.append(Origin(store, access))

    def touch(
        self,
        thread: Thread,
        store: Buffer,
        stack: Stack,
        indices: Sequence[Any],
        access: Access,
        clock: Clock,
        mask: Any = None,
        strict: bool = True,
    ) -> bool:
        """Record one access of a buffer and report an earlier one that it races with.

        Args:
            strict: report a read of uninitialised memory, however its value is used.

        Returns:
            True if it reads uninitialised memory.
        """
        shadow = store.shadow
        if shadow is None:
            return False
        region = access.region = shadow.regions.resolve(stack, indices, mask)
        generic, in_blocks = thread.generic, store.type.space is SMEM
        if store.leftovers:
            takes(self.found, thread, store, region, access)

        fences = self.fences if _takes_by_tma(access) and not in_blocks else None

        def ordered(before: Access, current_is_write: bool) -> bool:
            # Proxies matter only after ordinary stores, and in global memory only to reads.
            proxied = before.write and not before.asynchronous
            # The end of an earlier launch orders both proxies.
            needs_fence = proxied and before.component.cluster != EARLIER
            if fences is not None and needs_fence and not fences.cover(generic, before.component, before.epoch):
                return False
            return (clock if proxied and in_blocks else generic).covers(before.component, before.epoch)

        reads = not access.write or (access.atomic and access.asynchronous)  # a reduction reads what it replaces
        uninitialised = reads and self.strict_reads and shadow.uninitialised(region)
        if uninitialised and strict:
            self._uninitialised(store, access)
        if access.write and not access.atomic and access.issue is not None and access.issue.digest is not None:
            before = self._copied(thread, store, region, access, ordered)
        else:
            before = (shadow.write if access.write else shadow.read)(region, access, ordered)
        if before is None:
            return uninitialised
        if before.site is None:
            self.found.exited(participant_of(access), f"{describe(store)} of {before.thread}")
            return uninitialised
        race(self.found, self.history, thread, store, before, access)
        return uninitialised

    def _copied(self, thread: Thread, store: Buffer, region: Region, access: Access, ordered: Ordered) -> Access | None:
        """Record a write by a copy with a digest. The access that it races with; one that it repeats if no other."""
        same: list[Access] = []

        def repeated(before: Access) -> bool:
            if ordered(before, True) or not is_repeated(thread, store, before, access):
                return False
            same.append(before)
            return True

        return store.shadow.write(region, access, ordered, repeated) or next(iter(same), None)

    def _uninitialised(self, store: Buffer, access: Access) -> None:
        if self.found.has_raced(access):
            return
        self.found.report(
            "uninitialized-read",
            f"{describe(store, access.region)} is read where nothing has written to it",
            [participant_of(replace(access, write=False))],
        )

    def check_bounds(
        self, thread: Thread, eqn: Eqn, store: Buffer, stack: Stack, indices: Sequence[Any], mask: Any, write: bool
    ) -> None:
        if self._bounds is None:
            return
        found = self._bounds.outside(store.type.array, stack, indices)
        if found is not None and (mask is None or reaches_outside(store.type.array, stack, indices, mask)):
            axis, low, high, extent = found
            self.found.report(
                "out-of-bounds",
                f"{describe(store)} is accessed outside of axis {axis}: elements {low} to {high} of {extent}",
                [Participant(thread.title, f"runs {eqn.op.name}", eqn.location, at_text(thread.trail))],
                jax="Out-of-bounds " + ("read" if not write else "write" if mask is None else "masked swap"),
            )

    def tally(self, thread: Thread, eqn: Eqn, values: Sequence[Any]) -> None:
        """An atomic access whose result is unused: a release only (PTX ISA, "red", has no acquire)."""
        self.atomic(thread, eqn, values, learns=False)

    def atomic(self, thread: Thread, eqn: Eqn, values: Sequence[Any], learns: bool = True) -> None:
        """An atomic access: it orders the elements that it touches, as acquire and release."""
        buffer = values[0]
        if buffer.shadow is not None:
            if buffer.atomics is None:
                buffer.atomics = AtomicClocks(buffer.type.shape)
            stack = eqn.op.stacks(eqn.transforms)[0]
            region = buffer.shadow.regions.resolve(stack, values[eqn.op.index_start :])
            buffer.atomics.exchange(region, (thread.generic, thread.asynchronous), learns)
            thread.eqn = eqn
            if learns:
                self.history.acquires(thread, buffer.token)
            self.history.releases(thread, eqn, buffer.token)
        self.ordinary(thread, eqn, values, atomic=True)
        released(thread)

    def regions_of(self, store: Buffer) -> Regions:
        key = store.type.shape, store.type.dtype.itemsize
        found = self._regions.get(key)
        if found is None:
            found = self._regions[key] = Regions(*key)
        return found  # type: ignore[no-any-return]


def _takes_by_tma(access: Access) -> bool:
    """True for asynchronous copies of a GPU that read: those into shared memory, and those out of it that reduce."""
    if not access.asynchronous or (access.write and not access.atomic):
        return False
    return access.site.op.sync.issues in (AsyncKind.COPY, AsyncKind.STORE)  # type: ignore[no-any-return]


def _writes_last(effect: tuple[EffectKind, Any]) -> bool:
    return effect[0] is not EffectKind.READ
