"""The resources of a multiprocessor of sm_90, shared memory and registers, and the claims of a launch on them."""

from __future__ import annotations

from typing import Any

from palladio.base.locations import Location
from palladio.ir.core import Eqn
from palladio.lower.place import shared_bytes
from palladio.machine.check.findings import Participant, Sink
from palladio.machine.run.buffers import Barrier
from palladio.machine.run.threads import Block, Thread
from palladio.types.attributes import Named
from palladio.types.device import H100_SXM


class Limits:
    """Adds up the claims of blocks."""

    def __init__(self, checker: Sink) -> None:
        self.checker = checker
        self.place: Location | None = None
        """The location of the launch."""

    def allocated(self, store: Any) -> None:
        """A block claims memory or named barriers."""
        size = _bytes(store)
        if size:
            block: Block = store.home
            block.shared_bytes += size
            if block.shared_bytes > H100_SXM.shared_bytes:
                self._exceeded(
                    "shared-memory-exceeded",
                    block,
                    f"{block.label} uses {block.shared_bytes:,} bytes of shared memory with {store.name} "
                    f"({store.type.array}, {size:,} bytes); there are {H100_SXM.shared_bytes:,}",
                )
        named = _named(store)
        if named:
            block = store.home
            block.named_barriers += named
            if block.named_barriers > H100_SXM.named_barriers:
                self._exceeded(
                    "barriers-exceeded",
                    block,
                    f"{block.label} has {block.named_barriers} named barriers with {store.name}; "
                    f"there are {H100_SXM.named_barriers}",
                )

    def _exceeded(self, code: str, block: Block, message: str) -> None:
        self.checker.report(code, message, [Participant(block.label, "is launched", self.place)])

    def freed(self, store: Any) -> None:
        """A block frees memory or named barriers."""
        if isinstance(store.home, Block):
            store.home.shared_bytes -= _bytes(store)
            store.home.named_barriers -= _named(store)

    def report_registers(self, thread: Thread, eqn: Eqn) -> bool:
        """Report that the claims of a block's warpgroups exceed the registers, if a deadlocked one waits for them."""
        counts = [other.requested for other in thread.block.threads]
        there = len(counts) * H100_SXM.registers_at_launch(len(counts))
        if None in counts or sum(count or 0 for count in counts) <= there:
            return False
        self.checker.report(
            "registers-exceeded",
            f"the {len(counts)} warpgroups of {thread.block.label} claim {' + '.join(map(str, counts))} registers "
            f"for each lane; there are {there}",
            [Participant(thread.title, "waits for registers", eqn.location)],
        )
        return True

    def block_ends(self, block: Block) -> None:
        """A block's claims end with it."""
        block.shared_bytes = block.named_barriers = 0


def _named(store: Any) -> int:
    return len(store.slots) if isinstance(store, Barrier) and store.type.attribute(Named) is not None else 0


def _bytes(store: Any) -> int:
    """The bytes of its block's shared memory that a store occupies."""
    return shared_bytes(store.type) if isinstance(store.home, Block) else 0
