"""A `grid_call` as the text of one LLVM function.

    i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)

runs the tasks from `first` below `last`. A task is a point of the parallel grid axes with all steps of the others, in
order. `arrays` are the addresses of the scalars, inputs and outputs, `sizes` the grid's, `arena` the thread's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from palladio.cpu import registers
from palladio.cpu.emit import Emitter, Index, V
from palladio.cpu.rules import REFUSED, RULES
from palladio.cpu.rules.control import allocated, fill
from palladio.cpu.rules.memory import View, as_index, inside, one_by_one
from palladio.cpu.scope import Entry, Function, Notes, Place, Refused, Scope
from palladio.cpu.tiles import Arena, Buffer, Memory, row_major, scalar_tile
from palladio.ir.program import Program
from palladio.ops.grid import Blocked, BlockMap, Element, Grid, Squeezed
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.types import ArrayType, Type


@dataclass(frozen=True)
class Lowered:
    """The text of a module with one function `kernel`, and how many bytes of arena a thread needs."""

    text: str
    arena: int


def lower_grid(grid: Grid, kernel: Program, operands: Sequence[Type]) -> Lowered:
    """The LLVM function of a `grid_call`.

    Args:
        operands: the types of the call's operands.

    Raises:
        Refused: for what is not compiled, with the reason.
    """
    return _GridFunction(grid, kernel, operands).emit()


def axes_of(block: BlockMap) -> set[int]:
    """The grid axes that an index map looks at."""
    atoms = {atom for eqn in block.index_map.eqns for atom in eqn.inputs} | set(block.index_map.outputs)
    ids = [var for var in block.index_map.inputs if isinstance(var.type, ArrayType)]
    return {axis for axis, var in enumerate(ids) if var in atoms}


class _GridFunction:
    """One function while it is written."""

    def __init__(self, grid: Grid, kernel: Program, operands: Sequence[Type]) -> None:
        self.grid = grid
        self.kernel = kernel
        self.e = Emitter()
        self.arena = Arena(V("%arena", "ptr"))
        self.function = Function(self.e, self.arena, RULES, REFUSED)
        arrays = [type for type in operands[grid.dynamic :] if isinstance(type, ArrayType)]
        self.types = [*arrays, *grid.output_types]
        self.blocks: list[BlockMap] = [*grid.inputs, *grid.outputs]
        written = {e.position for e in kernel.effects if e.position is not None and e.kind is not EffectKind.READ}
        first = len(grid.sizes) + grid.dynamic + grid.scalars
        self.written = [first + n in written for n in range(len(self.blocks))]

    def emit(self) -> Lowered:
        """The whole module."""
        for type in (*self.types, *self.grid.scratch):
            if not registers.is_compiled(type.dtype):
                raise Refused(f"{type.dtype} is not compiled for the CPU")
        e = self.e
        steady = [False] * self.grid.scalars + [not written for written in self.written]
        self.places = [Place(Memory(f"array{n}", steady[n]), self.whole(n, type)) for n, type in enumerate(self.types)]
        self.function.notes = Notes(e, self.arena)
        self.sizes = [self.size(axis, known) for axis, known in enumerate(self.grid.sizes)]
        with e.loop(V("%first", "i64"), V("%last", "i64")) as task:
            self.scratch = [allocated(self.scope(), ref) for ref in self.grid.scratch]
            self.steps(e.index(task))
        e.line("ret i32 0")
        declared = "\n".join(e.declared[name] for name in sorted(e.declared))
        head = (
            "define i32 @kernel(ptr noalias %arrays, ptr noalias %sizes, ptr noalias %arena, i64 %first, i64 %last) {"
        )
        size = f"@arena_size = internal constant i64 {self.arena.size}"
        text = "\n".join([size, declared, head, "entry:", *self.function.slots, *e.lines, "}", ""])
        return Lowered(text, self.arena.size)

    def scope(self) -> Scope:
        """A scope of no equations, for what rules want to know of one."""
        return Scope(self.function, Program((), (), ()), ())

    def whole(self, number: int, type: ArrayType) -> Buffer:
        address = self.e.pointer(V("%arrays", "ptr"), number, 8)
        return Buffer(self.e.load("ptr", address, 8), row_major(type.shape), type.shape, type.dtype)

    def size(self, axis: int, known: int | None) -> Index:
        return known if known is not None else self.e.load("i64", self.e.pointer(V("%sizes", "ptr"), axis, 8), 8)

    def steps(self, task: V) -> None:
        """All steps of one task: the parallel axes come from its number, the others are loops."""
        e = self.e
        parallel = [axis for axis, parallel in enumerate(self.grid.parallel) if parallel]
        ids: list[Index] = [V("%" + e.fresh("id"), "i64") if axis in parallel else 0 for axis in range(len(self.sizes))]
        before = len(e.lines)
        with ExitStack() as stack:
            for axis, known in enumerate(self.grid.sizes):
                if axis not in parallel:
                    ids[axis] = stack.enter_context(e.loop(0, self.sizes[axis]))
                    self.function.innermost = (0, 1) if known is None else (ids[axis], known)
            self.step(ids)
        # Only now is known what was packed, and so in which order the tasks find most of it still packed.
        body = e.lines[before:]
        del e.lines[before:]
        self.place_task(task, parallel, ids)
        e.lines += body

    def place_task(self, task: V, parallel: Sequence[int], ids: Sequence[Index]) -> None:
        """The parallel grid indices of a task. Those that choose among packed blocks change slowest."""
        e = self.e
        first = self.grid.scalars
        choosing = {
            axis
            for block, place in zip(self.blocks, self.places[first:], strict=True)
            if place.memory in self.function.packed
            for axis in axes_of(block)
        }
        left: Index = task
        for axis in sorted(parallel, key=lambda axis: (axis in choosing, -axis)):
            size = e.index(self.sizes[axis])
            e.line(f"{ids[axis].text} = srem i64 {e.index(left).text}, {size.text}")  # type: ignore[union-attr]
            left = e.binary("sdiv", e.index(left), size)

    def step(self, ids: Sequence[Index]) -> None:
        """One grid point: the blocks, the kernel, and edge blocks written back."""
        numbers = [self.number(index) for index in ids]
        extra = [self.number(s) for s, known in zip(self.sizes, self.grid.sizes, strict=True) if known is None]
        scalars, arrays = self.places[: self.grid.scalars], self.places[self.grid.scalars :]
        windows = [
            _Window(self, block, place, [*numbers, *scalars]) for block, place in zip(self.blocks, arrays, strict=True)
        ]
        refs = [Place(place.memory, window.buffer) for place, window in zip(arrays, windows, strict=True)]
        inputs: list[Entry] = [*numbers, *extra, *scalars, *refs, *self.scratch]
        self.function.run(self.kernel, inputs)
        for window, is_written in zip(windows, self.written, strict=True):
            if is_written:
                window.write_back()

    def number(self, index: Index) -> Entry:
        """A grid index or size as the i32 scalar that programs see."""
        value = V(str(index), "i32") if isinstance(index, int) else self.e.convert("trunc", index, "i32")
        return scalar_tile(self.e, value, dtypes.INT32)


class _Window:
    """One block at one grid point: a view of its array, or a copy where it reaches past the edge."""

    def __init__(self, owner: _GridFunction, block: BlockMap, place: Place, inputs: Sequence[Entry]) -> None:
        if not block.contiguous:
            raise Refused("blocks by BoundedSlice and Indirect are not compiled for the CPU")
        self.e = owner.e
        self.view = View(place.buffer)
        scope = owner.scope()
        indices = [as_index(scope, tile) for tile in owner.function.run(block.index_map, inputs)]
        self.cut(block, place.buffer, indices)
        guard = self.e.truth(self.view.guards)
        self.outside: V | None = None
        self.buffer = self.view.buffer
        if guard is None:
            return
        self.outside = self.e.binary("xor", guard, V("true", "i1"))
        self.copy = owner.arena.buffer(self.e, self.buffer.shape, self.buffer.dtype)
        with self.e.when(self.outside):
            fill(self.e, self.copy, dtypes.uninitialized(self.copy.dtype))
            one_by_one(self.e, self.copy.shape, self.copy_in)
        strides = tuple(
            self.e.choose(guard, there, here)
            for there, here in zip(self.buffer.strides, self.copy.strides, strict=True)
        )
        base = self.e.select(guard, self.buffer.base, self.copy.base)
        self.buffer = Buffer(base, strides, self.copy.shape, self.copy.dtype)

    def cut(self, block: BlockMap, array: Buffer, indices: Sequence[V]) -> None:
        """The view of the block, and the conditions under which all of it is inside."""
        e = self.e
        offset: Index = 0
        strides: list[Index] = []
        for dim, index, stride, extent in zip(block.dims, indices, array.strides, array.shape, strict=True):
            known = int(index.text) if not index.text.startswith("%") else None
            position: Index = index if known is None else known
            size = 1 if isinstance(dim, Squeezed) else dim.block_size
            if isinstance(dim, Blocked):
                position = e.mul(position, size)
            elif isinstance(dim, Element):
                position = e.sub(position, dim.padding[0])
            if isinstance(position, V) or not 0 <= position <= extent - size:
                last = extent - size
                always_outside = V("false", "i1")
                fits = e.compare("icmp ule", e.index(position), V(str(last), "i64")) if last >= 0 else always_outside
                self.view.guards.append(fits)
            dropped = isinstance(dim, Squeezed)
            # A position that is checked must be a value, known or not.
            self.view.bounds.append((e.index(position), None if dropped else size, 1, extent))
            offset = e.add(offset, e.mul(position, stride))
            if not dropped:
                strides.append(stride)
        base = e.pointer(array.base, offset, array.dtype.itemsize)
        self.view.buffer = Buffer(base, tuple(strides), block.block_shape, array.dtype)

    def copy_in(self, index: Sequence[Index]) -> None:
        with self.e.when(inside(self.e, self.view, index)):
            self.copy.put(self.e, index, self.view.buffer.at(self.e, index, 1), 1)

    def write_back(self) -> None:
        """Write what is inside back to the array."""
        if self.outside is None:
            return

        def element(index: Sequence[Index]) -> None:
            with self.e.when(inside(self.e, self.view, index)):
                self.view.buffer.put(self.e, index, self.copy.at(self.e, index, 1), 1)

        with self.e.when(self.outside):
            one_by_one(self.e, self.copy.shape, element)
