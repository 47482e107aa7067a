"""The number of threads of NumPy's matrix product while a program runs.

The product of two small blocks ends before a second thread has started to help; on a busy machine, where that thread
has lost its core, waiting for it costs twenty times the product. Kernels whose products are all that small run on
one thread.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from palladio.base.holding import HOLDING
from palladio.ir.core import Eqn, Program, walk
from palladio.ops.arrays.dot import dot_accumulate, dot_general
from palladio.ops.threads.wgmma import wgmma
from palladio.types.transforms import transformed
from palladio.types.types import ArrayType, RefType

# Multiplications from which a product gains from threads even if it is the only work: 256 x 256 x 256 does, 128 x 128 x
# 128 does not.
WORTH_THREADS = 1 << 23


def multiplications(lhs: ArrayType, contracting: tuple[int, ...], result: ArrayType) -> int:
    """The number of element products of a `dot_general`."""
    return result.size * math.prod(lhs.shape[axis] for axis in contracting)


def multiplies_tiles_only(program: Program) -> bool:
    """True if a program has matrix products, none of them large enough for threads."""
    sizes = [size for eqn in walk(program) for size in _products(eqn)]
    return bool(sizes) and max(sizes) < WORTH_THREADS


def _products(eqn: Eqn) -> Iterator[int]:
    """The multiplications of an equation that is a matrix product."""
    if eqn.op in (dot_general, dot_accumulate):
        yield multiplications(eqn.lhs.type, eqn.contracting[0], eqn.outputs[0].type)  # type: ignore[arg-type]
    elif eqn.op is wgmma:
        operands = [atom.type for atom in eqn.indices]
        acc, _, b = (
            transformed(atom.type.array, stack, operands) if isinstance(atom.type, RefType) else atom.type  # type: ignore[arg-type]
            for atom, stack in zip(eqn.inputs, eqn.transforms, strict=False)
        )
        yield acc.size * b.shape[0]


class _OneThread:
    """Limits NumPy's libraries to one thread while a thread is inside; the setting applies to the whole process."""

    def __init__(self) -> None:
        self._inside: set[object] = set()
        self._limit: Any = None
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """In a forked process: do not wait for threads of the parent."""
        self._lock = threading.RLock()

    @cached_property
    def _libraries(self) -> Any:
        from threadpoolctl import ThreadpoolController  # imported on first use: compiled kernels need none

        return ThreadpoolController()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        mine = object()
        try:
            try:
                self._change(self._inside.add, mine)
                yield
            finally:
                self._change(self._inside.discard, mine)
        finally:
            self._change(self._inside.discard, mine)  # an interrupt may have preceded the first one

    def _change(self, change: Callable[[object], None], mine: object) -> None:
        """Add or remove a thread, and limit the libraries while one is inside."""
        with self._lock:
            HOLDING.count += 1
            try:
                change(mine)
                if self._inside and self._limit is None:
                    self._limit = self._libraries.limit(limits=1, user_api="blas")
                elif not self._inside and self._limit is not None:
                    self._limit.restore_original_limits()
                    self._limit = None
            finally:
                HOLDING.count -= 1


one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.reset_after_fork)
