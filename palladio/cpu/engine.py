"""Calling compiled kernels on arrays, with several threads."""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.cpu.lower import Lowered, lower_grid
from palladio.cpu.machine_code import KERNEL, MachineCode
from palladio.cpu.scope import Notes
from palladio.ir.program import Program
from palladio.ops.grid import Grid
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.types import Type


class Compiled:
    """A lowered kernel, ready to be called."""

    def __init__(self, lowered: Lowered) -> None:
        self.code = MachineCode(lowered.text, KERNEL)
        self.call = self.code.call
        self.arena = lowered.arena

    def assembly(self) -> str:
        """The machine code as text."""
        return self.code.assembly()


def compile_grid(grid: Grid, kernel: Program, operands: Sequence[Type]) -> Callable[..., Sequence[Any]]:
    """A `grid_call` as a function of its operands, NumPy arrays.

    Raises:
        Refused: for what is not compiled.
    """
    compiled = Compiled(lower_grid(grid, kernel, operands))
    written = {e.position for e in kernel.effects if e.position is not None and e.kind is not EffectKind.READ}
    first = len(grid.sizes) + grid.dynamic
    copied = [first + n in written for n in range(len(operands) - grid.dynamic)]

    def run(*values: Any) -> Sequence[Any]:
        given = iter(values[: grid.dynamic])
        sizes = np.array([int(next(given)) if s is None else s for s in grid.sizes], np.int64)
        inputs = [
            np.array(value, order="C") if copy else np.ascontiguousarray(value)
            for value, copy in zip(values[grid.dynamic :], copied, strict=True)
        ]
        outputs = [np.full(t.shape, dtypes.uninitialized(t.dtype), t.dtype) for t in grid.output_types]
        for source, target in grid.aliases:
            outputs[target] = np.array(inputs[source], order="C")
        arrays = [*inputs, *outputs]
        table = (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))
        tasks = math.prod(int(size) for size, parallel in zip(sizes, grid.parallel, strict=True) if parallel)
        _run_tasks(compiled, table, sizes, tasks)
        return outputs

    return run


def _run_tasks(compiled: Compiled, table: Any, sizes: Any, tasks: int) -> None:
    """Every task once, by as many threads as are worth it, each taking the next one when it is free."""
    workers = max(1, min(knobs.thread_count(), tasks))
    queue = itertools.count()
    failed: list[BaseException] = []

    def work() -> None:
        arena = np.empty(compiled.arena + 64, np.uint8)
        arena[: Notes.COUNT * 8 + 64] = 0
        base = -(-arena.ctypes.data // 64) * 64
        while not failed:
            task = next(queue)
            if task >= tasks:
                return
            compiled.call(table, sizes.ctypes.data, base, task, task + 1)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(workers - 1)]
    for thread in threads:
        thread.start()
    guarded()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
