"""The owners of memory in a launch: threads, blocks of threads, cores, devices."""

from __future__ import annotations

from collections.abc import Iterable

from palladio.ops.threads.launch import CORES, MeshAxis, MeshShape
from palladio.types.types import (
    ACC,
    BARRIER,
    DMA_SEMAPHORE,
    REGS,
    SCALAR,
    SEMAPHORE,
    SMEM,
    VMEM,
    VMEM_SHARED,
    MemorySpace,
)

OF_THREADS = frozenset({ACC, REGS})
"""The memory of a thread: its registers."""

OF_BLOCKS = frozenset({SMEM, BARRIER, VMEM, SCALAR})
"""The memory of a block, which its threads share."""

OF_CORES = frozenset({*OF_THREADS, *OF_BLOCKS, SEMAPHORE, DMA_SEMAPHORE})
"""The memory of a core, in a launch on cores."""


def kinds_of(space: MemorySpace) -> tuple[str, ...]:
    """The kinds of core mesh axes along which each index has a separate memory of this space."""
    if space in OF_CORES:
        return CORES
    return CORES[:2] if space is VMEM_SHARED else CORES[:1]


def core_axes(space: MemorySpace, meshes: Iterable[MeshShape]) -> tuple[MeshAxis, ...]:
    """The axes along which meshes of cores have memory of a space, each name once."""
    found = {axis.name: axis for mesh in meshes for axis in mesh.of(*kinds_of(space))}
    return tuple(found.values())
