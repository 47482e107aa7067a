"""A `grid_call` as the text of one LLVM function.

    i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)

runs the tasks from `first` below `last`. A task is a point of the parallel grid axes with all steps of the others, in
order. `arrays` are the addresses of the scalars, inputs and outputs; `sizes` are the grid's, then the rows of each of
these arrays; `arena` is the thread's memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import ExitStack

from palladio.cpu.access.block_views import DenseBlock, GatheredBlock, first_element, first_step, window_of
from palladio.cpu.analysis.work import transcendentals, work_estimate
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import Allocation, Arena, StridedArray, array_in, number_array, write
from palladio.cpu.emit.llvm_types import I64, PTR
from palladio.cpu.emit.scope import Binding, BlockMarks, Function, RefBinding, Scope, ThreadState
from palladio.cpu.launches.control_flow import own_site
from palladio.cpu.launches.coroutines import SingleThread
from palladio.cpu.lowered import LoweredGrid
from palladio.cpu.row_passes import run_row_group
from palladio.cpu.rule_table import LAUNCHED, REFUSED, REFUSED_IN_LAUNCHES, RULES
from palladio.cpu.rules.control import allocated
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import LIGHT
from palladio.ir.core import Program, Work, walk
from palladio.lower.grids.parallelize import has_own_blocks
from palladio.lower.grids.refetched import maps_by_data, require_fetched_first
from palladio.ops.grid import BlockMap, BlockView, Grid
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType, Type
from palladio.types.views import row_major


def lower_grid(grid: Grid, kernel: Program, operands: Sequence[Type], light: bool = False) -> LoweredGrid:
    """The LLVM function of a `grid_call`.

    Args:
        operands: the types of the call's operands.
        light: whether a call takes only microseconds.

    Raises:
        Refused: if something is not compiled, with the reason.
    """
    require_fetched_first(grid, kernel, "the CPU")
    return _GridFunction(grid, kernel, operands).emit(f" {LIGHT}" if light else "")


def axes_of(block: BlockMap) -> set[int]:
    """The grid axes that an index map uses."""
    atoms = {atom for eqn in block.index_map.eqns for atom in eqn.inputs} | set(block.index_map.outputs)
    ids = [var for var in block.index_map.inputs if isinstance(var.type, ArrayType)]
    return {axis for axis, var in enumerate(ids) if var in atoms}


def direct_axes_of(block: BlockMap) -> set[int]:
    """The grid axes whose index is the number of a block along an axis of the array."""
    ids = [var for var in block.index_map.inputs if isinstance(var.type, ArrayType)]
    return {axis for axis, var in enumerate(ids) if var in block.index_map.outputs}


def _is_large(type: ArrayType) -> bool:
    """True if little of an array is in a cache when a call begins."""
    return type.size * type.dtype.itemsize >= host.current().streamed_bytes


def rows_are_checked(block: BlockMap, view: BlockView) -> bool:
    """True if each block of an input is checked to lie within the rows that the array has at the call."""
    return view.access == "guarded" and bool(block.dims) and not any(block.inside[:1])


STREAMED_PART = 4
"""The divisor of `streamed_bytes` for the size of the smallest output that is written past the caches, in a call whose
arrays together reach `streamed_bytes`."""


class _GridFunction:
    """A function under construction."""

    def __init__(self, grid: Grid, kernel: Program, operands: Sequence[Type]) -> None:
        self.grid = grid
        self.kernel = kernel
        self.e = Emitter()
        self.arena = Arena(V("%arena", PTR))
        self.alone = SingleThread(self.e, self.arena, LAUNCHED, REFUSED_IN_LAUNCHES) if kernel.synchronises else None
        self.function = self.alone or Function(self.e, self.arena, RULES, REFUSED)
        self.function.together = run_row_group if self.alone is None and not grid.aliases else None
        arrays = [type for type in operands[grid.dynamic :] if isinstance(type, ArrayType)]
        self.types = [*arrays, *grid.output_types]
        self.blocks: list[BlockMap] = [*grid.inputs, *grid.outputs]
        self.schedule = grid.scheduled
        self.noted = {n: start.marks for n, start in enumerate(self.schedule.starts) if start.marks is not None}
        self.written = [block.write_back for block in self.schedule.blocks]

    def emit(self, attributes: str = "") -> LoweredGrid:
        """The whole module.

        Args:
            attributes: of the function, each after a space.
        """
        e = self.e
        steady = [False] * self.grid.scalars + [not written for written in self.written]
        streamed = self.streamed()
        self.places = [
            RefBinding(
                Allocation(f"array{n}", steady[n], n in streamed, self.exclusive(n), _is_large(type)),
                self.whole(n, type),
            )
            for n, type in enumerate(self.types)
        ]
        self.function.notes = ThreadState(e, self.arena)
        caller = self.arena.size
        self.function.caller = self.arena.buffer(e, (1,), dtypes.INT64).base
        self.marks = self.mark_places()
        self.sizes = [self.size(axis, known) for axis, known in enumerate(self.grid.sizes)]
        with e.loop(V("%first", I64), V("%last", I64)) as task:
            self.scratch = [self.allocated(ref) for ref in self.grid.scratch]
            self.copy_scalars()
            self.steps(e.index(task))
        e.finish_streams()
        e.line("ret i32 0")
        declared = "\n".join(e.declared[name] for name in sorted(e.declared))
        parameters = "ptr noalias %arrays, ptr noalias %sizes, ptr noalias %arena, i64 %first, i64 %last"
        head = f"define i32 @kernel({parameters}){attributes} {{"
        size = f"@arena_size = internal constant i64 {self.arena.size}"
        text = "\n".join([size, declared, head, "entry:", *self.function.slots, *e.lines, "}", ""])
        status = caller if self.function.reads_status else None
        words = 0 if self.function.notes is None else self.function.notes.used
        maps = maps_by_data(self.grid, self.kernel)
        return LoweredGrid(text, self.arena.size, words, self.noted, self.function.callbacks, status, self.order, maps)

    def exclusive(self, number: int) -> bool:
        """True if different tasks have different blocks of an array."""
        if self.alone is not None or number < self.grid.scalars:
            return False
        block = self.blocks[number - self.grid.scalars]
        tasks = [axis for axis in self.schedule.tasks if self.grid.sizes[axis] != 1]
        return all(has_own_blocks(self.grid, block, axis) for axis in tasks)

    def streamed(self) -> set[int]:
        """The arrays that are written past the caches: large ones of a call whose arrays together exceed these."""
        first, least = len(self.types) - len(self.grid.outputs), host.current().streamed_bytes
        sizes = [type.size * type.dtype.itemsize for type in self.types]
        once = {first + n for n, start in enumerate(self.schedule.starts) if start.once}
        return {n for n in once if sum(sizes) >= least and STREAMED_PART * sizes[n] >= least}

    def allocated(self, ref: RefType) -> RefBinding:
        """A buffer of scratch."""
        return allocated(self.scope(), ref) if self.alone is None else own_site(self.alone, ref)

    def copy_scalars(self) -> None:
        """Give a task, which is a core, its own copy of the scalars that the kernel changes."""
        e = self.e
        if self.alone is None or not self.schedule.tasks:
            return
        for number, position in enumerate(self.grid.positions.operands[: self.grid.scalars]):
            if position in self.kernel.written:
                given = self.places[number].buffer
                own = self.arena.buffer(e, given.shape, given.dtype)
                write(e, array_in(e, given), own)
                self.places[number] = RefBinding(Allocation(f"scalar{number}"), own)

    def mark_places(self) -> dict[int, V]:
        """The address of the marks of each output, by its number among the blocks."""
        if not self.noted:
            return {}
        e = self.e
        self.nowhere = self.arena.buffer(e, (max(each.rows for each in self.noted.values()),), dtypes.BOOL).base
        base = e.load(PTR, e.pointer(V("%arrays", PTR), len(self.types), 8), 8)
        places, offset = {}, 0
        for output, marks in self.noted.items():
            places[len(self.grid.inputs) + output] = e.pointer(base, offset, 1)
            offset += marks.size
        return places

    def scope(self) -> Scope:
        """A scope without equations, for rules that need one."""
        return Scope(self.function, Program((), (), ()), ())

    def whole(self, number: int, type: ArrayType) -> StridedArray:
        address = self.e.pointer(V("%arrays", PTR), number, 8)
        return StridedArray(self.e.load(PTR, address, 8), row_major(type.shape), type.shape, type.dtype)

    def size(self, axis: int, known: int | None) -> Int:
        return known if known is not None else self.e.load(I64, self.e.pointer(V("%sizes", PTR), axis, 8), 8)

    def steps(self, task: V) -> None:
        """All steps of one task: the parallel axes come from its number, the others are loops."""
        e = self.e
        tasks = self.schedule.tasks
        ids: list[Int] = [V("%" + e.fresh("id"), I64) if axis in tasks else 0 for axis in range(len(self.sizes))]
        self.next_ids: list[Int] = []
        before = len(e.lines)
        with ExitStack() as stack:
            for axis in self.schedule.steps:
                known = self.grid.sizes[axis]
                ids[axis] = stack.enter_context(e.loop(0, self.sizes[axis]))
                self.function.innermost = (0, 1) if known is None else (ids[axis], known)
            self.step(ids)
        # The packed operands are known only now, and with them the task order that reuses most of them.
        body = e.lines[before:]
        del e.lines[before:]
        self.place_task(task, tasks, ids)
        e.lines += body

    def place_task(self, task: V, parallel: Sequence[int], ids: Sequence[Int]) -> None:
        """The parallel grid indices of a task. Axes that select packed blocks vary slowest.

        Of these, the ones that are looked up in a table, as that of the groups of rows, vary slowest: tasks at the
        same time, and those one after the other, then use the same rows.
        """
        e = self.e
        blocks = zip(self.blocks, self.places[self.grid.scalars :], strict=True)
        packed = [block for block, place in blocks if place.memory in self.function.packed]
        choosing = {axis for block in packed for axis in axes_of(block)}
        direct = {axis for block in packed for axis in direct_axes_of(block)}
        self.order = tuple(sorted(parallel, key=lambda axis: (axis in choosing, axis in choosing - direct, -axis)))
        self.place_indices(task, ids)
        if self.next_ids:
            count: Int = 1
            for axis in self.order:
                count = e.mul(count, self.sizes[axis])
            following = e.intrinsic("smin", I64, e.index(e.add(task, 1)), e.index(e.sub(count, 1)))
            self.place_indices(following, self.next_ids)

    def place_indices(self, task: Int, ids: Sequence[Int]) -> None:
        """The parallel grid indices of a task, in their order."""
        e, left = self.e, task
        for axis in self.order:
            size = e.index(self.sizes[axis])
            e.line(f"{ids[axis].text} = srem i64 {e.index(left).text}, {size.text}")  # type: ignore[union-attr]
            left = e.binary("sdiv", e.index(left), size)

    def step(self, ids: Sequence[Int]) -> None:
        """One grid point: the blocks, the kernel, and edge blocks written back."""
        sequential = [axis for axis in self.schedule.steps if self.grid.sizes[axis] != 1]
        if sequential:
            self.function.poll(work_estimate(self.kernel))
        numbers = [number_array(self.e, index) for index in ids]
        extra = [number_array(self.e, s) for s, known in zip(self.sizes, self.grid.sizes, strict=True) if known is None]
        scalars, arrays = self.places[: self.grid.scalars], self.places[self.grid.scalars :]
        self.function.later, self.function.following = {}, {}
        first = first_step(self.e, self.grid, self.sizes, ids, self.schedule.steps)
        windows = [
            self.window(*each, [*numbers, *scalars], first)
            for each in zip(range(len(self.blocks)), self.blocks, self.schedule.blocks, arrays, strict=True)
        ]
        for block, place, window in zip(self.blocks, arrays, windows, strict=True):
            moves = axes_of(block).intersection(sequential[-1:])
            across = axes_of(block).intersection(self.schedule.tasks)
            if place.memory.steady and isinstance(window, DenseBlock) and moves:
                later = functools.partial(self.later, block, place, ids, *moves)
                self.function.later[place.memory] = window.buffer, later
                self.function.following[place.memory] = window.buffer, functools.partial(later, 1)
            elif place.memory.steady and isinstance(window, DenseBlock) and not sequential and across:
                after = functools.partial(self.of_next_task, block, place)
                self.function.following[place.memory] = window.buffer, after
        self.function.ahead = self.ahead(ids, windows)
        refs = [
            RefBinding(place.memory, window.buffer, self.start(n, window))
            for n, (place, window) in enumerate(zip(arrays, windows, strict=True))
        ]
        inputs: list[Binding] = [*numbers, *extra, *scalars, *refs, *self.scratch]
        self.function.run(self.kernel, inputs)
        for window, is_written in zip(windows, self.written, strict=True):
            if is_written:
                window.write_back()

    def window(
        self,
        number: int,
        block: BlockMap,
        view: BlockView,
        place: RefBinding,
        inputs: Sequence[Binding],
        first: V | None,
    ) -> DenseBlock | GatheredBlock:
        """A block of an array at a grid point; `inputs` are the point's indices and the scalars, for its index map."""
        indices = self.function.run(block.index_map, inputs)
        rows = None
        if number < len(self.grid.inputs) and rows_are_checked(block, view):
            place_of_rows = len(self.sizes) + self.grid.scalars + number
            rows = self.e.load(I64, self.e.pointer(V("%sizes", PTR), place_of_rows, 8), 8)
        return window_of(self.scope(), block, view, place.buffer, indices, rows, first)

    def ahead(self, ids: Sequence[Int], windows: Sequence[DenseBlock | GatheredBlock]) -> dict[Allocation, V]:
        """The byte distance from the blocks of a step to those of the next one, if they move on and the step is small.

        Products prefetch their operands themselves, and a kernel that computes little keeps memory busy anyway: there
        prefetches only delay its own loads and stores.
        """
        moving = [axis for axis, size in enumerate(self.grid.sizes) if size != 1]
        if not moving or any(eqn.op.work is Work.PRODUCT for eqn in walk(self.kernel)):
            return {}
        if transcendentals(self.kernel) < max((math.prod(block.block_shape) for block in self.blocks), default=0):
            return {}
        e, axis = self.e, max(moving, key=lambda axis: (axis in self.schedule.steps, axis))
        found = {}
        for block, place, window in zip(self.blocks, self.places[self.grid.scalars :], windows, strict=True):
            size = math.prod(block.block_shape) * place.buffer.dtype.itemsize
            if (
                not place.memory.steady
                or not isinstance(window, DenseBlock)
                or size > host.current().fetched_bytes
                or axis not in axes_of(block)
            ):
                continue
            following = self.later(block, place, ids, axis, 1)
            there, here = (e.value(I64, f"ptrtoint {base} to i64") for base in (following, window.buffer.base))
            found[place.memory] = e.binary("sub", there, here)
        return found

    def later(self, block: BlockMap, place: RefBinding, ids: Sequence[Int], axis: int, distance: int) -> V:
        """The address of the block a number of steps later along a grid axis."""
        e = self.e
        moved, last = list(ids), e.sub(self.sizes[axis], 1)
        moved[axis] = e.intrinsic("smin", I64, e.index(e.add(ids[axis], distance)), e.index(last))
        inputs = [*(number_array(e, index) for index in moved), *self.places[: self.grid.scalars]]
        return first_element(self.scope(), block, place.buffer, self.function.run(block.index_map, inputs))

    def of_next_task(self, block: BlockMap, place: RefBinding) -> V:
        """The address of the next task's block."""
        if not self.next_ids:
            tasks, axes = self.schedule.tasks, range(len(self.sizes))
            self.next_ids = [V("%" + self.e.fresh("id"), I64) if axis in tasks else 0 for axis in axes]
        inputs = [*(number_array(self.e, index) for index in self.next_ids), *self.places[: self.grid.scalars]]
        return first_element(self.scope(), block, place.buffer, self.function.run(block.index_map, inputs))

    def start(self, number: int, window: DenseBlock | GatheredBlock) -> BlockMarks | None:
        """The address of a block's initialisation marks, if it has any."""
        if number not in self.marks or isinstance(window, GatheredBlock):
            return None
        return window.start(self.marks[number], self.noted[number - len(self.grid.inputs)], self.nowhere)
