"""How many threads NumPy's matrix product gets while a program runs.

The product of two small tiles is over before a second thread has come to help; on a busy machine, where that thread
has lost its core, waiting for it costs twenty times the product. Kernels whose products are all of that size run on
one thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from threadpoolctl import ThreadpoolController

from palladio.ir.program import Program, walk
from palladio.ops.dot import dot_general
from palladio.types.types import ArrayType

# Multiplications from which a product gains by threads even where it is the only work: 256 x 256 x 256 does, 128 x
# 128 x 128 does not.
WORTH_THREADS = 1 << 23


def multiplications(lhs: ArrayType, contracting: tuple[int, ...], result: ArrayType) -> int:
    """How many products of two elements a `dot_general` sums."""
    return result.size * math.prod(lhs.shape[axis] for axis in contracting)


def multiplies_tiles_only(program: Program) -> bool:
    """Whether a program has matrix products, none of them large enough for threads."""
    sizes = [
        multiplications(eqn.inputs[0].type, eqn.params["contracting"][0], eqn.outputs[0].type)  # type: ignore[arg-type]
        for eqn in walk(program)
        if eqn.op is dot_general
    ]
    return bool(sizes) and max(sizes) < WORTH_THREADS


class _OneThread:
    """NumPy's libraries on one thread as long as anybody is inside; the setting belongs to the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    @cached_property
    def _libraries(self) -> Any:
        return ThreadpoolController()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._limit = self._libraries.limit(limits=1, user_api="blas")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._limit.restore_original_limits()


one_thread = _OneThread()
