"""Facts that a choice of tiles depends on: the processor that kernels are compiled for, and its caches."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from palladio.base import knobs


@dataclass(frozen=True)
class Processor:
    """The processor that kernels run on, as far as tiles depend on it.

    Fields:
        name: as LLVM calls it, `znver5`.
        vector_bytes: the bytes of a vector register.
        cache_bytes: the bytes of the first, the second and the last level of data cache; the last one is shared.
        threads: how many threads a compiled kernel runs on.
    """

    name: str
    vector_bytes: int
    cache_bytes: tuple[int, int, int]
    threads: int


def processor() -> Processor:
    """The processor that kernels are compiled for, with the number of threads that they run on now."""
    return _processor(knobs.instructions.get(), knobs.thread_count())


@functools.cache
def _processor(instructions: str, threads: int) -> Processor:
    from palladio.cpu.runtime import host  # with LLVM, which takes a quarter of the time to import Palladio
    from palladio.cpu.runtime.caches import cache_bytes

    found = host.current()
    return Processor(found.cpu, found.vector_bytes, cache_bytes(), threads)
