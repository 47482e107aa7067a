"""The number of blocks that a GPU holds at once: the resources of a multiprocessor of sm_90, over those of a block.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (threads, blocks, shared memory and registers of 9.0).
Registers are the compiler's choice; counted are those that are known: the accumulators, and all that there are for a
kernel that hands them out itself (`set_max_registers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from palladio.ir.core import Program, subprograms, walk
from palladio.lower.place import shared_bytes
from palladio.ops.threads.wgmma import set_max_registers
from palladio.types.device import H100_SXM
from palladio.types.types import ACC, RefType

_FEWEST = 32  # registers of a lane with which 2,048 threads fit; a kernel is taken to need no more beside accumulators


def resident(program: Program, scratch: Sequence[RefType], warpgroups: int) -> int:
    """The number of blocks of a program that a multiprocessor holds at once, at least one.

    Args:
        scratch: what every block has from its beginning to its end.
        warpgroups: those of a block.
    """
    shared = H100_SXM.reserved_shared_bytes + _bytes(scratch) + _in_scopes(program, _bytes)
    lane = max(_FEWEST, _accumulated(scratch) + _in_scopes(program, _accumulated))
    if any(eqn.op is set_max_registers for eqn in walk(program)):
        lane = H100_SXM.registers_at_launch(warpgroups)
    threads = H100_SXM.held_warpgroups // warpgroups
    memory, registers = H100_SXM.held_shared_bytes // shared, H100_SXM.lane_registers // (lane * warpgroups)
    return max(1, min(H100_SXM.held_blocks, threads, memory, registers))


def _bytes(types: Iterable[RefType]) -> int:
    """Shared memory that references take."""
    return sum(map(shared_bytes, types))


def _accumulated(types: Iterable[RefType]) -> int:
    """Registers of each lane that accumulators take."""
    return sum(type.size * type.dtype.itemsize // (4 * 128) for type in types if type.space is ACC)


def _in_scopes(program: Program, size: Callable[[Iterable[RefType]], int]) -> int:
    """The most that scopes of a program, those inside others too, have at once."""
    most = 0
    for eqn in program.eqns:
        inner = max((_in_scopes(each, size) for each in subprograms(eqn)), default=0)
        most = max(most, inner + size(eqn.params.get("allocations", ())))
    return most
