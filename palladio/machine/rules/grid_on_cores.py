"""Grids on the cores of a TPU, by the rules of Pallas' interpreter.

The parallel axes must be the first ones. Their points are divided over the cores, in a random order of the indices
along each of them; a core executes its share in order. It has private memory for blocks, prefetched scalars and
scratch: a block is fetched from main memory when its index changes, and one of an output is stored there when its index
is about to change. All cores share main memory.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.threefry import key_of, permutation, split
from palladio.ir.core import Eqn
from palladio.ir.evaluate import evaluate
from palladio.machine.check.deadlock import deadlock
from palladio.machine.check.order.threads import epoch
from palladio.machine.check.shadow import Access
from palladio.machine.rules.block_visits import BlockVisits
from palladio.machine.rules.launch import allocate_for
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.coroutines import run_program
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Block, Cluster, Group, Thread
from palladio.ops.grid import BlockMap, Grid, extents, require_parallel_first, window
from palladio.ops.threads.launch import MeshAxis
from palladio.types.transforms import Index, Operand, SliceEntry
from palladio.types.types import HBM, RefType

Point = tuple[int, ...]


class Shares:
    """The points of a grid in the order of execution, and the share of each core.

    Args:
        seed: seed for the order of the indices along parallel axes.

    Raises:
        PalladioValueError: a parallel axis after one that is not parallel.
    """

    def __init__(self, grid: Grid, sizes: Sequence[int], cores: int, seed: int) -> None:
        require_parallel_first(grid.parallel)
        self.sizes = sizes
        self.orders: list[Sequence[int]] = []
        key = key_of(seed)
        for size, parallel in zip(sizes, grid.parallel, strict=True):
            if parallel:
                key, drawn = split(key)
            self.orders.append(permutation(drawn, size).tolist() if parallel else range(size))
        shared = math.prod(size for size, parallel in zip(sizes, grid.parallel, strict=True) if parallel)
        self.total = math.prod(sizes)
        self.each = -(-shared // cores) * (self.total // shared)

    def of(self, core: int) -> list[Point]:
        """The points of a core."""
        first, end = (min((core + more) * self.each, self.total) for more in (0, 1))
        return [
            tuple(order[int(n)] for order, n in zip(self.orders, np.unravel_index(number, self.sizes), strict=True))
            for number in range(first, end)
        ]


@dataclass
class _Operand:
    """An input or output of the grid on one core.

    Fields:
        whole: its array in main memory.
        held: the core's memory for its block; `whole` if the kernel gets the array itself.
        fetched, stored: whether blocks are loaded from main memory, and stored there.
        at: the index map's results for the current block; None before the first.
    """

    block: BlockMap
    whole: Buffer
    held: Buffer
    fetched: bool
    stored: bool
    at: tuple[Any, ...] | None = None


class _Run:
    """One run of a grid: main memory and the state that all cores share."""

    def __init__(self, machine: Machine, eqn: Eqn, operands: Sequence[Any]) -> None:
        grid, kernel = eqn.grid, eqn.kernel
        self.machine, self.eqn, self.grid, self.kernel = machine, eqn, grid, kernel
        self.sizes = extents(grid.sizes, operands[: grid.dynamic])
        self.cores = machine.cores or grid.cores
        self.shares = Shares(grid, self.sizes, self.cores, machine.grid_seed)
        self.extra = operands[: grid.dynamic]
        values = [np.asarray(value) for value in operands[grid.dynamic :]]
        self.scalars, arrays = values[: grid.scalars], values[grid.scalars :]
        self.vars = grid.split(kernel.inputs)
        self.written = [n in kernel.written for n in grid.positions.arrays]
        self.aliased = {target: source - grid.scalars for source, target in grid.aliases}
        self.whole = self._main_memory(arrays)
        self._places: dict[Any, Any] = {}

    def name(self, number: int) -> str:
        """The kernel's name for a scalar, input or output."""
        return self.vars.arrays[number].hint or f"block {number}"

    def _main_memory(self, arrays: Sequence[Any]) -> list[Buffer]:
        grid, first = self.grid, self.grid.scalars
        outputs: list[Buffer] = []
        for n, type in enumerate(grid.output_types):
            source = self.aliased.get(n)
            start = np.full(type.shape, RefType(type.shape, type.dtype).initial, type.dtype)
            values = (self.scalars + list(arrays))[first + source].copy() if source is not None else start
            outputs.append(self._buffer(first + len(arrays) + n, values, source is not None, True))
        sources = {source: outputs[target] for target, source in self.aliased.items()}
        found = []
        for n, (block, values) in enumerate(zip(grid.inputs, arrays, strict=True)):
            changes = block.stays and self.written[first + n]
            own = sources.get(n)
            found.append(own or self._buffer(first + n, np.array(values) if changes else values, True, changes))
        return [*found, *outputs]

    def _buffer(self, number: int, values: Any, initialised: bool, written: bool) -> Buffer:
        buffer = Buffer(RefType(values.shape, values.dtype, HBM), self.name(number), None, values)
        self.machine.allocated(buffer, initialised, written)
        return buffer

    def operands(self, thread: Thread) -> list[_Operand]:
        """The inputs and outputs for one core."""
        found = []
        for n, block in enumerate((*self.grid.inputs, *self.grid.outputs)):
            number, output = self.grid.scalars + n, n - len(self.grid.inputs)
            held = self.whole[n] if block.stays else allocate_for(thread, block.ref, self.name(number))
            if output >= 0:  # stores to a block of an output reach main memory
                held.visible = True
            comes = not block.stays and (output < 0 or output in self.aliased)
            goes = not block.stays and output >= 0 and self.written[number]
            found.append(_Operand(block, self.whole[n], held, comes, goes))
        return found

    def prefetched(self, thread: Thread) -> list[Buffer]:
        """One core's copies of the scalars."""
        found = []
        for n, values in enumerate(self.scalars):
            buffer = Buffer(self.vars.arrays[n].type, self.name(n), thread.block, np.array(values))  # type: ignore[arg-type]
            buffer.owner = thread
            self.machine.allocated(buffer, True, self.written[n])
            found.append(buffer)
        return found

    def place(self, operand: _Operand) -> Any:
        """The part of main memory that holds a block: a stack of transforms, cached for its identity, and indices."""
        key = id(operand.whole), id(operand.block), operand.at
        found = self._places.get(key)
        if found is None:
            points = [
                part[(part >= 0) & (part < extent)]
                for part, extent in zip(operand.block.points(operand.at or ()), operand.whole.array.shape, strict=True)
            ]
            boxes = all(len(part) == 0 or part[-1] - part[0] == len(part) - 1 for part in points)
            if boxes:
                entries: Any = [SliceEntry(int(part[0]) if len(part) else 0, len(part)) for part in points]
            else:
                entries = [Operand(axis) for axis in range(len(points))]
            found = self._places[key] = ((Index(tuple(entries)),), () if boxes else np.ix_(*points))
        return found


class _Core:
    """One core of a run: its thread, its memory, and the blocks that it holds."""

    def __init__(self, run: _Run, thread: Thread) -> None:
        self.run, self.thread = run, thread
        self.blocks = run.operands(thread)
        self.scalars = run.prefetched(thread)
        self.values = [scalar.array for scalar in self.scalars]

    def steps(self, core: int) -> Generator[Any, None, None]:
        """Execute the core's share of the grid."""
        run, thread = self.run, self.thread
        points, grid = run.shares.of(core), run.grid
        names = [var.hint or "scratch" for var in run.vars.scratch]
        scratch = [allocate_for(thread, *each) for each in zip(grid.scratch, names, strict=True)]
        visits = BlockVisits(thread, grid, run.kernel, [whole.array.shape for whole in run.whole[: len(grid.inputs)]])
        places = self._found(points[0], visits) if points else []
        for number, point in enumerate(points):
            thread.trail = None, run.eqn, point
            if run.machine.grid_recorder is not None:
                run.machine.grid_recorder(np.int32(0), np.array(point, np.int32), np.int32(core))
            self._enter(places)
            ids = [np.int32(index) for index in point]
            held = [block.held for block in self.blocks]
            yield from run_program(thread, run.kernel, (*ids, *run.extra, *self.scalars, *held, *scratch))
            after = number + 1 < len(points)
            places = self._found(points[number + 1], visits) if after else [None] * len(places)
            self._leave(places)
        thread.trail = None
        if thread.checker is not None:
            thread.checker.scope_ends(thread, run.eqn, scratch)

    def _found(self, point: Point, visits: BlockVisits) -> list[Any]:
        """The results of the index maps at a point."""
        found: dict[Any, tuple[Any, ...]] = {}
        ids = [np.int32(index) for index in point]
        for block in self.blocks:
            index_map = block.block.index_map
            if index_map not in found:
                results = evaluate(index_map, (*ids, *self.values))
                found[index_map] = tuple(_plain(each) for each in results)
                visits.at(index_map, point, results)
        return [found[block.block.index_map] for block in self.blocks]

    def _enter(self, places: Sequence[Any]) -> None:
        """Begin a step: fetch the blocks that are not held."""
        for block, at in zip(self.blocks, places, strict=True):
            if block.at == at or block.block.stays:
                continue
            block.at = at
            if block.fetched:
                self._note(block, False, self.run.eqn)
                block.held.array[...] = _window(block).view
            elif self.run.machine.zeros:
                block.held.array[...] = 0
            else:
                block.held.array[...] = block.held.type.initial
            self._renewed(block)

    def _leave(self, places: Sequence[Any]) -> None:
        """Store the blocks of outputs that the next step does not use."""
        for block, at in zip(self.blocks, places, strict=True):
            if block.stored and block.at != at:
                self._note(block, True, self._writer(block))
                target = _window(block)
                target.view[...] = block.held.array
                target.keep()

    def _renewed(self, block: _Operand) -> None:
        """A core's memory now holds another block."""
        shadow = block.held.shadow
        if shadow is None:
            return
        if block.fetched:
            self._touch(block.held, (), (), True, self.run.eqn)
        else:
            shadow.unset(np.ones(block.held.array.shape, bool))

    def _note(self, block: _Operand, write: bool, site: Eqn) -> None:
        """Record the copy of a block from or to main memory."""
        if self.thread.checker is not None and block.whole.shadow is not None:
            self._touch(block.whole, *self.run.place(block), write, site)
            if write and block.held.shadow is not None:
                self._touch(block.held, (), (), False, self.run.eqn)

    def _touch(self, store: Buffer, stack: Any, indices: Any, write: bool, site: Eqn) -> None:
        thread = self.thread
        access = Access(
            thread.component, epoch(thread), site, thread.title, write, block=thread.block.key, trail=thread.trail
        )
        thread.checker.accesses.touch(thread, store, stack, indices, access, thread.generic, strict=False)

    def _writer(self, block: _Operand) -> Eqn:
        """The equation of the kernel that wrote a block, which reports show instead of the call."""
        shadow = block.held.shadow
        sites = [access.site for access, _ in shadow.writes()] if shadow is not None else []
        return next((site for site in reversed(sites) if site is not self.run.eqn), self.run.eqn)


def _plain(index: Any) -> Any:
    """The result of an index map as a comparable value."""
    array = np.asarray(index)
    return int(array) if array.ndim == 0 else tuple(array.tolist())


def _window(operand: _Operand) -> Any:
    return window(operand.whole.array, operand.block, operand.at or ())


def run_on_cores(machine: Machine, eqn: Eqn, operands: Sequence[Any]) -> Sequence[Any]:
    """Run a grid kernel on the cores of the machine and return its outputs."""
    run, kernel = _Run(machine, eqn, operands), eqn.kernel
    group = Group(None, iter(()), 1)
    count = run.cores
    axes, sizes = ((MeshAxis("core", count, "core"),), (count,)) if count > 1 else ((), ())
    cluster = Cluster(group, machine.clusters, (), axes, sizes)
    cluster.cores = True
    machine.clusters += 1
    machine.groups.append(group)
    threads = [_thread(machine, group, block, kernel.name) for block in cluster.blocks.values()]
    for core, thread in enumerate(threads):
        machine.start(thread, kernel, ())
        thread.steps = _Core(run, thread).steps(core)
    if not machine.run():
        deadlock(machine)
    return [whole.array for whole in run.whole[len(eqn.grid.inputs) :]]


def _thread(machine: Machine, group: Group, block: Block, name: str) -> Thread:
    label = f"{block.label} {name}" if block.place else name
    thread = Thread(machine, group, block, name, block.cluster.components.new(label))
    block.threads.append(thread)
    if machine.checker is not None:
        machine.checker.threads.starts(thread, None)
    if machine.timer is not None:
        machine.timer.starts(thread, None)
    return thread


__all__ = ["Shares", "run_on_cores"]
