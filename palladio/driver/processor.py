"""The target processor and its caches, for the choice of tiles."""

from __future__ import annotations

import functools

from palladio.base import knobs
from palladio.base.dataclass import dataclass


@dataclass(frozen=True)
class Processor:
    """The properties of the target processor that the choice of tiles depends on.

    Fields:
        name: LLVM's name, e.g. `znver5`.
        vector_bytes: the bytes of a vector register.
        cache_bytes: the bytes of the first, the second and the last level of data cache; the last one is shared.
        threads: the number of workers of a compiled kernel.
    """

    name: str
    vector_bytes: int
    cache_bytes: tuple[int, int, int]
    threads: int


def processor() -> Processor:
    """The processor that kernels are compiled for, with the current number of workers."""
    return _processor(knobs.instructions.get(), knobs.thread_count())


@functools.cache
def _processor(instructions: str, threads: int) -> Processor:
    from palladio.cpu.runtime import host  # few processes need it before they compile
    from palladio.cpu.runtime.caches import cache_bytes

    found = host.current()
    return Processor(found.cpu, found.vector_bytes, cache_bytes(), threads)
