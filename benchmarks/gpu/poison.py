"""Memory of a card that begins as uninitialised memory reads by definition, for tests of what kernels write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from benchmarks.gpu.replay import put
from palladio.array.on_card import CardArray
from palladio.hopper.launch import calls
from palladio.types import dtypes
from palladio.types.types import Shape


class Poisoned(calls.HostMemory):
    """Memory in which every new array is filled with `dtypes.uninitialized`, as the host twin fills its outputs.

    New memory of a card may hold the result of an earlier call, which hides elements that a kernel does not write.
    """

    def empty(self, shape: Shape, dtype: dtypes.DType, device: int) -> CardArray:
        made = super().empty(shape, dtype, device)
        if made.nbytes:
            with self.driver.current(self.device):
                put(self.driver, made, dtypes.unwritten(shape, dtype))
        return made


@contextmanager
def poisoned() -> Iterator[None]:
    """A block in which calls on arrays of the host have their outputs and workspaces in poisoned memory."""
    with patch.object(calls, "HostMemory", Poisoned):
        yield
