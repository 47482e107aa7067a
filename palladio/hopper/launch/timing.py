"""Times on a card: each call between two events of the driver, with a cold L2 cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from palladio.array.on_card import LEGACY_STREAM, CardArray
from palladio.hopper.launch.calls import HostMemory
from palladio.hopper.launch.driver import driver
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Shape

FLUSHED = 128 << 20
"""Bytes that are written before each timing: more than the L2 cache (50 MiB), and some tens of microseconds of work
in which the host runs ahead of the card."""

DRAWN = (1 << 22) - 3
"""Elements of a random array that are drawn on the host; the others repeat them. A prime, so that rows differ."""


class Clock:
    """Events of the driver on one stream of a device."""

    def __init__(self, stream: int, device: int = 0) -> None:
        self.driver = driver()
        self.device = self.driver.hopper(device)
        self.stream = stream
        with self._context():
            self._flush = int(self.driver.call("cuMemAlloc", FLUSHED))
            self._events = [self.driver.call("cuEventCreate", 0) for _ in range(2)]

    @contextmanager
    def _context(self) -> Iterator[None]:
        with self.driver.current(self.device):
            yield

    def milliseconds(self, run: Callable[[], object]) -> float:
        """The time of one call, which enqueues its work on the stream."""
        start, end = self._events
        with self._context():
            self.driver.call("cuMemsetD8Async", self._flush, 0, FLUSHED, self.stream)
            self.driver.call("cuEventRecord", start, self.stream)
        run()
        with self._context():
            self.driver.call("cuEventRecord", end, self.stream)
            self.driver.call("cuEventSynchronize", end)
            return float(self.driver.call("cuEventElapsedTime", start, end))

    def close(self) -> None:
        """Free the memory and the events."""
        with self._context():
            self.driver.call("cuMemFree", self._flush)
            for event in self._events:
                self.driver.call("cuEventDestroy", event)


@contextmanager
def timed(
    runs: Sequence[Callable[..., Any]], operands: Sequence[Any], results: Sequence[ArrayType], device: int = 0
) -> Iterator[list[Callable[[], float]]]:
    """For each of some loaded programs, a function that runs it once and gives its time in seconds.

    All run on memory that is allocated here, and freed at the end of the `with` block.

    Args:
        operands: for each operand its value, or its type, for random numbers. Numbers stay on the host.
        results: the types of the results.

    Raises:
        CardError: there is no Hopper card, or the driver fails.
    """
    with HostMemory(device, synchronous=False) as memory, memory.driver.current(memory.device):
        given = [_given(memory, each) for each in operands]
        made = [memory.empty(each.shape, each.dtype, device) for each in results]
        clock = Clock(LEGACY_STREAM, device)
        try:
            yield [lambda run=run: clock.milliseconds(lambda: run(given, made)) / 1e3 for run in runs]  # type: ignore[misc]
        finally:
            clock.close()


def _given(memory: HostMemory, operand: Any) -> Any:
    if isinstance(operand, ArrayType):
        return drawn(memory, operand.shape, operand.dtype)
    return memory.upload(operand, memory.device.index) if operand.ndim else operand


def drawn(memory: HostMemory, shape: Shape, dtype: DType) -> CardArray:
    """A new array of random normal numbers, of any for integers."""
    made = memory.empty(shape, dtype, memory.device.index)
    part = _random(min(made.nbytes // dtype.itemsize, DRAWN), dtype)
    known, done = memory.driver, part.nbytes
    if done:
        with known.current(memory.device):
            known.call("cuMemcpyHtoDAsync", made.address, part.ctypes.data, done, LEGACY_STREAM)
            while done < made.nbytes:
                more = min(done, made.nbytes - done)
                known.call("cuMemcpyDtoDAsync", made.address + done, made.address, more, LEGACY_STREAM)
                done += more
            known.call("cuStreamSynchronize", LEGACY_STREAM)
    return made


def _random(count: int, dtype: DType) -> np.ndarray:
    draw = np.random.default_rng(0)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return draw.integers(limits.min, limits.max, count, dtype, endpoint=True)
    return draw.standard_normal(count, np.float32).astype(dtype)
