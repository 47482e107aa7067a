"""Grid kernels that start copies and wait for them: one thread executes the steps of the grid in order.

Under Pallas' interpreter for TPUs the cores share the grid (`grid_on_cores`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Eqn, Program
from palladio.ir.evaluate import evaluate
from palladio.machine.check.deadlock import deadlock
from palladio.machine.rules.grid_on_cores import run_on_cores
from palladio.machine.rules.launch import allocate_for
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.coroutines import RULES, Coroutine, run_program
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Cluster, Group, Thread
from palladio.ops.grid import Grid
from palladio.ops.grid import grid_call as operation
from palladio.types import dtypes


class _References:
    """The references of a kernel to blocks: the buffer is kept as long as the block stays the same."""

    def __init__(self, thread: Thread, grid: Grid, kernel: Program) -> None:
        self.thread = thread
        inputs = grid.split([*enumerate(kernel.inputs)])
        self.vars = [var for _, var in inputs.arrays]
        self.initialised = len(inputs.operands)
        self.written = [position in kernel.written for position, _ in inputs.arrays]
        self.whole: dict[int, Buffer] = {}

    def of(self, views: Sequence[np.ndarray[Any, Any]]) -> list[Buffer]:
        """Buffers for the blocks of one step."""
        return [self._of(number, view) for number, view in enumerate(views)]

    def _of(self, number: int, view: np.ndarray[Any, Any]) -> Buffer:
        found = self.whole.get(number)
        if found is not None and found.array is view:
            return found
        var = self.vars[number]
        buffer = Buffer(var.type, var.hint or f"block {number}", None, view)  # type: ignore[arg-type]
        if found is None:  # only a block that stays, usually a whole array, has checked accesses
            output = number >= self.initialised
            self.thread.machine.allocated(buffer, True, output or self.written[number])
            self.whole[number] = buffer
        return buffer


@RULES.in_steps("grid_call")
def grid_call(eqn: Eqn) -> Callable[..., Coroutine]:
    """A grid by its definition, with the kernel run in steps and scratch allocated on the machine."""
    grid, kernel = eqn.grid, eqn.kernel
    names = [var.hint or "scratch" for var in grid.split(kernel.inputs).scratch]

    def steps(thread: Thread, *operands: Any) -> Coroutine:
        references = _References(thread, grid, kernel)
        scratch = [allocate_for(thread, *each) for each in zip(grid.scratch, names, strict=True)]
        points: Any = operation.eval(*operands, grid=grid, kernel=kernel)
        found: Any = None
        outer = thread.trail
        while True:
            try:
                request = points.send(found)
            except StopIteration as stop:
                thread.trail = outer
                if thread.checker is not None:
                    thread.checker.scope_ends(thread, eqn, scratch)
                return stop.value
            if request.program is not kernel:  # an index map
                found = evaluate(request.program, request.values)
                continue
            values = grid.split(request.values)
            blocks = references.of(values.arrays)
            thread.trail = outer, eqn, tuple(map(int, values.indices))
            found = yield from run_program(thread, kernel, (*values.indices, *values.sizes, *blocks, *scratch))

    return steps


def run_grid(machine: Machine, eqn: Eqn, operands: Sequence[Any]) -> Sequence[Any]:
    """Run a grid kernel that waits, to its end, and return its outputs."""
    if machine.cores or eqn.grid.cores:
        return run_on_cores(machine, eqn, operands)
    kernel = eqn.kernel
    results: list[Any] = []
    group = Group(None, iter(()), 1)
    cluster = Cluster(group, machine.clusters, (), (), ())
    cluster.cores = True
    machine.clusters += 1
    block = cluster.blocks[()]
    thread = Thread(machine, group, block, kernel.name, cluster.components.new(kernel.name))
    block.threads.append(thread)
    if machine.checker is not None:
        machine.checker.threads.starts(thread, None)
    if machine.timer is not None:
        machine.timer.starts(thread, None)
    machine.groups.append(group)

    def steps() -> Generator[Any, None, None]:
        results.extend((yield from grid_call(eqn)(thread, *operands)))

    machine.start(thread, kernel, ())
    thread.steps = steps()
    if not machine.run():
        deadlock(machine)
        results = [dtypes.unwritten(type.shape, type.dtype) for type in eqn.grid.output_types]
    return results
