"""Calling compiled kernels on arrays, with several threads."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.base.errors import PalladioValueError
from palladio.cpu.analysis.initialization import InitMarks, written_whole
from palladio.cpu.analysis.parallelize import arranged
from palladio.cpu.launches.coroutines import Deadlocked, Status
from palladio.cpu.lower import LoweredGrid, lower_grid
from palladio.cpu.runtime.callbacks import WORD, Responder, Stopped
from palladio.cpu.runtime.machine_code import KERNEL, MachineCode
from palladio.cpu.runtime.memory import POOL, output
from palladio.cpu.runtime.workers import Work, run_tasks
from palladio.ir.core import Program
from palladio.ops.grid import Grid
from palladio.types import dtypes
from palladio.types.types import Type

Array = np.ndarray[Any, Any]

BRIEF_S = 50e-6
"""Seconds of work for which waking another thread does not pay."""

SMALL_ARENA = 1 << 14
"""Bytes that a kernel may keep while nobody calls it."""


class Compiled:
    """A lowered kernel, ready to be called."""

    def __init__(self, lowered: LoweredGrid) -> None:
        self.code = MachineCode(lowered.text, KERNEL)
        self.call = self.code.call
        self.arena = lowered.arena
        self.noted = lowered.noted
        self.words = lowered.words
        self.callbacks = lowered.callbacks
        self.caller = lowered.caller
        self.brief = False
        self.idle: list[Array] = []

    def take_arena(self) -> Array:
        """The memory of one thread: of a small kernel's own, which is at hand sooner than that of the pool."""
        try:
            return self.idle.pop()
        except IndexError:
            return POOL.take(self.arena)

    def give_arena(self, arena: Array) -> None:
        """Give it back."""
        if self.arena <= SMALL_ARENA and not self.idle:
            self.idle.append(arena)
        else:
            POOL.give(arena)

    def assembly(self) -> str:
        """The machine code as text."""
        return self.code.assembly()


def compile_grid(grid: Grid, kernel: Program, operands: Sequence[Type]) -> Callable[..., Sequence[Any]]:
    """A `grid_call` as a function of its operands, NumPy arrays.

    Raises:
        Refused: for what is not compiled.
    """
    grid = arranged(grid, kernel)
    compiled = Compiled(lower_grid(grid, kernel, operands))
    first = len(grid.sizes) + grid.dynamic
    written = {position - first for position in kernel.written}
    read = {position - first for position in kernel.read}
    uninitialized = [dtypes.uninitialized(type.dtype) for type in grid.output_types]
    # What needs no uninitialised values before the kernel runs.
    started = {target for _, target in grid.aliases} | written_whole(grid, kernel) | set(compiled.noted)
    marked = sum(marks.size for marks in compiled.noted.values())
    table = ctypes.c_void_p * (len(operands) - grid.dynamic + len(grid.outputs) + 1)
    dynamic = grid.dynamic
    extent = ctypes.c_int64 * len(grid.sizes)

    def extents(given: Iterator[Any]) -> tuple[Any, int]:
        """The sizes of the grid as the kernel gets them, and how many tasks they make."""
        sizes = [int(next(given)) if size is None else size for size in grid.sizes]
        if min(sizes, default=1) < 1:
            raise PalladioValueError("a grid size is at least 1", got=sizes)
        return extent(*sizes), math.prod(size for size, parallel in zip(sizes, grid.parallel) if parallel)

    known = None if dynamic else extents(iter(()))

    def run(values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        if out is not None and not all(array.flags.aligned for array in out):
            for target, result in zip(out, run(values), strict=True):  # past the caches go only whole vectors
                np.copyto(target, result)
            return out
        sizes, tasks = known or extents(iter(values))
        inputs = [
            np.array(value, order="C") if n in written else np.ascontiguousarray(value)
            for n, value in enumerate(values[dynamic:])
        ]
        outputs = [output(type) for type in grid.output_types] if out is None else out
        for target, value in enumerate(uninitialized):
            if target not in started:
                _fill(outputs[target], value)
        for source, target in grid.aliases:
            if source in read and out is not None and np.may_share_memory(inputs[source], outputs[target]):
                inputs[source] = inputs[source].copy()  # it keeps its values while the output changes
            np.copyto(outputs[target], inputs[source])
        if not marked:
            _run(compiled, table, (*inputs, *outputs), sizes, tasks)
            return outputs
        marks = np.zeros(marked, np.int8)
        _run(compiled, table, (*inputs, *outputs, marks), sizes, tasks)
        if not marks.all():
            _fill_rest(compiled.noted, marks, outputs)
        return outputs

    return run


def _plain(array: Array, value: Any) -> tuple[Array, Any]:
    """An array and a value, of a dtype of NumPy's own: it fills others many times as slowly."""
    if array.dtype.kind != "V":
        return array, value
    kind = np.dtype(f"u{array.dtype.itemsize}")
    return array.view(kind), np.asarray(value, array.dtype).view(kind)


def _fill(array: Array, value: Any) -> None:
    """Give all elements one value."""
    array, value = _plain(array, value)
    array.fill(value)


def _fill_rest(noted: Mapping[int, InitMarks], marks: Array, outputs: Sequence[Array]) -> None:
    """Give what no task has begun uninitialised values."""
    first = 0
    for target, each in noted.items():
        found = marks[first : first + each.size].reshape(*each.counts, each.rows)
        first += each.size
        if not each.size:  # an output of no elements
            continue
        counts = list(each.counts)
        if each.axis is not None:  # as many blocks of one row
            found = np.moveaxis(found, -1, each.axis + 1)
            counts[each.axis] *= each.rows
        output, value = _plain(outputs[target], dtypes.uninitialized(outputs[target].dtype))
        sizes = [extent // count for extent, count in zip(output.shape, counts, strict=True)]
        # Axes of the number of a block before those of the position in it.
        rank = len(counts)
        cut = output.reshape([extent for pair in zip(counts, sizes, strict=True) for extent in pair])
        cut.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))[found.reshape(counts) == 0] = value


def _address(array: np.ndarray[Any, Any]) -> int:
    """The address of the elements: the first field of a NumPy array after the header of every Python object.

    `array.ctypes.data` says the same, in six times the time, and is most of what calling a small kernel costs.
    """
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def _run(compiled: Compiled, table: Callable[..., Any], arrays: Sequence[Array], sizes: Any, tasks: int) -> None:
    begun = time.perf_counter()
    workers = 1
    if compiled.brief and compiled.caller is None:
        arena = compiled.take_arena()
        try:
            compiled.call(table(*map(_address, arrays)), sizes, _ready(compiled, arena), 0, tasks)
        finally:
            compiled.give_arena(arena)
    else:
        workers = 1 if compiled.brief or tasks == 1 else knobs.thread_count()
        _run_spread(compiled, table, arrays, sizes, tasks, workers)
    compiled.brief = (time.perf_counter() - begun) * workers < BRIEF_S


def _run_spread(
    compiled: Compiled, table: Callable[..., Any], arrays: Sequence[Array], sizes: Any, tasks: int, workers: int
) -> None:
    """Run the tasks by several threads, or with answers to what they ask."""
    failed: list[BaseException] = []

    def start(arena: Array) -> Work:
        addresses = table(*map(_address, arrays))
        work = functools.partial(compiled.call, addresses, sizes, _ready(compiled, arena))
        return work if compiled.caller is None else _answered(compiled, work, _address(arena), failed)

    run_tasks(tasks, workers, start, failed, compiled.arena)


def _answered(compiled: Compiled, work: Callable[[int, int], int], arena: int, failed: list[BaseException]) -> Work:
    """The work of a kernel that asks Python."""
    address = ctypes.c_int64.from_address(arena + (compiled.caller or 0))

    def run(first: int, last: int) -> None:
        responder = Responder.take(compiled.callbacks, failed)
        address.value = responder.address
        try:
            if answer := work(first, last):
                raise responder.error or (Deadlocked if answer == Status.DEADLOCKED else Stopped)
        finally:
            responder.give()

    return run


def _ready(compiled: Compiled, arena: Array) -> int:
    """The address of an arena in which nothing is noted."""
    if compiled.words:
        arena[: compiled.words * WORD] = 0
    return _address(arena)
