"""Asynchronous copies: their effects at issue and at completion, and the waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.ir.core import Eqn
from palladio.machine.check.order.async_ops import MEET
from palladio.machine.rules.barrier import arrive
from palladio.machine.rules.semaphore import signal, wait_for
from palladio.machine.run.buffers import Barrier, BarrierSlot, Buffer, Semaphores, Stack
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.threads import AsyncOp, Point, Thread
from palladio.ops.references.memory import updated
from palladio.types.transforms import Index, SliceEntry, transformed
from palladio.types.types import ArrayType

Part = tuple[Buffer, Stack]


def _array_type(eqn: Eqn, position: int) -> ArrayType:
    """The type of the selection of an input's stack."""
    (*_,) = eqn.inputs
    operands = [atom.type for atom in eqn.indices]
    return transformed(eqn.inputs[position].type.array, eqn.transforms[position], operands)  # type: ignore[union-attr, arg-type]


def bytes_of(eqn: Eqn) -> int:
    """The bytes that a copy moves."""
    part = _array_type(eqn, 0)
    return part.size * part.dtype.itemsize


@RULES.in_steps("copy_gmem_to_smem")
def copy_gmem_to_smem(eqn: Eqn) -> Callable[..., Coroutine]:
    """Start a copy that arrives at a barrier."""
    stacks, axes = eqn.transforms, eqn.collective
    outside = 0 if eqn.fill == "zeros" else None
    shape = _array_type(eqn, 0).shape
    kept: dict[tuple[int, int], tuple[Stack, Stack]] = {}

    def shared(parts: int, number: int) -> tuple[Stack, Stack]:
        """The stacks of a block's share, cached since the checker identifies a stack by identity."""
        found = kept.get((parts, number))
        if found is None:
            share = _share(shape, parts, number)
            found = kept[parts, number] = (*stacks[0], *share), (*stacks[1], *share)
        return found

    def steps(
        thread: Thread, source: Buffer, target: Buffer, barrier: Barrier, predicate: Any, *indices: Any
    ) -> Coroutine:
        source, whole = source.reached(stacks[0], indices)
        places = thread.block.along(axes) if axes else [thread.block.place]
        taken = whole
        if axes:
            taken, placed = shared(len(places), places.index(thread.block.place))
            targets = [(each, placed) for each in _siblings(thread, eqn, target, places)]
            slots = [barrier.siblings[place].slot(stacks[2], indices) for place in places]
        else:
            targets = [target.reached(stacks[1], indices)]
            slots = [barrier.slot(stacks[2], indices)]
        if thread.points:
            yield Point("copy", slots[0])
        thread.eqn = eqn

        def carry_out() -> None:
            value = source.read(taken, indices, outside) if predicate else None
            for (store, stack), slot in zip(targets, slots, strict=True):
                if value is not None:
                    store.write(stack, indices, value)
                _land(async_op, slot, len(places))

        touches = [Point("arrive", slot, len(places)) for slot in slots]
        parts = [(store, stack, indices) for store, stack in targets[:1]]
        async_op = AsyncOp("copy", thread, eqn, carry_out, slots[0], touches=touches, parts=parts)
        if thread.checker is not None and axes and predicate:
            both = (source, whole), (target, stacks[1])
            thread.checker.async_ops.shared_copy(
                thread, eqn, places, both, slots[places.index(thread.block.place)], indices
            )
        if thread.checker is not None:
            read, written = ((source, taken), targets) if predicate else (None, [])
            thread.checker.async_ops.copy_issued(thread, async_op, read, written, slots, indices)
        thread.machine.issue(async_op)
        return ()

    return steps


def _siblings(thread: Thread, eqn: Eqn, target: Buffer, places: Sequence[Any]) -> list[Buffer]:
    """The buffers of these blocks of the cluster, all of which must have entered the scope."""
    if any(place not in target.siblings for place in places):
        if thread.checker is not None:
            thread.checker.async_ops.absent(thread, eqn, target)
        raise PalladioValueError(
            "a copy for several blocks of a cluster starts before they have all come to the scope of its buffer",
            argument=target.name,
            hint=MEET,
        )
    return [target.siblings[place] for place in places]


def _share(shape: Sequence[int], parts: int, number: int) -> tuple[Index, ...]:
    """The part of a collective copy that one block loads: a range of the first axis that the parts divide."""
    axis = next((n for n, extent in enumerate(shape) if extent % parts == 0), 0)
    bounds = [extent * step // parts for extent in (shape[axis],) for step in (number, number + 1)]
    whole = [SliceEntry(0, extent) for extent in shape]
    whole[axis] = SliceEntry(bounds[0], bounds[1] - bounds[0])
    return (Index(tuple(whole)),)


def _land(async_op: AsyncOp, slot: BarrierSlot, parts: int) -> None:
    """The bytes, or a block's part of them, have landed; one arrival when all parts have."""
    machine, eqn = async_op.thread.machine, async_op.eqn
    if machine.checker is not None:
        machine.checker.async_ops.lands(async_op, slot)
    slot.parts[eqn] = slot.parts.get(eqn, 0) + 1
    if slot.parts[eqn] == parts:
        del slot.parts[eqn]
        arrive(machine, slot, (async_op, eqn))


@RULES.at_once("copy_smem_to_gmem")
def copy_smem_to_gmem(eqn: Eqn) -> Callable[..., Any]:
    """Start a copy that belongs to the thread's open group."""
    stacks, reduction = eqn.transforms, eqn.reduction

    def run(thread: Thread, source: Buffer, target: Buffer, predicate: Any, *indices: Any) -> Any:
        if not predicate:
            return ()
        source, taken = source.reached(stacks[0], indices)
        target, placed = target.reached(stacks[1], indices)

        def carry_out() -> None:
            value = np.array(source.read(taken, indices))
            updated(target.array, value, placed, indices, reduction or "set")

        async_op = AsyncOp("store", thread, eqn, carry_out, parts=[(source, taken, indices)])
        thread.eqn = eqn
        thread.open.append(async_op)
        if thread.checker is not None:
            thread.checker.async_ops.store_issued(thread, async_op, (source, taken), (target, placed), indices)
        thread.machine.issue(async_op)
        return ()

    return run


@RULES.at_once("commit_smem_to_gmem_group")
def commit_smem_to_gmem_group(eqn: Eqn) -> Callable[..., Any]:
    """Close the open group."""

    def run(thread: Thread) -> Any:
        thread.stores.append(thread.open)
        thread.open = []
        thread.groups += 1
        return ()

    return run


@RULES.at_once("wait_smem_to_gmem")
def wait_smem_to_gmem(eqn: Eqn) -> Callable[..., Any]:
    """Complete all groups but the last n."""
    n, read_only = eqn.n, eqn.read_only

    def run(thread: Thread) -> Any:
        thread.eqn = eqn
        for each in thread.storing:
            while len(each.stores) > n:
                for async_op in each.stores.popleft():
                    async_op.complete()
        if thread.checker is not None:
            thread.checker.async_ops.stores_awaited(thread, eqn, n, read_only)
        return ()

    return run


@RULES.at_once("commit_smem")
def commit_smem(eqn: Eqn) -> Callable[..., Any]:
    """Order the thread's stores before its asynchronous operations."""

    def run(thread: Thread) -> Any:
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.threads.fences(thread)
        return ()

    return run


@RULES.at_once("commit_gmem")
def commit_gmem(eqn: Eqn) -> Callable[..., Any]:
    """Order stores to global memory that the thread has acquired before copies that read them."""

    def run(thread: Thread) -> Any:
        thread.eqn = eqn
        if thread.checker is not None:
            thread.checker.accesses.fences.commits(thread)
        return ()

    return run


@RULES.at_once("async_prefetch")
def async_prefetch(eqn: Eqn) -> Callable[..., Any]:
    """A no-op: a prefetch changes no value."""
    return lambda thread, *values: ()


@RULES.in_steps("async_store_smem")
def async_store_smem(eqn: Eqn) -> Callable[..., Coroutine]:
    """Start a store into shared memory of the cluster that arrives at a barrier there."""
    stacks, reduction = eqn.transforms, eqn.reduction

    def steps(thread: Thread, target: Buffer, barrier: Barrier, value: Any, *indices: Any) -> Coroutine:
        target, placed = target.reached(stacks[0], indices)
        slot = barrier.slot(stacks[1], indices)
        if thread.points:
            yield Point("copy", slot)
        thread.eqn = eqn

        def carry_out() -> None:
            updated(target.array, np.asarray(value), placed, indices, reduction or "set")
            _land(async_op, slot, 1)

        async_op = AsyncOp("copy", thread, eqn, carry_out, slot, touches=[Point("arrive", slot)])
        if thread.checker is not None:
            thread.checker.async_ops.copy_issued(thread, async_op, None, [(target, placed)], [slot], indices)
        thread.machine.issue(async_op)
        return ()

    return steps


@RULES.in_steps("dma_start", "dma_start_remote")
def dma_start(eqn: Eqn) -> Callable[..., Coroutine]:
    """Start a copy between memories that increments semaphores by its bytes."""
    stacks, reduction = eqn.transforms, eqn.params.get("reduction")
    amount = bytes_of(eqn)

    def steps(thread: Thread, source: Buffer, target: Buffer, *rest: Any) -> Coroutine:
        semaphores: Sequence[Semaphores] = rest[: len(stacks) - 2]
        indices = rest[len(semaphores) :]
        source, taken = source.reached(stacks[0], indices)
        target, placed = target.reached(stacks[1], indices)
        counters = [each.counter(stack, indices) for each, stack in zip(semaphores, stacks[2:], strict=True)]
        if thread.points:
            yield Point("copy", counters[0])
        thread.eqn = eqn

        def carry_out() -> None:
            value = np.array(source.read(taken, indices))
            if reduction is None:
                target.write(placed, indices, value)
            else:
                updated(target.array, value, placed, indices, reduction)
            for counter in counters:
                counter.copies.pop(async_op, None)
                signal(thread.machine, counter, amount, (async_op, eqn))

        touches = [Point("signal", counter, amount) for counter in counters]
        async_op = AsyncOp("dma", thread, eqn, carry_out, counters[0], touches=touches)
        for counter in counters:
            counter.copies[async_op] = amount
        if thread.checker is not None:
            thread.checker.async_ops.dma_issued(
                thread, async_op, (source, taken), (target, placed), counters, amount, indices
            )
        thread.machine.issue(async_op)
        return ()

    return steps


@RULES.in_steps("dma_wait")
def dma_wait(eqn: Eqn) -> Callable[..., Coroutine]:
    """Wait for the bytes of a copy."""
    stack, amount = eqn.transforms, eqn.amount

    def steps(thread: Thread, semaphore: Semaphores, *indices: Any) -> Coroutine:
        return (yield from wait_for(thread, eqn, semaphore.counter(stack, indices), amount, True))

    return steps
