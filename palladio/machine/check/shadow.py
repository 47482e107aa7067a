"""Shadow memory: the last write of each element of a buffer, and the reads since.

Elements that were always accessed together share one entry. Along each axis the shadow keeps a list of cuts; the cells
of the grid of cuts each hold one immutable `State`. An access inserts the cuts that its region still lacks. So memory
is bounded by the buffer and the number of components, never by how long a launch runs; and a launch that goes through
the same regions repeatedly, as loops do, finds their cells cached.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.machine.check.regions import Bands, Region, Regions, region_of_elements
from palladio.machine.run.clocks import Component
from palladio.types.transforms import Transform

Array = Any
Shape = tuple[int, ...]

EARLIER = -2
"""The cluster number of earlier launches, whose ends are components."""

_MOST_KEPT = 65_536  # places of regions that a grid keeps


@dataclass(slots=True, eq=False)
class Access:
    """One access. Records are shared and never changed; not frozen, since one is made for every access."""

    component: Component
    epoch: int
    site: Any
    """The equation, for its line in reports."""
    thread: str
    """The title of its thread, for reports."""
    write: bool = False
    atomic: bool = False
    asynchronous: bool = False
    block: Any = None
    """The block of its thread."""
    issue: Any = None
    """The `Issue` of an asynchronous operation."""
    trail: Any = None
    """The iterations of the loops around it, for reports."""
    region: Region | None = None
    """The elements that it reaches, for reports."""


Ordered = Callable[[Access, bool], bool]
"""`ordered(previous, current_is_write)`: true if an earlier access has happened before the current one."""

Repeated = Callable[[Access], bool]
"""`repeated(previous)`: true if the current write, not ordered after an earlier one, writes the same values."""


class State:
    """The accesses of the elements of a cell. Never changed; compared by identity."""

    __slots__ = ("beside", "initialised", "reads", "write")

    def __init__(
        self, write: Access | None, reads: tuple[Access, ...], initialised: bool, beside: tuple[Access, ...] = ()
    ) -> None:
        self.write = write
        """The last write since the allocation."""
        self.reads = reads
        """The reads since then: the latest of each component and kind (asynchronous, atomic), oldest first."""
        self.initialised = initialised
        self.beside = beside
        """Accesses that are not ordered before the last write: of an atomic one, atomic accesses, the latest of each
        component; of one that repeats others, these."""

    def after_read(self, access: Access) -> State:
        """The state with one more read, which replaces an older one of its component and kind."""
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

    def after_write(self, access: Access, ordered: Ordered, repeated: Repeated | None = None) -> State:
        """The state with a write that replaces all earlier accesses; an atomic one keeps unordered atomic ones.

        Args:
            repeated: of a write that is not atomic; it keeps what it repeats.
        """
        if repeated is not None and self.write is not None:
            return State(access, (), True, tuple(each for each in (*self.beside, self.write) if repeated(each)))
        if not access.atomic or self.write is None:
            return State(access, (), True)
        before = (*self.beside, self.write, *self.reads)
        beside = [
            each for each in before if each.atomic and each.component != access.component and not ordered(each, True)
        ]
        return State(access, (), True, tuple(beside))

    def without_value(self) -> State:
        """The state of elements that become uninitialised."""
        return State(self.write, self.reads, False, self.beside)

    def against_read(self, access: Access, ordered: Ordered) -> Access | None:
        """The earlier access that races with a read."""
        write = self.write
        if write is None or (write.atomic and access.atomic):
            return None
        if not ordered(write, False):
            return write
        beside = (each for each in self.beside if each.write and each.atomic)  # others wrote what the last one did
        return next((each for each in beside if not ordered(each, False)), None)

    def against_write(self, access: Access, ordered: Ordered) -> Access | None:
        """The earlier access that races with a write: first the last write, then the reads, oldest first."""
        write, atomic = self.write, access.atomic
        if write is not None and not (write.atomic and atomic) and not ordered(write, True):
            return write
        for each in (*self.beside, *self.reads):
            if not (each.atomic and atomic) and not ordered(each, True):
                return each
        return None


class Grid:
    """The partition of a buffer into cells; every region accessed so far consists of whole cells.

    Fields:
        cuts: the cuts of each axis, ascending. An axis is cut at its ends; one of extent 0 still has one cell, which no
            region reaches. Replaced, never mutated.
        places: the key into the cells for each region; None for an empty one.
    """

    def __init__(self, shape: Shape) -> None:
        self.cuts: tuple[list[int], ...] = tuple([0, extent] for extent in shape)
        self.places: dict[Region, Any] = {}

    def place(self, region: Region) -> Any:
        """The key of a region that is not cached yet."""
        key = None
        if region.bands is not None:
            self._cut(region.bands)
            key = self._key(region.bands, region.chosen)
        if len(self.places) >= _MOST_KEPT:
            self.places.clear()
        self.places[region] = key
        return key

    def _cut(self, region: tuple[Bands, ...]) -> None:
        """Cut each axis at the ends of its bands."""
        missing = [
            [end for end in dict.fromkeys(itertools.chain(*bands)) if cuts[bisect_left(cuts, end)] != end]
            for cuts, bands in zip(self.cuts, region, strict=True)
        ]
        if any(missing):
            self.cuts = tuple(
                sorted((*cuts, *more)) if more else cuts for cuts, more in zip(self.cuts, missing, strict=True)
            )
            self.places.clear()

    def _key(self, region_bands: tuple[Bands, ...], chosen: Array | None) -> Any:
        """A key into the cells: integers for a single one, slices for a box, else an integer array for each axis."""
        spans = [
            [(bisect_left(cuts, low), bisect_left(cuts, high)) for low, high in bands]
            for cuts, bands in zip(self.cuts, region_bands, strict=True)
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


class Shadow:
    """The shadow of one buffer.

    Two accesses, at least one of them a write, conflict if they are not ordered, unless both are atomic. A write
    replaces all earlier accesses: an access ordered after it is ordered after them too. Only an atomic write keeps
    earlier accesses: the atomic ones that are not ordered before it; and one that repeats others keeps those.

    Args:
        shape: the shape of the buffer.
        initialised: whether its elements have values before the first write.
        itemsize: bytes of an element; needed for accesses to a part of a bitcast.
        regions: those of another shadow of the same shape and item size, to share their cache.
        grid: that of another shadow of the same shape with the same regions, e.g. from the last run of a kernel.
    """

    __slots__ = ("_cells", "_cuts", "_grid", "_may_lack_values", "regions")

    def __init__(
        self,
        shape: Shape,
        initialised: bool,
        itemsize: int | None = None,
        regions: Regions | None = None,
        grid: Grid | None = None,
    ) -> None:
        self.regions = Regions(shape, itemsize) if regions is None else regions
        self._grid = Grid(shape) if grid is None else grid
        self._cuts = self._grid.cuts
        cells = tuple(len(cuts) - 1 for cuts in self._cuts)
        self._cells: Array = np.full(cells, State(None, (), initialised), object)
        self._may_lack_values = not initialised

    @property
    def cells(self) -> int:
        """The current number of cells."""
        return int(self._cells.size)

    def read(self, region: Region, access: Access, ordered: Ordered) -> Access | None:
        """Record a read. The first earlier access that conflicts with it, in row-major order of elements."""
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
        ordered = _remembered(ordered)
        return _first(state.against_read(access, ordered) for state in after)

    def write(
        self, region: Region, access: Access, ordered: Ordered, repeated: Repeated | None = None
    ) -> Access | None:
        """Record a write. The first earlier access that conflicts with it, in row-major order of elements.

        Args:
            repeated: of a write that is not atomic. What it repeats does not conflict with it, and stays beside it.
        """
        key = self._place(region)
        if key is None:
            return None
        cells = self._cells
        found = cells[key]
        if type(found) is State:
            cells[key] = found.after_write(access, ordered, repeated)
            return found.against_write(access, _excused(ordered, repeated))
        flat = found.ravel().tolist()  # before the cells change: `found` is a view if the region is a box
        states = dict.fromkeys(flat)
        if len(states) > 1:
            ordered = _remembered(ordered)
        if access.atomic or repeated is not None:
            after = {state: state.after_write(access, ordered, repeated) for state in states}
            cells[key] = _array([after[state] for state in flat], found.shape)
        else:
            cells[key] = State(access, (), True)
        ordered = _excused(ordered, repeated)
        return _first(state.against_write(access, ordered) for state in states)

    def uninitialised(self, region: Region) -> bool:
        """True if an element of the region is uninitialised."""
        if not self._may_lack_values:
            return False
        key = self._place(region)
        if key is None:
            return False
        found = self._cells[key]
        if type(found) is State:
            return not found.initialised
        return not all(state.initialised for state in found.flat)

    def initialised(self) -> Array:
        """The initialised elements, as bool[shape]."""
        return self._spread(state.initialised for state in self._cells.flat)

    def unset(self, mask: Array) -> None:
        """Mark these elements, bool[shape], as uninitialised: an uninitialised value has been written to them."""
        region = region_of_elements(np.flatnonzero(mask), mask.shape)
        key = self._place(region)
        found = self._cells[key]
        self._may_lack_values = True
        if type(found) is State:
            self._cells[key] = found.without_value()
        else:
            after = {state: state.without_value() for state in dict.fromkeys(found.ravel().tolist())}
            self._cells[key] = _array([after[state] for state in found.ravel().tolist()], found.shape)

    def touched(self, region: Region) -> bool:
        """True if an element of the region has been accessed before."""
        key = self._place(region)
        if key is None:
            return False
        found = self._cells[key]
        states = (found,) if type(found) is State else found.flat
        return any(state.write is not None or state.reads for state in states)

    def layout(self) -> tuple[tuple[list[int], ...], list[State]]:
        """The cuts of each axis, and the states of the cells between them in row-major order."""
        return self._cuts, self._cells.ravel().tolist()

    def states(self) -> Iterator[tuple[State, Array]]:
        """The accesses so far, each with the elements that it reached, as bool[elements]."""
        flat = self._cells.ravel().tolist()
        for state in dict.fromkeys(flat):
            yield state, self._spread(each is state for each in flat).ravel()

    def writes(self) -> Iterator[tuple[Access, Array]]:
        """For each equation that has written, one of its writes, and the elements that it wrote last, bool[shape]."""
        flat = [state.write for state in self._cells.ravel().tolist()]
        for site, access in {each.site: each for each in reversed(flat) if each is not None}.items():
            yield access, self._spread(each is not None and each.site is site for each in flat)

    def reads(self, chosen: Callable[[Access], bool]) -> Iterator[tuple[Access, Array]]:
        """For each equation, one of its chosen reads, and the elements that those reached, bool[shape].

        Excludes reads before the last write of an element.
        """
        flat = [[each for each in state.reads if chosen(each)] for state in self._cells.ravel().tolist()]
        for site, access in {each.site: each for reads in reversed(flat) for each in reversed(reads)}.items():
            yield access, self._spread(any(each.site is site for each in reads) for reads in flat)

    def _spread(self, cells: Iterable[bool]) -> Array:
        found = np.fromiter(cells, bool, self._cells.size).reshape(self._cells.shape)
        for axis, cuts in enumerate(self._cuts):
            found = np.repeat(found, np.diff(cuts), axis=axis)
        return found

    def _place(self, region: Region) -> Any:
        """The region's key into the cells, which are cut as it requires."""
        grid = self._grid
        try:
            key = grid.places[region]
        except KeyError:
            key = grid.place(region)
        if self._cuts is not grid.cuts:
            self._refine()
        return key

    def _refine(self) -> None:
        """Split the cells at new cuts into cells with the same state."""
        for axis, (old, new) in enumerate(zip(self._cuts, self._grid.cuts, strict=True)):
            if len(old) < len(new):
                counts = np.diff([bisect_left(new, cut) for cut in old])
                self._cells = np.repeat(self._cells, counts, axis=axis)
        self._cuts = self._grid.cuts


def region(
    shadow: Shadow, transforms: Sequence[Transform], indices: Sequence[Array], mask: Array | None = None
) -> Region:
    """The elements of the shadow's buffer that a stack of transforms selects (see `Regions.resolve`).

    The cache is keyed by the identity of the stack and the values of scalar indices: pass the equation's own object.
    """
    return shadow.regions.resolve(transforms, indices, mask)


def _array(states: Sequence[State], shape: Shape) -> Array:
    """Cells with these states, in row-major order."""
    cells = np.empty(len(states), object)
    cells[:] = states
    return cells.reshape(shape)


def _excused(ordered: Ordered, repeated: Repeated | None) -> Ordered:
    """The same function, true also of accesses that the current one repeats."""
    if repeated is None:
        return ordered
    return lambda before, current_is_write: ordered(before, current_is_write) or repeated(before)


def _remembered(ordered: Ordered) -> Ordered:
    """The same function, called only once for each access. Creating a `functools.cache` takes ten times as long."""
    known: dict[tuple[int, bool], bool] = {}

    def remembered(before: Access, current_is_write: bool) -> bool:
        key = id(before), current_is_write
        found = known.get(key)
        if found is None:
            found = known[key] = ordered(before, current_is_write)
        return found

    return remembered


def _first(conflicts: Iterable[Access | None]) -> Access | None:
    return next((conflict for conflict in conflicts if conflict is not None), None)
