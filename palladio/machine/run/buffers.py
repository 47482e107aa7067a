"""Run-time objects of references: data buffers, barriers, semaphores, accumulators."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioIndexError
from palladio.lower.place import arrivals_of
from palladio.machine.check.order.atomics import AtomicClocks
from palladio.machine.run.products import Products, Sum
from palladio.ops.references import access
from palladio.types.attributes import Arrivals, Named
from palladio.types.transforms import Index, Operand, Peer, Transform
from palladio.types.types import ACC, BARRIER, DMA_SEMAPHORE, SEMAPHORE, RefType

Stack = Sequence[Transform]

_KEYS = "_keys"

_MOST_KEYS = 4096
"""NumPy indices kept of one index of a kernel, and members kept of one array of barriers."""


class Token:
    """The identity and the name of a barrier, semaphore or buffer, for records that may outlive it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Store:
    """The object of a reference in one block of a cluster; `siblings` are those of the other blocks, by place."""

    def __init__(self, type: RefType, name: str, home: Any) -> None:
        self.type = type
        self.name = name
        self.home = home
        self.siblings: dict[Any, Any] = {}

    def reached(self, stack: Stack, indices: Sequence[Any]) -> tuple[Any, Stack]:
        """The store that a stack of transforms selects, this one or a peer's, and the transforms within it."""
        if not stack or not isinstance(stack[0], Peer):
            return self, stack
        blocks = {axis: int(indices[b.position]) if isinstance(b, Operand) else b for axis, b in stack[0].blocks}
        return self.peer(blocks), stack[1:]

    def peer(self, blocks: Mapping[str, int]) -> Any:
        """This store in the block of the cluster that differs along the named axes."""
        place = self.home.peer(blocks)
        if not self.siblings:
            raise PalladioIndexError(
                f"no other block or core has this {self.name}: it is private to a thread",
                got=str(place),
                hint="run_scoped(..., collective_axes=...) allocates what others reach, and so do scratch_types",
            )
        if place not in self.siblings:
            raise PalladioIndexError(
                f"no block or core has this {self.name}: the index is outside its axis",
                expected=f"at most {max(self.siblings)}",
                got=str(place),
            )
        return self.siblings[place]

    def dissolve(self) -> None:
        """Its cluster has ended: drop the references that form cycles."""
        self.siblings = {}


class Buffer(Store):
    """Memory that holds data: an array, and the checker's records of its accesses.

    Fields:
        visible: whether it is visible outside the launch.
        owner: the thread that owns it; None if it is shared.
        address: its first byte in the memory of its block.
        elements: the elements that atomics have accessed.
        source: the array from which its initial values were copied; None if they were not.
        leftovers: accesses of earlier owners of the memory that may still be in flight.
    """

    def __init__(self, type: RefType, name: str, home: Any, array: np.ndarray[Any, Any]) -> None:
        super().__init__(type, name, home)
        self.array = array
        self.shadow: Any = None
        self.atomics: AtomicClocks | None = None
        self.visible = home is None
        self.owner: Any = None
        self.address = 0
        self.leftovers: list[Any] = []
        self.source: np.ndarray[Any, Any] | None = None
        self.token = Token(name)
        self.elements: dict[int, Element] = {}

    def read(self, stack: Stack, indices: Sequence[Any], outside: Any = None) -> Any:
        """The elements that a stack of transforms selects, as `access.read`."""
        key = _key_of(stack, self.array.shape, indices)
        return access.read(self.array, stack, indices, outside) if key is None else self.array[key]

    def write(self, stack: Stack, indices: Sequence[Any], value: Any) -> None:
        """Replace the selection of a stack of transforms, as `access.write`."""
        key = _key_of(stack, self.array.shape, indices)
        if key is None:
            access.write(self.array, stack, indices, value)
        else:
            self.array[key] = value

    def element(self, number: int) -> Element:
        """One of its elements, in row-major order."""
        found = self.elements.get(number)
        if found is None:
            found = self.elements[number] = Element(self, number)
        return found


def _key_of(stack: Stack, shape: tuple[int, ...], indices: Sequence[Any]) -> Any:
    """The NumPy index of a stack of one index, kept with it for the same integers; None if another read is needed."""
    if len(stack) != 1 or type(stack[0]) is not Index:
        return None
    index = stack[0]
    try:
        place = (shape, *map(operator.index, indices))
    except TypeError:  # an array of indices
        return None
    kept = index.__dict__.get(_KEYS)
    if kept is None or len(kept) >= _MOST_KEYS:
        kept = index.__dict__[_KEYS] = {}
    if place not in kept:
        kept[place] = access.view_key(index, shape, indices)
    return kept[place]


class Element:
    """One element of a buffer that atomics access."""

    __slots__ = ("buffer", "number")

    def __init__(self, buffer: Buffer, number: int) -> None:
        self.buffer = buffer
        self.number = number

    @property
    def value(self) -> bytes:
        """Its value."""
        return bytes(self.buffer.array.flat[self.number].tobytes())


class Accumulator(Store):
    """An accumulator of the tensor cores, owned by the thread `owner`. `group` is the number of its last wgmma, or 0.

    `uninitialised` is the mask of elements that depend on uninitialised memory, and `origin` the read of it.
    """

    def __init__(self, type: RefType, name: str, home: Any) -> None:
        super().__init__(type, name, home)
        self._array = np.zeros(type.shape, type.dtype)
        self._sum: Sum | None = None
        self.group = 0
        self.issued: Any = None
        self.owner: Any = None
        self.uninitialised: Any = None
        self.origin: Any = None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its value, with all products so far."""
        if self._sum is not None:
            self._sum.carry_out()
            self._sum = None
        return self._array

    def add(self, lhs: Any, rhs: Any, known: Products) -> None:
        """Add a product, which may be cached from an earlier run."""
        if self._sum is None:
            self._sum = Sum(self._array, known)
        self._sum.add(lhs, rhs)


class BarrierSlot:
    """One barrier: arrivals of the current phase, and completed phases.

    Fields:
        barrier: the name of the array of barriers that it belongs to.
        needed: arrivals that complete a phase.
        arrived: arrivals of the current phase.
        completed: phases completed so far.
        seen: the last completion that any thread has waited for.
        foreign: the last completion that counted an arrival of a copy or of another block.
        waiting: threads blocked here.
        parts: the number of landed parts of each collective copy, by its equation.
        named: whether it is a named barrier of the hardware, whose past completions cannot be waited for.
    """

    def __init__(self, name: str, needed: int, home: Any, named: bool = False) -> None:
        self.name = name
        self.token = Token(name)
        self.barrier = name.partition("[")[0]
        self.home = home
        self.needed = needed
        self.named = named
        self.arrived = 0
        self.completed = 0
        self.seen = 0
        self.foreign = 0
        self.waiting: list[Any] = []
        self.arrivals: list[Any] = []
        self.last: Any = None
        self.parts: dict[Any, int] = {}
        self.checks: Any = None

    @property
    def number(self) -> int:
        """Its index along the first axis of the array of barriers; 0 for a single one."""
        digits = self.name.partition("[")[2].partition("]")[0].partition(",")[0]
        return int(digits) if digits.isdigit() else 0


class Barrier(Store):
    """An array of barriers. An arrival counts in all blocks along `cluster_axes`."""

    def __init__(self, type: RefType, name: str, home: Any, needed: int) -> None:
        super().__init__(type, name, home)
        arrivals = type.attribute(Arrivals)
        self.cluster_axes = arrivals.groups if arrivals is not None else ()
        named = type.attribute(Named) is not None
        self.slots = [BarrierSlot(label, needed, home, named) for label in labels(name, type.shape)]
        self._found: dict[tuple[int, ...], tuple[Stack, BarrierSlot]] = {}

    def slot(self, stack: Stack, indices: Sequence[Any]) -> BarrierSlot:
        """The one barrier that a stack of transforms selects."""
        try:
            key = (id(stack), *map(operator.index, indices))
        except TypeError:  # an array of indices
            return self._slot(stack, indices)
        kept = self._found.get(key)
        if kept is None:
            if len(self._found) >= _MOST_KEYS:
                self._found.clear()
            kept = self._found[key] = stack, self._slot(stack, indices)
        return kept[1]

    def _slot(self, stack: Stack, indices: Sequence[Any]) -> BarrierSlot:
        store, rest = self.reached(stack, indices)
        return store.slots[picked(store.type.shape, rest, indices)]  # type: ignore[no-any-return]

    def dissolve(self) -> None:
        """Its cluster has ended: drop the references that form cycles."""
        super().dissolve()
        self._found.clear()
        for slot in self.slots:
            slot.last, slot.arrivals = None, []


class Counter:
    """One semaphore: its count, and the threads that wait for more.

    Fields:
        signals: the last signal, for reports.
        copies: copies in flight that will signal it, with the amount.
        kept: how much of the count a wait has waited for and left there, for the check at the end.
        order, component: the checker's `Signals`, and the clock component of copies.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = Token(name)
        self.count = 0
        self.waiting: list[Any] = []
        self.signals: list[Any] = []
        self.copies: dict[Any, int] = {}
        self.kept = 0
        self.order: Any = None
        self.component: Any = None


class Semaphores(Store):
    """An array of semaphores."""

    def __init__(self, type: RefType, name: str, home: Any) -> None:
        super().__init__(type, name, home)
        self.counters = [Counter(label) for label in labels(name, type.shape)]

    def counter(self, stack: Stack, indices: Sequence[Any]) -> Counter:
        """The one semaphore that a stack of transforms selects."""
        store, rest = self.reached(stack, indices)
        return store.counters[picked(store.type.shape, rest, indices)]  # type: ignore[no-any-return]


# Barriers and semaphores are kept in lists: the garbage collector does not traverse NumPy arrays of objects, so a run,
# which is one large cycle, would never be freed.


def labels(name: str, shape: Sequence[int]) -> list[str]:
    """The names of the members of an array, in row-major order."""
    return [f"{name}[{', '.join(map(str, place))}]" if place else name for place in np.ndindex(*shape)]


def picked(shape: Sequence[int], stack: Stack, indices: Sequence[Any]) -> int:
    """The number, in row-major order, of the one member of an array that a stack of transforms selects."""
    if not stack and not shape:
        return 0
    if len(stack) == 1 == len(shape) and type(stack[0]) is Index:
        (entry,) = stack[0].entries  # almost every stack is one index
        first = indices[entry.position] if type(entry) is Operand else entry
        if isinstance(first, (int, np.integer)) and 0 <= first < shape[0]:
            return int(first)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    number = int(access.read(numbers, stack, indices, -1))
    if number < 0:
        raise PalladioIndexError(
            "the index is outside the array of barriers or semaphores", expected=f"an index within {shape}"
        )
    return number


def allocate(type: RefType, name: str, home: Any) -> Any:
    """A fresh store for a reference of this type.

    Args:
        home: the block, thread or launch that it belongs to.
    """
    if type.space is ACC:
        return Accumulator(type, name, home)
    if type.space is BARRIER:
        return Barrier(type, name, home, arrivals_of(type, home.extents))
    if type.space in (SEMAPHORE, DMA_SEMAPHORE):
        return Semaphores(type, name, home)
    return Buffer(type, name, home, np.full(type.shape, type.initial, type.dtype))
