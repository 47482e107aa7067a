"""Occupancy: the resources of a multiprocessor of sm_90, divided by those of a block.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (threads, blocks, shared memory and registers of 9.0).
The compiler chooses registers; only known ones are counted: the accumulators, and all registers for a kernel that
distributes them itself (`set_max_registers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palladio.ir.core import Program, subprograms
from palladio.lower.place import shared_bytes
from palladio.ops.threads.wgmma import set_max_registers
from palladio.types.device import H100_SXM
from palladio.types.types import ACC, RefType

_FEWEST = 32  # registers of a lane with which 2,048 threads fit; assumed sufficient besides accumulators
_KEPT = "_needs"


def resident(program: Program, scratch: Sequence[RefType], warpgroups: int) -> int:
    """The number of resident blocks of a program on a multiprocessor, at least one.

    Args:
        scratch: the allocations that last for the whole block.
        warpgroups: the number of warpgroups of a block.
    """
    in_scopes, accumulated, set_by_kernel = _needs(program)
    shared = H100_SXM.reserved_shared_bytes + _bytes(scratch) + in_scopes
    lane = max(_FEWEST, _accumulated(scratch) + accumulated)
    if set_by_kernel:
        lane = H100_SXM.registers_at_launch(warpgroups)
    threads = H100_SXM.held_warpgroups // warpgroups
    memory, registers = H100_SXM.held_shared_bytes // shared, H100_SXM.lane_registers // (lane * warpgroups)
    return max(1, min(H100_SXM.held_blocks, threads, memory, registers))


def _bytes(types: Iterable[RefType]) -> int:
    """The shared memory of references."""
    return sum(map(shared_bytes, types))


def _accumulated(types: Iterable[RefType]) -> int:
    """The registers of each lane for accumulators."""
    return sum(type.size * type.dtype.itemsize // (4 * 128) for type in types if type.space is ACC)


def _needs(program: Program) -> tuple[int, int, bool]:
    """The peak demand of a program's scopes, including nested ones, and whether it sets its registers.

    Returns:
        Bytes of shared memory, registers of each lane for accumulators, and true if there is a `set_max_registers`.
    """
    kept: tuple[int, int, bool] | None = program.__dict__.get(_KEPT)
    if kept is None:
        shared, lane, sets = 0, 0, False
        for eqn in program.eqns:
            inner = [_needs(each) for each in subprograms(eqn)]
            made = eqn.params.get("allocations", ())
            shared = max(shared, _bytes(made) + max((each[0] for each in inner), default=0))
            lane = max(lane, _accumulated(made) + max((each[1] for each in inner), default=0))
            sets = sets or eqn.op is set_max_registers or any(each[2] for each in inner)
        kept = program.__dict__[_KEPT] = shared, lane, sets
    return kept
