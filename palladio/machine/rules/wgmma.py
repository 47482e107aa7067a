"""The tensor cores: products in flight, waits for them, and the accumulators that they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.resource_limits import at_launch
from palladio.machine.run.buffers import Accumulator, Counter
from palladio.machine.run.coroutines import RULES, Steps
from palladio.machine.run.threads import Agent, Flight, Wait
from palladio.ops.references import access
from palladio.ops.threads import wgmma as ops
from palladio.types.types import RefType


@RULES.at_once("wgmma")
def wgmma(eqn: Eqn) -> Callable[..., Any]:
    """Start a product; it reads its operands and changes its accumulator when it completes."""
    stacks = eqn.params["transforms"]
    left_in_memory = isinstance(eqn.inputs[1].type, RefType)

    def run(agent: Agent, acc: Accumulator, a: Any, b: Any, *indices: Any) -> Any:
        left, left_stack = a.reached(stacks[1], indices) if left_in_memory else (a, ())
        right, right_stack = b.reached(stacks[2], indices)

        def carry_out() -> None:
            part = access.read(acc.array, stacks[0], ())
            lhs = access.read(left.array, left_stack, indices) if left_in_memory else left
            part[...] = ops.multiplied(part, lhs, access.read(right.array, right_stack, indices))
            agent.products.popleft()

        before = agent.products[-1] if agent.products else None
        flight = Flight("product", agent, eqn, carry_out, before=before)
        agent.products.append(flight)
        agent.issued += 1
        agent.eqn = eqn
        if agent.checker is not None:
            operands = [(left, left_stack)] if left_in_memory else []
            agent.checker.product_issued(agent, flight, acc, [*operands, (right, right_stack)], indices)
        acc.group, acc.issued = agent.issued, eqn
        agent.machine.issue(flight)
        return ()

    return run


def wait_for_products(agent: Agent, eqn: Eqn, n: int) -> None:
    """Complete all products but the last n."""
    agent.eqn = eqn
    if len(agent.products) > n:
        agent.products[len(agent.products) - 1 - n].complete()
    if agent.checker is not None:
        agent.checker.products_awaited(agent, eqn, agent.issued - n)


@RULES.at_once("wgmma_wait")
def wgmma_wait(eqn: Eqn) -> Callable[..., Any]:
    """Wait until at most n products are in flight."""
    n = eqn.params["n"]

    def run(agent: Agent) -> Any:
        wait_for_products(agent, eqn, n)
        return ()

    return run


@RULES.at_once("accumulator_load")
def accumulator_load(eqn: Eqn) -> Callable[..., Any]:
    """Read an accumulator, after waiting."""
    stack, n = eqn.params["transforms"], eqn.params["wait_n"]

    def run(agent: Agent, acc: Accumulator) -> Any:
        if n is not None:
            wait_for_products(agent, eqn, n)
        if agent.checker is not None:
            agent.checker.accumulator(agent, eqn, acc)
        return (np.array(access.read(acc.array, stack, ())),)

    return run


@RULES.at_once("accumulator_store")
def accumulator_store(eqn: Eqn) -> Callable[..., Any]:
    """Set an accumulator."""

    def run(agent: Agent, acc: Accumulator, value: Any) -> Any:
        if agent.checker is not None:
            agent.checker.accumulator(agent, eqn, acc)
        acc.array[...] = value
        return ()

    return run


@RULES.in_steps("set_max_registers")
def set_max_registers(eqn: Eqn) -> Callable[..., Steps]:
    """Give registers back to the pool of the block, or wait until the pool has what is asked for.

    No point at which others go first: what a block's warpgroups hold in the end does not depend on the order.
    """
    count = eqn.params["count"]

    def steps(agent: Agent) -> Steps:
        block = agent.block
        held = agent.registers or at_launch(len(block.agents))
        agent.eqn, agent.asked = eqn, count
        pool = block.registers
        if pool is None:
            pool = block.registers = Counter("registers")
        while pool.count < count - held:
            yield Wait("registers", pool, eqn, count - held)
        pool.count += held - count
        agent.registers = count
        timer = agent.machine.timer
        if timer is not None and count < held:
            timer.raised(pool)
        elif timer is not None:
            timer.acquired(agent, pool, eqn)
        agent.machine.wake(pool.waiting)
        return ()

    return steps
