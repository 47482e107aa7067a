"""`grid_call`, formed by `pallas_call`: a kernel run once for each point of a grid, on blocks of its arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, ControlEval, DischargeContext, Discharged, Literal, Op, Program, Run
from palladio.ops.kernel_inputs import KernelInputs, T
from palladio.types import dtypes
from palladio.types.effects import Effect
from palladio.types.types import ArrayType, RefType, Shape, Type
from palladio.types.views import Coordinate

Array = Any
INDEX = ArrayType((), dtypes.INT32)


@dataclass(frozen=True)
class Blocked:
    """A block of `block_size` elements; the index map gives the number of the block."""

    block_size: int


@dataclass(frozen=True)
class Squeezed:
    """A block of one element whose axis the kernel does not see; the index map gives the element."""


@dataclass(frozen=True)
class Element:
    """A block of `block_size` elements.

    The index map gives its first element, in the array with `padding` (before, after).
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoundedSlice:
    """A block of at most `block_size` elements; the index map gives `ds(start, size)`.

    Elements past `size` are uninitialised.
    """

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A block of `block_size` elements anywhere; the index map gives an i32[block_size] of their indices."""

    block_size: int


BlockDim = Blocked | Squeezed | Element | BoundedSlice | Indirect


@dataclass(frozen=True)
class BlockMap:
    """The cut of an array into blocks.

    Fields:
        dims: one block dimension per axis of the array.
        ref: the type of the reference that the kernel gets.
        index_map: (*grid indices: i32[], *references to the scalars) -> one index per axis; two (start, size) for a
            `BoundedSlice`.
        inside: for each axis, whether all blocks are proved to lie inside the array, after the pass `prove_inside`.
        stays: whether the kernel gets the array itself, which stays in main memory, rather than blocks of it.
    """

    dims: tuple[BlockDim, ...]
    ref: RefType
    index_map: Program
    inside: tuple[bool, ...] = field(default=(), metadata={"printed": "if set"})
    stays: bool = field(default=False, metadata={"printed": "if set"})

    @cached_property
    def axes(self) -> frozenset[int]:
        """The grid axes that the index map depends on."""
        atoms = {atom for eqn in self.index_map.eqns for atom in eqn.inputs} | set(self.index_map.outputs)
        ids = [var for var in self.index_map.inputs if isinstance(var.type, ArrayType)]
        return frozenset(axis for axis, var in enumerate(ids) if var in atoms)

    @cached_property
    def last_axis(self) -> int:
        """The last grid axis that the index map depends on, -1 if it depends on none."""
        return max(self.axes, default=-1)

    @cached_property
    def as_given(self) -> tuple[tuple[int | None, Any], ...] | None:
        """Each block index as a grid axis, or None and a number, if the index map computes nothing."""
        if self.index_map.eqns:
            return None
        axes = {var: axis for axis, var in enumerate(self.index_map.inputs)}
        return tuple(
            (None, atom.value) if isinstance(atom, Literal) else (axes[atom], None) for atom in self.index_map.outputs
        )

    @cached_property
    def contiguous(self) -> bool:
        """True if a block is a contiguous range of elements along each axis, all of them used."""
        return all(isinstance(dim, (Blocked, Squeezed, Element)) for dim in self.dims)

    @property
    def block_shape(self) -> Shape:
        """The shape of the block, squeezed axes left out."""
        return tuple(dim.block_size for dim in self.dims if not isinstance(dim, Squeezed))

    @cached_property
    def steps(self) -> tuple[tuple[int, int, int, bool], ...]:
        """For each axis of a contiguous block: elements between two indices, padding before, size, whether squeezed."""
        found = []
        for dim in self.dims:
            match dim:
                case Blocked(size):
                    found.append((size, 0, size, False))
                case Element(size, (before, _)):
                    found.append((1, before, size, False))
                case _:
                    found.append((1, 0, 1, True))
        return tuple(found)

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Along each axis of the array the positions of a contiguous block: operand n is the index of axis n."""
        rank, kept = len(self.block_shape), 0
        found = []
        for axis, (step, before, _, squeezed) in enumerate(self.steps):
            strides = tuple(int(not squeezed and other == kept) for other in range(rank))
            found.append(Coordinate(-before, ((axis, step),), strides))
            kept += not squeezed
        return tuple(found)

    def points(self, indices: Sequence[Any]) -> list[Array]:
        """The element indices along each axis; -1 where there is no element."""
        values = iter(indices)
        found = []
        for dim in self.dims:
            first = next(values)
            match dim:
                case Blocked(size):
                    found.append(int(first) * size + np.arange(size))
                case Element(size, (before, _)):
                    found.append(int(first) - before + np.arange(size))
                case BoundedSlice(size):
                    steps = np.arange(size)
                    found.append(np.where(steps < int(next(values)), int(first) + steps, -1))
                case Indirect():
                    found.append(np.asarray(first))
                case Squeezed():
                    found.append(np.asarray([int(first)]))
        return found


class Window(NamedTuple):
    """One block as a NumPy array: the kernel accesses `view`; `keep` writes it back if it is a copy."""

    view: Array
    array: Array
    inside: tuple[Any, ...] | None = None
    block: tuple[Any, ...] | None = None

    def keep(self) -> None:
        """Write the part of a copied block that lies inside its array back to it."""
        if self.inside is not None:
            spread = self.view.reshape([len(part) for part in self.block or ()])
            chosen = tuple(np.flatnonzero(part) for part in self.block or ())
            self.array[np.ix_(*self.inside)] = spread[np.ix_(*chosen)]


def window(array: Array, block: BlockMap, indices: Sequence[Any]) -> Window:
    """The block at these indices: a view where it lies inside the array, else a copy with the outside uninitialised."""
    if block.contiguous:
        cut: list[Any] = []
        for index, (step, before, size, squeezed), extent in zip(indices, block.steps, array.shape):
            start = int(index) * step - before
            if start < 0 or start + size > extent:
                break
            cut.append(start if squeezed else slice(start, start + size))
        else:
            return Window(array[(*cut, ...)], array)
    points = block.points(indices)
    valid = [(part >= 0) & (part < extent) for part, extent in zip(points, array.shape, strict=True)]
    inside = tuple(part[good] for part, good in zip(points, valid, strict=True))
    copy = dtypes.unwritten([len(part) for part in points], array.dtype)
    copy[np.ix_(*(np.flatnonzero(good) for good in valid))] = array[np.ix_(*inside)]
    return Window(copy.reshape(block.block_shape), array, inside, tuple(valid))


@dataclass(frozen=True)
class InitMarks:
    """The layout of the initialisation marks of an output, in bytes.

    Fields:
        counts: how many blocks the output has along each axis.
        axis: an axis of the output along which each position in a block has a separate mark; None for one per block.
        rows: the number of marks of a block.
    """

    counts: tuple[int, ...]
    axis: int | None = None
    rows: int = 1

    @property
    def size(self) -> int:
        """The number of bytes."""
        return math.prod(self.counts) * self.rows


@dataclass(frozen=True)
class BlockView:
    """The access of a step of a grid to a block of one array.

    Fields:
        access: `view` of the array, inside of which every block lies; `guarded`, a view where the block is inside, else
            a copy; `copy`, element by element.
        write_back: whether the kernel writes to the block, so that a copy is written back after the step.
    """

    access: str
    write_back: bool


@dataclass(frozen=True)
class OutputStart:
    """The values of an output when a call begins.

    Fields:
        kind: `stored`, none, since every element is stored before it is read; `alias`, those of an input; `marks`,
            none, but tasks set initialisation marks, and the rest is filled at the end; `fill`, uninitialised
            values.
        once: whether every element is stored once and never read.
        marks: the layout of the marks.
    """

    kind: str
    once: bool = False
    marks: InitMarks | None = None


@dataclass(frozen=True)
class Schedule:
    """The order of the points of a grid, and the steps around the kernel at each of them.

    Fields:
        tasks: the axes that are parallel loops: a task is a point of them.
        steps: the axes that are loops inside of a task, one step after the other, the outermost first.
        blocks: the access of a step to its blocks, inputs before outputs.
        starts: the initial values of each output.
    """

    tasks: tuple[int, ...]
    steps: tuple[int, ...]
    blocks: tuple[BlockView, ...]
    starts: tuple[OutputStart, ...]


def require_parallel_first(parallel: Sequence[bool]) -> None:
    """Refuse a parallel axis after one that is not parallel, where cores share the parallel axes.

    Raises:
        PalladioValueError: for such a grid.
    """
    if any(after and not before for before, after in itertools.pairwise(parallel)):
        raise PalladioValueError(
            "the parallel axes of a grid are its first ones, where cores share them",
            argument="compiler_params.dimension_semantics",
            got=", ".join("parallel" if each else "arbitrary" for each in parallel),
            hint="move the parallel axes to the front of the grid",
            jax="Dimensions with parallel semantics must form a prefix of the grid.",
        )


@dataclass(frozen=True, eq=False)
class Grid:
    """The parameters of a `grid_call`.

    Its operands are the sizes of dynamic grid axes, then the scalars, then the inputs. The kernel's inputs are the grid
    indices, the sizes of dynamic axes, then references to the scalars, inputs, outputs and scratch.

    Fields:
        sizes: of the axes; None for one known only at the call.
        scalars: how many operands are seen whole by the kernel and by index maps.
        inputs: the block map of each input.
        outputs: the block map of each output.
        output_types: the arrays that the call returns.
        scratch: buffers that persist from one step to the next.
        aliases: pairs (scalar or input, output) that begin with the same values.
        parallel: for each axis, whether the author declares its steps independent.
        schedule: the schedule, after the pass `schedule`.
        advice: other hints of the caller for a compiler, pairs of a name and a value. Results never depend on it.
        cores: the cores that share the parallel axes, which are the first ones, if the kernel waits: each has private
            memory for blocks, scalars and scratch. 0 for one thread that executes all steps in order.
    """

    sizes: tuple[int | None, ...]
    scalars: int
    inputs: tuple[BlockMap, ...]
    outputs: tuple[BlockMap, ...]
    output_types: tuple[ArrayType, ...]
    scratch: tuple[RefType, ...]
    aliases: tuple[tuple[int, int], ...]
    parallel: tuple[bool, ...]
    schedule: Schedule | None = field(default=None, metadata={"printed": "if set"})
    advice: tuple[tuple[str, Any], ...] = field(default=(), metadata={"printed": "if set"})
    cores: int = field(default=0, metadata={"printed": "if set"})

    @property
    def scheduled(self) -> Schedule:
        """The schedule, which must exist."""
        if self.schedule is None:
            raise InternalError("a grid is compiled before the pass 'schedule'")
        return self.schedule

    @property
    def dynamic(self) -> int:
        """The number of grid axes whose size is known only at the call."""
        return self.sizes.count(None)

    def split(self, values: Sequence[T]) -> KernelInputs[T]:
        """The inputs of the kernel, or one value for each of them, by role. The scalars are operands."""
        return KernelInputs.split(values, len(self.sizes), self.dynamic, len(self.output_types), len(self.scratch))

    @cached_property
    def positions(self) -> KernelInputs[int]:
        """The positions of the kernel's inputs, by role."""
        arrays = len(self.inputs) + len(self.outputs)
        return self.split(range(len(self.sizes) + self.dynamic + self.scalars + arrays + len(self.scratch)))


def extents(sizes: Sequence[int | None], given: Sequence[Any]) -> list[int]:
    """The sizes of all axes of a grid; a call supplies those that are None.

    Raises:
        PalladioValueError: one below 1.
    """
    rest = iter(given)
    found = [int(next(rest)) if size is None else size for size in sizes]
    if min(found, default=1) < 1:
        raise PalladioValueError("a grid size is at least 1", got=found)
    return found


def _grid_type(*operands: Type, grid: Grid, kernel: Program) -> Sequence[Type]:
    count = grid.dynamic
    if any(type != INDEX for type in operands[:count]):
        raise PalladioTypeError("a dynamic grid size is a scalar int32", got=", ".join(map(str, operands[:count])))
    arrays = operands[count + grid.scalars :]
    if len(arrays) != len(grid.inputs) or len(grid.output_types) != len(grid.outputs):
        raise PalladioValueError("a grid call has one block map per array", expected=len(grid.inputs), got=len(arrays))
    refs = [block.ref for block in (*grid.inputs, *grid.outputs)] + list(grid.scratch)
    given = kernel.input_types[len(grid.sizes) + count + grid.scalars :]
    if tuple(refs) != given:
        raise PalladioTypeError(
            "the kernel takes other references than its blocks",
            expected=", ".join(map(str, refs)),
            got=", ".join(map(str, given)),
        )
    for source, target in grid.aliases:
        if operands[count + source] != grid.output_types[target]:
            raise PalladioValueError(
                "an aliased input and output have one type",
                expected=str(grid.output_types[target]),
                got=str(operands[count + source]),
            )
    return grid.output_types


def _grid_eval(*operands: Any, grid: Grid, kernel: Program) -> ControlEval:
    count = grid.dynamic
    sizes = extents(grid.sizes, operands[:count])
    values = [np.asarray(value) for value in operands[count:]]
    outputs = [dtypes.unwritten(type.shape, type.dtype) for type in grid.output_types]
    for source, target in grid.aliases:
        outputs[target] = np.array(values[source])
    scratch = [dtypes.unwritten(ref.shape, ref.dtype) for ref in grid.scratch]
    written, positions = kernel.written, grid.positions
    values = [
        np.array(value) if n in written else _read_only(value)
        for n, value in zip(positions.operands, values, strict=True)
    ]
    scalars, arrays = values[: grid.scalars], [*values[grid.scalars :], *outputs]
    copied = set()
    for source, target in grid.aliases:
        number, place = source - grid.scalars, positions.operands[source]
        if number >= 0 and place in kernel.read and place not in written:
            arrays[number] = outputs[target]
            copied |= {number, len(grid.inputs) + target}
    blocks = (*grid.inputs, *grid.outputs)
    extra = tuple(np.int32(size) for size, known in zip(sizes, grid.sizes, strict=True) if known is None)
    # If the kernel writes to its scalars, an index map may have other results for the same grid indices.
    steady = written.isdisjoint(positions.operands[: grid.scalars])
    walks = [
        _Walk(array, block, steady, n in written, number in copied and not block.stays)
        for number, (n, array, block) in enumerate(zip(positions.arrays[grid.scalars :], arrays, blocks, strict=True))
    ]
    kept = [walk for walk in walks if walk.written]
    in_turn = [*walks[len(grid.inputs) :], *walks[: len(grid.inputs)]]  # blocks are stored before others are fetched
    for ids, moved in _points(sizes):
        for walk in in_turn:
            if moved <= walk.last_axis or not walk.lasts:
                given = walk.block.as_given
                if given is not None:
                    walk.move([value if axis is None else ids[axis] for axis, value in given])
                else:
                    walk.move((yield Run(walk.block.index_map, (*ids, *scalars))))
        yield Run(kernel, (*ids, *extra, *scalars, *[walk.window.view for walk in walks], *scratch))
        for walk in kept:
            if not walk.copied:
                walk.keep()
    for walk in kept:
        walk.keep()
    return outputs


def _points(sizes: Sequence[int]) -> Iterator[tuple[tuple[np.int32, ...], int]]:
    """The points of the grid, the last axis fastest; each with the first axis that moved, -1 at the first point."""
    before: tuple[np.int32, ...] | None = None
    for point in itertools.product(*([np.int32(index) for index in range(size)] for size in sizes)):
        moved = -1
        if before is not None:
            moved = next(axis for axis, index in enumerate(point) if index is not before[axis])
        yield point, moved
        before = point


class _Walk:
    """Iteration of one array over its blocks: the previous step's window is reused while its index stays.

    A copy that the kernel writes to is reused, too: what it stored past the edge lasts until the index changes.

    Args:
        copied: whether blocks are copies, since an input and an output are one memory. They are fetched, and stored,
            when the index changes.
    """

    __slots__ = ("array", "block", "copied", "home", "indices", "last_axis", "window", "written")

    def __init__(self, array: Array, block: BlockMap, steady: bool, written: bool, copied: bool) -> None:
        self.array = array
        self.block = block
        self.written = written
        self.copied = copied
        self.last_axis = block.last_axis if steady else len(block.index_map.inputs)
        self.indices: tuple[Any, ...] | None = None
        self.window = self.home = Window(array, array)

    @property
    def lasts(self) -> bool:
        """True if the window of this step is also that of the next one at the same index."""
        return self.window.inside is None or (self.written and self.block.contiguous)

    def move(self, found: Sequence[Any]) -> None:
        """Go to the block at these indices."""
        contiguous = self.block.contiguous
        if contiguous or self.copied:
            indices = tuple(map(int, found) if contiguous else (np.asarray(each).tolist() for each in found))
            if indices == self.indices and self.lasts:
                return
            if self.copied and self.written and self.indices is not None:
                self.keep()
            self.indices = indices
        self.window = self.home = window(self.array, self.block, found)
        if self.copied:
            copy = self.home.view.copy()
            self.window = Window(copy if self.written else _read_only(copy), self.array)

    def keep(self) -> None:
        """Write a copied block back to the array."""
        if self.copied:
            self.home.view[...] = self.window.view
        self.home.keep()


def _read_only(value: Array) -> Array:
    view = value.view()
    view.flags.writeable = False
    return view


def _grid_effects(*operands: Type, grid: Grid, kernel: Program) -> Iterator[Effect]:
    return (effect for effect in kernel.effects if effect.position is None)


def _grid_discharge(context: DischargeContext, *operands: Atom, grid: Grid, kernel: Program) -> Discharged:
    """A grid call takes arrays only; its references are internal."""
    return Discharged(context.emit(grid_call, *operands, grid=grid, kernel=kernel))


grid_call = Op(
    "grid_call",
    "Runs `kernel` for every point of the grid, the last axis fastest, on references to blocks of the arrays. "
    "Returns the outputs, which start uninitialised or as a copy of the input that they alias; blocks of that input "
    "are fetched from the output when their index changes, and its own are stored then. Axes marked parallel may run "
    "in any order.",
    _grid_type,
    _grid_eval,
    effects=_grid_effects,
    discharge=_grid_discharge,
    control=True,
)

RECORDS: dict[str, type] = {
    record.__name__: record
    for record in (
        *(Blocked, Squeezed, Element, BoundedSlice, Indirect, BlockMap, Grid),
        *(Schedule, BlockView, OutputStart, InitMarks),
    )
}
