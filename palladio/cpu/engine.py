"""Calling compiled kernels on arrays, with several threads."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.array.copies import owned, row_major
from palladio.base import knobs
from palladio.cpu.lowered import LoweredGrid
from palladio.cpu.runtime import native
from palladio.cpu.runtime.callbacks import WORD, Responder, Stopped
from palladio.cpu.runtime.machine_code import MachineCode
from palladio.cpu.runtime.memory import POOL, address_of, fill, of_own_dtype, output
from palladio.cpu.runtime.native import SMALL_ARENA
from palladio.cpu.runtime.status import Deadlocked, Refetched, Status
from palladio.cpu.runtime.workers import Work, run_tasks
from palladio.ir.core import Eqn
from palladio.ops.grid import InitMarks, extents
from palladio.types import dtypes
from palladio.types.types import ArrayType

Array = np.ndarray[Any, Any]


class Compiled:
    """A lowered kernel, ready to be called. A pickled one refers to its machine code on disk.

    Args:
        code: its machine code, if there is some.
        meanwhile: as in `MachineCode`.
    """

    def __init__(
        self, lowered: LoweredGrid, code: MachineCode | None = None, meanwhile: Sequence[Callable[[], object]] = ()
    ) -> None:
        self.code = code or MachineCode(lowered.text, meanwhile=meanwhile)
        self.call = self.code.call
        self.lowered = replace(lowered, text="")
        self.arena = lowered.arena
        self.noted = lowered.noted
        self.words = lowered.words
        self.callbacks = lowered.callbacks
        self.caller = lowered.caller
        self.order = lowered.order
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value or 0
        self.brief = ctypes.c_int64()  # up to this much work, waking another thread does not pay
        self.idle: list[Array] = []

    def native(
        self, table: Any, sizes: Any, tasks: int, dynamic: Sequence[tuple[int, bool]] = (), first: int = 0
    ) -> native.Call:
        """A call of the kernel by native code; the arguments are those of `native.Call`."""
        memory = self.arena, self.words, self.caller, self.callbacks
        return native.Call(self.address, *memory, self.brief, table, sizes, tasks, dynamic, first)

    def take_arena(self) -> Array:
        """The memory of one thread. A small kernel keeps one arena, which is faster to take than one of the pool."""
        try:
            return self.idle.pop()
        except IndexError:
            return POOL.take(self.arena)

    def give_arena(self, arena: Array) -> None:
        """Return the memory of one thread."""
        if self.arena <= SMALL_ARENA and not self.idle:
            self.idle.append(arena)
        else:
            POOL.give(arena)

    def __reduce__(self) -> Any:
        return Compiled, (self.lowered, self.code)

    def assembly(self) -> str:
        """The machine code as text."""
        return self.code.assembly()


class GridCall:
    """A compiled `grid_call`: a function of its operands, NumPy arrays.

    Fields:
        first: the number of operands that are sizes of the grid.
        rows: the rows of each array, by its type.
        written: the operands after the sizes that the kernel writes to; it gets copies of them.
        unset: the outputs that need uninitialised values before the kernel runs, each with its value.
        marked: the bytes of the initialisation marks of all outputs.
    """

    def __init__(self, call: Eqn, lowered: LoweredGrid, meanwhile: Sequence[Callable[[], object]] = ()) -> None:
        self.grid = grid = call.grid
        self.compiled = Compiled(lowered, meanwhile=meanwhile)
        self.first = grid.dynamic
        positions, kernel = grid.positions.operands, call.kernel
        self.written = {n for n, position in enumerate(positions) if position in kernel.written}
        self.read = {n for n, position in enumerate(positions) if position in kernel.read}
        starts = grid.scheduled.starts
        values = [dtypes.uninitialized(type.dtype) for type in grid.output_types]
        self.unset = [(target, value) for target, value in enumerate(values) if starts[target].kind == "fill"]
        self.marked = sum(marks.size for marks in self.compiled.noted.values())
        types = [*(type for type in call.input_types[grid.dynamic :] if isinstance(type, ArrayType))]
        self.rows = [type.shape[0] if type.shape else 1 for type in (*types, *grid.output_types)]
        # It neither changes nor copies its operands, and never waits.
        self.plain = not self.written and not grid.aliases and not kernel.synchronises
        self.maps_by_data = lowered.maps_by_data
        self._make_tables()

    def _make_tables(self) -> None:
        grid = self.grid
        self.table = ctypes.c_void_p * (len(grid.positions.operands) + len(grid.outputs) + 1)
        self.extent = ctypes.c_int64 * (len(grid.sizes) + len(self.rows))
        self.known = None if grid.dynamic else self.extents(())

    def __getstate__(self) -> dict[str, Any]:
        made_again = "table", "extent", "known"
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_tables()

    def extents(self, given: Sequence[Any], rows: Sequence[int] | None = None) -> tuple[Any, int]:
        """The sizes of the grid as the kernel gets them, with the rows of the arrays; and the number of tasks.

        Args:
            given: the sizes that are known only at the call.
            rows: of the arrays, if some have fewer than their type says.
        """
        sizes = extents(self.grid.sizes, given)
        return self.extent(*sizes, *(rows or self.rows)), math.prod(sizes[axis] for axis in self.grid.scheduled.tasks)

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        if out is not None and not all(array.flags.aligned for array in out):
            for target, result in zip(out, self(values), strict=True):  # non-temporal stores write only whole vectors
                np.copyto(target, result)
            return out
        if self.maps_by_data:
            self._require_left_once(values)
        sizes, tasks = self.known or self.extents(values[: self.first])
        inputs = [
            owned(value) if n in self.written else row_major(value) for n, value in enumerate(values[self.first :])
        ]
        outputs = [output(type) for type in self.grid.output_types] if out is None else out
        for target, value in self.unset:
            fill(outputs[target], value)
        for source, target in self.grid.aliases:
            if source in self.read and out is not None and np.may_share_memory(inputs[source], outputs[target]):
                inputs[source] = inputs[source].copy()  # it keeps its values while the output changes
            np.copyto(outputs[target], inputs[source])
        marks = bytearray(self.marked)
        arrays = [*inputs, *outputs]
        if marks:
            arrays.append(np.frombuffer(marks, np.int8))
        run(self.compiled, self.table(*map(address_of, arrays)), sizes, tasks, arrays)
        self.fill_rest(marks, outputs)
        return outputs

    def _require_left_once(self, values: Sequence[Any]) -> None:
        from palladio.lower.grids.refetched import comes_back  # with all passes, which a kernel on disk does not need

        points, scalars = extents(self.grid.sizes, values[: self.first]), values[self.first :][: self.grid.scalars]
        if any(comes_back(each, points, scalars) for each in self.maps_by_data):
            raise Refetched

    def fill_rest(self, marks: bytearray, outputs: Sequence[Array]) -> None:
        """Fill the parts that no task has initialised, by their marks, with uninitialised values."""
        if 0 in marks:
            fill_unmarked(self.compiled.noted, np.frombuffer(marks, np.int8), outputs)


def fill_unmarked(noted: Mapping[int, InitMarks], marks: Array, outputs: Sequence[Array]) -> None:
    """Fill the parts that no task has initialised with uninitialised values."""
    first = 0
    for target, each in noted.items():
        found = marks[first : first + each.size].reshape(*each.counts, each.rows)
        first += each.size
        if not each.size:  # an output of no elements
            continue
        counts = list(each.counts)
        if each.axis is not None:  # marks of rows: each row is a block
            found = np.moveaxis(found, -1, each.axis + 1)
            counts[each.axis] *= each.rows
        output, value = of_own_dtype(outputs[target], dtypes.uninitialized(outputs[target].dtype))
        sizes = [extent // count for extent, count in zip(output.shape, counts, strict=True)]
        # Axes of the number of a block before those of the position in it.
        rank = len(counts)
        cut = output.reshape([extent for pair in zip(counts, sizes, strict=True) for extent in pair])
        cut.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))[found.reshape(counts) == 0] = value


def run(
    compiled: Compiled, addresses: Any, sizes: Any, tasks: int, arrays: Any, first: int = 0, weight: int = 1
) -> None:
    """Run tasks of a kernel.

    Args:
        addresses: of the arrays, in a table.
        tasks: their number.
        arrays: the arrays that the tasks use, kept alive while one may still run.
        first: the number of the first one.
        weight: a factor that the work of a task is proportional to, if it differs between calls.
    """
    if tasks == 1:  # one task is never spread, and small products consist of such calls
        _run_here(compiled, addresses, sizes, 1, first)
        return
    work = tasks * weight
    of_one, of_several = native.brief_seconds(native.has_openmp())
    if work > compiled.brief.value:
        limit = of_several
        seconds = _run_spread(compiled, addresses, sizes, tasks, knobs.thread_count(), arrays, first)
    else:
        limit = of_one
        started = time.perf_counter()
        _run_here(compiled, addresses, sizes, tasks, first)
        seconds = time.perf_counter() - started
    brief = compiled.brief.value
    compiled.brief.value = max(brief, work) if seconds < limit else min(brief, work - 1)


def _stopped(answer: int) -> type[BaseException]:
    """The exception for the status of a kernel that ended early without one."""
    return Deadlocked if answer == Status.DEADLOCKED else Stopped


def _run_here(compiled: Compiled, addresses: Any, sizes: Any, tasks: int, first: int) -> None:
    """Run the tasks on this thread."""
    arena = compiled.take_arena()
    try:
        place = _ready(compiled, arena)
        if compiled.caller is None:
            compiled.call(addresses, sizes, place, first, first + tasks)
        else:
            _call_answered(compiled, addresses, sizes, place, [], first, first + tasks)
    finally:
        compiled.give_arena(arena)


def _run_spread(
    compiled: Compiled, addresses: Any, sizes: Any, tasks: int, workers: int, arrays: Any, first: int
) -> float:
    """Run the tasks on several threads; returns the processor time of all together."""
    seconds = native.spread(compiled.native(addresses, sizes, tasks, first=first), workers)
    if seconds is not None:
        return seconds
    failed: list[BaseException] = []

    def start(arena: Array) -> Work:
        work = _work(compiled, addresses, sizes, arrays, arena, failed)
        return work if first == 0 else lambda begin, end: work(first + begin, first + end)

    return run_tasks(tasks, workers, start, failed, compiled.arena)


def _work(
    compiled: Compiled, addresses: Any, sizes: Any, arrays: Any, arena: Array, failed: list[BaseException]
) -> Work:
    """The kernel with an arena, as a function of the first task and the one after the last."""
    place = _ready(compiled, arena)
    work: Any = functools.partial(compiled.call, addresses, sizes, place)
    if compiled.caller is not None:
        work = functools.partial(_call_answered, compiled, addresses, sizes, place, failed)
    work.arrays = arrays  # the table does not keep them alive
    return work  # type: ignore[no-any-return]


def _call_answered(
    compiled: Compiled, addresses: Any, sizes: Any, arena: int, failed: list[BaseException], first: int, last: int
) -> None:
    """Run some tasks of a kernel with callbacks to Python, on this thread."""
    responder = Responder.take(compiled.callbacks, failed)
    try:
        ctypes.c_int64.from_address(arena + (compiled.caller or 0)).value = responder.address
        if answer := compiled.call(addresses, sizes, arena, first, last):
            raise responder.error or _stopped(answer)
    finally:
        responder.give()


def _ready(compiled: Compiled, arena: Array) -> int:
    """The address of an arena, with the thread's state in it cleared."""
    if compiled.words:
        arena[: compiled.words * WORD] = 0
    return address_of(arena)
