"""The happens-before edges between dependent launches.

A launch in which a thread calls `griddepcontrol_launch_dependents` may overlap the next one. Its writes then happen
before an access only if the access's thread has acquired the launch's end, by `griddepcontrol_wait` or from a thread
that called it (PTX ISA, "griddepcontrol"). The same holds for its reads before a write, except reads that happen before
the call in their own block: the next launch starts only once all blocks have called or ended, and a read, unlike a
write, is then complete. Any other launch has ended when the next one starts.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from palladio.machine.check.accesses import Accesses
from palladio.machine.check.order.threads import released
from palladio.machine.check.regions import region_of_elements
from palladio.machine.check.shadow import EARLIER, Access
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.clocks import Clock, ComponentTable
from palladio.machine.run.threads import Thread

Array = Any


class Reached(NamedTuple):
    """Elements of an array, bool[elements], that a launch has written, or read, by one equation."""

    array: Array
    elements: Array
    access: Access

    def part(self, array: Array) -> Array | None:
        """The same elements in another array of the memory, as bool[shape]; None if there are none."""
        mine, its = self.array, array
        if not (mine.flags.c_contiguous and its.flags.c_contiguous) or mine.itemsize != its.itemsize:
            return None
        first = (_address(its) - _address(mine)) // mine.itemsize
        low, high = max(first, 0), min(first + its.size, mine.size)
        if low >= high or not self.elements[low:high].any():
            return None
        found = np.zeros(its.size, bool)
        found[low - first : high - first] = self.elements[low:high]
        return found.reshape(its.shape)


class EarlierLaunches:
    """The launches of a run that may not have ended when the next one starts, and their accesses."""

    def __init__(self) -> None:
        self._components = ComponentTable(EARLIER)
        self._reached: list[Reached] = []
        self._calls: dict[Any, Clock] = {}
        """For each block that has let the next launch start, the clock at its first call."""
        self._awaited = False

    def starts(self) -> None:
        """A launch starts."""
        self._calls = {}
        self._awaited = False

    def released(self, thread: Thread) -> None:
        """A thread lets the next launch start early."""
        if thread.block.key not in self._calls:
            self._calls[thread.block.key] = thread.generic.copy()
            released(thread)

    def awaited(self, thread: Thread) -> None:
        """A thread waits for the earlier launches."""
        self._awaited = True
        for component in {each.access.component for each in self._reached}:
            thread.generic.set(component, 1)
            thread.asynchronous.set(component, 1)

    def brought(self, store: Buffer, accesses: Accesses) -> None:
        """A launch gets an external buffer, whose memory an earlier launch may still be using."""
        array = store.array if store.source is None else store.source
        for each in self._reached:
            part = each.part(array)
            if part is None:
                continue
            if store.shadow is None:
                if not each.access.write:  # two reads
                    continue
                accesses.allocated(store, True)
            region = region_of_elements(np.flatnonzero(part), part.shape)
            noted = store.shadow.write if each.access.write else store.shadow.read
            noted(region, replace(each.access, region=region), lambda *_: True)

    def ends(self, launching: Any) -> None:
        """A launch ends: the next one may have to wait for it."""
        if not self._calls:
            self._reached = []
            return
        component = self._components.new("an earlier launch")
        reached = [] if self._awaited else self._reached
        stores = [each for each in launching.shared if isinstance(each, Buffer) and each.shadow is not None]
        for store in stores:
            for access, elements in itertools.chain(store.shadow.writes(), store.shadow.reads(self._may_follow)):
                if access.component.cluster != EARLIER:
                    title = f"{access.thread} of the launch before"
                    kept = replace(access, component=component, epoch=1, asynchronous=False, thread=title)
                    reached.append(Reached(store.array, elements.ravel(), kept))
        self._reached = reached

    def _may_follow(self, read: Access) -> bool:
        """True if a read may come after the start of the next launch."""
        call = self._calls.get(read.block)
        return call is not None and not call.covers(read.component, read.epoch)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


__all__ = ["EarlierLaunches"]
