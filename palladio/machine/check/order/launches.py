"""The happens-before edges between dependent launches.

A launch of which a thread calls `griddepcontrol_launch_dependents` may still be running while the next one does. What
it has written then happens before an access only if the access's thread has acquired the launch's end, by
`griddepcontrol_wait` or from a thread that called it (PTX ISA, "griddepcontrol"). Any other launch has ended when the
next one starts. Only writes are followed: a later launch that overwrites what an earlier one reads is not reported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from palladio.machine.check.accesses import Accesses
from palladio.machine.check.regions import region_of_elements
from palladio.machine.check.shadow import EARLIER, Access
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.clocks import ComponentTable
from palladio.machine.run.threads import Thread

Array = Any


class Written(NamedTuple):
    """Elements of an array, bool[elements], that a launch has written by one equation."""

    array: Array
    elements: Array
    access: Access

    def part(self, array: Array) -> Array | None:
        """Those in another array of the same memory, as bool[shape]; None if there are none."""
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
    """The launches of a run that may not have ended when the next one starts, and their writes."""

    def __init__(self) -> None:
        self._components = ComponentTable(EARLIER)
        self._written: list[Written] = []
        self._released = self._awaited = False

    def starts(self) -> None:
        """A launch starts."""
        self._released = self._awaited = False

    def released(self) -> None:
        """A thread lets the next launch start early."""
        self._released = True

    def awaited(self, thread: Thread) -> None:
        """A thread waits for the launches before."""
        self._awaited = True
        for component in {each.access.component for each in self._written}:
            thread.generic.set(component, 1)
            thread.asynchronous.set(component, 1)

    def brought(self, store: Buffer, accesses: Accesses) -> None:
        """A launch gets a buffer from outside, whose memory an earlier launch may still be writing."""
        array = store.array if store.source is None else store.source
        for each in self._written:
            part = each.part(array)
            if part is not None:
                if store.shadow is None:
                    accesses.allocated(store, True)
                region = region_of_elements(np.flatnonzero(part), part.shape)
                store.shadow.write(region, replace(each.access, region=region), lambda *_: True)

    def ends(self, launching: Any) -> None:
        """A launch ends: the next one may have to wait for it."""
        if not self._released:
            self._written = []
            return
        component = self._components.new("an earlier launch")
        written = [] if self._awaited else self._written
        for store in launching.shared:
            if isinstance(store, Buffer) and store.shadow is not None:
                for access, elements in store.shadow.writes():
                    if access.component.cluster != EARLIER:
                        title = f"{access.thread} of the launch before"
                        kept = replace(access, component=component, epoch=1, asynchronous=False, thread=title)
                        written.append(Written(store.array, elements.ravel(), kept))
        self._written = written


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


__all__ = ["EarlierLaunches"]
