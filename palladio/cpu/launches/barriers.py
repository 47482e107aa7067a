"""Barriers and semaphores on the CPU: words in memory, changed by one worker.

A barrier is two words: the arrivals of the current phase, and the number of completed phases; an array of barriers has
all first words, then all second words. A semaphore is its count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.access.memory import Access
from palladio.cpu.access.views import as_index
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray, scalar_array
from palladio.cpu.emit.llvm_types import I1, I32, I64
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.launches.coroutines import WORD, SharedRef, ThreadFunction, moved
from palladio.lower.refused import Refused
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.attributes import Arrivals
from palladio.types.transforms import Operand, Peer


def thread_of(scope: Scope) -> ThreadFunction:
    """The thread function that a scope is emitted into."""
    if not isinstance(scope.function, ThreadFunction):
        raise Refused("a grid kernel that waits")
    return scope.function


def reached(
    scope: Scope, site: SharedRef, stack: Transforms, operands: Sequence[LazyArray]
) -> tuple[StridedArray, Transforms]:
    """The buffer that a stack of transforms reaches, this thread's or a peer's, and the transforms within it."""
    if not stack or not isinstance(stack[0], Peer):
        return site.buffer, stack
    e = scope.e
    if site.private:
        raise Refused("what a peer has allocated in a scope is not compiled for the CPU")
    distance: Int = 0
    for sibling, there in zip(site.siblings, blocks_of(scope, site, stack, operands), strict=True):
        if there is not sibling.here:
            inside = e.compare("icmp ult", e.index(there), i64(sibling.size))
            thread_of(scope).require(inside)
            distance = e.add(distance, e.mul(e.sub(there, sibling.here), sibling.stride))
    return moved(site.buffer, e, distance), stack[1:]


def blocks_of(scope: Scope, site: SharedRef, stack: Transforms, operands: Sequence[LazyArray]) -> list[Int]:
    """The index, along each axis of a buffer's siblings, of the buffer that a stack of transforms reaches.

    Axes along which peers share one buffer are ignored.
    """
    named = dict(stack[0].blocks) if stack and isinstance(stack[0], Peer) else {}
    found: list[Int] = []
    for sibling in site.siblings:
        block = named.get(sibling.name)
        if isinstance(block, Operand):
            found.append(as_index(scope, operands[block.position]))
        else:
            found.append(sibling.here if block is None else block)
    return found


def across(scope: Scope, site: SharedRef, groups: Sequence[Sequence[str]], stack: Transforms) -> list[Int]:
    """The byte distances from the buffer that a stack reaches to the buffers of the neighbours along axes.

    A neighbour is another block along the axes of one of the groups. Along axes on which the stack names a block, it is
    that block.
    """
    e = scope.e
    named = dict(stack[0].blocks) if stack and isinstance(stack[0], Peer) else {}
    found: list[Int] = []
    for group in groups:
        along = [sibling for sibling in site.siblings if sibling.name in group]
        for steps in itertools.product(*(range(sibling.size) for sibling in along)):
            distance: Int = 0
            for sibling, step in zip(along, steps, strict=True):
                if step and sibling.name not in named:
                    there = e.binary("urem", e.index(e.add(sibling.here, step)), i64(sibling.size))
                    distance = e.add(distance, e.mul(e.sub(there, sibling.here), sibling.stride))
            if any(steps):
                found.append(distance)
    return found


@dataclass(frozen=True)
class BarrierWords:
    """One barrier or semaphore: the addresses of its words."""

    first: V
    completed: V
    observed: V | None


def slot_of(scope: Scope, site: SharedRef, stack: Transforms, operands: Sequence[LazyArray]) -> BarrierWords:
    """The barrier or semaphore that a stack of transforms reaches. One outside of its array ends the launch."""
    e = scope.e
    buffer, rest = reached(scope, site, stack, operands)
    view = Access(scope, buffer, rest, operands).in_memory
    thread_of(scope).require(e.truth(view.guards))
    address = view.buffer.base
    completed = e.pointer(address, math.prod(buffer.shape), WORD)
    return BarrierWords(address, completed, _observed(scope, site, stack, operands, (address, buffer.base)))


def _observed(
    scope: Scope, site: SharedRef, stack: Transforms, operands: Sequence[LazyArray], bases: tuple[V, V]
) -> V | None:
    """The address of this thread's count of observed completions, by the addresses of the barrier and of its array."""
    e = scope.e
    reaches = stack and isinstance(stack[0], Peer)
    if site.observed is None or (reaches and not site.apart):
        return None  # no thread waits at a barrier of a peer
    observed = site.observed
    if site.apart:
        number: Int = 0
        for sibling, there in zip(site.siblings, blocks_of(scope, site, stack, operands), strict=True):
            number = e.add(e.mul(number, sibling.size), there)
        observed = e.pointer(observed, e.mul(number, site.slots), WORD)
    if bases[0] is not bases[1]:
        ends = [e.value(I64, f"ptrtoint {base} to i64") for base in bases]
        observed = e.pointer(observed, e.binary("sub", *ends), 1)
    return observed


def add_to(e: Emitter, address: V, amount: Int) -> V:
    """Add to a word; returns the sum."""
    total = e.binary("add", e.load(I64, address, WORD), e.index(amount))
    e.store(total, address, WORD)
    return total


def arrive(e: Emitter, slot: BarrierWords, units: int, needed: int) -> None:
    """Arrive at a barrier; the last arrival of a phase completes it."""
    if units == needed:
        add_to(e, slot.completed, 1)
        return
    arrived = add_to(e, slot.first, units)
    full = e.compare("icmp sge", arrived, i64(needed))
    rest = e.select(full, e.index(e.sub(arrived, needed)), arrived)
    e.store(rest, slot.first, WORD)
    add_to(e, slot.completed, e.convert("zext", full, I64))


def in_other_block(e: Emitter, slot: BarrierWords, distance: Int) -> BarrierWords:
    """The same barrier of another block."""
    return BarrierWords(e.pointer(slot.first, distance, 1), e.pointer(slot.completed, distance, 1), None)


def _barrier_arrive(
    scope: Scope, site: SharedRef, predicate: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    e = scope.e
    arrivals = site.type.attribute(Arrivals) if site.type is not None else None
    axes = arrivals.groups if arrivals is not None else ()
    with e.when(condition_of(predicate)):
        slot = slot_of(scope, site, transforms, indices)
        arrive(e, slot, site.units, site.needed)
        for distance in across(scope, site, axes, transforms):
            arrive(e, in_other_block(e, slot, distance), site.units, site.needed)
    return ()


def condition_of(predicate: LazyArray) -> V | None:
    """A predicate; None for one that always holds."""
    value = predicate.at((), 1)
    return None if value.constant else value


def _own_slot(
    scope: Scope, site: SharedRef, stack: Transforms, operands: Sequence[LazyArray]
) -> tuple[BarrierWords, V]:
    slot = slot_of(scope, site, stack, operands)
    return slot, slot.observed  # type: ignore[return-value]  # never None for a barrier at which a thread waits


def _unseen(e: Emitter, slot: BarrierWords, observed: V) -> V:
    """True if there is an unobserved completion. As on hardware, parities are compared."""
    both = [e.load(I64, address, WORD) for address in (slot.completed, observed)]
    return e.convert("trunc", e.binary("sub", *both), I1)


def _barrier_wait(scope: Scope, site: SharedRef, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    e = scope.e
    slot, observed = _own_slot(scope, site, transforms, indices)
    thread_of(scope).wait(lambda: _unseen(e, slot, observed))
    add_to(e, observed, 1)
    return ()


def _barrier_sync(scope: Scope, site: SharedRef, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    e = scope.e
    slot, observed = _own_slot(scope, site, transforms, indices)
    phase = e.load(I64, slot.completed, WORD)
    arrive(e, slot, site.units, site.needed)
    thread_of(scope).wait(lambda: e.compare("icmp ne", e.load(I64, slot.completed, WORD), phase))
    e.store(e.index(e.add(phase, 1)), observed, WORD)
    return ()


def _barrier_test(scope: Scope, site: SharedRef, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    """A poll yields, so that a thread that polls in a loop lets the others run."""
    e = scope.e
    slot, observed = _own_slot(scope, site, transforms, indices)
    thread_of(scope).turn(only_observes=True)
    come = _unseen(e, slot, observed)
    add_to(e, observed, e.convert("zext", come, I64))
    return (scalar_array(e, come, dtypes.BOOL),)


def _amount(scope: Scope, array: LazyArray) -> V:
    return as_index(scope, array)


def _signal(
    scope: Scope, site: SharedRef, amount: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    add_to(scope.e, slot_of(scope, site, transforms, indices).first, _amount(scope, amount))
    return ()


def wait_for(scope: Scope, slot: BarrierWords, amount: Int, decrement: bool) -> None:
    """Wait until a semaphore is at least `amount`, then subtract that if `decrement`."""
    e = scope.e
    wanted = e.index(amount)
    thread_of(scope).wait(lambda: e.compare("icmp sge", e.load(I64, slot.first, WORD), wanted))
    if decrement:
        add_to(e, slot.first, e.sub(0, wanted))


def _wait(
    scope: Scope, site: SharedRef, amount: LazyArray, *indices: LazyArray, transforms: Transforms, decrement: bool
) -> Sequence[LazyArray]:
    wait_for(scope, slot_of(scope, site, transforms, indices), _amount(scope, amount), decrement)
    return ()


def _read(scope: Scope, site: SharedRef, *indices: LazyArray, transforms: Transforms) -> Sequence[LazyArray]:
    e = scope.e
    slot = slot_of(scope, site, transforms, indices)
    thread_of(scope).turn(only_observes=True)
    return (scalar_array(e, e.convert("trunc", e.load(I64, slot.first, WORD), I32), dtypes.INT32),)


def _dma_wait(
    scope: Scope, site: SharedRef, *indices: LazyArray, transforms: Transforms, amount: int
) -> Sequence[LazyArray]:
    wait_for(scope, slot_of(scope, site, transforms, indices), amount, True)
    return ()


RULES: dict[str, Rule] = {
    "barrier_arrive": _barrier_arrive,
    "barrier_wait": _barrier_wait,
    "barrier_sync": _barrier_sync,
    "barrier_test": _barrier_test,
    "semaphore_signal": _signal,
    "semaphore_wait": _wait,
    "semaphore_read": _read,
    "dma_wait": _dma_wait,
}
