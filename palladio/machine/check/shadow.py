"""Shadow memory: for each element of a buffer, who wrote it last and who has read it since.

Elements that were always accessed together share one entry. Along each axis the shadow keeps a list of cuts; the cells
of the grid of cuts each hold one immutable `State`. An access inserts the cuts that its region still lacks. So memory
is bounded by the buffer and the number of components, never by how long a launch runs; and a launch that goes through
the same regions again and again, as loops do, finds their places kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from palladio.machine.check.regions import Bands, Region, Regions
from palladio.machine.run.clocks import Component
from palladio.types.transforms import Transform

Array = Any
Shape = tuple[int, ...]

_MOST_KEPT = 4096  # places of regions that a shadow keeps


@dataclass(slots=True, eq=False)
class Access:
    """One access. Records are shared and never changed; not frozen, since one is made for every access."""

    component: Component
    epoch: int
    site: Any
    """What reports show as its place: the equation."""
    thread: str
    """Who made it, for reports."""
    write: bool = False
    atomic: bool = False
    asynchronous: bool = False
    block: Any = None
    """The block of who made it."""
    issue: Any = None
    """Of an asynchronous operation: its start."""


Ordered = Callable[[Access, bool], bool]
"""`ordered(previous, current_is_write)`: whether an earlier access has happened before the current one."""


class State:
    """What has happened to the elements of a cell. Never changed; compared by identity."""

    __slots__ = ("beside", "initialised", "reads", "write")

    def __init__(
        self, write: Access | None, reads: tuple[Access, ...], initialised: bool, beside: tuple[Access, ...] = ()
    ) -> None:
        self.write = write
        """The last write since the memory was taken into use."""
        self.reads = reads
        """The reads since then: the latest of each component and kind (asynchronous, atomic), oldest first."""
        self.initialised = initialised
        self.beside = beside
        """Atomic accesses that the last write, an atomic one, has not come behind: the latest of each component."""

    def after_read(self, access: Access) -> State:
        """The state with one more read, in place of an older one of its component and kind."""
        reads = self.reads
        if reads:
            if reads[-1] is access:
                return self
            component, asynchronous, atomic = access.component, access.asynchronous, access.atomic
            kept = [
                read
                for read in reads
                if read.component != component or read.asynchronous != asynchronous or read.atomic != atomic
            ]
            return State(self.write, (*kept, access), self.initialised, self.beside)
        return State(self.write, (access,), self.initialised, self.beside)

    def after_write(self, access: Access, ordered: Ordered) -> State:
        """The state with a write in place of all that has come before it; atomic ones do not order each other."""
        if not access.atomic or self.write is None:
            return State(access, (), True)
        before = (*self.beside, self.write, *self.reads)
        beside = [
            each for each in before if each.atomic and each.component != access.component and not ordered(each, True)
        ]
        return State(access, (), True, tuple(beside))

    def against_read(self, access: Access, ordered: Ordered) -> Access | None:
        """The earlier access that races with a read."""
        write = self.write
        if write is None or (write.atomic and access.atomic):
            return None
        if not ordered(write, False):
            return write
        return next((each for each in self.beside if each.write and not ordered(each, False)), None)

    def against_write(self, access: Access, ordered: Ordered) -> Access | None:
        """The earlier access that races with a write: the last write before the reads, the oldest of them first."""
        write, atomic = self.write, access.atomic
        if write is not None and not (write.atomic and atomic) and not ordered(write, True):
            return write
        for each in (*self.beside, *self.reads):
            if not (each.atomic and atomic) and not ordered(each, True):
                return each
        return None


class Shadow:
    """The shadow of one buffer.

    Two accesses of which at least one writes conflict if they are not ordered, unless both are atomic. A write takes
    the place of everything before it: what is ordered behind it is so behind that too. Only atomic accesses that it
    does not come behind stay beside an atomic one.

    Args:
        shape: of the buffer.
        initialised: whether its elements have values before anything is written.
        itemsize: bytes of an element; needed for accesses to a part of a bitcast.
        regions: those of another shadow of the same shape and item size, to share what they have resolved.
    """

    __slots__ = ("_cells", "_cuts", "_may_lack_values", "_places", "regions")

    def __init__(
        self, shape: Shape, initialised: bool, itemsize: int | None = None, regions: Regions | None = None
    ) -> None:
        self.regions = Regions(shape, itemsize) if regions is None else regions
        # Each axis is cut at its ends; an axis of extent 0 has one cell all the same, which no region reaches.
        self._cuts: list[list[int]] = [[0, extent] for extent in shape]
        self._cells: Array = np.full((1,) * len(shape), State(None, (), initialised), object)
        self._places: dict[Region, Any] = {}  # a region's key into the cells; None for one without elements
        self._may_lack_values = not initialised

    @property
    def cells(self) -> int:
        """How many cells the cuts make so far."""
        return int(self._cells.size)

    def read(self, region: Region, access: Access, ordered: Ordered) -> Access | None:
        """Note a read. The first earlier access that conflicts with it, in row-major order of elements."""
        try:
            key = self._places[region]
        except KeyError:
            key = self._place(region)
        if key is None:
            return None
        found = self._cells[key]
        if type(found) is State:
            self._cells[key] = found.after_read(access)
            return found.against_read(access, ordered)
        flat = found.ravel().tolist()
        after = {state: state.after_read(access) for state in dict.fromkeys(flat)}
        if len(after) == 1:
            self._cells[key] = after[flat[0]]
            return flat[0].against_read(access, ordered)  # type: ignore[no-any-return]
        self._cells[key] = _array([after[state] for state in flat], found.shape)
        ordered = cache(ordered)
        return _first(state.against_read(access, ordered) for state in after)

    def write(self, region: Region, access: Access, ordered: Ordered) -> Access | None:
        """Note a write. The first earlier access that conflicts with it, in row-major order of elements."""
        try:
            key = self._places[region]
        except KeyError:
            key = self._place(region)
        if key is None:
            return None
        cells = self._cells
        found = cells[key]
        if type(found) is State:
            cells[key] = found.after_write(access, ordered)
            return found.against_write(access, ordered)
        flat = found.ravel().tolist()  # before the cells change: of a box, `found` is a view
        states = dict.fromkeys(flat)
        if len(states) > 1:
            ordered = cache(ordered)
        if access.atomic:
            after = {state: state.after_write(access, ordered) for state in states}
            cells[key] = _array([after[state] for state in flat], found.shape)
        else:
            cells[key] = State(access, (), True)
        return _first(state.against_write(access, ordered) for state in states)

    def uninitialised(self, region: Region) -> bool:
        """Whether some element of the region has no value yet."""
        if not self._may_lack_values:
            return False
        key = self._place(region)
        if key is None:
            return False
        found = self._cells[key]
        if type(found) is State:
            return not found.initialised
        return not all(state.initialised for state in found.flat)

    def _place(self, region: Region) -> Any:
        """The region's key into the cells, which are cut where it needs it."""
        try:
            return self._places[region]
        except KeyError:
            pass
        key = None
        if region.bands is not None:
            for axis, bands in enumerate(region.bands):
                self._cut(axis, bands)
            key = self._key(region.bands, region.chosen)
        if len(self._places) >= _MOST_KEPT:
            self._places.clear()
        self._places[region] = key
        return key

    def _cut(self, axis: int, bands: Bands) -> None:
        """Cut an axis at the ends of the bands: the cells there fall into several with the same state."""
        cuts = self._cuts[axis]
        known = set(cuts)
        missing = sorted({end for band in bands for end in band} - known)
        if not missing:
            return
        counts = np.ones(len(cuts) - 1, np.int64)
        for cut in missing:
            counts[bisect_left(cuts, cut) - 1] += 1
        self._cells = np.repeat(self._cells, counts, axis=axis)
        self._cuts[axis] = sorted((*cuts, *missing))
        self._places.clear()

    def _key(self, region_bands: tuple[Bands, ...], chosen: Array | None) -> Any:
        """A key into the cells: integers for a single one, slices for a box, else an integer array for each axis."""
        spans = [
            [(bisect_left(cuts, low), bisect_left(cuts, high)) for low, high in bands]
            for cuts, bands in zip(self._cuts, region_bands, strict=True)
        ]
        if chosen is None and all(len(bands) == 1 for bands in spans):
            if all(high - low == 1 for ((low, high),) in spans):
                return tuple(low for ((low, _),) in spans)
            return tuple(slice(low, high) for ((low, high),) in spans)
        cells = [np.concatenate([np.arange(low, high) for low, high in bands]) for bands in spans]
        if chosen is None:
            return np.ix_(*cells)
        numbers = [np.repeat(np.arange(len(bands)), [high - low for low, high in bands]) for bands in spans]
        places = np.nonzero(chosen[np.ix_(*numbers)])
        return tuple(along[place] for along, place in zip(cells, places, strict=True))


def region(
    shadow: Shadow, transforms: Sequence[Transform], indices: Sequence[Array], mask: Array | None = None
) -> Region:
    """The elements of the shadow's buffer that a stack of transforms selects (see `Regions.resolve`).

    Stacks are known again by identity and the values of scalar indices, so pass the equation's own object.
    """
    return shadow.regions.resolve(transforms, indices, mask)


def _array(states: Sequence[State], shape: Shape) -> Array:
    """Cells with these states, in row-major order."""
    cells = np.empty(len(states), object)
    cells[:] = states
    return cells.reshape(shape)


def _first(conflicts: Iterable[Access | None]) -> Access | None:
    return next((conflict for conflict in conflicts if conflict is not None), None)
