"""The tensor cores: products in flight, waits for them, and the accumulators that they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.run.buffers import Accumulator, Counter
from palladio.machine.run.coroutines import RULES, Coroutine
from palladio.machine.run.threads import AsyncOp, Thread, Wait
from palladio.ops.references import access
from palladio.ops.threads import wgmma as ops
from palladio.types.device import H100_SXM
from palladio.types.types import RefType


@RULES.at_once("wgmma")
def wgmma(eqn: Eqn) -> Callable[..., Any]:
    """Start a product; it reads its operands and changes its accumulator when it completes."""
    stacks = eqn.transforms
    left_in_memory = isinstance(eqn.a.type, RefType)

    def run(thread: Thread, acc: Accumulator, a: Any, b: Any, *indices: Any) -> Any:
        left, left_stack = a.reached(stacks[1], indices) if left_in_memory else (a, ())
        right, right_stack = b.reached(stacks[2], indices)

        def carry_out() -> None:
            machine = thread.machine
            thread.products.popleft()
            if machine.skip_floats and acc.type.dtype.kind == "f":
                access.read(acc.array, stacks[0], ())[...] = np.inf
                return
            lhs = left.read(left_stack, indices) if left_in_memory else left
            rhs = right.read(right_stack, indices)
            if machine.products is not None and not stacks[0]:
                acc.add(lhs, rhs, machine.products)
            else:
                part = access.read(acc.array, stacks[0], ())
                ops.multiplied(part, machine.widened.of(lhs), machine.widened.of(rhs), out=part)

        before = thread.products[-1] if thread.products else None
        parts = [(left, left_stack, indices)] if left_in_memory else []
        parts.append((right, right_stack, indices))
        async_op = AsyncOp("product", thread, eqn, carry_out, before=before, parts=parts)
        thread.products.append(async_op)
        thread.issued += 1
        thread.eqn = eqn
        if thread.checker is not None:
            operands = [(left, left_stack)] if left_in_memory else []
            read = thread.checker.async_ops.product_issued(
                thread, async_op, acc, [*operands, (right, right_stack)], indices
            )
            if read or thread.uninitialised:
                lhs = (left, left_stack, indices) if left_in_memory else left
                rhs = right, right_stack, indices
                thread.checker.accesses.unwritten.multiplied(thread, acc, stacks[0], lhs, rhs, read.get)
        acc.group, acc.issued = thread.issued, eqn
        thread.machine.issue(async_op)
        return ()

    return run


def wait_for_products(thread: Thread, eqn: Eqn, n: int) -> None:
    """Complete all products but the last n."""
    thread.eqn = eqn
    if len(thread.products) > n:
        thread.products[len(thread.products) - 1 - n].complete()
    if thread.checker is not None:
        thread.checker.async_ops.products_awaited(thread, eqn, thread.issued - n)


@RULES.at_once("wgmma_wait")
def wgmma_wait(eqn: Eqn) -> Callable[..., Any]:
    """Wait until at most n products are in flight."""
    n = eqn.n

    def run(thread: Thread) -> Any:
        wait_for_products(thread, eqn, n)
        return ()

    return run


@RULES.at_once("accumulator_load")
def accumulator_load(eqn: Eqn) -> Callable[..., Any]:
    """Read an accumulator, after waiting."""
    stack, n = eqn.transforms, eqn.wait_n

    def run(thread: Thread, acc: Accumulator) -> Any:
        if n is not None:
            wait_for_products(thread, eqn, n)
        if thread.checker is not None:
            thread.checker.async_ops.accumulator(thread, eqn, acc)
        found = (np.array(access.read(acc.array, stack, ())),)
        return (
            found if acc.uninitialised is None else thread.checker.accesses.unwritten.loaded(thread, acc, stack, found)
        )

    return run


@RULES.at_once("accumulator_store")
def accumulator_store(eqn: Eqn) -> Callable[..., Any]:
    """Set an accumulator."""

    def run(thread: Thread, acc: Accumulator, value: Any) -> Any:
        if thread.checker is not None:
            thread.checker.async_ops.accumulator(thread, eqn, acc)
            if acc.uninitialised is not None or thread.uninitialised:
                thread.checker.accesses.unwritten.set(thread, acc, value)
        acc.array[...] = value
        return ()

    return run


@RULES.in_steps("set_max_registers")
def set_max_registers(eqn: Eqn) -> Callable[..., Coroutine]:
    """Return registers to the pool of the block, or wait until the pool has enough.

    Not a scheduling point: the final register counts of a block's warpgroups do not depend on the order.
    """
    count = eqn.count

    def steps(thread: Thread) -> Coroutine:
        block = thread.block
        held = thread.registers or H100_SXM.registers_at_launch(len(block.threads))
        thread.eqn, thread.requested = eqn, count
        pool = block.registers
        if pool is None:
            pool = block.registers = Counter("registers")
        while pool.count < count - held:
            yield Wait("registers", pool, eqn, count - held)
        pool.count += held - count
        thread.registers = count
        timer = thread.machine.timer
        if timer is not None and count < held:
            timer.raised(pool)
        elif timer is not None:
            timer.acquired(thread, pool, eqn)
        thread.machine.wake(pool.waiting)
        return ()

    return steps
