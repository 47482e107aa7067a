"""Naming a race: from two accesses that nothing orders to the finding that a person reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palladio.machine.agents import Agent
from palladio.machine.buffers import Buffer
from palladio.machine.findings import Party
from palladio.machine.shadow import Access

if TYPE_CHECKING:
    from palladio.machine.checker import Checker

_PRODUCTS = ("wgmma",)
_COPIES = ("copy_gmem_to_smem", "async_store_smem", "dma_start", "dma_start_remote")
_STORES = ("copy_smem_to_gmem",)


def describe(store: Buffer) -> str:
    """A buffer as reports call it."""
    return f"{store.name} ({store.type.array} in {store.type.space})"


def party_of(access: Access) -> Party:
    """One side of a race."""
    name = access.site.op.name if access.site is not None else "the end"
    if access.asynchronous:
        did = f"started {name}, which {'writes' if access.write else 'reads'} it"
    else:
        did = f"{'writes' if access.write else 'reads'} it, by {name}"
    return Party(access.agent, did, getattr(access.site, "location", None))


def race(checker: Checker, agent: Agent, store: Buffer, before: Access, now: Access) -> None:
    """Report two accesses that nothing orders."""
    code, missing = _classified(agent, store, before, now)
    verb = "written" if now.write else "read"
    earlier = "written" if before.write else "read"
    message = f"{describe(store)} is {verb} while it may still be {earlier} by another"
    if code == "missing-commit-smem":
        message = f"{describe(store)} is {verb} by an asynchronous operation that does not see what was stored to it"
    checker.report(code, message, [party_of(now), party_of(before)], missing)


def _classified(agent: Agent, store: Buffer, before: Access, now: Access) -> tuple[str, str]:
    """The code of a race, and the edge that is missing."""
    name = before.site.op.name if before.site is not None else ""
    shared = store.home is not None
    if shared and now.asynchronous and not before.asynchronous and agent.generic.covers(before.actor, before.epoch):
        return "missing-commit-smem", "plgpu.commit_smem() between the store and the operation"
    if name in _PRODUCTS and now.write:
        return "wgmma-operand-overwritten", "a wgmma_wait behind the product, before the memory is written again"
    if name in _STORES and not before.write:
        return "store-source-overwritten", "wait_smem_to_gmem behind the copy, before its source is written again"
    if name in (*_COPIES, *_STORES) and before.write and before.agent == now.agent:
        return "copy-not-awaited", "a wait for the copy before its target is used"
    if name in _COPIES and before.write and not now.write:
        return "copy-not-awaited", "a wait for the copy's barrier in the thread that uses it"
    if now.asynchronous and now.write:
        return "copy-target-in-use", "a barrier from the last use of the memory to the start of the copy"
    if not shared and before.agent.rsplit(" ", 2)[0] != now.agent.rsplit(" ", 2)[0]:
        return "global-race", f"an edge from {before.agent} to {now.agent}"
    return "data-race", f"an edge from {before.agent} to {now.agent}"
